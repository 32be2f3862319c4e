package transport_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

// fleet makes n calls that begin at once, in a fixed order.
func fleet(t *testing.T, c *clocktest.Clock, rt http.RoundTripper, n int, ctx func(i int) context.Context) []result {
	t.Helper()
	results := make([]result, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Add(1)
		c.AfterFunc(0, func() {
			defer wg.Done()
			results[i] = do(c, rt, request(t, ctx(i), "GET", url, nil))
		})
	}
	wg.Wait()
	return results
}

func same(t *testing.T) func(int) context.Context {
	return func(int) context.Context { return t.Context() }
}

func TestRateTicksAndRefusals(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		tr := newTransport(t, c, up, settings(policy.Settings{
			Deadline: 5 * time.Second, Rate: policy.Rate{PerSecond: 10, Burst: 10},
		}))
		results := fleet(t, c, tr, 100, same(t))
		refused := 0
		for i, r := range results {
			if r.err == nil {
				continue
			}
			refused++
			e := wantError(t, r.err)
			if i < 59 || r.took != 0 || e.Sent != layers.Unsent || e.Attempts != 0 || e.RetryAfter != 5*time.Second || !e.Retryable || e.Layer != "rate" {
				t.Errorf("call %d took %v and got %+v", i, r.took, e)
			}
			if !errors.Is(r.err, context.DeadlineExceeded) {
				t.Errorf("%v must be context.DeadlineExceeded: its turn is after the deadline", r.err)
			}
		}
		equal(t, "the number of refusals", refused, 41)
		var want []time.Duration
		for range 10 {
			want = append(want, 0)
		}
		for i := range 49 {
			want = append(want, time.Duration(i+1)*100*time.Millisecond)
		}
		equalTimes(t, times(c, up), want...)
	})
}

// TestRateWaitersLeave: those behind one that leaves move up, and afterwards
// the bucket is as if it had never queued.
func TestRateWaitersLeave(t *testing.T) {
	for _, leavers := range [][]int{{1}, {2}, {3}, {1, 2}, {2, 1}, {3, 1}, {1, 3}, {1, 2, 3}, {3, 2, 1}} {
		t.Run(fmt.Sprint(leavers), func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
				tr := newTransport(t, c, up, settings(policy.Settings{Rate: policy.Rate{PerSecond: 1, Burst: 1}}))
				cause := errors.New("left")
				results := fleet(t, c, tr, 5, func(i int) context.Context {
					at := slices.Index(leavers, i)
					if at < 0 {
						return t.Context()
					}
					ctx, cancel := context.WithCancelCause(t.Context())
					c.AfterFunc(time.Duration(at+1)*100*time.Millisecond, func() { cancel(cause) })
					return ctx
				})
				var want []time.Duration
				for i := range 5 - len(leavers) {
					want = append(want, time.Duration(i)*time.Second)
				}
				equalTimes(t, times(c, up), want...)
				for _, i := range leavers {
					if err := results[i].err; !errors.Is(err, cause) || !errors.Is(err, context.Canceled) {
						t.Errorf("call %d got %v, want its own cancellation", i, err)
					}
				}
				// A second after the last send there is exactly one token.
				c.Add(time.Second)
				wantTook(t, get(t, c, tr), 0)
				wantTook(t, get(t, c, tr), time.Second)
			})
		})
	}
}

func TestRateCanceledBeforehandTakesNothing(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200))
		tr := newTransport(t, c, up, settings(policy.Settings{Rate: policy.Rate{PerSecond: 1, Burst: 1}}))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if r := do(c, tr, request(t, ctx, "GET", url, nil)); r.err != context.Canceled {
			t.Errorf("got %v", r.err)
		}
		wantTook(t, get(t, c, tr), 0)
	})
}

func TestRetryWithoutATurnReturnsTheAnswer(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(502).Body("bad gateway"))
		tr := newTransport(t, c, up, settings(policy.Settings{
			Deadline: 5 * time.Second, Rate: policy.Rate{PerSecond: 0.1, Burst: 1}, Retry: policy.Retry{BaseDelay: policy.Off},
		}))
		r := get(t, c, tr)
		wantStatus(t, r, 502)
		wantTook(t, r, 0)
		equal(t, "the body", r.body, "bad gateway")
		equal(t, "the reason", r.call(t).Reason(), layers.ReasonDeadline)
		equal(t, "the number of sends", r.call(t).Attempts(), 1)
	})
}

