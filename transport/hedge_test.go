package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

func hedging(h policy.Hedge) policy.Policy {
	return settings(policy.Settings{Hedge: h, Retry: policy.Retry{MaxAttempts: 1}})
}

func TestHedgeAfterDelay(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c,
			clocktest.NoReply(),
			clocktest.Reply(200).After(time.Second).Chunks(clocktest.Chunk{After: 5 * time.Second, Data: "the faster"}))
		tr := newTransport(t, c, up, hedging(policy.Hedge{Delay: 2 * time.Second}))
		r := get(t, c, tr)
		wantStatus(t, r, 200)
		equal(t, "the body", r.body, "the faster") // read after the loser was cancelled
		wantTook(t, r, 8*time.Second)
		equal(t, "the number of sends", r.call(t).Attempts(), 2)
		sent := up.Requests()
		equalTimes(t, times(c, up), 0, 2*time.Second)
		if !sent[0].Canceled || sent[0].End.Sub(sent[0].At) != 3*time.Second {
			t.Errorf("the loser ended after %v, canceled %v", sent[0].End.Sub(sent[0].At), sent[0].Canceled)
		}
	})
}

func TestHedgeNotNeeded(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(time.Second).Chunks(clocktest.Chunk{After: time.Minute, Data: "x"}))
		tr := newTransport(t, c, up, hedging(policy.Hedge{Delay: 2 * time.Second}))
		wantStatus(t, func() result { r := get(t, c, tr); r.err = nil; return r }(), 200)
		equal(t, "the number of sends", len(up.Requests()), 1)
	})
}

func TestFirstWins(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(3*time.Second).Body("first"), clocktest.NoReply())
		tr := newTransport(t, c, up, hedging(policy.Hedge{Delay: 2 * time.Second}))
		r := get(t, c, tr)
		equal(t, "the body", r.body, "first")
		c.Add(0)
		equal(t, "whether the hedge was canceled", up.Requests()[1].Canceled, true)
	})
}

func TestHedgeAtOnceAfterAFailure(t *testing.T) {
	for name, first := range map[string]clocktest.Step{
		"503":   clocktest.Reply(503).After(time.Second).Body("busy"),
		"reset": clocktest.Fail(clocktest.ErrReset).After(time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, first, clocktest.Reply(200).Body("fine"))
				tr := newTransport(t, c, up, hedging(policy.Hedge{Delay: 10 * time.Second}))
				r := get(t, c, tr)
				wantStatus(t, r, 200)
				wantTook(t, r, time.Second)
			})
		})
	}
}

func TestHedgesAllFail(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c,
			clocktest.Reply(503).After(3*time.Second).Body("first"), clocktest.Reply(502).After(5*time.Second), clocktest.Reply(500))
		tr := newTransport(t, c, up, hedging(policy.Hedge{Delay: time.Second, Max: 2}))
		r := get(t, c, tr)
		wantStatus(t, r, 503)
		equal(t, "the body", r.body, "first")
		wantTook(t, r, 6*time.Second)
		equalTimes(t, times(c, up), 0, time.Second, 2*time.Second)
	})
}

// TestSlowAnswerBeforeAHedge: a hedge after a failure begins at once, however slowly the
// body of the failed answer comes, which can still be the outcome.
func TestSlowAnswerBeforeAHedge(t *testing.T) {
	for name, then := range map[string]clocktest.Step{"busy": clocktest.Fail(clocktest.ErrReset).After(5 * time.Second), "fine": clocktest.Reply(200).Body("fine")} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c,
					clocktest.Reply(503).Chunks(clocktest.Chunk{Data: "bu"}, clocktest.Chunk{After: time.Second / 2, Data: "sy"}), then)
				r := get(t, c, newTransport(t, c, up, hedging(policy.Hedge{Delay: 10 * time.Second})))
				equalTimes(t, times(c, up), 0, 0)
				equal(t, "the body", r.body, name)
				equal(t, "the error", r.err, nil)
			})
		})
	}
}

// TestHedgeDuringASlowAnswer: a hedge that is answered is the outcome at once, while the
// body of the answer that failed before is still awaited.
func TestHedgeDuringASlowAnswer(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		busy := clocktest.Reply(503).Chunks(clocktest.Chunk{After: time.Second / 2, Data: "busy"})
		up := clocktest.NewUpstream(t, c, busy, clocktest.Reply(200).After(time.Second/10))
		r := get(t, c, newTransport(t, c, up, hedging(policy.Hedge{Delay: 10 * time.Second})))
		wantStatus(t, r, 200)
		wantTook(t, r, time.Second/10)
	})
}

