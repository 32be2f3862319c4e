package transport_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// circuit is a policy with a breaker alone.
func circuit(b policy.Breaker) policy.Policy {
	if b.Failures == 0 && b.Ratio == 0 {
		b.Failures = 5
	}
	b.OpenJitter = policy.Off
	return settings(policy.Settings{Breaker: b, Retry: policy.Retry{Enabled: policy.Off}})
}

func wantOpen(t *testing.T, r result, retryAfter time.Duration) {
	t.Helper()
	e := wantError(t, r.err)
	if e.Layer != "breaker" || e.Sent != layers.Unsent || e.Attempts != 0 || e.RetryAfter != retryAfter {
		t.Errorf("got %+v, want a refusal of the breaker with %v to wait", e, retryAfter)
	}
	wantTook(t, r, 0)
}

func times5(t *testing.T, c *clocktest.Clock, rt http.RoundTripper) {
	t.Helper()
	for range 5 {
		get(t, c, rt)
	}
}

func TestBreakerOpensAndProbes(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(500).Times(5),
			clocktest.Reply(200).After(time.Second), clocktest.Reply(200).Forever())
		tr := newTransport(t, c, up, circuit(policy.Breaker{}))
		times5(t, c, tr)
		wantOpen(t, get(t, c, tr), 10*time.Second)
		c.Add(10*time.Second - 1)
		wantOpen(t, get(t, c, tr), 1)
		c.Add(1)
		results := fleet(t, c, tr, 2, same(t))
		wantStatus(t, results[0], 200)
		wantOpen(t, results[1], 10*time.Second) // the probe's lease
		wantStatus(t, get(t, c, tr), 200)
		equal(t, "the number of sends", len(up.Requests()), 7)
	})
}

func TestHalfOpenAdmitsAFew(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(500).Times(5), clocktest.Reply(200).After(time.Second).Forever())
		tr := newTransport(t, c, up, circuit(policy.Breaker{Probes: 3}))
		times5(t, c, tr)
		c.Add(10 * time.Second)
		var ok atomic.Int32
		var wg sync.WaitGroup
		for range 10_000 {
			wg.Go(func() {
				if get(t, c, tr).err == nil {
					ok.Add(1)
				}
			})
		}
		wg.Wait()
		equal(t, "the number let through", ok.Load(), 3)
		wantStatus(t, get(t, c, tr), 200) // three successes have closed it
		equal(t, "the state", tr.Breakers()[0].State(), layers.StateClosed)
	})
}

// TestProbeLost: whatever becomes of a probe, the next one is admitted.
func TestProbeLost(t *testing.T) {
	type lost struct {
		step clocktest.Step
		use  func(t *testing.T, c *clocktest.Clock, tr *transport.Transport)
		wait time.Duration
	}
	for name, l := range map[string]lost{
		"canceled": {clocktest.NoReply(), func(t *testing.T, c *clocktest.Clock, tr *transport.Transport) {
			ctx, cancel := context.WithCancel(t.Context())
			c.AfterFunc(time.Second, cancel)
			do(c, tr, request(t, ctx, "GET", url, nil))
		}, 0},
		"body closed early": {clocktest.Reply(200).Silent(), func(t *testing.T, c *clocktest.Clock, tr *transport.Transport) {
			resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}, 0},
		"panic": {clocktest.Func(func(*http.Request) clocktest.Step { panic("in the base") }), func(t *testing.T, c *clocktest.Clock, tr *transport.Transport) {
			defer func() { _ = recover() }()
			get(t, c, tr)
		}, 0},
		"panic in a cost function": {clocktest.Step{}, func(t *testing.T, c *clocktest.Clock, tr *transport.Transport) {
			defer func() { _ = recover() }()
			view, err := tr.With(policy.Settings{Rate: policy.Rate{Cost: func(*http.Request) int { panic("in a cost function") }}})
			if err != nil {
				t.Fatal(err)
			}
			get(t, c, view)
		}, 0},
		"refused further in": {clocktest.Step{}, func(t *testing.T, c *clocktest.Clock, tr *transport.Transport) {
			view, err := tr.With(policy.Settings{Rate: policy.Rate{Cost: func(*http.Request) int { return 1e6 }}})
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "the layer", wantError(t, get(t, c, view).err).Layer, "rate")
		}, 0},
		"hangs past its lease": {clocktest.Reply(200).Silent(), func(t *testing.T, c *clocktest.Clock, tr *transport.Transport) {
			resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { resp.Body.Close() })
		}, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				steps := []clocktest.Step{clocktest.Reply(500).Times(5)}
				if name != "refused further in" && name != "panic in a cost function" {
					steps = append(steps, l.step)
				}
				up := clocktest.NewUpstream(t, c, append(steps, clocktest.Reply(200).Forever())...)
				p := circuit(policy.Breaker{})
				p.Rate = policy.Rate{PerSecond: 1000, Burst: 1000}
				p.Deadline = time.Hour
				p.Timeouts.Read = policy.Off
				tr := newTransport(t, c, up, p)
				times5(t, c, tr)
				c.Add(10 * time.Second)
				l.use(t, c, tr)
				if l.wait > 0 {
					wantOpen(t, get(t, c, tr), l.wait)
					c.Add(l.wait)
				}
				wantStatus(t, get(t, c, tr), 200)
				equal(t, "the state", tr.Breakers()[0].State(), layers.StateClosed)
			})
		})
	}
}

