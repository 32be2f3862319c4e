package transport_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

// TestLayerLeftBehind: a layer that is held up by the caller's body goes on when the
// call has its outcome, or is about to. It has no part in it any more.
func TestLayerLeftBehind(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		env := &layers.Env{Clock: c}
		hashes := around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			_, _ = io.Copy(io.Discard, req.Body)
			return next.RoundTrip(req)
		})
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		rt := layers.Chain(up, layers.Retry(env, noWait), hashes,
			layers.CircuitBreaker(env, policy.StateID{}, policy.Breaker{}), layers.InFlight(env, policy.StateID{}, policy.InFlight{Max: 1000}), layers.Timeouts(env, policy.Timeouts{}))
		for range 300 {
			heard := make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			req := request(t, ctx, "POST", url, nil)
			req.Body, req.ContentLength = &slowUpload{turn: make(chan struct{}, 1), heard: heard}, -1
			time.AfterFunc(time.Second, func() { close(heard) })
			time.AfterFunc(time.Second, cancel)
			do(c, rt, req)
			time.Sleep(time.Second)
		}
		equal(t, "the slots in use", env.Slots()[0].Used, 0)
	})
}

// TestAnswerLeftBehind: nor has the answer that such a layer has in the end, though it
// be a stream that opens, which lifts the deadline of a call.
func TestAnswerLeftBehind(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		env := &layers.Env{Clock: c}
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200), events(role, word, done).After(time.Second), clocktest.NoReply().Forever())
		rt := layers.Chain(up, layers.Deadline(env, 4*time.Second), layers.Retry(env, policy.Retry{BaseDelay: policy.Off, Budget: policy.Off}), around(passOn),
			layers.Hedge(env, policy.Hedge{Delay: 1500 * time.Millisecond}), layers.StreamGuard(env, policy.Stream{FirstContent: 1500 * time.Millisecond, Hold: policy.On}),
			layers.Timeouts(env, policy.Timeouts{Attempt: 2 * time.Second}))
		req := request(t, t.Context(), "PUT", url, nil)
		req.Body, req.ContentLength = newSlowUpload(c, 3*time.Second, false), -1
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("text")), nil }
		r := do(c, rt, req)
		equal(t, "the reason", wantError(t, r.err).Reason, layers.ReasonDeadline)
		time.Sleep(time.Hour)
	})
}

// TestTurnOfALayerLeftBehind: a send that a gate refused while its layer is held up by
// the Close of the caller's body gives its turn back.
func TestTurnOfALayerLeftBehind(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		env := &layers.Env{Clock: c}
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Body("x"))
		rt := layers.Chain(up, layers.RateBudget(env, layers.Budget{Rate: policy.Rate{PerSecond: 1e-6, Burst: 5}}), around(passOn),
			layers.InFlight(env, policy.StateID{}, policy.InFlight{Max: 1, MaxWait: time.Second - time.Microsecond}))
		first, err := rt.RoundTrip(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		defer first.Body.Close()
		ctx, cancel := c.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req := request(t, ctx, "POST", url, nil)
		req.Body, req.ContentLength = newSlowUpload(c, 3*time.Second, true), -1
		do(c, rt, req)
		equal(t, "the turns that are left", int(env.Budgets()[0].Level+0.5), 4)
		time.Sleep(time.Hour)
	})
}

// TestGatesOfALayerLeftBehind: a layer that sends again as its call ends, and is left
// behind in a gate, holds nothing of it, neither a slot nor the probe of a circuit.
func TestGatesOfALayerLeftBehind(t *testing.T) {
	again := around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		go req.Body.Close()
		bare := req.Clone(req.Context())
		bare.Body, bare.ContentLength = nil, 0
		_, _ = next.RoundTrip(bare)
		return next.RoundTrip(bare)
	})
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		env := &layers.Env{Clock: c}
		var asked atomic.Int32
		slow := func(*http.Request) string {
			if asked.Add(1) == 3 {
				c.Sleep(2 * time.Second)
			}
			return "all"
		}
		broken := policy.Breaker{Failures: 1, Open: time.Second, OpenMax: time.Second, OpenJitter: policy.Off, Key: slow}
		limits := around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			ctx, cancel := c.WithTimeout(req.Context(), time.Second)
			defer cancel()
			return next.RoundTrip(req.WithContext(ctx))
		})
		rate := layers.RateBudget(env, layers.Budget{Rate: policy.Rate{PerSecond: 100, Burst: 100}})
		inFlight := layers.InFlight(env, policy.StateID{}, policy.InFlight{Max: 1, Key: slow})
		for _, test := range []struct {
			patience       time.Duration // of the caller
			outermostFirst []layers.Layer
		}{
			{time.Second, []layers.Layer{again, inFlight}},
			{time.Hour, []layers.Layer{limits, rate, again, inFlight}},
			{time.Second, []layers.Layer{again, layers.CircuitBreaker(env, policy.StateID{}, broken)}},
		} {
			asked.Store(0)
			gate := test.outermostFirst[len(test.outermostFirst)-1]
			up := clocktest.NewUpstream(t, c, clocktest.Reply(500), clocktest.Reply(204).Forever())
			do(c, layers.Chain(up, gate), request(t, t.Context(), "GET", url, nil))
			time.Sleep(time.Minute)
			ctx, cancel := c.WithTimeout(t.Context(), test.patience)
			defer cancel() // and not before
			req := request(t, ctx, "POST", url, nil)
			req.Body, req.ContentLength = newSlowUpload(c, 5*time.Second, true), -1
			do(c, layers.Chain(up, append([]layers.Layer{layers.Deadline(env, time.Hour)}, test.outermostFirst...)...), req)
			time.Sleep(time.Hour)
		}
		equal(t, "the slots in use", env.Slots()[0].Used, 0)
		equal(t, "the probes under way", env.Breakers()[0].Status().Probes, 0)
	})
}
