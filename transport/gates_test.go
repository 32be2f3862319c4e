package transport_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

// TestTwoBudgetsAreNotStarved: a call that needs a turn in two budgets, each kept
// busy by calls that need only the one, has both within its MaxWait.
func TestTwoBudgetsAreNotStarved(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		off := policy.Rate{Enabled: policy.Off}
		tr := newTransport(t, c, up, policy.Policy{
			Settings: policy.Settings{
				Deadline: 10 * time.Minute,
				Budgets:  map[string]policy.Rate{"a": {PerSecond: 1, Burst: 1, MaxWait: 20 * time.Second}, "b": {PerSecond: 1, Burst: 1, MaxWait: 20 * time.Second}},
			},
			Routes: []policy.Route{
				{Pattern: "/a", Settings: policy.Settings{Budgets: map[string]policy.Rate{"b": off}}},
				{Pattern: "/b", Settings: policy.Settings{Budgets: map[string]policy.Rate{"a": off}}},
			},
		})
		end := 100 * time.Second
		var wg sync.WaitGroup
		for _, p := range []string{"/a", "/b"} {
			for range 3 {
				wg.Go(func() {
					for c.Elapsed() < end {
						do(c, tr, request(t, t.Context(), "GET", "http://api.example"+p, nil))
					}
				})
			}
		}
		c.Add(500 * time.Millisecond)
		r := get(t, c, tr)
		wg.Wait()
		if r.took > 21*time.Second {
			t.Errorf("a call with MaxWait 20s in both budgets, each of which has a turn for it within 4 s, took %v: %v", r.took, r.err)
		}
	})
}

// TestTwoBudgetsInOrder: calls that need two budgets are sent in the order in
// which they came, however often the second runs dry.
func TestTwoBudgetsInOrder(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		var mu sync.Mutex
		var order []string
		up := clocktest.NewUpstream(t, c, clocktest.Func(func(r *http.Request) clocktest.Step {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, r.Header.Get("N"))
			return clocktest.Reply(200)
		}).Forever())
		off := policy.Rate{Enabled: policy.Off}
		tr := newTransport(t, c, up, policy.Policy{
			Settings: policy.Settings{
				Deadline: 10 * time.Minute,
				Budgets:  map[string]policy.Rate{"a": {PerSecond: 0.2, Burst: 1}, "b": {PerSecond: 1, Burst: 1}},
			},
			Routes: []policy.Route{
				{Pattern: "/b", Settings: policy.Settings{Budgets: map[string]policy.Rate{"a": off}}},
			},
		})
		var wg sync.WaitGroup
		call := func(n, u string) {
			wg.Go(func() {
				req := request(t, t.Context(), "GET", u, nil)
				req.Header.Set("N", n)
				do(c, tr, req)
			})
			c.Add(0)
		}
		call("0", url)
		call("1", url)
		call("2", url)
		call("3", url)
		c.Add(4500 * time.Millisecond) // b is idle: 4 tokens capped at 1
		for range 8 {
			call("b", "http://api.example/b")
		}
		wg.Wait()
		var both []string
		for _, n := range order {
			if n != "b" {
				both = append(both, n)
			}
		}
		equal(t, "the order", strings.Join(both, ""), "0123")
	})
}

// TestTurnsAreTakenTogether: a call that has come to its turn in one budget, and
// waits for that in another, has spent nothing meanwhile: the next in line comes
// a whole turn after it was sent.
func TestTurnsAreTakenTogether(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		off := policy.Rate{Enabled: policy.Off}
		tr := newTransport(t, c, up, policy.Policy{
			Settings: policy.Settings{Budgets: map[string]policy.Rate{"a": {PerSecond: 1, Burst: 1}, "b": {PerSecond: 2, Burst: 1}}},
			Routes: []policy.Route{
				{Pattern: "/a", Settings: policy.Settings{Budgets: map[string]policy.Rate{"b": off}}},
				{Pattern: "/b", Settings: policy.Settings{Budgets: map[string]policy.Rate{"a": off}}},
			},
		})
		var wg sync.WaitGroup
		ask := func(path string) {
			wg.Go(func() { do(c, tr, request(t, t.Context(), "GET", "http://api.example"+path, nil)) })
			c.Add(0)
		}
		ask("/")
		ask("/")  // has its turn in a at 1 s
		ask("/a") // is behind it
		c.Add(900 * time.Millisecond)
		ask("/b") // takes what there is of b until 1.4 s
		wg.Wait()
		const tenth = 100 * time.Millisecond
		equalTimes(t, times(c, up), 0, 9*tenth, 14*tenth, 24*tenth)
	})
}

