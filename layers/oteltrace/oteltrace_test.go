package oteltrace_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/layers/oteltrace"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/stream"
	"github.com/weir-go/weir/transport"
)

type fixture struct {
	recorder *tracetest.SpanRecorder
	provider *sdk.TracerProvider
	tr       *transport.Transport
}

func newFixture(t *testing.T, c *clocktest.Clock, base http.RoundTripper, s policy.Settings, change ...func(*transport.Config)) *fixture {
	t.Helper()
	f := &fixture{recorder: tracetest.NewSpanRecorder()}
	f.provider = sdk.NewTracerProvider(sdk.WithSpanProcessor(f.recorder))
	cfg := transport.Config{
		Base: base, Clock: c, Rand: func() float64 { return 0 },
		Policy: policy.Policy{Routes: []policy.Route{{Pattern: "/", Name: "all", Settings: s}}},
	}
	oteltrace.Instrument(&cfg, oteltrace.WithTracerProvider(f.provider), oteltrace.WithPropagator(propagation.TraceContext{}))
	for _, f := range change {
		f(&cfg)
	}
	var err error
	if f.tr, err = transport.New(cfg); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) call(t *testing.T, ctx context.Context, url string) error {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := f.tr.RoundTrip(req)
	if err != nil {
		return err
	}
	_, err = io.ReadAll(resp.Body)
	return errors.Join(err, resp.Body.Close())
}

// text is a span in a line.
func text(s sdk.ReadOnlySpan) string {
	var attributes []string
	for _, a := range s.Attributes() {
		attributes = append(attributes, fmt.Sprintf("%s=%v", a.Key, a.Value.AsInterface()))
	}
	slices.Sort(attributes)
	line := fmt.Sprintf("%s %s %s", s.SpanKind(), s.Name(), strings.Join(attributes, " "))
	if s.Status().Code == codes.Error {
		line += fmt.Sprintf(" error %q", s.Status().Description)
	}
	for _, e := range s.Events() {
		line += " | " + e.Name
		for _, a := range e.Attributes {
			line += fmt.Sprintf(" %s=%v", a.Key, a.Value.AsInterface())
		}
	}
	return line
}

func (f *fixture) want(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, s := range f.recorder.Started() {
		got = append(got, text(s))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the spans are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if begun, ended := len(f.recorder.Started()), len(f.recorder.Ended()); begun != ended {
		t.Errorf("%d spans began and %d ended", begun, ended)
	}
}

// TestRetry: a call is a span, each send one below it, which the server is told
// of.
func TestRetry(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).Header("Retry-After", "2"), clocktest.Reply(200).Body("fine"))
		f := newFixture(t, c, up, policy.Settings{})
		ctx, caller := f.provider.Tracer("test").Start(t.Context(), "caller")
		if err := f.call(t, ctx, "https://user:s3cret@api.example/items?key=s3cret"); err != nil {
			t.Fatal(err)
		}
		caller.End()
		const to = " server.address=api.example server.port=443 url.full=https://api.example/items"
		f.want(t,
			"internal caller ",
			"internal all weir.attempts=2 weir.route=all | wait weir.attempt=1 weir.phase=backoff weir.wait=2",
			"client GET error.type=503 http.request.method=GET http.response.status_code=503 network.protocol.version=1.1"+to+` error ""`,
			"client GET http.request.method=GET http.request.resend_count=1 http.response.status_code=200 network.protocol.version=1.1"+to,
		)
		spans := f.recorder.Started()
		call := spans[1]
		if call.Parent().SpanID() != caller.SpanContext().SpanID() {
			t.Error("the call is not the caller's child")
		}
		if took := call.EndTime().Sub(call.StartTime()); took != 2*time.Second {
			t.Errorf("the call took %v, want 2s", took)
		}
		for i, r := range up.Requests() {
			send := spans[2+i]
			if send.Parent().SpanID() != call.SpanContext().SpanID() {
				t.Error("a send is not the call's child")
			}
			told := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(r.Header)))
			if told.SpanID() != send.SpanContext().SpanID() {
				t.Errorf("send %d tells the server of span %v, want its own", i+1, told.SpanID())
			}
		}
	})
}

