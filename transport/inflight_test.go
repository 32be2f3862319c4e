package transport_test

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

func slots(f policy.InFlight) policy.Policy {
	return settings(policy.Settings{InFlight: f, Retry: policy.Retry{Enabled: policy.Off}, Deadline: time.Hour})
}

func TestInFlightShedsAtOnce(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(time.Second).Forever())
		tr := newTransport(t, c, up, slots(policy.InFlight{Max: 2}))
		results := fleet(t, c, tr, 3, same(t))
		wantStatus(t, results[0], 200)
		wantStatus(t, results[1], 200)
		e := wantError(t, results[2].err)
		wantTook(t, results[2], 0)
		if e.Layer != "in-flight" || e.Sent != layers.Unsent || e.Attempts != 0 || e.Reason != layers.ReasonInFlight || !e.Retryable {
			t.Errorf("got %+v", e)
		}
		wantStatus(t, get(t, c, tr), 200)
	})
}

func TestInFlightWaitsInOrder(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(time.Second).Forever())
		tr := newTransport(t, c, up, slots(policy.InFlight{Max: 1, MaxWait: 3500 * time.Millisecond}))
		results := fleet(t, c, tr, 5, same(t))
		for i, r := range results[:4] {
			wantStatus(t, r, 200)
			wantTook(t, r, time.Duration(i+1)*time.Second)
		}
		e := wantError(t, results[4].err)
		equal(t, "the reason", e.Reason, layers.ReasonMaxWait)
		wantTook(t, results[4], 3500*time.Millisecond)
	})
}

func TestInFlightDeadline(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(time.Minute).Forever())
		p := slots(policy.InFlight{Max: 1, MaxWait: 3 * time.Second})
		p.Deadline = 3 * time.Second
		p.Timeouts.Read = policy.Off
		results := fleet(t, c, newTransport(t, c, up, p), 2, same(t))
		e := wantTimeout(t, results[1].err, layers.PhaseDeadline)
		wantTook(t, results[1], 3*time.Second)
		has(t, e.Error(), "deadline exceeded after 3s, before attempt 1 was sent")
		equal(t, "the number of attempts", e.Attempts, 0)
	})
}

// TestSlotIsGivenBackOnce: whatever the end of a send is, its slot is free
// again, and once only.
func TestSlotIsGivenBackOnce(t *testing.T) {
	open := func(t *testing.T, tr *transport.Transport, ctx context.Context, method string) *http.Response {
		resp, err := tr.RoundTrip(request(t, ctx, method, url, nil))
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	for name, use := range map[string]struct {
		step clocktest.Step
		call func(t *testing.T, c *clocktest.Clock, tr *transport.Transport)
	}{
		"closed twice": {clocktest.Reply(200).Silent(), func(t *testing.T, c *clocktest.Clock, tr *transport.Transport) {
			resp := open(t, tr, t.Context(), "GET")
			resp.Body.Close()
			resp.Body.Close()
		}},
		"unread": {clocktest.Reply(200).Body("unread"), func(t *testing.T, c *clocktest.Clock, tr *transport.Transport) {
			open(t, tr, t.Context(), "GET").Body.Close()
		}},
		"HEAD": {clocktest.Reply(200), func(t *testing.T, c *clocktest.Clock, tr *transport.Transport) {
			open(t, tr, t.Context(), "HEAD")
		}},
		"204": {clocktest.Reply(204), func(t *testing.T, c *clocktest.Clock, tr *transport.Transport) {
			open(t, tr, t.Context(), "GET")
		}},
		"101 that is no connection": {clocktest.Reply(101).Body("x"), func(t *testing.T, c *clocktest.Clock, tr *transport.Transport) {
			resp := open(t, tr, t.Context(), "GET")
			t.Cleanup(func() { resp.Body.Close() })
		}},
		"failed": {clocktest.Fail(clocktest.ErrReset), func(t *testing.T, c *clocktest.Clock, tr *transport.Transport) {
			get(t, c, tr)
		}},
		"given up by its caller, unread and unclosed": {clocktest.Reply(200).Silent(), func(t *testing.T, c *clocktest.Clock, tr *transport.Transport) {
			ctx, cancel := context.WithCancel(t.Context())
			resp := open(t, tr, ctx, "GET")
			t.Cleanup(func() { resp.Body.Close() })
			cancel()
			c.Add(0)
		}},
		"panic": {clocktest.Func(func(*http.Request) clocktest.Step { panic("in the base") }), func(t *testing.T, c *clocktest.Clock, tr *transport.Transport) {
			defer func() { _ = recover() }()
			get(t, c, tr)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, use.step, clocktest.Reply(200).Silent().Forever())
				tr := newTransport(t, c, up, slots(policy.InFlight{Max: 1}))
				use.call(t, c, tr)
				held := open(t, tr, t.Context(), "GET")
				wantError(t, get(t, c, tr).err) // a slot given back twice would let it pass
				held.Body.Close()
			})
		})
	}
}

