package transport_test

import (
	"context"
	"io"
	"net/http"
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
