// Package oteltrace records the calls of a weir stack as OpenTelemetry spans:
// one for each call, and under it one for each send, by the semantic conventions
// for HTTP clients. Each send carries its own span on to the server.
//
// It is a module of its own, so that users of weir do not download
// OpenTelemetry unless they use it.
//
//	cfg := transport.Config{Policy: p}
//	oteltrace.Instrument(&cfg)
//	t, err := transport.New(cfg)
package oteltrace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/stream"
	"github.com/weir-go/weir/transport"
)

// Option changes what [Instrument] does.
type Option func(*tracing)

// WithTracerProvider sets where spans go. The default is
// otel.GetTracerProvider().
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(t *tracing) { t.provider = p }
}

// WithPropagator sets how a send tells the server of its span. The default is
// otel.GetTextMapPropagator().
func WithPropagator(p propagation.TextMapPropagator) Option {
	return func(t *tracing) { t.propagator = p }
}

// Instrument makes the transport that is built of cfg record its calls: it adds
// to its Observer, and stands first among its Inner layers, so that the spans of
// sends include what the others do.
//
// The span of a call is a child of the caller's, and ends with the body. Its
// events are the waits, the refusals and the first content of a stream; its
// attributes are the route, the number of sends, and why there was no further
// one. The span of a send is of the client kind; one that another of its call outran
// is no error, and says weir.outrun, nor is what its caller canceled, which says
// weir.canceled. Any other failure has the status Error, and an error.type: the phase
// or layer that it happened in, with the word timeout after it if a limit passed, else
// the type of the error. A url.full has no query and no userinfo, and no header or body
// is recorded.
//
// Call it once for a Config, and before transport.New, whose transport is safe for
// concurrent use as ever. It does not fail.
func Instrument(cfg *transport.Config, options ...Option) {
	t := &tracing{provider: otel.GetTracerProvider(), propagator: otel.GetTextMapPropagator()}
	for _, o := range options {
		o(t)
	}
	t.tracer = t.provider.Tracer("github.com/weir-go/weir/layers/oteltrace")
	own := layers.Observers(layers.ObserverFunc(t.observe), layers.NewTracer(t.ended))
	if cfg.Observer != nil {
		own = layers.Observers(own, cfg.Observer)
	}
	cfg.Observer = own
	cfg.Inner = append([]layers.Layer{t.layer}, cfg.Inner...)
}

type tracing struct {
	provider   trace.TracerProvider
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	calls      sync.Map // of *layers.Call to *callSpan
}

// callSpan is the span of a call.
type callSpan struct {
	trace.Span

	broke atomic.Bool // the call has failed, and not since its caller gave it up
}

// observe begins the span of a call.
func (t *tracing) observe(ctx context.Context, e layers.Event) {
	call, ok := layers.CallFrom(ctx)
	if !ok || e.Kind != layers.KindStart {
		return
	}
	name := e.Route
	if name == "" {
		name = "HTTP call"
	}
	_, span := t.tracer.Start( //nolint:spancheck // The call's end ends it.
		ctx, name, trace.WithTimestamp(e.At), trace.WithAttributes(attribute.String("weir.route", e.Route)))
	t.calls.Store(call, &callSpan{Span: span})
} //nolint:spancheck // As above.

// ended ends the span of a call.
func (t *tracing) ended(ctx context.Context, r layers.Trace) {
	call, _ := layers.CallFrom(ctx)
	found, ok := t.calls.LoadAndDelete(call)
	if !ok {
		return
	}
	span := found.(*callSpan)
	span.SetAttributes(attribute.Int("weir.attempts", r.Attempts))
	if r.Reason != "" {
		span.SetAttributes(attribute.String("weir.reason", r.Reason))
	}
	for _, s := range r.Spans {
		attributes := []attribute.KeyValue{attribute.Int("weir.attempt", s.Attempt)}
		if s.Phase != "" {
			attributes = append(attributes, attribute.String("weir.phase", string(s.Phase)))
		}
		if e, ok := errors.AsType[*layers.Error](s.Err); ok && e.Reason != "" {
			attributes = append(attributes, attribute.String("weir.reason", e.Reason))
		}
		switch s.Kind {
		case layers.KindWait:
			attributes = append(attributes, attribute.Float64("weir.wait", s.End.Sub(s.Start).Seconds()))
		case layers.KindContent, layers.KindRefused, layers.KindFailure, layers.KindOpaque:
		default:
			continue
		}
		span.AddEvent(string(s.Kind), trace.WithTimestamp(s.Start), trace.WithAttributes(attributes...))
	}
	if r.Err != nil {
		span.broke.Store(!r.Abandoned)
		fail(span, r.Err, r.Abandoned)
	}
	span.End(trace.WithTimestamp(r.End))
}

