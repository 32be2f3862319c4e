package transport_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

// TestSharedLimits lets 64 goroutines loose on one budget, circuit and set of
// slots, with servers that fail and callers that give up at any time, and holds
// what was sent to the limits. Afterwards all is as if nobody had been there.
func TestSharedLimits(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) { shared(t, c, seed) })
		})
	}
}

func shared(t *testing.T, c *clocktest.Clock, seed uint64) {
	const (
		perSecond, burst = 50, 10
		most             = 8
		workers, calls   = 64, 20
	)
	var calm atomic.Bool
	up := clocktest.NewUpstream(t, c, clocktest.Func(func(r *http.Request) clocktest.Step {
		if calm.Load() {
			return clocktest.Reply(200).Silent()
		}
		dice := rand.New(rand.NewPCG(seed, uint64(c.Elapsed())))
		wait := time.Duration(dice.IntN(200)) * time.Millisecond
		switch dice.IntN(8) {
		case 0:
			return clocktest.Reply(503).After(wait).Body("busy")
		case 1:
			return clocktest.Fail(clocktest.ErrReset).After(wait)
		case 2:
			return clocktest.NoReply()
		case 3:
			return clocktest.Reply(200).After(wait).Silent()
		case 4:
			return clocktest.Reply(429).Header("Retry-After", "1")
		}
		return clocktest.Reply(200).After(wait).Chunks(clocktest.Drip("some body", 3, wait)...)
	}).Forever())
	p := settings(policy.Settings{
		Deadline: 5 * time.Second, Timeouts: policy.Timeouts{Read: time.Second},
		Retry:    policy.Retry{MaxAttempts: 3, BaseDelay: 10 * time.Millisecond},
		Hedge:    policy.Hedge{Delay: 100 * time.Millisecond},
		Breaker:  policy.Breaker{Ratio: 0.9, MinRequests: 10, Window: time.Second, Open: 200 * time.Millisecond, OpenMax: time.Second},
		Rate:     policy.Rate{PerSecond: perSecond, Burst: burst},
		InFlight: policy.InFlight{Max: most, MaxWait: 2 * time.Second},
	})
	tr := newTransport(t, c, up, p, observer(func(context.Context, layers.Event) {}))
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			dice := rand.New(rand.NewPCG(seed, uint64(w)))
			for range calls {
				ctx, cancel := context.WithCancel(t.Context())
				if dice.IntN(3) == 0 {
					c.AfterFunc(time.Duration(dice.IntN(3000))*time.Millisecond, cancel)
				}
				start := c.Elapsed()
				resp, err := tr.RoundTrip(request(t, ctx, "GET", url, nil))
				if err == nil {
					if dice.IntN(4) > 0 {
						_, _ = io.ReadAll(resp.Body)
					}
					resp.Body.Close()
				}
				if took := c.Elapsed() - start; took > 5*time.Second {
					t.Errorf("a call took %v", took)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	c.Add(time.Minute) // every pause, circuit and turn is over by then

	sent := up.Requests()
	for i, r := range sent {
		under, within := 0, 0
		for _, o := range sent[:i+1] {
			if o.End.IsZero() {
				t.Fatal("a send has not ended")
			}
			if o.End.After(r.At) {
				under++
			}
			if r.At.Sub(o.At) < time.Second {
				within++
			}
		}
		if under > most {
			t.Errorf("%d sends are under way at once, want %d at most", under, most)
		}
		if within > perSecond+burst {
			t.Errorf("%d sends within a second, want %d at most", within, perSecond+burst)
		}
	}
	for _, b := range tr.Breakers() {
		if s := b.State(); s != layers.StateClosed && s != layers.StateHalfOpen {
			t.Errorf("the circuit is %v after a minute", s)
		}
		b.ForceClosed()
	}
	// All slots are free, and all turns there.
	calm.Store(true)
	held := make([]*http.Response, 0, most)
	view, err := tr.With(policy.Settings{
		Hedge: policy.Hedge{Enabled: policy.Off}, Retry: policy.Retry{Enabled: policy.Off},
		Rate: policy.Rate{MaxWait: policy.Off}, InFlight: policy.InFlight{MaxWait: policy.Off}, Timeouts: policy.Timeouts{Read: policy.Off},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range most {
		resp, err := view.RoundTrip(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatalf("not everything was given back: %v", err)
		}
		held = append(held, resp)
	}
	for _, resp := range held {
		resp.Body.Close()
	}
}