func TestLateFailureChangesNothing(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		slow := clocktest.Reply(500).After(15 * time.Second)
		up := clocktest.NewUpstream(t, c, slow, clocktest.Reply(500).Times(5), clocktest.Reply(200).Forever())
		tr := newTransport(t, c, up, circuit(policy.Breaker{}))
		late := make(chan result)
		c.AfterFunc(0, func() { late <- get(t, c, tr) })
		c.Add(0)
		times5(t, c, tr)
		c.Add(10 * time.Second)
		wantStatus(t, get(t, c, tr), 200)
		wantStatus(t, <-late, 500)
		equal(t, "the state", tr.Breakers()[0].State(), layers.StateClosed)
	})
}

// TestVerdicts: what counts for the circuit, and what does not.
func TestVerdicts(t *testing.T) {
	canceled := func(t *testing.T, c *clocktest.Clock) context.Context {
		ctx, cancel := context.WithCancel(t.Context())
		c.AfterFunc(time.Second, cancel)
		return ctx
	}
	short := func(t *testing.T, c *clocktest.Clock) context.Context {
		ctx, cancel := c.WithTimeout(t.Context(), time.Second)
		t.Cleanup(cancel)
		return ctx
	}
	job := func(t *testing.T, c *clocktest.Clock) context.Context {
		return layers.WithDeadline(t.Context(), c.Now().Add(time.Second))
	}
	for name, v := range map[string]struct {
		step  clocktest.Step
		ctx   func(*testing.T, *clocktest.Clock) context.Context
		opens bool
	}{
		"500":                     {clocktest.Reply(500), nil, true},
		"501":                     {clocktest.Reply(501), nil, false},
		"503":                     {clocktest.Reply(503), nil, true},
		"404":                     {clocktest.Reply(404), nil, false},
		"429":                     {clocktest.Reply(429), nil, false},
		"refused connection":      {clocktest.FailDial(clocktest.ErrRefused), nil, true},
		"reset":                   {clocktest.Fail(clocktest.ErrReset), nil, true},
		"phase":                   {clocktest.NoReply(), nil, true},
		"body dies":               {clocktest.Reply(200).Chunks(clocktest.Chunk{After: time.Second}).Fail(io.ErrUnexpectedEOF), nil, true},
		"body stalls":             {clocktest.Reply(200).Silent(), nil, true},
		"caller cancels":          {clocktest.NoReply(), canceled, false},
		"caller cancels the body": {clocktest.Reply(200).Silent(), canceled, false},
		"caller's deadline":       {clocktest.NoReply(), short, false},
		"job's deadline":          {clocktest.NoReply(), job, false},
		"200":                     {clocktest.Reply(200).Body("fine"), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, v.step.Forever())
				tr := newTransport(t, c, up, circuit(policy.Breaker{}))
				for i := range 6 {
					ctx := t.Context()
					if v.ctx != nil {
						ctx = v.ctx(t, c)
					}
					r := do(c, tr, request(t, ctx, "GET", url, nil))
					e := new(layers.Error)
					open := errors.As(r.err, &e) && e.Layer == "breaker"
					if open != (v.opens && i == 5) {
						t.Fatalf("call %d: open is %v (%v)", i, open, r.err)
					}
				}
			})
		})
	}
}