// fail marks a span as failed. The errors of a stack hold no secrets, but for
// those of the caller's own making. What is canceled is an error unless its caller
// has given it up: see Status in the conventions for HTTP spans.
func fail(span trace.Span, err error, givenUp bool) {
	switch { // none is a failure of the server's
	case givenUp && errors.Is(err, context.Canceled):
		span.SetAttributes(attribute.Bool("weir.canceled", true))
		return
	case errors.Is(err, layers.ErrOutrun):
		span.SetAttributes(attribute.Bool("weir.outrun", true))
		return
	case errors.Is(err, layers.ErrSuperseded):
		return
	}
	kind := fmt.Sprintf("%T", err)
	if e, ok := errors.AsType[*layers.Error](err); ok {
		kind = cmp.Or(string(e.Phase), e.Layer)
		if e.Timeout() {
			kind += " timeout"
		}
		span.SetStatus(codes.Error, e.Error())
	} else {
		span.SetStatus(codes.Error, "")
	}
	span.SetAttributes(semconv.ErrorTypeKey.String(kind))
}

// limit returns what of ours ended a send, or nil.
func limit(ctx context.Context) error {
	cause := context.Cause(ctx)
	if expired, ok := errors.AsType[*layers.Error](cause); ok {
		return expired
	}
	if errors.Is(cause, layers.ErrOutrun) {
		return cause
	}
	return nil
}

// failSend marks the span of a send as failed.
func failSend(ctx context.Context, span trace.Span, call *callSpan, err error) {
	if ours := limit(ctx); ours != nil && errors.Is(err, context.Canceled) { // which is all that a layer of the user's may say
		err = ours
	}
	fail(span, err, ctx.Err() != nil && !call.broke.Load())
}

// layer makes the span of each send.
func (t *tracing) layer(next http.RoundTripper) http.RoundTripper {
	return layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		call, ok := layers.CallFrom(req.Context())
		if !ok {
			return next.RoundTrip(req)
		}
		ctx := req.Context()
		parent := &callSpan{}
		if found, ok := t.calls.Load(call); ok {
			parent = found.(*callSpan)
			ctx = trace.ContextWithSpan(ctx, parent.Span)
		}
		name, _ := method(req)
		if name == otherMethod {
			name = "HTTP"
		}
		ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(describe(req, call.Attempts())...))
		send := req.Clone(ctx)
		if send.Header == nil {
			send.Header = http.Header{}
		}
		t.propagator.Inject(ctx, propagation.HeaderCarrier(send.Header))
		returned := false
		defer func() {
			if !returned { // a panic further in, or the end of the goroutine
				span.SetStatus(codes.Error, "panic")
				span.SetAttributes(semconv.ErrorTypeKey.String("panic"))
				span.End()
			}
		}()
		resp, err := next.RoundTrip(send)
		returned = true
		if err != nil {
			failSend(ctx, span, parent, err)
			span.End()
			return nil, err
		}
		span.SetAttributes(semconv.HTTPResponseStatusCode(resp.StatusCode))
		if resp.Proto != "" {
			span.SetAttributes(semconv.NetworkProtocolVersion(version(resp)))
		}
		if resp.StatusCode >= http.StatusBadRequest {
			span.SetStatus(codes.Error, "")
			span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(resp.StatusCode)))
		}
		resp.Body = watch(ctx, resp.Body, span, parent)
		return resp, nil
	})
}