// TestLateAnswerOfTheFirst: the first answer of a hedged call is its outcome, also if the
// first send is answered later, since it does not hear that it was given up.
func TestLateAnswerOfTheFirst(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		var sends atomic.Int32
		var bodies [2]closeCounter
		base := layers.RoundTripperFunc(func(*http.Request) (*http.Response, error) {
			n := sends.Add(1)
			if n == 1 {
				c.Sleep(3 * time.Second)
			}
			bodies[n-1].Reader = strings.NewReader(fmt.Sprint("send ", n))
			return &http.Response{StatusCode: 200, Body: &bodies[n-1]}, nil
		})
		r := get(t, c, newTransport(t, c, base, hedging(policy.Hedge{Delay: time.Second})))
		wantStatus(t, r, 200)
		equal(t, "the body", r.body, "send 2")
		for i := range bodies {
			equal(t, "the number of closes", int(bodies[i].closes.Load()), 1)
		}
	})
}

// TestHedgeAsksForAnother: a layer that stands inside may ask for one more send on
// behalf of the hedge that was answered first.
func TestHedgeAsksForAnother(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.NoReply(), clocktest.Reply(401), clocktest.Reply(200))
		ask := around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil && resp.StatusCode == 401 {
				layers.RetryOnce(req.Context(), "refused")
			}
			return resp, err
		})
		r := get(t, c, newTransport(t, c, up, hedging(policy.Hedge{Delay: time.Second}), inner(ask)))
		wantStatus(t, r, 200)
		equal(t, "the number of attempts", r.call(t).Attempts(), 3)
	})
}

// TestWhatAHedgeMends: what is worth a hedge at once is what is worth a retry.
func TestWhatAHedgeMends(t *testing.T) {
	check := func(_ context.Context, resp *http.Response, err error) (bool, error) {
		return err == nil && resp.StatusCode == 409, nil
	}
	for name, set := range map[string]policy.Retry{
		"statuses": {MaxAttempts: 1, Statuses: []int{409}},
		"check":    {MaxAttempts: 1, Check: check},
	} {
		t.Run(name, func(t *testing.T) {
			for first, sends := range map[int]int{409: 2, 500: 1} {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					up := clocktest.NewUpstream(t, c, clocktest.Reply(first), clocktest.Reply(200).Forever())
					tr := newTransport(t, c, up, settings(policy.Settings{Hedge: policy.Hedge{Delay: time.Second}, Retry: set}))
					wantTook(t, get(t, c, tr), 0)
					equal(t, "the number of sends", len(up.Requests()), sends)
				})
			}
		})
	}
}

// TestHintToAHedge: what the server asks of one send, it asks of all.
func TestHintToAHedge(t *testing.T) {
	hinted := clocktest.Reply(503).Header("Retry-After", "20")
	t.Run("hedge", func(t *testing.T) {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(30*time.Second), hinted, clocktest.Reply(200).After(time.Minute))
			p := hedging(policy.Hedge{Delay: time.Second, Max: 2})
			p.Timeouts.Read = policy.Off
			wantStatus(t, get(t, c, newTransport(t, c, up, p)), 200)
			equalTimes(t, times(c, up), 0, time.Second, 21*time.Second)
		})
	})
	t.Run("retry", func(t *testing.T) {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, clocktest.Reply(503).After(3*time.Second), hinted, clocktest.Reply(200))
			tr := newTransport(t, c, up, settings(policy.Settings{Hedge: policy.Hedge{Delay: time.Second}}))
			wantStatus(t, get(t, c, tr), 200)
			equalTimes(t, times(c, up), 0, time.Second, 21*time.Second)
		})
	})
	t.Run("none", func(t *testing.T) {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, clocktest.Fail(clocktest.ErrReset).After(3*time.Second), hinted)
			tr := newTransport(t, c, up, settings(policy.Settings{Hedge: policy.Hedge{Delay: time.Second}, Retry: policy.Retry{MaxHint: 10 * time.Second}}))
			e := wantError(t, get(t, c, tr).err)
			equal(t, "the reason", e.Reason, layers.ReasonHint)
		})
	})
}