// TestMaxWaitOfOneBudget: MaxWait of a budget bounds the wait for that budget.
func TestMaxWaitOfOneBudget(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		tr := newTransport(t, c, up, settings(policy.Settings{
			Rate:    policy.Rate{PerSecond: 100, Burst: 100, MaxWait: policy.Off},
			Budgets: map[string]policy.Rate{"slow": {PerSecond: 1, Burst: 1}},
		}))
		rs := fleet(t, c, tr, 2, same(t))
		if rs[1].err != nil {
			t.Errorf("the budget whose MaxWait is Off has 98 turns, the other may be waited for: %v", rs[1].err)
		}
	})
}

// TestMaxWaitBesideALongerWait: a budget whose turn would come after its MaxWait
// refuses at once, also if that of another has to be waited for longer.
func TestMaxWaitBesideALongerWait(t *testing.T) {
	for limit, longest := range map[time.Duration]time.Duration{policy.Off: 0, time.Second: time.Second} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
			tr := newTransport(t, c, up, settings(policy.Settings{
				Rate:    policy.Rate{PerSecond: 0.25, Burst: 1, MaxWait: limit},
				Budgets: map[string]policy.Rate{"slow": {PerSecond: 0.2, Burst: 1}},
			}))
			get(t, c, tr)
			r := get(t, c, tr)
			wantTook(t, r, 0)
			e := wantError(t, r.err)
			equal(t, "the reason", e.Reason, layers.ReasonMaxWait)
			equal(t, "the limit", e.Limit, longest)
			equal(t, "the time to come back", e.RetryAfter, 4*time.Second)
			c.Add(4 * time.Second)
			wantTook(t, get(t, c, tr), time.Second) // only the other is to be waited for
		})
	}
}

// TestFreeSlotIsNotKept: a call that has waited for a slot, and then waits for its
// turn, leaves the slot to those that can use it; MaxWait bounds both waits.
func TestFreeSlotIsNotKept(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(429).After(time.Second).Header("Retry-After", "50"), clocktest.Reply(200).Forever())
		tr := newTransport(t, c, up, policy.Policy{
			Settings: policy.Settings{
				Deadline: 2 * time.Minute, Retry: policy.Retry{Enabled: policy.Off}, Timeouts: policy.Timeouts{Read: policy.Off},
				InFlight: policy.InFlight{Max: 1, MaxWait: 3 * time.Second},
				Rate:     policy.Rate{PerSecond: 10, Burst: 10},
			},
			Routes: []policy.Route{{Pattern: "/free", Settings: policy.Settings{Rate: policy.Rate{Enabled: policy.Off}}}},
		})
		var a, b, f result
		var wg sync.WaitGroup
		wg.Go(func() { a = get(t, c, tr) })
		c.Add(0)
		wg.Go(func() { b = get(t, c, tr) }) // waits for the slot, which is free at 1 s, and then for the pause
		c.Add(2 * time.Second)
		// Nothing is in flight now.
		f = do(c, tr, request(t, t.Context(), "GET", "http://api.example/free", nil))
		wg.Wait()
		wantStatus(t, a, 429)
		equal(t, "the reason", wantError(t, b.err).Reason, layers.ReasonMaxWait)
		wantTook(t, b, time.Second) // when the pause begins
		if f.err != nil || f.took > 0 {
			t.Errorf("a free slot is refused: after %v %v", f.took, f.err)
		}
	})
}

