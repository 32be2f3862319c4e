package transport_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// reads is a policy that the Read timeout is told by.
func reads(d time.Duration) policy.Settings {
	return policy.Settings{Deadline: time.Hour, Timeouts: policy.Timeouts{Read: d}, Retry: policy.Retry{MaxAttempts: 1}}
}

// wantRead calls rt, and expects its Read to expire after d.
func wantRead(t *testing.T, c *clocktest.Clock, rt http.RoundTripper, ctx context.Context, d time.Duration) {
	t.Helper()
	r := do(c, rt, request(t, ctx, "GET", url, nil))
	wantTook(t, r, d)
	equal(t, "the limit told", wantTimeout(t, r.err, layers.PhaseRead).Limit, d)
}

func view(t *testing.T, tr *transport.Transport, s policy.Settings) *transport.Transport {
	t.Helper()
	v, err := tr.With(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func read(d time.Duration) policy.Settings {
	return policy.Settings{Timeouts: policy.Timeouts{Read: d}}
}

// TestLevels: the call's override goes over the view's settings, those over the
// routes', those over the policy's, those over the defaults.
func TestLevels(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.NoReply().Forever())
		bare := newTransport(t, c, up, settings(policy.Settings{Deadline: time.Hour, Retry: policy.Retry{MaxAttempts: 1}}))
		wantRead(t, c, bare, t.Context(), 30*time.Second)
		p := settings(reads(20 * time.Second))
		wantRead(t, c, newTransport(t, c, up, p), t.Context(), 20*time.Second)
		p.Routes = []policy.Route{{Pattern: "/", Settings: read(19 * time.Second)}, {Pattern: "/v1", Settings: read(18 * time.Second)}}
		tr := newTransport(t, c, up, p)
		wantRead(t, c, tr, t.Context(), 18*time.Second)
		v := view(t, tr, read(17*time.Second))
		wantRead(t, c, v, t.Context(), 17*time.Second)
		wantRead(t, c, view(t, v, read(16*time.Second)), t.Context(), 16*time.Second)
		wantRead(t, c, view(t, v, policy.Settings{Deadline: time.Minute}), t.Context(), 17*time.Second) // what it leaves alone
		o := policy.NewOverride(read(15 * time.Second))
		for range 2 {
			wantRead(t, c, v, o.Context(t.Context()), 15*time.Second)
			wantRead(t, c, tr, o.Context(t.Context()), 15*time.Second)
			wantRead(t, c, v, policy.WithOverride(t.Context(), read(14*time.Second)), 14*time.Second)
		}
		within := policy.WithOverride(o.Context(t.Context()), policy.Settings{Deadline: time.Minute})
		wantRead(t, c, v, within, 15*time.Second)
		wantRead(t, c, tr, t.Context(), 18*time.Second) // and nothing stays
	})
}

// TestShorterIsAlwaysAllowed: the deadline of a route, a view or a call may be
// shorter than what is inherited, which is then cut.
func TestShorterIsAlwaysAllowed(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.NoReply().Forever())
		short := policy.Settings{Deadline: 2 * time.Second}
		tr := newTransport(t, c, up, settings(reads(10*time.Minute)))
		routed := newTransport(t, c, up, policy.Policy{Settings: reads(10 * time.Minute), Routes: []policy.Route{{Pattern: "/v1", Settings: short}}})
		for name, r := range map[string]result{
			"route": get(t, c, routed), "view": get(t, c, view(t, tr, short)),
			"call": do(c, tr, request(t, policy.WithOverride(t.Context(), short), "GET", url, nil)),
		} {
			if e := wantTimeout(t, r.err, layers.PhaseDeadline); e.Elapsed != 2*time.Second {
				t.Errorf("%s: ended after %v", name, e.Elapsed)
			}
		}
	})
}

// wantConfig expects a *policy.ConfigError about a field, in an error that says
// so.
func wantConfig(t *testing.T, err error, route, field string) {
	t.Helper()
	var e *policy.ConfigError
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want a *policy.ConfigError", err)
	}
	equal(t, "the level", e.Route, route)
	equal(t, "the field", e.Field, field)
	for _, part := range []string{route, field, e.Value, e.Limit} {
		has(t, err.Error(), part)
	}
}