// TestDeadlineOpensTheCircuit: a server that only runs every call into its
// deadline fails.
func TestDeadlineOpensTheCircuit(t *testing.T) {
	for name, step := range map[string]clocktest.Step{"headers": clocktest.NoReply(), "body": clocktest.Reply(200).Silent()} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, step.Forever())
				p := circuit(policy.Breaker{Failures: 3})
				p.Deadline = time.Second
				tr := newTransport(t, c, up, p)
				for range 3 {
					wantTimeout(t, get(t, c, tr).err, layers.PhaseDeadline)
				}
				wantOpen(t, get(t, c, tr), 10*time.Second)
			})
		})
	}
}

// TestBodyCountsOnce: a body that dies is one failure, whoever reads on.
func TestBodyCountsOnce(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Chunks(clocktest.Chunk{Data: "x"}).Reset().Forever())
		tr := newTransport(t, c, up, circuit(policy.Breaker{Failures: 2}))
		resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err = io.ReadAll(resp.Body); err == nil {
				t.Error("no error")
			}
		}
		resp.Body.Close()
		equal(t, "the state", tr.Breakers()[0].State(), layers.StateClosed)
		get(t, c, tr)
		equal(t, "the state", tr.Breakers()[0].State(), layers.StateOpen)
	})
}

func TestOpenTimeDoubles(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(500).Times(5+4), clocktest.Reply(200), clocktest.Reply(500).Times(5))
		tr := newTransport(t, c, up, circuit(policy.Breaker{Open: 10 * time.Second, OpenMax: 35 * time.Second}))
		times5(t, c, tr)
		for _, open := range []time.Duration{10, 20, 35, 35, 35} {
			wantOpen(t, get(t, c, tr), open*time.Second)
			c.Add(open * time.Second)
			get(t, c, tr)
		}
		times5(t, c, tr)
		wantOpen(t, get(t, c, tr), 10*time.Second)
	})
}

func TestOpenJitter(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(500).Times(5))
		p := circuit(policy.Breaker{})
		p.Breaker.OpenJitter = 0.1
		times5(t, c, newTransport(t, c, up, p))
		tr := newTransport(t, c, clocktest.NewUpstream(t, c, clocktest.Reply(500).Times(5)), p)
		times5(t, c, tr)
		wantOpen(t, get(t, c, tr), 11*time.Second) // the number drawn is 1
	})
}

func TestRatio(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c,
			clocktest.Reply(500).Times(3), clocktest.Reply(200).Times(3), // forgotten
			clocktest.Reply(500).Times(2), clocktest.Reply(200).Times(2))
		tr := newTransport(t, c, up, circuit(policy.Breaker{Ratio: 0.5, MinRequests: 4, Window: time.Minute, Failures: 0}))
		for range 3 {
			get(t, c, tr)
		}
		c.Add(time.Minute)
		equal(t, "the state", tr.Breakers()[0].State(), layers.StateClosed)
		for range 3 {
			get(t, c, tr)
		}
		c.Add(time.Minute)
		get(t, c, tr)
		get(t, c, tr)
		get(t, c, tr)
		equal(t, "the state", tr.Breakers()[0].State(), layers.StateClosed)
		get(t, c, tr) // a success that completes the number is judged on too
		wantOpen(t, get(t, c, tr), 10*time.Second)
	})
}

func TestOpenCircuitSpendsNothing(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		tr := newTransport(t, c, up, settings(policy.Settings{
			Breaker: policy.Breaker{Failures: 1}, Rate: policy.Rate{PerSecond: 0.01, Burst: 2}, InFlight: policy.InFlight{Max: 1},
		}))
		get(t, c, tr)
		b := tr.Breakers()[0]
		b.ForceOpen()
		for range 100 {
			wantOpen(t, get(t, c, tr), 0)
		}
		b.Auto()
		wantTook(t, get(t, c, tr), 0) // the second turn is still there
	})
}

