package transport_test

import (
	"context"
	"io"
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

// throughItself is a TokenSource that asks for tokens through the transport that
// needs them.
type throughItself struct {
	c     *clocktest.Clock
	tr    *transport.Transport
	lasts time.Duration
}

func (s *throughItself) Token(ctx context.Context) (layers.Token, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example/token", nil)
	if err != nil {
		return layers.Token{}, err
	}
	resp, err := s.tr.RoundTrip(req)
	if err != nil {
		return layers.Token{}, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return layers.Token{Value: "x", Expiry: s.c.Now().Add(s.lasts)}, err
}

// TestRenewalGoesFirst: a request for a token does not queue behind those that need
// it, which would spend their turns waiting for it, and be sent all at once.
func TestRenewalGoesFirst(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Body("x").Forever())
		m := &throughItself{c: c, lasts: 5 * time.Second}
		tr := newTransport(t, c, up, settings(policy.Settings{
			Deadline: 60 * time.Second, Rate: policy.Rate{PerSecond: 1, Burst: 1},
		}), inner(layers.Auth(m)))
		m.tr = tr
		get(t, c, tr)
		for i, r := range fleet(t, c, tr, 20, same(t)) {
			if r.err != nil {
				t.Errorf("%d: %v", i, r.err)
			}
		}
		at := times(c, up)
		for i := range at {
			n := 0
			for _, o := range at {
				if o == at[i] {
					n++
				}
			}
			if n > 2 {
				t.Errorf("%d sends at the instant %v of a budget of 1 a second, burst 1", n, at[i])
				break
			}
		}
	})
}

// TestExtrasAfterAPause: re-sends that wait for a pause to end are paid for when they
// go, and not all at once.
func TestExtrasAfterAPause(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		var n atomic.Int32
		up := clocktest.NewUpstream(t, c, clocktest.Func(func(r *http.Request) clocktest.Step {
			switch i := n.Add(1); {
			case i == 1:
				return clocktest.Reply(503).Header("Retry-After", "15").After(10 * time.Millisecond)
			case i <= 50:
				return clocktest.Reply(503).After(time.Duration(i) * 300 * time.Millisecond)
			}
			return clocktest.Reply(503)
		}).Forever())
		var mu sync.Mutex
		var extras []time.Duration
		seen := map[*layers.Call]bool{}
		tr := newTransport(t, c, up, settings(policy.Settings{
			Retry: policy.Retry{BaseDelay: 10 * time.Millisecond},
			Rate:  policy.Rate{PerSecond: 100, Burst: 100},
		}), observer(func(ctx context.Context, e layers.Event) {
			if e.Kind == layers.KindSend {
				call, _ := layers.CallFrom(ctx)
				mu.Lock()
				if seen[call] && c.Elapsed() > 14*time.Second {
					extras = append(extras, c.Elapsed())
				}
				seen[call] = true
				mu.Unlock()
			}
		}))
		fleet(t, c, tr, 50, same(t))
		k := 0
		for _, at := range extras {
			if at <= extras[0]+time.Second {
				k++
			}
		}
		if k > 6 {
			t.Errorf("%d re-sends within a second, and no first send: more than 3 and 3 a second", k)
		}
	})
}

// TestHedgedMintInOneSlot: the request for a token uses the slot of the send that needs
// it, and its hedge does not.
func TestHedgedMintInOneSlot(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Func(func(r *http.Request) clocktest.Step {
			if r.URL.Path == "/token" {
				return clocktest.Reply(200).After(5 * time.Second).Body("tok")
			}
			return clocktest.Reply(200)
		}).Forever())
		m := &throughItself{c: c, lasts: time.Hour}
		tr := newTransport(t, c, up, settings(policy.Settings{
			InFlight: policy.InFlight{Max: 1, MaxWait: 20 * time.Second}, Hedge: policy.Hedge{Delay: time.Second},
		}), inner(layers.Auth(m)))
		m.tr = tr
		wantStatus(t, get(t, c, tr), 200)
		equalTimes(t, times(c, up), 0, 5*time.Second)
	})
}