func TestMaxWait(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		tr := newTransport(t, c, up, settings(policy.Settings{Rate: policy.Rate{PerSecond: 1, Burst: 1, MaxWait: 2 * time.Second}}))
		results := fleet(t, c, tr, 4, same(t))
		wantTook(t, results[2], 2*time.Second)
		e := wantError(t, results[3].err)
		wantTook(t, results[3], 0)
		equal(t, "the reason", e.Reason, layers.ReasonMaxWait)
		equal(t, "the limit", e.Limit, 2*time.Second)
		equal(t, "whether it is a timeout", e.Timeout(), false)

		none, err := tr.With(policy.Settings{Rate: policy.Rate{MaxWait: policy.Off}})
		if err != nil {
			t.Fatal(err)
		}
		e = wantError(t, get(t, c, none).err) // the budget is the view's too
		equal(t, "the limit that is off", e.Limit, 0)
	})
}

func TestServerPausesTheBudget(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		limited := clocktest.Reply(429).Header("Retry-After", "30").After(900 * time.Millisecond)
		older := clocktest.Reply(429).Header("Retry-After", "5").After(2 * time.Second)
		up := clocktest.NewUpstream(t, c, limited, older, clocktest.Reply(200).Forever())
		tr := newTransport(t, c, up, settings(policy.Settings{
			Rate: policy.Rate{PerSecond: 2, Burst: 2}, Retry: policy.Retry{Enabled: policy.Off},
		}))
		results := fleet(t, c, tr, 8, func(i int) context.Context {
			if i < 2 { // those that are answered
				return t.Context()
			}
			// Of those that queue, half have 20 s and half 60 s.
			return layers.WithDeadline(t.Context(), c.Now().Add(time.Duration(20+40*(i%2))*time.Second))
		})
		wantStatus(t, results[2], 200) // whose turn at 0.5 s came before the pause
		for i := 3; i < 8; i++ {
			if i%2 == 0 {
				e := wantError(t, results[i].err)
				wantTook(t, results[i], 900*time.Millisecond)
				equal(t, "what was sent", e.Sent, layers.Unsent)
			} else {
				wantStatus(t, results[i], 200)
			}
		}
		sent := times(c, up)
		equalTimes(t, sent[3:], 30900*time.Millisecond, 31400*time.Millisecond, 31900*time.Millisecond)

		// Another origin is not paused.
		other := do(c, tr, request(t, t.Context(), "GET", "http://other.example/", nil))
		wantTook(t, other, 0)
	})
}

func TestQuotaHeadersPause(t *testing.T) {
	for name, step := range map[string]clocktest.Step{
		"x-ratelimit":  clocktest.Reply(200).Header("X-Ratelimit-Remaining-Requests", "0").Header("X-Ratelimit-Reset-Requests", "7s"),
		"ratelimit":    clocktest.Reply(200).Header("Ratelimit", `"default";r=0;t=7`),
		"retry-after":  clocktest.Reply(503).Header("Retry-After", "7"),
		"contradicted": clocktest.Reply(429).Header("Retry-After", "7").Header("X-Ratelimit-Remaining", "0").Header("X-Ratelimit-Reset", "50"),
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, step, clocktest.Reply(200))
				tr := newTransport(t, c, up, settings(policy.Settings{
					Rate: policy.Rate{PerSecond: 100, Burst: 100}, Retry: policy.Retry{Enabled: policy.Off},
				}))
				get(t, c, tr)
				wantTook(t, get(t, c, tr), 7*time.Second)
			})
		})
	}
}

// TestPauseIsBounded: what one answer says does not close an origin for good. The
// server is asked again, and may say so again.
func TestPauseIsBounded(t *testing.T) {
	for name, step := range map[string]clocktest.Step{
		"x-ratelimit": clocktest.Reply(200).Header("X-Ratelimit-Remaining", "0").Header("X-Ratelimit-Reset", "999999999"),
		"ratelimit":   clocktest.Reply(200).Header("Ratelimit", `"default";r=0;t=999999999`),
		"retry-after": clocktest.Reply(429).Header("Retry-After", "99999999999999999999"),
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, step, step, clocktest.Reply(200))
				tr := newTransport(t, c, up, settings(policy.Settings{
					Rate: policy.Rate{PerSecond: 100, Burst: 100}, Retry: policy.Retry{Enabled: policy.Off},
				}))
				for range 2 {
					wantTook(t, get(t, c, tr), 0)
					e := wantError(t, get(t, c, tr).err)
					equal(t, "the pause", e.RetryAfter, layers.MaxPause)
					c.Add(layers.MaxPause)
				}
				wantStatus(t, get(t, c, tr), 200)
			})
		})
	}
}

func TestCost(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		cost := 5
		tr := newTransport(t, c, up, settings(policy.Settings{Rate: policy.Rate{
			PerSecond: 1, Burst: 10, Cost: func(*http.Request) int { return cost },
		}}))
		wantTook(t, get(t, c, tr), 0)
		wantTook(t, get(t, c, tr), 0)
		wantTook(t, get(t, c, tr), 5*time.Second)
		cost = 11
		e := wantError(t, get(t, c, tr).err)
		has(t, e.Error(), "costs 11 of a budget whose burst is 10")
		equal(t, "what was sent", e.Sent, layers.Unsent)
		cost = -1
		has(t, wantError(t, get(t, c, tr).err).Error(), "costs -1 of a budget: Rate.Cost has to return 0 or more")
		cost = 0
		wantTook(t, get(t, c, tr), 0)
	})
}