// describe returns the attributes of a send.
func describe(req *http.Request, before int) []attribute.KeyValue {
	u := url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host, Path: req.URL.Path, RawPath: req.URL.RawPath}
	name, original := method(req)
	attributes := []attribute.KeyValue{
		semconv.HTTPRequestMethodKey.String(name), semconv.URLFull(u.String()), semconv.ServerAddress(u.Hostname()),
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	if n, err := strconv.Atoi(port); err == nil {
		attributes = append(attributes, semconv.ServerPort(n))
	}
	if original != "" {
		attributes = append(attributes, semconv.HTTPRequestMethodOriginal(original))
	}
	if before > 0 {
		attributes = append(attributes, semconv.HTTPRequestResendCount(before))
	}
	return attributes
}

// otherMethod stands for the methods that the conventions do not know.
const otherMethod = "_OTHER"

// method is the method of req, of which the conventions know a few, and what it
// was if it is none of those.
func method(req *http.Request) (known, original string) {
	switch req.Method {
	case "":
		return http.MethodGet, ""
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return req.Method, ""
	}
	return otherMethod, req.Method
}

// version is 1.1 or 2, say.
func version(resp *http.Response) string {
	if resp.ProtoMajor >= 2 && resp.ProtoMinor == 0 {
		return strconv.Itoa(resp.ProtoMajor)
	}
	return strconv.Itoa(resp.ProtoMajor) + "." + strconv.Itoa(resp.ProtoMinor)
}

// body ends the span of a send when the body has ended, one way or another.
type body struct {
	io.ReadCloser

	ctx   context.Context // of the send
	span  trace.Span
	call  *callSpan
	once  sync.Once
	stop  func() bool // watching the end of the send
	stats statter     // nil: it is no guarded stream

	reading atomic.Int32 // Reads that are under way
	left    atomic.Bool  // the send has ended
	shut    atomic.Bool  // its reader wants no more
}

// closeWriter is a connection that can close its writing side.
type closeWriter interface{ CloseWrite() error }

// statter is the body of a guarded stream.
type statter interface{ Stats() stream.Stats }

// watch returns b with the end of span tied to its own. A body that can be
// written to, after a change of protocols, still can, and one that has the
// statistics of a stream still has them.
func watch(ctx context.Context, b io.ReadCloser, span trace.Span, call *callSpan) io.ReadCloser {
	stats, guarded := b.(statter)
	own := &body{ReadCloser: b, ctx: ctx, span: span, call: call, stats: stats}
	own.stop = context.AfterFunc(ctx, func() { // perhaps nobody reads or closes it
		own.left.Store(true)
		switch ours := limit(ctx); {
		case ours != nil:
			own.end(ours)
		case own.reading.Load() == 0: // else the Read knows how it ended
			own.end(nil)
		}
	})
	w, writes := b.(io.Writer)
	half, halves := b.(closeWriter)
	switch {
	case writes && halves:
		return struct {
			*body
			io.Writer
			closeWriter
		}{own, w, half}
	case writes:
		return struct {
			*body
			io.Writer
		}{own, w}
	case guarded:
		return struct {
			*body
			statter
		}{own, stats}
	}
	return own
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.reading.Add(1)
	n, err := b.ReadCloser.Read(p)
	if err != nil && !b.shut.Load() { // else that is why, and Close ends the span
		b.stop()
		b.end(err)
	}
	if b.reading.Add(-1) == 0 && b.left.Load() {
		b.end(nil)
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.shut.Store(true)
	err := b.ReadCloser.Close()
	b.stop()
	b.end(nil)
	return err
}

func (b *body) end(err error) {
	b.once.Do(func() {
		if b.stats != nil {
			if failure := b.stats.Stats().Failure; failure != nil { // which the reader has seen, and may be content with
				err = failure
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			failSend(b.ctx, b.span, b.call, err)
		}
		b.span.End()
	})
}