// TestCircuitOpensWhileWaiting: after a wait for a turn, the circuit is asked
// again.
func TestCircuitOpensWhileWaiting(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(500).After(time.Millisecond))
		tr := newTransport(t, c, up, settings(policy.Settings{
			Breaker: policy.Breaker{Failures: 1, OpenJitter: policy.Off}, Rate: policy.Rate{PerSecond: 1, Burst: 1},
			Retry: policy.Retry{Enabled: policy.Off},
		}))
		results := fleet(t, c, tr, 2, same(t))
		wantStatus(t, results[0], 500)
		e := wantError(t, results[1].err)
		equal(t, "the layer", e.Layer, "breaker")
		wantTook(t, results[1], time.Second)
		c.Add(10 * time.Second)
	})
}

// TestBreakerEvents: changes of state come in order, under no lock, so that an
// observer may call back.
func TestBreakerEvents(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(500).Times(5), clocktest.Reply(500), clocktest.Reply(200).Forever())
		var tr *transport.Transport
		var states []layers.State
		tr = newTransport(t, c, up, circuit(policy.Breaker{}), observer(func(_ context.Context, e layers.Event) {
			if e.Kind == layers.KindBreaker {
				if states = append(states, e.State); len(states) == 1 {
					equal(t, "the line of the event", e.String(), "breaker open 10s")
				}
				for _, b := range tr.Breakers() {
					b.State()
					b.Auto()
				}
			}
		}))
		times5(t, c, tr)
		c.Add(10 * time.Second)
		get(t, c, tr)
		c.Add(20 * time.Second)
		get(t, c, tr)
		want := []layers.State{layers.StateOpen, layers.StateHalfOpen, layers.StateOpen, layers.StateHalfOpen, layers.StateClosed}
		if len(states) != len(want) {
			t.Fatalf("told %v, want %v", states, want)
		}
		for i := range want {
			equal(t, "the state", states[i], want[i])
		}
	})
}

func TestForce(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(500).Forever())
		tr := newTransport(t, c, up, circuit(policy.Breaker{}))
		get(t, c, tr)
		b := tr.Breakers()[0]
		equal(t, "the key", b.Key(), "http://api.example")
		b.ForceClosed()
		for range 20 {
			wantStatus(t, get(t, c, tr), 500)
		}
		b.ForceOpen()
		equal(t, "the state", b.State(), layers.StateOpen)
		wantOpen(t, get(t, c, tr), 0)
		b.Auto()
		for range 4 {
			wantStatus(t, get(t, c, tr), 500)
		}
		wantOpen(t, get(t, c, tr), 10*time.Second)
	})
}

func TestManyHosts(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		base := layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
		})
		p := circuit(policy.Breaker{})
		p.Rate = policy.Rate{PerSecond: 100, Burst: 100}
		tr := newTransport(t, c, base, p)
		for i := range 12_000 {
			req := request(t, t.Context(), "GET", url, nil)
			req.URL.Host = "h" + time.Duration(i).String() + ".example"
			if r := do(c, tr, req); r.err != nil {
				t.Fatal(r.err)
			}
		}
		if n := len(tr.Breakers()); n > 10_000 {
			t.Errorf("%d circuits are kept, want 10,000 at most", n)
		}
	})
}

// fragile is a policy of a breaker that opens at the first failure, and nothing
// else, as change leaves it.
func fragile(change func(*policy.Settings)) policy.Policy {
	s := policy.Settings{
		Retry: policy.Retry{Enabled: policy.Off}, Timeouts: policy.Timeouts{Read: policy.Off},
		Breaker: policy.Breaker{Failures: 1, Open: 10 * time.Second, OpenJitter: policy.Off, Probes: 1},
	}
	if change != nil {
		change(&s)
	}
	return settings(s)
}

// TestProbeThatWaitedCloses: a probe that has to wait for its turn for longer than its
// lease is leased anew when it is sent, and counts.
func TestProbeThatWaitedCloses(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).Header("Retry-After", "25"), clocktest.Reply(200).After(time.Second).Forever())
		tr := newTransport(t, c, up, fragile(func(s *policy.Settings) { s.Rate = policy.Rate{PerSecond: 100, Burst: 1} }))
		get(t, c, tr)
		c.Add(10 * time.Second)
		get(t, c, tr)
		equal(t, "the state after the probe's success", tr.Breakers()[0].State(), layers.StateClosed)
	})
}

