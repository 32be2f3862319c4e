package transport_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// spans are a trace as a reviewer would draw it.
func spans(t layers.Trace) string {
	var b strings.Builder
	for _, s := range t.Spans {
		fmt.Fprintf(&b, "%s #%d %s %v", s.Kind, s.Attempt, s.Phase, s.Start.Sub(t.Start))
		if s.End.IsZero() {
			b.WriteString("-")
		} else if s.End != s.Start {
			fmt.Fprintf(&b, "-%v", s.End.Sub(t.Start))
		}
		if s.Status > 0 {
			fmt.Fprintf(&b, " %d", s.Status)
		}
		b.WriteString("\n")
	}
	return strings.ReplaceAll(b.String(), "  ", " ")
}

// TestTracer: a trace tells where the time of a call went, while it goes on and
// afterwards.
func TestTracer(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		var traces []layers.Trace
		tracer := layers.NewTracer(func(_ context.Context, trace layers.Trace) { traces = append(traces, trace) })
		up := clocktest.NewUpstream(t, c,
			clocktest.Reply(503).After(2*time.Second).Header("Retry-After", "3"),
			clocktest.Reply(200).After(time.Second).Chunks(clocktest.Drip("body", 2, time.Second)...))
		tr := newTransport(t, c, up, policy.Policy{Routes: []policy.Route{{Pattern: "/", Name: "all", Settings: policy.Settings{
			Deadline: 20 * time.Second, Rate: policy.Rate{PerSecond: 0.2, Burst: 1},
		}}}}, func(cfg *transport.Config) { cfg.Observer = tracer })
		done := make(chan struct{})
		go func() {
			get(t, c, tr)
			close(done)
		}()
		c.Add(1500 * time.Millisecond)
		live := tracer.Live()
		equal(t, "calls that go on", len(live), 1)
		equal(t, "the trace so far", spans(live[0]), "send #1 0s-\nphase #1 pool 0s\nphase #1 write 0s\nphase #1 read 0s-\n")
		equal(t, "the sends so far", live[0].Attempts, 1)
		equal(t, "the trace so far as text", live[0].String(), "route \"all\", goes on, sends: 1\n       0s  send #1 goes on\n       0s  read #1 goes on\n")
		<-done
		equal(t, "calls that go on", len(tracer.Live()), 0)
		equal(t, "calls that ended", len(traces), 1)
		trace := traces[0]
		equal(t, "the trace", spans(trace), strings.TrimLeft(`
send #1 0s-2s 503
phase #1 pool 0s
phase #1 write 0s
phase #1 read 0s-2s
wait #1 backoff 2s-5s
send #2 5s-8s 200
phase #2 pool 5s
phase #2 write 5s
phase #2 read 5s-6s
`, "\n"))
		equal(t, "the waits", fmt.Sprint(trace.Waited()), "map[backoff:3s]")
		equal(t, "the trace as text", trace.String(), strings.TrimLeft(`
route "all", 8s, sends: 2: 200
       0s  send #1 2s, 503
       0s  read #1 2s
       2s  backoff 3s
       5s  send #2 3s, 200
       5s  read #2 1s
       6s  body #2 2s
`, "\n"))
		trace.Spans = nil
		equal(t, "the rest", fmt.Sprintf("%+v", trace), fmt.Sprintf("%+v", layers.Trace{
			Number: 1, Route: "all", Start: c.Now().Add(-8 * time.Second), End: c.Now(), Deadline: c.Now().Add(12 * time.Second), Attempts: 2, Status: 200,
		}))
	})
}

// TestTraceOfWaits: a wait ends when it is over, and not with what comes next:
// the making of a token is no backoff.
func TestTraceOfWaits(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		traces := make(chan layers.Trace, 2)
		up := clocktest.NewUpstream(t, c,
			clocktest.Reply(503).Header("Retry-After-Ms", "3000"),
			clocktest.Reply(200).After(10*time.Second), clocktest.Reply(200))
		slow := func(next http.RoundTripper) http.RoundTripper {
			return layers.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
				c.Sleep(2 * time.Second)
				return next.RoundTrip(r)
			})
		}
		tr := newTransport(t, c, up, settings(policy.Settings{InFlight: policy.InFlight{Max: 1, MaxWait: time.Minute}}), inner(slow), func(cfg *transport.Config) {
			cfg.Observer = layers.NewTracer(func(_ context.Context, trace layers.Trace) { traces <- trace })
		})
		done := make(chan struct{})
		go func() {
			get(t, c, tr)
			close(done)
		}()
		c.Add(8 * time.Second) // 2 s, 3 s of backoff, 2 s, and then the server has it
		get(t, c, tr)
		<-done
		first, second := <-traces, <-traces
		equal(t, "the waits of the first", fmt.Sprint(first.Waited()), "map[backoff:3s]")
		equal(t, "the waits of the second", fmt.Sprint(second.Waited()), "map[in-flight:9s]")
	})
}
