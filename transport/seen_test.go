package transport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// logged is a stack whose calls a log and a tracer see.
type logged struct {
	*transport.Transport

	log    bytes.Buffer
	mu     sync.Mutex
	traces []layers.Trace
}

func newLogged(t *testing.T, c *clocktest.Clock, base http.RoundTripper, s policy.Settings, change ...func(*transport.Config)) *logged {
	t.Helper()
	w := &logged{}
	text := slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	tracer := layers.NewTracer(func(_ context.Context, trace layers.Trace) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.traces = append(w.traces, trace)
	})
	change = append(change, func(cfg *transport.Config) { cfg.Observer = layers.Observers(layers.Log(slog.New(text)), tracer) })
	w.Transport = newTransport(t, c, base, settings(s), change...)
	return w
}

// wantLog compares the lines of the log, without their beginning.
func (w *logged) wantLog(t *testing.T, want ...string) {
	t.Helper()
	got := strings.TrimSpace(w.log.String())
	got = strings.ReplaceAll(strings.ReplaceAll(got, "level=", ""), ` route=""`, "")
	if got != strings.Join(want, "\n") {
		t.Errorf("the log is\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// lasts is a layer that takes so long before it sends.
func lasts(c *clocktest.Clock, d time.Duration) layers.Layer {
	return around(func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		c.Sleep(d)
		return next.RoundTrip(r)
	})
}

// TestSeenUnread: that the caller of an answer wants no more than its status does
// not hide the status.
func TestSeenUnread(t *testing.T) {
	for status, want := range map[int]string{
		200: `INFO msg="body closed early" attempts=1 took=0s status=200`,
		404: `INFO msg="body closed early" attempts=1 took=0s status=404`,
		429: `WARN msg="call answered" attempts=1 took=0s status=429`,
		503: `WARN msg="call answered" attempts=1 took=0s status=503`,
	} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			w := newLogged(t, c, clocktest.NewUpstream(t, c, clocktest.Reply(status).Body("x")), policy.Settings{Retry: policy.Retry{Enabled: policy.Off}})
			resp, err := w.RoundTrip(request(t, t.Context(), "GET", url, nil))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			w.wantLog(t, want)
		})
	}
}

// TestSeenReason: why there was no further send is told the same way everywhere,
// whether or not a layer was there to make one.
func TestSeenReason(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(500))
		w := newLogged(t, c, up, policy.Settings{Retry: policy.Retry{Enabled: policy.Off}, Breaker: policy.Breaker{Failures: 1}})
		get(t, c, w)
		e := wantError(t, get(t, c, w).err)
		equal(t, "the reason of the trace", w.traces[1].Reason, e.Reason)
		equal(t, "the reason", e.Reason, layers.ReasonCircuit)
		has(t, w.log.String(), ` reason="circuit open"`)
	})
}

// TestSeenLaterReason: a body that fails after the last send was answered does so for
// a reason of its own.
func TestSeenLaterReason(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503), clocktest.Reply(503).Chunks(clocktest.Chunk{After: time.Hour}))
		w := newLogged(t, c, up, policy.Settings{Deadline: 5 * time.Second, Retry: policy.Retry{MaxAttempts: 2, BaseDelay: policy.Off}})
		r := get(t, c, w)
		equal(t, "the reason", wantError(t, r.err).Reason, layers.ReasonDeadline)
		equal(t, "the reason of the call", r.call(t).Reason(), layers.ReasonDeadline)
		equal(t, "the reason of the trace", w.traces[0].Reason, layers.ReasonDeadline)
	})
}

// TestSeenHops: a redirect hop that the first send answered needed no other.
func TestSeenHops(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(302).Header("Location", "/there"), clocktest.Reply(200).Body("x"))
		w := newLogged(t, c, up, policy.Settings{})
		resp, err := w.Client().Do(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadAll(resp.Body)
		resp.Body.Close()
		w.wantLog(t, `DEBUG msg="call answered" attempts=1 took=0s status=302`, `DEBUG msg="call answered" attempts=2 took=0s status=200`)
	})
}