// TestProbeThatWaitedOpens: the same, of one that fails.
func TestProbeThatWaitedOpens(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).Header("Retry-After", "25"), clocktest.Reply(500).After(time.Second).Forever())
		tr := newTransport(t, c, up, fragile(func(s *policy.Settings) { s.Rate = policy.Rate{PerSecond: 100, Burst: 1} }))
		get(t, c, tr)
		c.Add(10 * time.Second)
		get(t, c, tr)
		equal(t, "the state after the probe's failure", tr.Breakers()[0].State(), layers.StateOpen)
	})
}

// TestProbeThatWaitedIsAlone: the same, while others ask.
func TestProbeThatWaitedIsAlone(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).Header("Retry-After", "25"), clocktest.Reply(200).After(5*time.Second).Forever())
		tr := newTransport(t, c, up, fragile(func(s *policy.Settings) { s.Rate = policy.Rate{PerSecond: 100, Burst: 1} }))
		get(t, c, tr)
		c.Add(10 * time.Second)
		var wg sync.WaitGroup
		wg.Go(func() { get(t, c, tr) }) // the probe, sent at 25 s
		c.Add(16 * time.Second)
		for range 5 {
			wg.Go(func() { get(t, c, tr) })
			c.Add(100 * time.Millisecond)
		}
		n := len(up.Requests())
		wg.Wait()
		equal(t, "sends under way in half-open with one probe", n-1, 1)
	})
}

// TestProbeSlowerThanOpen: a server that takes longer for its answers than the
// circuit stays open closes it once as many probes as it takes have been answered,
// while others ask. A failure that comes so late changes nothing.
func TestProbeSlowerThanOpen(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		slow := clocktest.Reply(200).After(25 * time.Second)
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503), clocktest.Reply(503).After(15*time.Second), slow.Forever())
		tr := newTransport(t, c, up, fragile(func(s *policy.Settings) { s.Breaker.Probes = 2 }))
		get(t, c, tr)
		c.Add(10 * time.Second)
		var wg sync.WaitGroup
		state := func() layers.State { return tr.Breakers()[0].State() }
		for range 4 { // at 10, 16, 22 and 28 s, with two leased at any time
			wg.Go(func() { get(t, c, tr) })
			c.Add(6 * time.Second)
		}
		equal(t, "the state after a late failure", state(), layers.StateHalfOpen)
		wg.Wait()
		equal(t, "the state after late successes", state(), layers.StateClosed)
	})
}

// TestFailureThatOpens: a failure that opens the circuit is not retried, and costs no
// backoff.
func TestFailureThatOpens(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).Body("x").Forever())
		tr := newTransport(t, c, up, settings(policy.Settings{Breaker: policy.Breaker{Failures: 1, OpenJitter: policy.Off}}))
		r := get(t, c, tr)
		equal(t, "the reason", r.call(t).Reason(), layers.ReasonCircuit)
		wantTook(t, r, 0)
	})
}

// TestLongerWindow: a longer window keeps what it has counted for as long as the
// shorter one would have, or its own length, and no longer.
func TestLongerWindow(t *testing.T) {
	for _, at := range []time.Duration{1000 * time.Second, 1003 * time.Second, 1017 * time.Second, 100000 * time.Second} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			fail := true
			up := clocktest.NewUpstream(t, c, clocktest.Func(func(r *http.Request) clocktest.Step {
				if c.Elapsed() == 0 {
					return clocktest.Reply(404)
				}
				if fail {
					return clocktest.Reply(500)
				}
				return clocktest.Reply(200)
			}).Forever())
			pol := func(w time.Duration) policy.Policy {
				return fragile(func(s *policy.Settings) {
					s.Breaker = policy.Breaker{Ratio: 0.5, MinRequests: 20, Window: w, OpenJitter: policy.Off}
				})
			}
			tr := newTransport(t, c, up, pol(10*time.Second))
			get(t, c, tr) // the stack's epoch
			c.Add(at)
			for range 15 {
				get(t, c, tr)
			}
			if err := tr.Update(pol(100 * time.Second)); err != nil {
				t.Fatal(err)
			}
			c.Add(time.Hour)
			fail = false
			for range 10 {
				get(t, c, tr)
			}
			equal(t, "the state, an hour after 15 failures and then with 10 successes", tr.Breakers()[0].State(), layers.StateClosed)
		})
	}
}

