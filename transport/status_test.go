package transport_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// TestStatus: what calls share can be looked at while they use it.
func TestStatus(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c,
			clocktest.Reply(503).After(time.Second).Header("Retry-After", "10"), clocktest.Reply(200).After(time.Second).Forever())
		tr := newTransport(t, c, up, policy.Policy{Routes: []policy.Route{{Pattern: "api.example/", Settings: policy.Settings{
			Budgets:  map[string]policy.Rate{"tokens": {PerSecond: 2, Burst: 5, Cost: func(*http.Request) int { return 2 }}},
			InFlight: policy.InFlight{Max: 2, MaxWait: 30 * time.Second}, Retry: policy.Retry{MaxAttempts: 1},
		}}}})
		equal(t, "the number of budgets that nobody used", len(tr.Budgets()), 0)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { get(t, c, tr) })
			c.Add(0)
		}
		id := policy.StateID{Section: "Rate", Budget: "tokens", Pattern: "api.example/"}
		budget := layers.BudgetStatus{ID: id, Key: "http://api.example", PerSecond: 2, Burst: 5, Level: -1, Waiting: 1}
		equal(t, "the budget", tr.Budgets()[0], budget)
		id = policy.StateID{Section: "InFlight", Pattern: "api.example/"}
		equal(t, "the slots", tr.Slots()[0], layers.SlotsStatus{ID: id, Key: "http://api.example", Max: 2, Used: 2})
		c.Add(500 * time.Millisecond) // the third has its turn, and waits for a slot
		equal(t, "the slots", tr.Slots()[0], layers.SlotsStatus{ID: id, Key: "http://api.example", Max: 2, Used: 2, Waiting: 1})
		equal(t, "the waiting of the budget", tr.Budgets()[0].Waiting, 0)
		equal(t, "the level, its turn given back", tr.Budgets()[0].Level, 2)
		c.Add(600 * time.Millisecond)
		equal(t, "the pause", tr.Budgets()[0].Paused, c.Now().Add(9900*time.Millisecond))
		wg.Wait()
		equal(t, "the pause that is over", tr.Budgets()[0].Paused, time.Time{})
		equal(t, "the retry budget", tr.RetryBudgets()[0], layers.RetryBudgetStatus{Origin: "http://api.example", Level: 3})
	})
}

// gapObserver wants gaps, and counts what it is told.
type gapObserver map[layers.Kind]int

func (o gapObserver) Observe(_ context.Context, e layers.Event) { o[e.Kind]++ }
func (o gapObserver) Wants(k layers.Kind) bool                  { return k == layers.KindGap }

// TestObservers: each is told of what it wants.
func TestObservers(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		event := "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n"
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Header("Content-Type", "text/event-stream").
			Chunks(clocktest.Drip(event+event+"data: [DONE]\n\n", len(event), time.Second)...).Forever())
		gaps, rest := gapObserver{}, map[layers.Kind]int{}
		tr := newTransport(t, c, up, settings(policy.Settings{Stream: policy.Stream{Enabled: policy.On}}), func(cfg *transport.Config) {
			cfg.Observer = layers.Observers(
				layers.ObserverFunc(func(_ context.Context, e layers.Event) { rest[e.Kind]++ }), layers.Observers(), layers.Observers(gaps))
		})
		wantStatus(t, get(t, c, tr), 200)
		equal(t, "calls that ended, to the one", gaps[layers.KindEnd], 1)
		equal(t, "calls that ended, to the other", rest[layers.KindEnd], 1)
		equal(t, "gaps that were asked for", gaps[layers.KindGap] > 0, true)
		equal(t, "gaps that were not", rest[layers.KindGap], 0)
	})
}

// TestCircuits: a circuit says why it opened, and until when.
func TestCircuits(t *testing.T) {
	for name, tc := range map[string]struct {
		set  policy.Breaker
		want string
	}{
		"in a row": {policy.Breaker{Failures: 2}, "2 failures in a row"},
		"a ratio":  {policy.Breaker{Ratio: 0.5, MinRequests: 2, Window: time.Minute}, "2 of 2 sends failed within 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, clocktest.Reply(500).Times(3), clocktest.Reply(200).Forever())
				tc.set.Open, tc.set.OpenJitter = time.Minute, policy.Off
				tr := newTransport(t, c, up, policy.Policy{Routes: []policy.Route{{Pattern: "api.example/", Settings: policy.Settings{
					Breaker: tc.set, Retry: policy.Retry{Enabled: policy.Off},
				}}}})
				want := layers.BreakerStatus{ID: policy.StateID{Section: "Breaker", Pattern: "api.example/"}, Key: "http://api.example"}
				is := func(s layers.State, failures int, why string, open time.Duration) {
					t.Helper()
					want.State, want.Failures, want.Why, want.Until = s, failures, why, time.Time{}
					if open > 0 {
						want.Until = c.Now().Add(open)
					}
					equal(t, "the circuit", tr.Breakers()[0].Status(), want)
				}
				get(t, c, tr)
				failures := tr.Breakers()[0].Status().Failures
				is(layers.StateClosed, failures, "", 0)
				get(t, c, tr)
				is(layers.StateOpen, 0, tc.want, time.Minute)
				c.Add(time.Minute)
				is(layers.StateHalfOpen, 0, tc.want, 0)
				get(t, c, tr)
				is(layers.StateOpen, 0, "a probe failed", 2*time.Minute)
				c.Add(2 * time.Minute)
				get(t, c, tr)
				is(layers.StateClosed, 0, "a probe failed", 0)
			})
		})
	}
}