// TestSeenLayers: the time that a layer of the user's takes is accounted for.
func TestSeenLayers(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).After(time.Second), clocktest.Reply(200).After(time.Second))
		w := newLogged(t, c, up, policy.Settings{Deadline: 30 * time.Second, Retry: policy.Retry{BaseDelay: policy.Off}}, inner(lasts(c, 4*time.Second)),
			func(cfg *transport.Config) { cfg.Outer = []layers.Layer{lasts(c, 2*time.Second)} })
		get(t, c, w)
		w.wantLog(t, `INFO msg="call answered" attempts=2 took=12s status=200 waits.layers=10s phases.read=2s`)
		equal(t, "the trace", w.traces[0].String(), strings.TrimLeft(`
route "", 12s, sends: 2: 200
       0s  layers 6s
       6s  send #1 1s, 503
       6s  read #1 1s
       7s  layers 4s
      11s  send #2 1s, 200
      11s  read #2 1s
`, "\n"))
	})
}

// TestSeenWaits: a call waits for one thing at a time, so that its waits add up.
func TestSeenWaits(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(2*time.Second).Forever())
		w := newLogged(t, c, up, policy.Settings{
			Rate: policy.Rate{PerSecond: 0.2, Burst: 2}, InFlight: policy.InFlight{Max: 1, MaxWait: 30 * time.Second},
		})
		var calls sync.WaitGroup
		for range 4 {
			calls.Add(1)
			c.AfterFunc(0, func() {
				defer calls.Done()
				get(t, c, w)
			})
		}
		calls.Wait()
		w.wantLog(t,
			`DEBUG msg="call answered" attempts=1 took=2s status=200 phases.read=2s`,
			`DEBUG msg="call answered" attempts=1 took=4s status=200 waits.in-flight=2s phases.read=2s`,
			`DEBUG msg="call answered" attempts=1 took=7s status=200 waits.in-flight=4s waits.rate=1s phases.read=2s`,
			`DEBUG msg="call answered" attempts=1 took=12s status=200 waits.in-flight=4s waits.rate=6s phases.read=2s`)
	})
}

// TestSeenHeld: an answer that was held, and cut off before the caller had it, is
// seen as an answer, and its time as that of its body.
func TestSeenHeld(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(time.Second).Header("Content-Type", "text/event-stream").Silent().Forever())
		w := newLogged(t, c, up, policy.Settings{
			Stream: policy.Stream{Enabled: policy.On, FirstContent: 5 * time.Second, Hold: policy.On},
			Retry:  policy.Retry{MaxAttempts: 2, BaseDelay: policy.Off},
		}, inner(lasts(c, 0)))
		get(t, c, w)
		has(t, w.log.String(), ` phases.body=8s phases.read=2s`)
		for _, s := range w.traces[0].Spans {
			if s.Kind == layers.KindSend {
				equal(t, "the status of a send", s.Status, 200)
			}
		}
	})
}

// TestSeenDrained: that an answer is read no longer once another send is to follow
// is no timeout, and tells nothing of the server.
func TestSeenDrained(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		slow := clocktest.Drip("too many requests", 1, 500*time.Millisecond)
		up := clocktest.NewUpstream(t, c, clocktest.Reply(429).Chunks(slow...), clocktest.Reply(429).Chunks(clocktest.Chunk{After: time.Hour}), clocktest.Reply(200))
		w := newLogged(t, c, up, policy.Settings{Breaker: policy.Breaker{Failures: 1}, Retry: policy.Retry{BaseDelay: policy.Off}})
		wantStatus(t, get(t, c, w), 200)
		w.wantLog(t, `INFO msg="call answered" attempts=3 took=2s status=200 phases.body=2s`)
		equal(t, "the sends", sendsOf(w.traces[0]), "#1 429 <nil> #2 429 <nil> #3 200 <nil>")
	})
}

// TestSeenWithin: a layer of the user's sees that an answer is read no longer, which is
// no timeout, and what a deadline interrupted.
func TestSeenWithin(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		var read, cause error
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).Chunks(clocktest.Chunk{After: time.Hour}), clocktest.Reply(200), clocktest.NoReply())
		s := settings(policy.Settings{Deadline: 5 * time.Second, Retry: policy.Retry{BaseDelay: policy.Off}})
		tr := newTransport(t, c, up, s, inner(around(func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if cause = context.Cause(r.Context()); err == nil && resp.StatusCode == 503 {
				body := resp.Body
				resp.Body = struct {
					io.Reader
					io.Closer
				}{readerFunc(func(p []byte) (n int, err error) {
					n, read = body.Read(p)
					return n, read
				}), body}
			}
			return resp, err
		})))
		wantStatus(t, get(t, c, tr), 200)
		e := wantError(t, read)
		equal(t, "whether it is a timeout", e.Timeout(), false)
		equal(t, "what ended the body", fmt.Sprint(e.Layer, " ", e.Phase, " ", errors.Is(e, layers.ErrSuperseded)), "retry read true")
		get(t, c, tr)
		has(t, wantError(t, cause).Error(), "in phase read of attempt 1")
	})
}

