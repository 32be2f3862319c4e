// Package seen compares what is told of a call: the metrics of layers/prom, the
// spans of layers/oteltrace and the line of layers.Log say the same of each way in
// which a call can end.
//
// It is a module of its own, since no other needs both.
package seen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/layers/oteltrace"
	"github.com/weir-go/weir/layers/prom"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// metrics returns the outcomes of the calls and those of the sends.
func metrics(t *testing.T, m *prom.Metrics) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var words [2][]string
	for _, f := range families {
		for i, name := range []string{"weir_calls_total", "weir_sends_total"} {
			for _, of := range f.GetMetric() {
				if f.GetName() == name {
					words[i] = append(words[i], of.GetLabel()[0].GetValue())
				}
			}
		}
	}
	return strings.Join(words[0], "+") + " " + strings.Join(words[1], "+")
}

// spans returns how they say that they ended.
func spans(list []sdk.ReadWriteSpan) string {
	words := make([]string, len(list))
	for i, s := range list {
		words[i] = "ok"
		for _, a := range s.Attributes() {
			switch a.Key {
			case "error.type":
				words[i] = strings.ReplaceAll(a.Value.AsString(), " ", "-")
			case "weir.canceled", "weir.outrun":
				words[i] = strings.TrimPrefix(string(a.Key), "weir.")
			}
		}
		if (s.Status().Code == codes.Error) == (words[i] == "ok" || words[i] == "canceled" || words[i] == "outrun") {
			words[i] += "?"
		}
	}
	return strings.Join(words, " ")
}

// line is a handler that keeps the level and the text of one line.
type line struct {
	slog.Handler

	text string
}

func (l *line) Enabled(context.Context, slog.Level) bool { return true }

func (l *line) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "c") && r.Message != "circuit changed" || r.Message == "body closed early" {
		l.text = fmt.Sprint(r.Level, " ", r.Message)
	}
	return nil
}

// The ways of a caller to bound a call.
type bound func(c *clocktest.Clock, ctx context.Context) (context.Context, context.CancelFunc)

func cancels(cause error) bound {
	return func(c *clocktest.Clock, ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancelCause(ctx)
		c.AfterFunc(time.Second, func() { cancel(cause) })
		return ctx, func() { cancel(nil) }
	}
}

func times(c *clocktest.Clock, ctx context.Context) (context.Context, context.CancelFunc) {
	return c.WithTimeout(ctx, time.Second)
}

func job(c *clocktest.Clock, ctx context.Context) (context.Context, context.CancelFunc) {
	return layers.WithDeadline(ctx, c.Now().Add(time.Second)), func() {}
}

// fails is a layer that fails by itself, with its context's error for nil.
func fails(err error) layers.Layer {
	return func(http.RoundTripper) http.RoundTripper {
		return layers.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
			if err != nil {
				return nil, fmt.Errorf("no token: %w", err)
			}
			<-r.Context().Done()
			return nil, fmt.Errorf("no token: %w", r.Context().Err())
		})
	}
}

const content = "data: {\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\n"

