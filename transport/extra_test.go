package transport_test

import (
	"math"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

// TestRetryBudget: on an origin that fails, whatever is sent beyond the first
// send of a call stays within the share and the floor.
func TestRetryBudget(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Func(func(r *http.Request) clocktest.Step {
			if r.Header.Get("Want") == "401" {
				return clocktest.Reply(401).After(100 * time.Millisecond)
			}
			return clocktest.Reply(503).After(100 * time.Millisecond)
		}).Forever())
		tr := newTransport(t, c, up, settings(policy.Settings{
			Retry: policy.Retry{MaxAttempts: 5, BaseDelay: 50 * time.Millisecond},
			Hedge: policy.Hedge{Delay: 50 * time.Millisecond, Max: 3},
		}), inner(func(next http.RoundTripper) http.RoundTripper {
			return layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(req)
				if err == nil && resp.StatusCode == 401 {
					layers.RetryOnce(req.Context(), "refused")
				}
				return resp, err
			})
		}))
		const calls, seconds = 2000, 20
		var wg sync.WaitGroup
		exhausted := 0
		var mu sync.Mutex
		for i := range calls {
			wg.Add(1)
			c.AfterFunc(time.Duration(i)*seconds*time.Second/calls, func() {
				defer wg.Done()
				req := request(t, t.Context(), "GET", url, nil)
				if i%3 == 0 {
					req.Header.Set("Want", "401")
				}
				r := do(c, tr, req)
				if r.err != nil {
					t.Error(r.err)
				} else if r.call(t).Reason() == layers.ReasonBudget {
					mu.Lock()
					exhausted++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if exhausted < calls/2 {
			t.Errorf("%d of %d calls were told that the budget is exhausted", exhausted, calls)
		}
		sent := times(c, up)
		for _, window := range []time.Duration{time.Second, 5 * time.Second, seconds * time.Second} {
			for from := time.Duration(0); from < seconds*time.Second; from += 250 * time.Millisecond {
				n := 0
				for _, at := range sent {
					if at >= from && at < from+window {
						n++
					}
				}
				first := math.Min(window.Seconds(), (seconds*time.Second-from).Seconds()) * calls / seconds
				if most := 1.1*first + 3*window.Seconds() + 3 + 1; float64(n) > most {
					t.Errorf("%d sends in the %v from %v, want %.0f at most", n, window, from, most)
				}
			}
		}
	})
}

// TestRetryBudgetRefills: empty, it suppresses the next re-send only.
func TestRetryBudgetRefills(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).Body("busy").Forever())
		tr := newTransport(t, c, up, settings(policy.Settings{Retry: policy.Retry{BaseDelay: policy.Off, MaxAttempts: 10}}))
		r := get(t, c, tr)
		wantStatus(t, r, 503)
		equal(t, "the body", r.body, "busy")
		equal(t, "the number of sends", r.call(t).Attempts(), 4) // the floor is 3 at once
		equal(t, "the reason", r.call(t).Reason(), layers.ReasonBudget)
		c.Add(time.Second)
		equal(t, "the number of sends", get(t, c, tr).call(t).Attempts(), 4)
		// Another origin has a budget of its own.
		other := do(c, tr, request(t, t.Context(), "GET", "http://other.example/", nil))
		equal(t, "the number of sends", other.call(t).Attempts(), 4)
	})
}

// TestRetryBudgetIsPaidInto: each first send is good for the share of a re-send that the
// policy says, beyond the floor.
func TestRetryBudgetIsPaidInto(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).Forever())
		tr := newTransport(t, c, up, settings(policy.Settings{Retry: policy.Retry{MaxAttempts: 2, BaseDelay: policy.Off, Budget: 0.5}}))
		sent := 0
		for range 20 {
			sent += get(t, c, tr).call(t).Attempts()
		}
		equal(t, "the number of sends", sent, 20+12) // half of 20 and the floor, less what the full budget did not take
	})
}

// TestRetryBudgetAtOnce: what several wait to take out of it at once, as many get as
// there is. The others come back with what they have.
func TestRetryBudgetAtOnce(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).Body("busy").Forever())
		tr := newTransport(t, c, up, settings(policy.Settings{Retry: policy.Retry{MaxAttempts: 2, BaseDelay: time.Second}}))
		results := make(chan result)
		for range 5 {
			go func() { results <- get(t, c, tr) }()
		}
		reasons := map[string]int{}
		for range 5 {
			r := <-results
			wantStatus(t, r, 503)
			equal(t, "the body", r.body, "busy")
			reasons[r.call(t).Reason()]++
		}
		equal(t, "the number of sends", len(up.Requests()), 5+3)
		equal(t, "the calls that the budget had nothing for", reasons[layers.ReasonBudget], 2)
	})
}

func TestRetryBudgetOff(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).Forever())
		tr := newTransport(t, c, up, settings(policy.Settings{Retry: policy.Retry{BaseDelay: policy.Off, MaxAttempts: 10, Budget: policy.Off}}))
		equal(t, "the number of sends", get(t, c, tr).call(t).Attempts(), 10)
	})
}

// TestRetryBudgetAfterHealth: a healthy time does not pay for a storm of re-sends
// afterwards.
func TestRetryBudgetAfterHealth(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Times(1000), clocktest.Reply(503).Forever())
		tr := newTransport(t, c, up, settings(policy.Settings{Retry: policy.Retry{BaseDelay: policy.Off}}))
		for range 1000 {
			get(t, c, tr)
			c.Add(10 * time.Millisecond)
		}
		for range 100 { // the first second of an outage
			get(t, c, tr)
			c.Add(10 * time.Millisecond)
		}
		n := len(up.Requests()) - 1000
		if n > 110+6 {
			t.Errorf("%d sends for 100 calls in a second", n)
		}
	})
}