// TestSlotIsNotHeldWhileWaitingForATurn: the turn goes back while a call waits
// for a slot, and the call is first in the queue for another.
func TestSlotIsNotHeldWhileWaitingForATurn(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(10*time.Second), clocktest.Reply(200).Forever())
		p := slots(policy.InFlight{Max: 1, MaxWait: time.Minute})
		p.Rate = policy.Rate{PerSecond: 0.5, Burst: 1}
		tr := newTransport(t, c, up, p)
		results := fleet(t, c, tr, 3, same(t))
		wantTook(t, results[0], 10*time.Second)
		// A turn is there long before the slot is, and goes with it.
		wantTook(t, results[1], 10*time.Second)
		wantTook(t, results[2], 12*time.Second)
	})
}

func TestTurnIsGivenBackWhenShed(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(time.Second), clocktest.Reply(200).Forever())
		p := slots(policy.InFlight{Max: 1})
		p.Rate = policy.Rate{PerSecond: 0.001, Burst: 2}
		tr := newTransport(t, c, up, p)
		results := fleet(t, c, tr, 20, same(t))
		for _, r := range results[1:] {
			equal(t, "the layer", wantError(t, r.err).Layer, "in-flight")
		}
		wantTook(t, get(t, c, tr), 0) // the second turn is still there
	})
}

func TestNoSlotIsHeldDuringABackoff(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503), clocktest.Reply(200).Forever())
		p := slots(policy.InFlight{Max: 1})
		p.Retry = policy.Retry{BaseDelay: 4 * time.Second, MaxDelay: 4 * time.Second}
		tr := newTransport(t, c, up, p)
		results := fleet(t, c, tr, 2, same(t))
		wantTook(t, results[0], 4*time.Second)
		wantStatus(t, results[1], 200)
		wantTook(t, results[1], 0)
	})
}

func TestResize(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Silent().Forever())
		tr := newTransport(t, c, up, slots(policy.InFlight{Max: 1}))
		first, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		if err = tr.Update(slots(policy.InFlight{Max: 2})); err != nil {
			t.Fatal(err)
		}
		second, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		wantError(t, get(t, c, tr).err)
		first.Body.Close()
		second.Body.Close()
	})
}

// TestSlotOfACallerThatLeft: whoever waits for a slot gets that of a caller that
// gives up without a word, when it does, whether it came before or after.
func TestSlotOfACallerThatLeft(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Silent().Forever())
		tr := newTransport(t, c, up, slots(policy.InFlight{Max: 1, MaxWait: time.Minute}))
		for i := range 3 {
			ctx, cancel := c.WithTimeout(t.Context(), time.Duration(i+1)*5*time.Second)
			defer cancel()
			resp, err := tr.RoundTrip(request(t, ctx, "GET", url, nil))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			equal(t, "the time of call "+strconv.Itoa(i), c.Elapsed(), time.Duration(i)*5*time.Second)
		}
	})
}
