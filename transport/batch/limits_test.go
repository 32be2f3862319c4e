package batch_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport/batch"
)

// outage answers in a second, with 503 for the calls that come between two
// times.
func outage(t *testing.T, c *clocktest.Clock, from, to time.Duration) *clocktest.Upstream {
	return clocktest.NewUpstream(t, c, clocktest.Func(func(*http.Request) clocktest.Step {
		if at := c.Elapsed(); at >= from && at < to {
			return clocktest.Reply(503).After(time.Second)
		}
		return clocktest.Reply(200).After(time.Second)
	}).Forever())
}

func during(c *clocktest.Clock, up *clocktest.Upstream, from, to time.Duration) (n int) {
	for _, r := range up.Requests() {
		if at := c.Elapsed() - c.Since(r.At); at >= from && at < to {
			n++
		}
	}
	return n
}

// An outage of five minutes costs the job these minutes, and none of its items.
func TestCircuitPausesTheJob(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		const from, to = 10 * time.Second, 310 * time.Second
		up := outage(t, c, from, to)
		s := policy.Batch().With(policy.Settings{Breaker: policy.Breaker{Failures: 5, OpenJitter: policy.Off}})
		report, err := batch.Run(t.Context(), batch.Config{Workers: 8, Within: time.Hour, Clock: c},
			batch.Strings(numbered(400)), get(client(t, c, up, s)))
		if err != nil {
			t.Error(err)
		}
		wantCounts(t, report, 0, 400, 0, 0)
		// Eight at once, then a probe after 10, 20, 40, 80 and 120 s.
		if n := during(c, up, from, to); n > 8+8 {
			t.Errorf("the server got %d requests in its outage", n)
		}
		if report.PutBack < 8 || report.PutBack > 40 {
			t.Errorf("%d put back", report.PutBack)
		}
		if report.Paused < 4*time.Minute || report.Paused > 8*time.Minute || report.Elapsed > report.Paused+time.Minute+10*time.Second {
			t.Errorf("%v", report)
		}
		t.Log(report)
	})
}

// Without retries, nobody tells that the circuit is why an item failed that
// was its trial.
func TestTrialsFail(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		const from, to = 10 * time.Second, time.Hour
		up := outage(t, c, from, to)
		s := policy.Settings{
			Retry:   policy.Retry{Enabled: policy.Off},
			Breaker: policy.Breaker{Failures: 5, OpenJitter: policy.Off},
		}
		report, err := batch.Run(t.Context(), batch.Config{Workers: 8, Within: 2 * time.Hour, Clock: c},
			batch.Strings(numbered(200)), get(client(t, c, up, s)))
		if err != nil {
			t.Error(err)
		}
		wantCounts(t, report, 0, 188, 12, 0) // those that began before the circuit opened
		if n := during(c, up, from, to); n < 25 {
			t.Errorf("%d requests, want a trial every two minutes", n)
		}
	})
}

// The outage may outlast the job: a pause that cannot end in time does not
// begin.
func TestCircuitOutlastsTheJob(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := outage(t, c, 10*time.Second, time.Hour)
		s := policy.Settings{
			Retry:   policy.Retry{Enabled: policy.Off},
			Breaker: policy.Breaker{Failures: 2, Open: time.Minute, OpenJitter: policy.Off},
		}
		report, err := batch.Run(t.Context(), batch.Config{Within: 40 * time.Second, Clock: c},
			batch.Strings(numbered(100)), get(client(t, c, up, s)))
		if !errors.Is(err, batch.ErrDeadline) {
			t.Error(err)
		}
		wantCounts(t, report, 0, 10, 2, 88) // two met the outage before the circuit opened
		equal(t, "the time", c.Elapsed(), 12*time.Second)
	})
}

// A job of two servers goes on with the one while the circuit of the other is
// open, if slowly.
func TestCircuitOfOneServer(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		var calls atomic.Int32
		var tried [20]atomic.Int32
		list := make([]int, len(tried))
		for i := range list {
			list[i] = i
		}
		report, err := batch.Run(t.Context(), batch.Config{Workers: 4, Within: time.Hour, Clock: c},
			batch.Items(list, func(i int) string { return fmt.Sprint(i) }), func(_ context.Context, i int) error {
				calls.Add(1)
				tried[i].Add(1)
				c.Sleep(time.Second)
				if i%2 == 0 && c.Elapsed() < time.Minute {
					return &layers.Error{Layer: "breaker", RetryAfter: 5 * time.Second}
				}
				return nil
			})
		if err != nil {
			t.Error(err)
		}
		wantCounts(t, report, 0, 20, 0, 0)
		if n := calls.Load(); n > 100 {
			t.Errorf("%d calls", n)
		}
		t.Log(report)
	})
}