// atSend does something before the nth send.
func atSend(n int32, do func()) layers.Layer {
	var sends atomic.Int32
	return func(next http.RoundTripper) http.RoundTripper {
		return layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			if sends.Add(1) == n {
				do()
			}
			return next.RoundTrip(req)
		})
	}
}

// TestHedgeGoexit: a hedge that ends its goroutine is one that failed.
func TestHedgeGoexit(t *testing.T) {
	for name, first := range map[string]clocktest.Step{
		"slow":   clocktest.Reply(200).After(5 * time.Second),
		"failed": clocktest.Reply(503).After(5 * time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, first)
				p := hedging(policy.Hedge{Delay: time.Second})
				p.InFlight = policy.InFlight{Max: 2}
				tr := newTransport(t, c, up, p, inner(atSend(2, runtime.Goexit)))
				r := get(t, c, tr)
				wantTook(t, r, 5*time.Second)
				equal(t, "the error", r.err, nil)
				equal(t, "the slots in use", tr.Slots()[0].Used, 0)
			})
		})
	}
}

// TestDeafHedge: a hedge that does not hear that its context has ended keeps no call
// beyond its deadline.
func TestDeafHedge(t *testing.T) {
	for name, first := range map[string]clocktest.Step{
		"answer": clocktest.Reply(503).After(2 * time.Second).Body("busy"),
		"error":  clocktest.Fail(clocktest.ErrReset).After(2 * time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, first, clocktest.Reply(200).Forever())
				p := hedging(policy.Hedge{Delay: time.Second})
				p.Deadline = 10 * time.Second
				r := get(t, c, newTransport(t, c, up, p, inner(atSend(2, func() { c.Sleep(time.Minute) }))))
				wantTook(t, r, 10*time.Second)
				if name == "answer" {
					equal(t, "the body", r.body, "busy")
				} else {
					e := wantTimeout(t, r.err, layers.PhaseDeadline)
					equal(t, "what was sent", e.Sent, layers.MaybeSent)
				}
				c.Add(time.Minute)
			})
		})
	}
}

// TestPanicInAHedge: it is the caller's, unless the call has its answer: then nothing
// happens to that.
func TestPanicInAHedge(t *testing.T) {
	boom := errors.New("boom")
	for name, after := range map[string]time.Duration{"before the answer": 0, "after it": 1500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(2*time.Second).Chunks(clocktest.Drip("abcdef", 1, time.Second)...))
				tr := newTransport(t, c, up, hedging(policy.Hedge{Delay: time.Second}), inner(atSend(2, func() {
					c.Sleep(after)
					panic(boom)
				})))
				defer func() {
					if p := recover(); (p == boom) != (after == 0) {
						t.Errorf("the caller recovered %v", p)
					}
				}()
				r := get(t, c, tr)
				wantStatus(t, r, 200)
				equal(t, "the body", r.body, "abcdef")
			})
		})
	}
}

// TestHedgeWithoutItsBody: a hedge whose body cannot be had is not sent, and leaves the
// first send's alone.
func TestHedgeWithoutItsBody(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(3*time.Second).Body("first"))
		body := &closeCounter{Reader: strings.NewReader("x")}
		req := request(t, t.Context(), "PUT", url, body)
		req.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("no longer there") }
		r := do(c, newTransport(t, c, up, hedging(policy.Hedge{Delay: time.Second})), req)
		wantStatus(t, r, 200)
		equal(t, "the body", r.body, "first")
		equal(t, "the number of attempts", r.call(t).Attempts(), 1)
		equal(t, "the number of closes", int(body.closes.Load()), 1)
	})
}

func TestNotHedged(t *testing.T) {
	for name, req := range map[string]func(t *testing.T) *http.Request{
		"POST": func(t *testing.T) *http.Request { return request(t, t.Context(), "POST", url, strings.NewReader("x")) },
		"a body that cannot be had again": func(t *testing.T) *http.Request {
			return request(t, t.Context(), "PUT", url, io.NopCloser(strings.NewReader("x")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(20*time.Second))
				wantStatus(t, do(c, newTransport(t, c, up, hedging(policy.Hedge{Delay: time.Second})), req(t)), 200)
			})
		})
	}
}