func TestRefusedSettings(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c)
		wrong := policy.Settings{Deadline: 20 * time.Second, Timeouts: policy.Timeouts{Read: 5 * time.Minute}}
		_, err := transport.New(transport.Config{Policy: policy.Policy{Routes: []policy.Route{{Pattern: "GET /reports/", Settings: wrong}}}})
		wantConfig(t, err, "GET /reports/", "Timeouts.Read")

		tr := newTransport(t, c, up, policy.Policy{})
		_, err = tr.With(wrong)
		wantConfig(t, err, "view", "Timeouts.Read")

		body := &closeCounter{Reader: strings.NewReader("x")}
		r := do(c, tr, request(t, policy.WithOverride(t.Context(), wrong), "POST", url, body))
		wantConfig(t, r.err, "call", "Timeouts.Read")
		e := wantError(t, r.err)
		equal(t, "what was sent", e.Sent, layers.Unsent)
		equal(t, "the number of closes", int(body.closes.Load()), 1)

		before := tr.Explain(request(t, t.Context(), "GET", url, nil)).String()
		wantConfig(t, tr.Update(settings(wrong)), "policy", "Timeouts.Read")
		equal(t, "the policy after an update that was refused", tr.Explain(request(t, t.Context(), "GET", url, nil)).String(), before)
	})
}

// TestRefusedLine: settings of three routes that no two of them show to be wrong
// are refused when a request matches all three, before it is sent, and the error
// shows the patterns.
func TestRefusedLine(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		tr := newTransport(t, c, clocktest.NewUpstream(t, c), policy.Policy{Routes: []policy.Route{
			{Pattern: "/{a}/{b}/z/", Settings: policy.Settings{Deadline: 30 * time.Second}},
			{Pattern: "/{a}/y/{b}/", Settings: policy.Settings{Hedge: policy.Hedge{Delay: 10 * time.Second}}},
			{Pattern: "/x/{a}/{b}/", Settings: policy.Settings{Hedge: policy.Hedge{Max: 4}}},
		}})
		r := do(c, tr, request(t, t.Context(), "GET", "http://api.example/x/y/z/", nil))
		e := wantError(t, r.err)
		equal(t, "the layer", e.Layer, "match")
		equal(t, "that it may be made again", e.Retryable, true)
		equal(t, "the reason not to", e.Reason, layers.ReasonNotRetryable)
		wantConfig(t, r.err, "/x/{a}/{b}/", "Hedge.Max")
	})
}

// TestUpdate: calls under way finish under the old policy, later ones have the
// new one, in every view and under every override; state is kept.
func TestUpdate(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.NoReply().Forever())
		s := reads(20 * time.Second)
		s.Breaker = policy.Breaker{Failures: 100}
		s.Rate = policy.Rate{PerSecond: 100, Burst: 100}
		tr := newTransport(t, c, up, settings(s))
		v := view(t, tr, policy.Settings{Deadline: 30 * time.Minute})
		o := policy.NewOverride(policy.Settings{Deadline: 20 * time.Minute})
		all := func(d time.Duration) {
			t.Helper()
			wantRead(t, c, tr, t.Context(), d)
			wantRead(t, c, v, t.Context(), d)
			wantRead(t, c, tr, o.Context(t.Context()), d)
			wantRead(t, c, v, o.Context(t.Context()), d)
		}
		all(20 * time.Second)
		var underWay sync.WaitGroup
		for _, rt := range []*transport.Transport{tr, v} {
			underWay.Go(func() { wantRead(t, c, rt, t.Context(), 20*time.Second) })
		}
		c.Add(10 * time.Second)
		s.Timeouts.Read = 3 * time.Second
		if err := tr.Update(settings(s)); err != nil {
			t.Fatal(err)
		}
		all(3 * time.Second)
		underWay.Wait()
		equal(t, "the number of circuits", len(tr.Breakers()), 1)

		// A circuit that is open stays open.
		tr.Breakers()[0].ForceOpen()
		s.Breaker.Failures = 7
		if err := v.Update(settings(s)); err != nil {
			t.Fatal(err)
		}
		for _, rt := range []*transport.Transport{tr, v} {
			equal(t, "the reason", wantError(t, get(t, c, rt).err).Reason, layers.ReasonCircuit)
		}
	})
}

// TestUpdateWithoutRoomForAView: it fails its calls before they are sent.
func TestUpdateWithoutRoomForAView(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		tr := newTransport(t, c, up, settings(policy.Settings{Deadline: time.Hour, Rate: policy.Rate{PerSecond: 1}}))
		v := view(t, tr, policy.Settings{Rate: policy.Rate{MaxWait: 30 * time.Minute}, Deadline: 40 * time.Minute})
		wantStatus(t, get(t, c, v), 200)
		if err := tr.Update(settings(policy.Settings{Rate: policy.Rate{PerSecond: 2}})); err != nil {
			t.Fatal(err)
		}
		wantStatus(t, get(t, c, v), 200)
	})
}