// sendsOf lists the sends of a trace.
func sendsOf(t layers.Trace) string {
	var list []string
	for _, s := range t.Spans {
		if s.Kind == layers.KindSend {
			list = append(list, fmt.Sprintf("#%d %d %v", s.Attempt, s.Status, s.Err))
		}
	}
	return strings.Join(list, " ")
}

// TestSeenOutrun: a send that another outran is told as that, over HTTP/1 and
// HTTP/2, whichever is told first, its end or that of the call.
func TestSeenOutrun(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(time.Minute), clocktest.NoReply(), clocktest.Reply(200).After(time.Second))
			up.HTTP2 = http2
			w := newLogged(t, c, up, policy.Settings{Hedge: policy.Hedge{Delay: time.Second, Max: 2}})
			wantStatus(t, get(t, c, w), 200)
			equal(t, "the sends", sendsOf(w.traces[0]), "#1 0 "+layers.ErrOutrun.Error()+" #2 0 "+layers.ErrOutrun.Error()+" #3 200 <nil>")
		})
	}
}

// TestSeenOutrunWithin: a layer of the user's that reads the answer of a send sees so
// too that another outran it.
func TestSeenOutrunWithin(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Chunks(clocktest.Chunk{After: time.Minute}), clocktest.Reply(200))
			up.HTTP2 = http2
			seen := make(chan error, 2)
			s := settings(policy.Settings{Hedge: policy.Hedge{Delay: time.Second}})
			tr := newTransport(t, c, up, s, inner(around(func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(r)
				if err == nil {
					_, err = io.ReadAll(resp.Body)
					resp.Body.Close()
					resp.Body = http.NoBody
					seen <- err
				}
				return resp, err
			})))
			wantStatus(t, get(t, c, tr), 200)
			equal(t, "the winner's", <-seen, nil)
			if err := <-seen; !errors.Is(err, layers.ErrOutrun) {
				t.Errorf("the other ended in %v", err)
			}
		})
	}
}

// TestSeenCutOff: sends that a deadline ends together say so, whichever is told
// first.
func TestSeenCutOff(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.NoReply().Forever())
		w := newLogged(t, c, up, policy.Settings{Deadline: 5 * time.Second, Hedge: policy.Hedge{Delay: time.Second, Max: 2}})
		wantTimeout(t, get(t, c, w).err, layers.PhaseDeadline)
		for _, s := range w.traces[0].Spans {
			if s.Kind == layers.KindSend {
				wantTimeout(t, s.Err, layers.PhaseDeadline)
			}
		}
	})
}

// TestSeenPhaseOf: the phase in which a deadline ended a call is named with the
// attempt that was in it.
func TestSeenPhaseOf(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.NoReply(), clocktest.Reply(200).Pool(time.Minute))
		w := newLogged(t, c, up, policy.Settings{Deadline: 5 * time.Second, Hedge: policy.Hedge{Delay: time.Second}})
		equal(t, "the error", get(t, c, w).err.Error(), "deadline exceeded after 5s, in phase read of attempt 1 (2 attempts, deadline exhausted)")
	})
}

// TestSeenOwner: the log says whose the deadline was, if it is not the policy's.
func TestSeenOwner(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.NoReply(), clocktest.Reply(503).Header("Retry-After", "60"))
		w := newLogged(t, c, up, policy.Settings{})
		do(c, w, request(t, layers.WithDeadline(t.Context(), c.Now().Add(2*time.Second)), "GET", url, nil))
		ctx, cancel := c.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		do(c, w, request(t, ctx, "GET", url, nil))
		has(t, w.log.String(), ` reason="deadline exhausted" owner=job phases.read=2s`)
		has(t, w.log.String(), ` status=503 reason="deadline exhausted" owner=context`)
	})
}

// TestSeenMaxWait: a refusal names the limit that was set.
func TestSeenMaxWait(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200))
		tr := newTransport(t, c, up, settings(policy.Settings{Rate: policy.Rate{PerSecond: 0.1, MaxWait: time.Second}}))
		wantStatus(t, get(t, c, tr), 200)
		equal(t, "the limit", wantError(t, get(t, c, tr).err).Limit, time.Second)
	})
}