// TestHedgeRefused: a hedge that a gate refuses changes nothing.
func TestHedgeRefused(t *testing.T) {
	for name, gate := range map[string]policy.Settings{
		"rate":      {Rate: policy.Rate{PerSecond: 0.001, Burst: 1}},
		"in-flight": {InFlight: policy.InFlight{Max: 1}},
		"wait":      {Rate: policy.Rate{PerSecond: 0.1, Burst: 1}}, // its turn comes after the answer
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(5*time.Second))
				p := hedging(policy.Hedge{Delay: time.Second})
				p.Settings = p.With(gate)
				r := get(t, c, newTransport(t, c, up, p))
				wantStatus(t, r, 200)
				wantTook(t, r, 5*time.Second)
				equal(t, "the number of sends", r.call(t).Attempts(), 1)
			})
		})
	}
}

// TestHedgeAfterACountedFailure: a circuit that has counted a failure, and is closed,
// is no reason against a hedge.
func TestHedgeAfterACountedFailure(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(404), clocktest.Fail(clocktest.ErrReset).Times(2), clocktest.NoReply(), clocktest.Reply(200))
		p := hedging(policy.Hedge{Delay: time.Second})
		p.Breaker = policy.Breaker{Failures: 5}
		tr := newTransport(t, c, up, p)
		get(t, c, tr)
		get(t, c, tr)
		wantStatus(t, get(t, c, tr), 200)
		equalTimes(t, times(c, up), 0, 0, 0, 0, time.Second)
	})
}

func TestNoHedgeInHalfOpen(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(500), clocktest.Reply(200).After(5*time.Second))
		p := hedging(policy.Hedge{Delay: time.Second})
		p.Breaker = policy.Breaker{Failures: 1, Probes: 5, OpenJitter: policy.Off}
		tr := newTransport(t, c, up, p)
		view, err := tr.With(policy.Settings{Hedge: policy.Hedge{Enabled: policy.Off}})
		if err != nil {
			t.Fatal(err)
		}
		get(t, c, view)
		c.Add(10 * time.Second)
		wantStatus(t, get(t, c, tr), 200)
	})
}

// TestHedgeAndDeadline: all sends end with the call.
func TestHedgeAndDeadline(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.NoReply().Forever())
		p := hedging(policy.Hedge{Delay: time.Second, Max: 3})
		p.Deadline = 10 * time.Second
		r := get(t, c, newTransport(t, c, up, p))
		wantTimeout(t, r.err, layers.PhaseDeadline)
		wantTook(t, r, 10*time.Second)
		c.Add(0)
		for i, sent := range up.Requests() {
			if !sent.Canceled {
				t.Errorf("send %d is still under way", i)
			}
		}
		equal(t, "the number of sends", len(up.Requests()), 4)
	})
}

func TestHedgeThenRetry(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503), clocktest.Reply(503), clocktest.Reply(200).Body("fine"))
		p := hedging(policy.Hedge{Delay: 10 * time.Second})
		p.Retry = policy.Retry{MaxAttempts: 2, BaseDelay: time.Second}
		r := get(t, c, newTransport(t, c, up, p))
		wantStatus(t, r, 200)
		equal(t, "the body", r.body, "fine")
		wantTook(t, r, time.Second)
	})
}

// TestHedgeDelayBeginsBehindTheGates: while the first send waits for its turn, there is
// nothing to hedge.
func TestHedgeDelayBeginsBehindTheGates(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		tr := newTransport(t, c, up, settings(policy.Settings{
			Deadline: 5500 * time.Millisecond,
			Rate:     policy.Rate{PerSecond: 1, Burst: 1}, Hedge: policy.Hedge{Delay: 100 * time.Millisecond}, Retry: policy.Retry{Enabled: policy.Off},
		}))
		var wg sync.WaitGroup
		for range 4 { // turns at 0, 1, 2, 3
			wg.Go(func() { get(t, c, tr) })
		}
		c.Add(200 * time.Millisecond)
		r := get(t, c, tr) // turn at 4
		wg.Wait()
		if r.err != nil {
			t.Errorf("refused after %v: %v", r.took, r.err)
		}
	})
}