// TestShorterWindow: a shorter window keeps what has happened within it.
func TestShorterWindow(t *testing.T) {
	for _, at := range []time.Duration{1000 * time.Second, 1003 * time.Second, 1017 * time.Second, 100000 * time.Second} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, clocktest.Reply(404), clocktest.Reply(500).Forever())
			pol := func(w time.Duration) policy.Policy {
				return fragile(func(s *policy.Settings) {
					s.Breaker = policy.Breaker{Ratio: 0.5, MinRequests: 20, Window: w, OpenJitter: policy.Off}
				})
			}
			tr := newTransport(t, c, up, pol(100*time.Second))
			get(t, c, tr) // the stack's epoch
			c.Add(at)
			for range 15 {
				get(t, c, tr)
			}
			if err := tr.Update(pol(90 * time.Second)); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				get(t, c, tr)
			}
			equal(t, "the state after 20 failures", tr.Breakers()[0].State(), layers.StateOpen)
		})
	}
}

// TestShorterWindowForgets: a shorter window does not keep what has happened
// before it.
func TestShorterWindowForgets(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(500).Forever())
		pol := func(w time.Duration) policy.Policy {
			return fragile(func(s *policy.Settings) {
				s.Breaker = policy.Breaker{Ratio: 0.5, MinRequests: 20, Window: w, OpenJitter: policy.Off}
			})
		}
		tr := newTransport(t, c, up, pol(100*time.Second))
		for range 15 {
			get(t, c, tr)
		}
		c.Add(50 * time.Second)
		if err := tr.Update(pol(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		for range 19 {
			get(t, c, tr)
		}
		equal(t, "the state after 19 failures in the window", tr.Breakers()[0].State(), layers.StateClosed)
		get(t, c, tr)
		equal(t, "the state after 20", tr.Breakers()[0].State(), layers.StateOpen)
	})
}

// TestRatioJitter: a success that completes the number opens with jitter too.
func TestRatioJitter(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(500).Times(19), clocktest.Reply(200).Forever())
		tr := newTransport(t, c, up, fragile(func(s *policy.Settings) {
			s.Breaker = policy.Breaker{Ratio: 0.5, MinRequests: 20, OpenJitter: 0.5}
		}))
		for range 20 {
			get(t, c, tr)
		}
		equal(t, "state", tr.Breakers()[0].State(), layers.StateOpen)
		equal(t, "the open time, at a draw of 1", wantError(t, get(t, c, tr).err).RetryAfter, 15*time.Second)
	})
}

// TestUpgradeAsProbe: a half-open circuit whose probes are upgrades closes.
func TestUpgradeAsProbe(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		fail := true
		base := layers.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
			if fail {
				return &http.Response{StatusCode: 500, Body: http.NoBody, Header: http.Header{}, Request: r}, nil
			}
			a, b := net.Pipe()
			t.Cleanup(func() { b.Close() })
			return &http.Response{StatusCode: 101, Body: a, Header: http.Header{}, Request: r}, nil
		})
		tr := newTransport(t, c, base, fragile(nil))
		upgrade := func() (*http.Response, error) { return tr.RoundTrip(request(t, t.Context(), "GET", url, nil)) }
		_, _ = upgrade()
		c.Add(10 * time.Second)
		fail = false
		for range 5 {
			resp, err := upgrade()
			if err == nil {
				defer resp.Body.Close()
			}
			c.Add(time.Minute)
		}
		equal(t, "state after five upgrades that work", tr.Breakers()[0].State(), layers.StateClosed)
	})
}

// TestProbeIsAnsweredWithAFailure: a probe goes by the status of its answer, as soon as
// that has content.
func TestProbeIsAnsweredWithAFailure(t *testing.T) {
	for status, closes := range map[int]bool{503: false, 200: true} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, clocktest.Reply(500), clocktest.Reply(status).Chunks(clocktest.Drip("slow", 1, time.Second)...), clocktest.Reply(200))
			tr := newTransport(t, c, up, settings(policy.Settings{
				Retry: policy.Retry{Enabled: policy.Off}, Breaker: policy.Breaker{Failures: 1, OpenJitter: policy.Off},
			}))
			get(t, c, tr)
			c.Add(10 * time.Second)
			resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Read(make([]byte, 1))
			if r := get(t, c, tr); (r.err == nil) != closes {
				t.Errorf("after a probe with %d: %v", status, r.err)
			}
			resp.Body.Close()
		})
	}
}