// TestUpdateBesideACompilation: a chain of the policy before, which is being made when
// another takes its place, does not bring the old numbers back.
func TestUpdateBesideACompilation(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		pol := func(n int) policy.Policy {
			return settings(policy.Settings{
				Rate: policy.Rate{PerSecond: float64(n), Burst: n}, InFlight: policy.InFlight{Max: n}, Breaker: policy.Breaker{Failures: n},
			})
		}
		up := clocktest.NewUpstream(t, c, clocktest.Reply(500).Forever())
		var tr *transport.Transport
		made := 0
		tr = newTransport(t, c, up, pol(5), inner(func(next http.RoundTripper) http.RoundTripper {
			if made++; made == 2 { // the chain of the second route
				if err := tr.Update(pol(1)); err != nil {
					t.Error(err)
				}
			}
			return next
		}))
		wantStatus(t, get(t, c, tr), 500)
		view, err := tr.With(policy.Settings{Retry: policy.Retry{Enabled: policy.Off}})
		if err != nil {
			t.Fatal(err)
		}
		do(c, view, request(t, t.Context(), "POST", url, nil))
		equal(t, "the burst", tr.Budgets()[0].Burst, 1)
		equal(t, "the number of slots", tr.Slots()[0].Max, 1)
		equal(t, "the state of the circuit", tr.Breakers()[0].State(), layers.StateOpen)
		if r := do(c, tr, request(t, t.Context(), "POST", url, nil)); r.err == nil {
			t.Errorf("one more failure was not enough: %+v", r)
		}
	})
}

// TestUpdateUnderLoad: each call sees one policy as a whole.
func TestUpdateUnderLoad(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.NoReply().Forever())
		of := func(d time.Duration) policy.Policy {
			s := reads(d)
			s.Deadline = 2 * d
			return settings(s)
		}
		tr := newTransport(t, c, up, of(time.Second))
		v := view(t, tr, policy.Settings{Retry: policy.Retry{MaxAttempts: 1}})
		o := policy.NewOverride(policy.Settings{Retry: policy.Retry{MaxAttempts: 1}})
		var calls sync.WaitGroup
		for i := range 200 {
			calls.Go(func() {
				rt, ctx := tr, t.Context()
				if i%2 == 0 {
					rt = v
				}
				if i%3 == 0 {
					ctx = o.Context(ctx)
				}
				for range 5 {
					e := wantTimeout(t, do(c, rt, request(t, ctx, "GET", url, nil)).err, layers.PhaseRead)
					if e.Limit != e.Elapsed || e.Limit%time.Second != 0 {
						t.Errorf("ended after %v by a limit of %v", e.Elapsed, e.Limit)
					}
				}
			})
		}
		for i := range 50 {
			c.Sleep(100 * time.Millisecond)
			if err := tr.Update(of(time.Duration(i%5+1) * time.Second)); err != nil {
				t.Error(err)
			}
		}
		calls.Wait()
	})
}

// crossing is a policy with n routes that cross each other, so that requests
// match any combination of them.
func crossing(n int) policy.Policy {
	var p policy.Policy
	for i := range n {
		segments := make([]string, n)
		for j := range segments {
			segments[j] = fmt.Sprintf("{s%d}", j)
		}
		segments[i] = "a"
		p.Routes = append(p.Routes, policy.Route{
			Pattern:  "/" + strings.Join(segments, "/"),
			Settings: policy.Settings{Budgets: map[string]policy.Rate{fmt.Sprintf("b%d", i): {PerSecond: 1, Enabled: policy.Off}}},
		})
	}
	return p
}

// TestChainsAreBounded: what is kept for the combinations of routes that occur
// has a bound, and what is beyond it works all the same.
func TestChainsAreBounded(t *testing.T) {
	const n = 13
	tr := newTransport(t, nil, layers.RoundTripperFunc(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200}, nil
	}), crossing(n))
	for combination := range 4200 {
		path := ""
		for i := range n {
			path += "/" + string("ba"[combination>>i&1])
		}
		resp, err := tr.RoundTrip(request(t, t.Context(), "GET", "http://api.example"+path, nil))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	if kept := tr.Chains(); kept < 4000 || kept > 4096 {
		t.Errorf("%d chains are kept, want up to 4096", kept)
	}
}