// TestFailures: spans end, and say why, however a call ends.
func TestFailures(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c,
			clocktest.NoReply(),
			clocktest.NoReply(),
			clocktest.Reply(200).Chunks(clocktest.Chunk{Data: "part"}).Silent(),
			clocktest.Reply(200).Body("unread"))
		f := newFixture(t, c, up, policy.Settings{Deadline: 5 * time.Second, Retry: policy.Retry{Enabled: policy.Off}, InFlight: policy.InFlight{Max: 1}})
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			if len(up.Requests()) == 1 {
				c.AfterFunc(time.Second, cancel)
			}
			if f.call(t, ctx, "http://api.example/") == nil {
				t.Error("a call did not fail")
			}
			cancel()
		}
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := f.tr.RoundTrip(req) // nobody reads it
		if err != nil {
			t.Fatal(err)
		}
		if err := f.call(t, t.Context(), "http://api.example/"); err == nil {
			t.Error("a second call has a slot")
		}
		cancel()
		c.Add(time.Second)
		resp.Body.Close()
		begun, ended := len(f.recorder.Started()), len(f.recorder.Ended())
		if begun != ended || begun != 9 {
			t.Errorf("%d spans began and %d ended, want 9", begun, ended)
		}
		var refused, failed int
		for _, s := range f.recorder.Ended() {
			for _, e := range s.Events() {
				if e.Name == string(layers.KindRefused) {
					refused++
				}
			}
			if slices.Contains(s.Attributes(), attribute.String("error.type", "deadline timeout")) {
				failed++
			}
		}
		if refused != 1 || failed != 4 { // two calls and their sends
			t.Errorf("%d refusals and %d deadlines, want 1 and 4", refused, failed)
		}
	})
}

// TestOrder: the user's own observer and layers still work, and the span of a
// send includes them.
func TestOrder(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		events, sawSpan := 0, false
		recorder := tracetest.NewSpanRecorder()
		cfg := transport.Config{
			Base: clocktest.NewUpstream(t, c, clocktest.Reply(200)), Clock: c,
			Observer: layers.ObserverFunc(func(context.Context, layers.Event) { events++ }),
			Inner: []layers.Layer{func(next http.RoundTripper) http.RoundTripper {
				return layers.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
					sawSpan = trace.SpanContextFromContext(r.Context()).IsValid() && r.Header.Get("Traceparent") != ""
					return next.RoundTrip(r)
				})
			}},
		}
		oteltrace.Instrument(&cfg, oteltrace.WithTracerProvider(sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder))),
			oteltrace.WithPropagator(propagation.TraceContext{}))
		tr, err := transport.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		f := &fixture{recorder: recorder, tr: tr}
		if err := f.call(t, t.Context(), "http://api.example/"); err != nil {
			t.Fatal(err)
		}
		if events == 0 || !sawSpan {
			t.Errorf("%d events, span seen by an inner layer: %v", events, sawSpan)
		}
	})
}

// TestConventions: methods that are not known, and the version of HTTP/2.
func TestConventions(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		base := layers.RoundTripperFunc(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 204, Proto: "HTTP/2.0", ProtoMajor: 2, Body: http.NoBody}, nil
		})
		f := newFixture(t, c, base, policy.Settings{})
		for _, method := range []string{"", "PURGE"} {
			req, err := http.NewRequestWithContext(t.Context(), "GET", "http://api.example/", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Method = method
			resp, err := f.tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		const to = " http.response.status_code=204 network.protocol.version=2 server.address=api.example server.port=80 url.full=http://api.example/"
		f.want(t,
			"internal all weir.attempts=1 weir.route=all",
			"client GET http.request.method=GET"+to,
			"internal all weir.attempts=1 weir.route=all",
			"client HTTP http.request.method=_OTHER http.request.method_original=PURGE"+to,
		)
	})
}

// TestFailureOfALayer: a failure in no phase has a type too.
func TestFailureOfALayer(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		f := newFixture(t, c, clocktest.NewUpstream(t, c), policy.Settings{Rate: policy.Rate{
			PerSecond: 1, Cost: func(*http.Request) int { return 2 },
		}, Timeouts: policy.Timeouts{}, Retry: policy.Retry{Enabled: policy.Off}})
		if f.call(t, t.Context(), "http://api.example/") == nil {
			t.Fatal("no error")
		}
		for _, s := range f.recorder.Ended() {
			reason := attribute.String("weir.reason", layers.ReasonCost)
			if !slices.Contains(s.Attributes(), reason) {
				t.Errorf("no reason of %s", text(s))
			}
			if !slices.ContainsFunc(s.Events(), func(e sdk.Event) bool {
				return e.Name == string(layers.KindRefused) && slices.Contains(e.Attributes, reason)
			}) {
				t.Errorf("no refusal with its reason: %v", s.Events())
			}
			for _, a := range s.Attributes() {
				if a.Key == "error.type" && a.Value.AsString() == "" {
					t.Errorf("no type of error in %s", text(s))
				}
			}
		}
	})
}