// TestNoHedgeOfAMint: while a token is made, nothing is under way that a hedge could
// be faster than.
func TestNoHedgeOfAMint(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(100*time.Millisecond).Body("x").Forever())
		tr := newTransport(t, c, up, settings(policy.Settings{Hedge: policy.Hedge{Delay: time.Second, Max: 3}}),
			inner(layers.Auth(&mint{c: c, takes: 5 * time.Second})))
		wantStatus(t, get(t, c, tr), 200)
		equalTimes(t, times(c, up), 5*time.Second)
	})
}

// TestProbesThatQueue: probes that wait for their turns longer than the circuit is
// open are sent all the same, and close it.
func TestProbesThatQueue(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Func(func(r *http.Request) clocktest.Step {
			if r.URL.Host == "y.example" && c.Elapsed() < time.Second {
				return clocktest.Reply(500)
			}
			return clocktest.Reply(200)
		}).Forever())
		tr := newTransport(t, c, up, settings(policy.Settings{
			Deadline: 30 * time.Second, Retry: policy.Retry{Enabled: policy.Off},
			Breaker: policy.Breaker{Failures: 1, Open: 2 * time.Second, OpenMax: 2 * time.Second, OpenJitter: policy.Off},
			Rate:    policy.Rate{PerSecond: 10, Burst: 1, Key: func(*http.Request) string { return "account" }},
		}))
		do(c, tr, request(t, t.Context(), "GET", "http://y.example/", nil)) // opens
		var wg sync.WaitGroup
		for range 60 { // the rest of the account: 6 s of queue
			wg.Go(func() {
				for c.Elapsed() < 120*time.Second {
					do(c, tr, request(t, t.Context(), "GET", "http://x.example/", nil))
				}
			})
		}
		for i := range 200 { // somebody asks for y each half second
			wg.Go(func() {
				c.Sleep(time.Duration(i)*500*time.Millisecond + 130*time.Millisecond)
				do(c, tr, request(t, t.Context(), "GET", "http://y.example/", nil))
			})
		}
		c.Add(100 * time.Second)
		for _, b := range tr.Breakers() {
			if b.State() != layers.StateClosed {
				t.Errorf("99 s after y is well: %+v", b.Status())
			}
		}
		wg.Wait()
	})
}

// TestObserverInUpdate: an observer that is told of a circuit which an update closes may
// call.
func TestObserverInUpdate(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(500), clocktest.Reply(200).Forever())
		pol := func(probes int) policy.Policy {
			return settings(policy.Settings{Retry: policy.Retry{Enabled: policy.Off}, Breaker: policy.Breaker{Failures: 1, Probes: probes, OpenJitter: policy.Off}})
		}
		var tr *transport.Transport
		closed := 0
		tr = newTransport(t, c, up, pol(2), observer(func(ctx context.Context, e layers.Event) {
			if e.Kind == layers.KindBreaker && e.State == layers.StateClosed {
				closed++
				get(t, c, tr) // on the new table: its chain has to be compiled
			}
		}))
		get(t, c, tr)
		c.Add(10 * time.Second)
		get(t, c, tr) // one good probe
		if err := tr.Update(pol(1)); err != nil {
			t.Fatal(err)
		}
		equal(t, "closed", closed, 1)
	})
}

// TestOuterSendsTwiceAtOnce: a layer around the call may send twice at once.
func TestOuterSendsTwiceAtOnce(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(time.Second).Forever())
		tr := newTransport(t, c, up, settings(policy.Settings{}), outer(func(next http.RoundTripper) http.RoundTripper {
			return layers.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
				type res struct {
					resp *http.Response
					err  error
				}
				ch := make(chan res, 2)
				for range 2 {
					go func() { resp, err := next.RoundTrip(r.Clone(r.Context())); ch <- res{resp, err} }()
				}
				a, b := <-ch, <-ch
				if b.err == nil {
					b.resp.Body.Close()
				}
				return a.resp, a.err
			})
		}))
		wantStatus(t, get(t, c, tr), 200)
	})
}