// TestUpdateReachesWaiters: new numbers of a budget count for those that wait for it.
func TestUpdateReachesWaiters(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		pol := func(r float64) policy.Policy {
			return settings(policy.Settings{Rate: policy.Rate{PerSecond: r, Burst: 1}})
		}
		tr := newTransport(t, c, up, pol(0.02))
		get(t, c, tr)
		var r result
		var wg sync.WaitGroup
		wg.Go(func() { r = get(t, c, tr) })
		c.Add(time.Second)
		if err := tr.Update(pol(10)); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if r.took > 2*time.Second {
			t.Errorf("took %v after an Update at 1s to 10 a second", r.took)
		}
	})
}

// TestUpdateKeepsFailures: a circuit has seen what it has seen, also when the number
// of its probes changes.
func TestUpdateKeepsFailures(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(500).Forever())
		pol := func(probes int) policy.Policy {
			return settings(policy.Settings{Retry: policy.Retry{Enabled: policy.Off}, Breaker: policy.Breaker{Failures: 5, Probes: probes}})
		}
		tr := newTransport(t, c, up, pol(1))
		for range 4 {
			get(t, c, tr)
		}
		if err := tr.Update(pol(2)); err != nil {
			t.Fatal(err)
		}
		get(t, c, tr)
		equal(t, "the state after five failures", tr.Breakers()[0].State(), layers.StateOpen)
	})
}

// TestUpdateKeepsProbes: fewer probes are the limit at once, and those under way
// count.
func TestUpdateKeepsProbes(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(500), clocktest.Reply(200).After(5*time.Second).Forever())
		pol := func(probes int) policy.Policy {
			return settings(policy.Settings{Retry: policy.Retry{Enabled: policy.Off}, Breaker: policy.Breaker{Failures: 1, Probes: probes, OpenJitter: policy.Off}})
		}
		tr := newTransport(t, c, up, pol(3))
		get(t, c, tr)
		c.Add(10 * time.Second)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { get(t, c, tr) })
		}
		c.Add(time.Second)
		if err := tr.Update(pol(2)); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			wg.Go(func() { get(t, c, tr) })
			c.Add(time.Millisecond)
		}
		wg.Wait()
		equal(t, "the number of sends", len(up.Requests()), 4)
	})
}

// TestPauseOfOneBudget: a call that needs two budgets, of which one is paused,
// keeps no place in the other meanwhile.
func TestPauseOfOneBudget(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Func(func(r *http.Request) clocktest.Step {
			if r.URL.Path == "/slow" && c.Elapsed() < time.Second {
				return clocktest.Reply(429).Header("Retry-After", "30")
			}
			return clocktest.Reply(200)
		}).Forever())
		slow := policy.Rate{PerSecond: 1, Burst: 1}
		tr := newTransport(t, c, up, policy.Policy{
			Settings: policy.Settings{Retry: policy.Retry{Enabled: policy.Off}, Budgets: map[string]policy.Rate{"all": {PerSecond: 10, Burst: 1}}},
			Routes:   []policy.Route{{Pattern: "/slow", Settings: policy.Settings{Budgets: map[string]policy.Rate{"slow": slow}}}},
		})
		var wg sync.WaitGroup
		ask := func(path string) {
			wg.Go(func() { do(c, tr, request(t, t.Context(), "GET", "http://api.example"+path, nil)) })
			c.Add(0)
		}
		ask("/slow") // pauses both: "all" knows no better
		ask("/slow") // waits for both
		c.Add(30 * time.Second)
		for range 5 {
			ask("/")
		}
		wg.Wait()
		sec := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
		equalTimes(t, times(c, up), 0, sec(30), sec(30.1), sec(30.2), sec(30.3), sec(30.4), sec(30.5))
	})
}

// TestFreeRequestPauses: what costs nothing of a budget can still tell it to
// pause.
func TestFreeRequestPauses(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(429).Header("Retry-After", "5"), clocktest.Reply(200).Forever())
		cost := func(r *http.Request) int {
			if r.URL.Path == "/free" {
				return 0
			}
			return 1
		}
		tr := newTransport(t, c, up, settings(policy.Settings{
			Retry: policy.Retry{Enabled: policy.Off}, Rate: policy.Rate{PerSecond: 10, Burst: 10, Cost: cost},
		}))
		do(c, tr, request(t, t.Context(), "GET", "http://api.example/free", nil))
		wantTook(t, get(t, c, tr), 5*time.Second)
	})
}