// TestBudgetsAllOrNone: a send needs a turn in each budget, and holds none
// while it waits for another.
func TestBudgetsAllOrNone(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		tr := newTransport(t, c, up, policy.Policy{
			Settings: policy.Settings{
				Rate:    policy.Rate{PerSecond: 10, Burst: 1},
				Budgets: map[string]policy.Rate{"tokens": {PerSecond: 1, Burst: 1}},
			},
			Routes: []policy.Route{{Pattern: "/free", Settings: policy.Settings{Budgets: map[string]policy.Rate{"tokens": {Enabled: policy.Off}}}}},
		})
		var wg sync.WaitGroup
		for range 3 {
			wg.Add(1)
			c.AfterFunc(0, func() { defer wg.Done(); get(t, c, tr) })
		}
		// It waits for its tenth of a second, and not behind those that wait
		// for the other budget.
		wg.Add(1)
		c.AfterFunc(500*time.Millisecond, func() {
			defer wg.Done()
			wantTook(t, do(c, tr, request(t, t.Context(), "GET", "http://api.example/free", nil)), 0)
		})
		wg.Wait()
		equalTimes(t, times(c, up), 0, 500*time.Millisecond, time.Second, 2*time.Second)
	})
}

// TestPauseOfABudgetThatIsThere: a turn that has come, and is paused while a turn in
// another budget is waited for, is waited for again, and costs the other nothing.
func TestPauseOfABudgetThatIsThere(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Func(func(r *http.Request) clocktest.Step {
			if r.URL.Path == "/tokens" {
				return clocktest.Reply(429).Header("Retry-After", "5").After(3200 * time.Millisecond)
			}
			return clocktest.Reply(200)
		}).Forever())
		off := policy.Rate{Enabled: policy.Off}
		tr := newTransport(t, c, up, policy.Policy{
			Settings: policy.Settings{Retry: policy.Retry{Enabled: policy.Off}, Budgets: map[string]policy.Rate{"calls": {PerSecond: 1}, "tokens": {PerSecond: 1. / 3}}},
			Routes: []policy.Route{
				{Pattern: "/calls", Settings: policy.Settings{Budgets: map[string]policy.Rate{"tokens": off}}},
				{Pattern: "/tokens", Settings: policy.Settings{Budgets: map[string]policy.Rate{"calls": off}}},
			},
		})
		var wg sync.WaitGroup
		for _, send := range []struct {
			at   time.Duration
			path string
		}{{0, "/calls"}, {1, "/tokens"}, {2, "/both"}, {2500 * time.Millisecond, "/calls"}, {3600 * time.Millisecond, "/calls"}} {
			wg.Add(1)
			c.AfterFunc(send.at, func() {
				defer wg.Done()
				do(c, tr, request(t, t.Context(), "GET", "http://api.example"+send.path, nil))
			})
		}
		wg.Wait()
		var sent []string
		for i, r := range up.Requests() {
			sent = append(sent, fmt.Sprint(r.URL.Path, " ", times(c, up)[i]))
		}
		equal(t, "what was sent", strings.Join(sent, ", "),
			"/calls 0s, /tokens 1ns, /calls 2.5s, /calls 3.6s, /both 8.200000001s")
	})
}

func TestUpdateAppliesToTheBudgetInUse(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		policyOf := func(perSecond float64) policy.Policy {
			return settings(policy.Settings{Rate: policy.Rate{PerSecond: perSecond, Burst: 1}})
		}
		tr := newTransport(t, c, up, policyOf(1))
		get(t, c, tr)
		if err := tr.Update(policyOf(10)); err != nil {
			t.Fatal(err)
		}
		wantTook(t, get(t, c, tr), 100*time.Millisecond) // the spent token stays spent
	})
}

func TestRateKeys(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		tr := newTransport(t, c, up, settings(policy.Settings{Rate: policy.Rate{PerSecond: 1, Burst: 1}}))
		for _, u := range []string{"http://a.example/", "http://b.example/", "https://a.example/"} {
			wantTook(t, do(c, tr, request(t, t.Context(), "GET", u, nil)), 0)
		}
		// One origin, however it is written.
		for _, u := range []string{"http://A.example:80/x", "http://a.example./", "http://a.example.:80/"} {
			wantTook(t, do(c, tr, request(t, t.Context(), "GET", u, nil)), time.Second)
		}
	})
}