// TestAgreement: a row has the outcome of the call and those of its sends; the spans
// of the call and its sends; and the line of the log. Where a way needs two calls, it
// is the second.
func TestAgreement(t *testing.T) {
	reply, none := clocktest.Reply, clocktest.NoReply()
	body := reply(200).Chunks(clocktest.Chunk{Data: "a"}, clocktest.Chunk{After: time.Hour})
	sse := reply(200).Header("Content-Type", "text/event-stream")
	type S = policy.Settings
	short := S{Deadline: time.Second}
	stream := S{Stream: policy.Stream{Enabled: policy.On, FirstContent: 2 * time.Second, Gap: 2 * time.Second, Dialect: "openai-chat"}}
	read := S{Timeouts: policy.Timeouts{Read: time.Second}}
	rate := policy.Rate{PerSecond: 0.01, Burst: 1}
	mine := errors.New("mine")
	for _, test := range []struct {
		name  string
		s     S
		step  clocktest.Step
		bound bound
		layer layers.Layer
		how   string // "twice", "close" the body early, or "close during a Read", "held" by another call
		want  string
	}{
		{"answered", S{}, reply(200).Body("x"), nil, nil, "", "2xx 2xx; ok ok; DEBUG call answered"},
		{"an error of the caller's", S{}, reply(404).Body("x"), nil, nil, "", "4xx 4xx; ok 404; DEBUG call answered"},
		{"an error of the server's", S{}, reply(503).Body("x"), nil, nil, "", "5xx 5xx; ok 503; WARN call answered"},
		{"body closed early", S{}, body, nil, nil, "close", "abandoned 2xx; ok ok; INFO body closed early"},
		{"body closed during a Read", S{}, body, nil, nil, "close during a Read", "abandoned 2xx; ok ok; INFO body closed early"},
		{"the status is enough", S{}, reply(503).Body("x"), nil, nil, "close", "5xx 5xx; ok 503; WARN call answered"},

		{"canceled", S{}, none, cancels(nil), nil, "", "canceled canceled; canceled canceled; INFO call given up"},
		{"canceled with a cause", S{}, none, cancels(mine), nil, "", "canceled canceled; canceled canceled; INFO call given up"},
		{"canceled in the body", S{}, body, cancels(nil), nil, "", "canceled canceled; canceled canceled; INFO call given up"},
		{"canceled in a layer", S{}, none, cancels(nil), fails(nil), "", "canceled ; canceled canceled; INFO call given up"},
		{"canceled in a wait", S{Rate: rate, Deadline: time.Hour}, reply(200), cancels(nil), nil, "twice", "canceled ; canceled; INFO call given up"},
		{"another's cancel in a layer", S{}, none, nil, fails(context.Canceled), "", "refused ; inner *fmt.wrapError; ERROR call failed"},
		{"another's cancel below", S{}, clocktest.Fail(context.Canceled), nil, nil, "", "error error; read read; ERROR call failed"},
		{"another's cancel in the body", S{}, reply(200).Chunks(clocktest.Chunk{Data: "a"}).Fail(context.Canceled), nil, nil, "", "error error; *errors.errorString *errors.errorString; ERROR call failed"},

		{"the context's deadline", S{}, none, times, nil, "", "deadline deadline; context.deadlineExceededError context.deadlineExceededError; ERROR call failed"},
		{"the context's, in the body", S{}, body, times, nil, "", "deadline deadline; context.deadlineExceededError context.deadlineExceededError; ERROR call failed"},
		{"the job's deadline", S{}, none, job, nil, "", "deadline deadline; deadline-timeout deadline-timeout; ERROR call failed"},
		{"the job's, in the body", S{}, body, job, nil, "", "deadline deadline; deadline-timeout deadline-timeout; ERROR call failed"},
		{"the policy's deadline", short, none, nil, nil, "", "deadline deadline; deadline-timeout deadline-timeout; ERROR call failed"},
		{"the policy's, in the body", short, body, nil, nil, "", "deadline deadline; deadline-timeout deadline-timeout; ERROR call failed"},
		{"the policy's, in a layer", short, none, nil, fails(nil), "", "deadline ; deadline-timeout deadline-timeout; ERROR call failed"},
		{"another's deadline in a layer", S{}, none, nil, fails(context.DeadlineExceeded), "", "refused ; inner-timeout *fmt.wrapError; ERROR call failed"},
		{"another's deadline below", S{}, clocktest.Fail(context.DeadlineExceeded), nil, nil, "", "timeout timeout; read-timeout read-timeout; ERROR call failed"},
		{"another's deadline in the body", S{}, reply(200).Chunks(clocktest.Chunk{Data: "a"}).Fail(context.DeadlineExceeded), nil, nil, "", "timeout timeout; context.deadlineExceededError context.deadlineExceededError; ERROR call failed"},

		{"connect timeout", S{Timeouts: policy.Timeouts{Connect: time.Second}}, reply(200).Connect(time.Minute), nil, nil, "", "timeout timeout; connect-timeout connect-timeout; ERROR call failed"},
		{"read timeout", read, none, nil, nil, "", "timeout timeout; read-timeout read-timeout; ERROR call failed"},
		{"read timeout in the body", read, body, nil, nil, "", "timeout timeout; read-timeout read-timeout; ERROR call failed"},
		{"attempt timeout", S{Timeouts: policy.Timeouts{Attempt: time.Second}}, none, nil, nil, "", "timeout timeout; attempt-timeout attempt-timeout; ERROR call failed"},

		{"no time for a turn", S{Rate: rate}, reply(200), nil, nil, "twice", "refused ; rate-timeout; ERROR call failed"},
		{"too long for a turn", S{Rate: policy.Rate{PerSecond: 0.01, Burst: 1, MaxWait: time.Second}}, reply(200), nil, nil, "twice", "refused ; rate; ERROR call failed"},
		{"no slot", S{InFlight: policy.InFlight{Max: 1}}, body, nil, nil, "held", "refused ; in-flight; ERROR call failed"},
		{"circuit open", S{Breaker: policy.Breaker{Failures: 1}}, reply(500), nil, nil, "twice", "refused ; breaker; ERROR call failed"},
		{"a layer's own failure", S{}, none, nil, fails(mine), "", "refused ; inner *fmt.wrapError; ERROR call failed"},

		{"dial refused", S{}, clocktest.FailDial(clocktest.ErrRefused), nil, nil, "", "error error; connect connect; ERROR call failed"},
		{"reset", S{}, clocktest.Fail(clocktest.ErrReset), nil, nil, "", "error error; read read; ERROR call failed"},
		{"reset in the body", S{}, reply(200).Chunks(clocktest.Chunk{Data: "a"}).Reset(), nil, nil, "", "error error; *net.OpError *net.OpError; ERROR call failed"},

		{"no first content", stream, sse.Chunks(clocktest.Chunk{Data: ": hi\n\n"}, clocktest.Chunk{After: time.Hour}), nil, nil, "", "timeout timeout; first-content-timeout first-content-timeout; ERROR call failed"},
		{"stalled", stream, sse.Chunks(clocktest.Chunk{Data: content}, clocktest.Chunk{After: time.Hour}), nil, nil, "", "timeout timeout; gap-timeout gap-timeout; ERROR call failed"},
		{"truncated", stream, sse.Chunks(clocktest.Chunk{Data: content}), nil, nil, "", "error error; *fmt.wrapError *fmt.wrapError; ERROR call failed"},
		{"a failure in the stream", stream, sse.Body(content + "data: {\"error\":{\"message\":\"x\",\"type\":\"server_error\"}}\n\n"), nil, nil, "", "error error; *stream.FailureError *stream.FailureError; ERROR call failed"},
		{"stream closed early", stream, sse.Chunks(clocktest.Chunk{Data: content}, clocktest.Chunk{After: time.Hour}), nil, nil, "close", "abandoned 2xx; ok ok; INFO body closed early"},
		{"outrun", S{Hedge: policy.Hedge{Delay: time.Second}}, clocktest.Func(slowFirst()), nil, nil, "", "2xx 2xx+abandoned; ok outrun ok; INFO call answered"},
	} {
		t.Run(test.name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				if test.s.Retry = (policy.Retry{Enabled: policy.Off}); test.s.Timeouts.Read == 0 {
					test.s.Timeouts.Read = policy.Off
				}
				test.s = policy.Settings{Deadline: time.Minute}.With(test.s)
				var log line
				var m *prom.Metrics
				recorder := tracetest.NewSpanRecorder()
				observed := layers.Observers(layers.Log(slog.New(&log)), layers.ObserverFunc(func(ctx context.Context, e layers.Event) { m.Observe(ctx, e) }))
				cfg := transport.Config{Base: clocktest.NewUpstream(t, c, test.step.Forever()), Clock: c, Observer: observed, Policy: policy.Policy{Settings: test.s}}
				oteltrace.Instrument(&cfg, oteltrace.WithTracerProvider(sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder))))
				if test.layer != nil {
					cfg.Inner = append(cfg.Inner, test.layer)
				}
				tr, err := transport.New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				before := 0
				call := func() io.Closer {
					m = prom.New()
					before = len(recorder.Started())
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if test.bound != nil {
						ctx, cancel = test.bound(c, ctx)
					}
					defer cancel()
					req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example/", nil)
					if err != nil {
						t.Fatal(err)
					}
					resp, err := tr.RoundTrip(req)
					if err != nil {
						return io.NopCloser(nil)
					}
					if test.how == "held" {
						return resp.Body
					}
					if test.how == "close during a Read" {
						c.AfterFunc(time.Second, func() { _ = resp.Body.Close() })
					}
					if test.how != "close" {
						_, _ = io.ReadAll(resp.Body)
					}
					return resp.Body
				}
				first := call()
				if test.how == "twice" || test.how == "held" {
					_ = call()
				} else {
					_ = first.Close()
				}
				c.Add(0) // sends that were outrun tell of their end
				if got := metrics(t, m) + "; " + spans(recorder.Started()[before:]) + "; " + log.text; got != test.want {
					t.Errorf("it is %q, want %q", got, test.want)
				}
				_ = first.Close()
			})
		})
	}
}

// slowFirst is a server of which every other answer takes long.
func slowFirst() func(*http.Request) clocktest.Step {
	n := 0
	return func(*http.Request) clocktest.Step {
		if n++; n%2 == 1 {
			return clocktest.Reply(200).After(time.Minute)
		}
		return clocktest.Reply(200)
	}
}