// An item that trips the circuit by itself ends as a failure.
func TestItemTripsTheCircuit(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Func(func(r *http.Request) clocktest.Step {
			if r.Header.Get("Item") == "item 1" {
				return clocktest.Reply(500)
			}
			return clocktest.Reply(200)
		}).Forever())
		cl := client(t, c, up, policy.Settings{
			Retry:   policy.Retry{MaxAttempts: 5, BaseDelay: policy.Off, Budget: policy.Off},
			Breaker: policy.Breaker{Failures: 3, OpenJitter: policy.Off},
		})
		report, err := batch.Run(t.Context(), batch.Config{Within: policy.Off, Clock: c},
			batch.Strings(numbered(3)), func(ctx context.Context, item string) error {
				req, _ := http.NewRequestWithContext(ctx, "GET", url, nil)
				req.Header.Set("Item", item)
				resp, err := cl.Do(req)
				if err != nil {
					return err
				}
				resp.Body.Close()
				if resp.StatusCode != 200 {
					return batch.StatusError(resp)
				}
				return nil
			})
		if err != nil {
			t.Error(err)
		}
		wantCounts(t, report, 0, 2, 1, 0)
		has(t, report.Failed[0].Err.Error(), "the answer is 500", layers.ReasonCircuit)
		t.Log(report)
	})
}

// A trial that hangs is joined by another.
func TestTrialHangs(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		var calls atomic.Int32
		report, err := batch.Run(t.Context(), batch.Config{Workers: 4, Within: time.Hour, Clock: c},
			batch.Strings(numbered(10)), func(context.Context, string) error {
				switch calls.Add(1) {
				case 1, 2, 3, 4:
					return &layers.Error{Layer: "breaker", RetryAfter: 10 * time.Second}
				case 5:
					c.Sleep(10 * time.Minute)
				}
				return nil
			})
		if err != nil {
			t.Error(err)
		}
		wantCounts(t, report, 0, 10, 0, 0)
		equal(t, "the pause", report.Paused, 20*time.Second)
	})
}

// The other limits hold up single workers, and lose no item either.
func TestLimits(t *testing.T) {
	for name, s := range map[string]policy.Settings{
		"rate":      {Rate: policy.Rate{PerSecond: 1, MaxWait: policy.Off}},
		"in-flight": {InFlight: policy.InFlight{Max: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(time.Second).Forever())
				report, err := batch.Run(t.Context(), batch.Config{Workers: 4, Within: time.Hour, Clock: c},
					batch.Strings(numbered(20)), get(client(t, c, up, s)))
				if err != nil {
					t.Error(err)
				}
				wantCounts(t, report, 0, 20, 0, 0)
				if report.PutBack == 0 || report.PutBack > 200 || report.Paused > 0 || report.Elapsed > 30*time.Second {
					t.Error(report)
				}
				t.Log(report)
			})
		})
	}
}

// An item whose POST was done, and answered by a redirect that a limit refuses, is not
// put back, or the POST would be made again.
func TestLimitAfterAPost(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(303).Header("Location", "/done").Forever())
		client := client(t, c, up, policy.Settings{Rate: policy.Rate{PerSecond: 1, MaxWait: policy.Off}})
		report, err := batch.Run(t.Context(), batch.Config{Workers: 1, Within: time.Minute, Clock: c}, batch.Strings(numbered(1)),
			func(ctx context.Context, item string) error {
				req, err := http.NewRequestWithContext(ctx, "POST", "http://api.test/"+item, nil)
				if err != nil {
					return err
				}
				resp, err := client.Do(req)
				if err != nil {
					return err
				}
				return resp.Body.Close()
			})
		if err != nil {
			t.Error(err)
		}
		wantCounts(t, report, 0, 0, 1, 0)
		equal(t, "the number of sends", len(up.Requests()), 1)
	})
}

// A server that asks for an hour gets it, or the job ends.
func TestServerAsksForAnHour(t *testing.T) {
	for within, done := range map[time.Duration]int{2 * time.Hour: 9, 30 * time.Minute: 0} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, clocktest.Reply(429).Header("Retry-After", "3600"), clocktest.Reply(200).Forever())
			s := policy.Settings{Rate: policy.Rate{PerSecond: 10}}
			report, err := batch.Run(t.Context(), batch.Config{Workers: 1, Within: within, Clock: c},
				batch.Strings(numbered(10)), get(client(t, c, up, s)))
			wantCounts(t, report, 0, done, 1, 9-done)
			if (err != nil) != (done == 0) || done == 0 && c.Elapsed() != 0 {
				t.Errorf("%v, after %v", err, c.Elapsed())
			}
			if sends := len(up.Requests()); sends != 1+done {
				t.Errorf("%d sends", sends)
			}
		})
	}
}

func TestCostAboveBurstIsAFailure(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c)
		s := policy.Settings{Rate: policy.Rate{PerSecond: 10, Cost: func(*http.Request) int { return 7 }}}
		report, err := batch.Run(t.Context(), batch.Config{Within: time.Hour, Clock: c},
			batch.Strings(numbered(1)), get(client(t, c, up, s)))
		wantCounts(t, report, 0, 0, 1, 0)
		if err != nil {
			t.Error(err)
		}
	})
}