// TestOffLetsWaitersGo: an update that switches a limit off leaves those that wait
// for it under the old numbers.
func TestOffLetsWaitersGo(t *testing.T) {
	base := policy.Settings{Deadline: 50 * time.Second, Retry: policy.Retry{Enabled: policy.Off}}
	rate, slot := base, base
	rate.Rate = policy.Rate{PerSecond: 0.1, Burst: 1}
	slot.InFlight = policy.InFlight{Max: 1, MaxWait: 40 * time.Second}
	for name, on := range map[string]policy.Settings{"rate": rate, "in-flight": slot} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(5*time.Second).Forever())
				tr := newTransport(t, c, up, settings(on))
				c.AfterFunc(time.Second, func() { _ = tr.Update(settings(base)) })
				for i, r := range fleet(t, c, tr, 3, same(t)) {
					if r.err != nil {
						t.Errorf("%d, after %v: %v", i, r.took, r.err)
					}
				}
			})
		})
	}
}

// TestFastBudgetIsNotHeldUp: one that waits for a slow budget keeps nobody from a
// fast one.
func TestFastBudgetIsNotHeldUp(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		off := policy.Rate{Enabled: policy.Off}
		tr := newTransport(t, c, up, policy.Policy{
			Settings: policy.Settings{
				Deadline: 2 * time.Minute, Retry: policy.Retry{Enabled: policy.Off},
				Budgets: map[string]policy.Rate{"fast": {PerSecond: 10, Burst: 1}, "slow": {PerSecond: 1.0 / 60, Burst: 1}},
			},
			Routes: []policy.Route{
				{Pattern: "/fast", Settings: policy.Settings{Budgets: map[string]policy.Rate{"slow": off}}},
				{Pattern: "/slow", Settings: policy.Settings{Budgets: map[string]policy.Rate{"fast": off}}},
			},
		})
		var wg sync.WaitGroup
		ask := func(path string, want time.Duration) {
			wg.Go(func() {
				r := do(c, tr, request(t, t.Context(), "GET", "http://api.example"+path, nil))
				if want > 0 && r.took > want {
					t.Errorf("%s took %v: %v", path, r.took, r.err)
				}
			})
			c.Add(0)
		}
		for range 20 {
			ask("/fast", 0)
		}
		ask("/both", 0) // its turn in fast comes at 2 s; slow has one
		c.Add(time.Second)
		ask("/slow", 0) // takes it
		c.Add(1500 * time.Millisecond)
		for range 3 { // at 2.5 s: nobody but /both is before them
			ask("/fast", 2*time.Second)
		}
		wg.Wait()
	})
}

// TestCostAboveNewBurst: one that waits for more turns than the burst of an update
// is told so.
func TestCostAboveNewBurst(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		pol := func(b int) policy.Policy {
			return settings(policy.Settings{Deadline: 20 * time.Second, Retry: policy.Retry{Enabled: policy.Off}, Rate: policy.Rate{PerSecond: 1, Burst: b, Cost: func(r *http.Request) int { return 5 }}})
		}
		tr := newTransport(t, c, up, pol(5))
		c.AfterFunc(2500*time.Millisecond, func() { _ = tr.Update(pol(3)) })
		rs := fleet(t, c, tr, 2, same(t))
		e := wantError(t, rs[1].err)
		equal(t, "reason", e.Reason, layers.ReasonCost)
		equal(t, "retry after", e.RetryAfter, time.Duration(0))
		equal(t, "timeout", e.Timeout(), false)
	})
}

// TestTurnOfAPanic: a panic further in gives the turn back.
func TestTurnOfAPanic(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		boom := true
		tr := newTransport(t, c, up, settings(policy.Settings{Retry: policy.Retry{Enabled: policy.Off}, Rate: policy.Rate{PerSecond: 1, Burst: 1}}), inner(func(next http.RoundTripper) http.RoundTripper {
			return layers.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
				if boom {
					panic("boom")
				}
				return next.RoundTrip(r)
			})
		}))
		func() {
			defer func() { _ = recover() }()
			get(t, c, tr)
		}()
		boom = false
		wantTook(t, get(t, c, tr), 0)
	})
}