// TestOutrun: a send that another outran is no error, over HTTP/1 and HTTP/2.
func TestOutrun(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, clocktest.NoReply(), clocktest.Reply(200).After(time.Second))
			up.HTTP2 = http2
			f := newFixture(t, c, up, policy.Settings{Hedge: policy.Hedge{Delay: time.Second}})
			if err := f.call(t, t.Context(), "http://api.example/"); err != nil {
				t.Fatal(err)
			}
			c.Add(0)
			first := text(f.recorder.Started()[1])
			if !strings.Contains(first, " weir.outrun=true") || strings.Contains(first, "error") {
				t.Errorf("the first send is %s", first)
			}
		})
	}
}

// TestSuperseded: an answer that is read no longer, as a retry follows, is no more of
// an error than its status.
func TestSuperseded(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).Silent(), clocktest.Reply(200))
		f := newFixture(t, c, up, policy.Settings{})
		if err := f.call(t, t.Context(), "http://api.example/"); err != nil {
			t.Fatal(err)
		}
		c.Add(0)
		first := text(f.recorder.Started()[1])
		if !strings.Contains(first, " error.type=503 ") || !strings.HasSuffix(first, ` error ""`) {
			t.Errorf("the first send is %s", first)
		}
	})
}

// TestBrokenBody: a body that breaks off is an error of the send, though the call,
// and its context, end while the Read is still under way.
func TestBrokenBody(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Chunks(clocktest.Chunk{Data: "a"}).Reset())
		f := newFixture(t, c, up, policy.Settings{}, func(cfg *transport.Config) {
			cfg.Observer = layers.Observers(cfg.Observer, layers.ObserverFunc(func(_ context.Context, e layers.Event) {
				if e.Kind == layers.KindEnd {
					c.Sleep(time.Second)
				}
			}))
		})
		if err := f.call(t, t.Context(), "http://api.example/"); err == nil {
			t.Fatal("no error")
		}
		for _, s := range f.recorder.Ended() {
			if s.Status().Code != codes.Error {
				t.Errorf("no error in %s", text(s))
			}
		}
	})
}

// TestLeftInARead: the span of a send that was ended during a Read ends with it, though
// the Read knows of no end, and the reader goes away.
func TestLeftInARead(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		f := newFixture(t, c, layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Request: req, Body: io.NopCloser(readerFunc(func(p []byte) (int, error) {
				<-req.Context().Done()
				return copy(p, "a"), nil
			}))}, nil
		}), policy.Settings{})
		ctx, cancel := c.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := f.tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if n, err := resp.Body.Read(make([]byte, 9)); n != 1 || err != nil {
			t.Fatalf("got %d bytes, %v", n, err)
		}
		c.Sleep(time.Millisecond)
		if n := len(f.recorder.Ended()); n != 1 {
			t.Errorf("%d spans have ended, want that of the send", n)
		}
	})
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestPanic: the spans of a call end even if a layer or the base panics.
func TestPanic(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		base := layers.RoundTripperFunc(func(*http.Request) (*http.Response, error) { panic("in the base") })
		f := newFixture(t, c, base, policy.Settings{})
		func() {
			defer func() {
				if recover() != "in the base" {
					t.Error("the panic is lost")
				}
			}()
			_ = f.call(t, t.Context(), "http://api.test/")
		}()
		ended := f.recorder.Ended()
		if len(ended) != 2 || len(f.recorder.Started()) != 2 {
			t.Fatalf("%d of %d spans ended", len(ended), len(f.recorder.Started()))
		}
		if got := text(ended[0]); !strings.Contains(got, "error.type=panic") || !strings.Contains(got, `error "panic"`) {
			t.Errorf("got %s", got)
		}
	})
}

// TestStats: a layer further out finds the statistics of a stream in the body of
// a span.
func TestStats(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Header("Content-Type", "text/event-stream").Body("data: x\n\n"))
		asks := func(next http.RoundTripper) http.RoundTripper {
			return layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(req)
				if err == nil {
					if _, ok := stream.StatsOf(&http.Response{Body: resp.Body}); !ok {
						t.Error("the body has no statistics")
					}
				}
				return resp, err
			})
		}
		f := newFixture(t, c, up, policy.Settings{Stream: policy.Stream{Enabled: policy.On}}, func(cfg *transport.Config) {
			cfg.Inner = append([]layers.Layer{asks}, cfg.Inner...)
		})
		if err := f.call(t, t.Context(), "http://api.test/"); err != nil {
			t.Error(err)
		}
	})
}