// TestDeadlineDuringHedge: when the deadline passes while a hedge is under way, the
// failed answer that there is can be read.
func TestDeadlineDuringHedge(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).After(2*time.Second).Body("busy"), clocktest.NoReply().Forever())
		tr := newTransport(t, c, up, settings(policy.Settings{Deadline: 10 * time.Second, Hedge: policy.Hedge{Delay: time.Second}, Retry: policy.Retry{Enabled: policy.Off}}))
		r := get(t, c, tr)
		if r.resp == nil || r.body != "busy" {
			t.Errorf("got body %q, error %v; want the answer that came", r.body, r.err)
		}
	})
}

// TestFailedFirstFreesItsSlot: a failed answer that waits for its hedge does not keep
// the slot that the hedge needs.
func TestFailedFirstFreesItsSlot(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).After(time.Second).Body("busy"), clocktest.Reply(200))
		tr := newTransport(t, c, up, settings(policy.Settings{Hedge: policy.Hedge{Delay: 5 * time.Second}, InFlight: policy.InFlight{Max: 1}, Retry: policy.Retry{Enabled: policy.Off}}))
		wantStatus(t, get(t, c, tr), 200)
	})
}

// TestHedgesAskOnce: of two sends whose layers each ask for one more, either may
// win. There is one.
func TestHedgesAskOnce(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		var n atomic.Int32
		refused := around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			nth := n.Add(1)
			resp, err := next.RoundTrip(req)
			if nth > 2 {
				return resp, err
			}
			if nth == 1 {
				time.Sleep(time.Millisecond) // it asks last, and wins
			}
			if !layers.RetryOnce(req.Context(), "refused") {
				t.Errorf("send %d gets no other", nth)
			}
			if nth == 2 {
				time.Sleep(time.Second)
			}
			return resp, err
		})
		up := clocktest.NewUpstream(t, c, clocktest.Reply(401).After(2*time.Second), clocktest.Reply(401).After(time.Second), clocktest.Reply(200))
		r := get(t, c, newTransport(t, c, up, hedging(policy.Hedge{Delay: time.Second}), inner(refused)))
		wantStatus(t, r, 200)
		equal(t, "the number of requests", len(up.Requests()), 3)
		time.Sleep(time.Minute)
	})
}

// TestHedgeBehindALayer: a layer of the user's that stands around hedges takes nothing
// from them.
func TestHedgeBehindALayer(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		env := &layers.Env{Clock: c}
		up := clocktest.NewUpstream(t, c, clocktest.NoReply(), clocktest.Reply(200))
		r := get(t, c, layers.Chain(up, layers.Retry(env, noWait), around(passOn), layers.Hedge(env, policy.Hedge{Delay: time.Second})))
		wantStatus(t, r, 200)
		wantTook(t, r, time.Second)
	})
}

// TestSendAfterHedges: what bounds the reading of a failed answer, while another send is
// made, does not bound what a layer of the user's sends afterwards.
func TestSendAfterHedges(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		env := &layers.Env{Clock: c}
		twice := around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err != nil {
				return nil, err
			}
			drain(resp)
			return next.RoundTrip(req)
		})
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).Body("no"), clocktest.Reply(503).After(time.Millisecond), clocktest.Reply(200).After(time.Minute))
		r := get(t, c, layers.Chain(up, layers.Deadline(env, time.Hour), twice, layers.Hedge(env, policy.Hedge{Delay: time.Hour})))
		wantStatus(t, r, 200)
		wantTook(t, r, time.Minute+time.Millisecond)
	})
}

// TestHedgeOfARefusedSend: the body of what a layer of the user's sends again is closed if
// only a hedge of that goes.
func TestHedgeOfARefusedSend(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		env := &layers.Env{Clock: c}
		twice := around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			if _, err := next.RoundTrip(req); err == nil {
				t.Error("no error")
			}
			return next.RoundTrip(again(req))
		})
		var bodies tracked
		req := request(t, t.Context(), "PUT", url, bodies.open("text"))
		req.GetBody = func() (io.ReadCloser, error) { return bodies.open("text"), nil }
		up := clocktest.NewUpstream(t, c, clocktest.NoReply().Times(2), clocktest.Reply(200))
		rt := layers.Chain(up, layers.Deadline(env, time.Minute), twice, layers.Hedge(env, policy.Hedge{Delay: time.Hour}),
			layers.Inner(env, around(passOn)), layers.Timeouts(env, policy.Timeouts{Read: time.Second}))
		wantStatus(t, do(c, rt, req), 200)
		bodies.check(t)
	})
}
