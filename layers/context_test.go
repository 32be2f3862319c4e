package layers_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

// TestCallersContext: a send that no layer may end runs under its caller's
// context. What is left to end it by is its body.
func TestCallersContext(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).Body("busy").Silent(), clocktest.Reply(200).Body("done"))
		var ends []<-chan struct{}
		base := layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			ends = append(ends, req.Context().Done())
			return up.RoundTrip(req)
		})
		env := &layers.Env{Clock: c}
		rt := layers.Chain(base, layers.Open(env, "reports"), layers.Retry(env, policy.Retry{BaseDelay: policy.Off}))
		resp, text, err := fetch(t, rt)
		if err != nil || text != "done" || c.Elapsed() != time.Second {
			t.Errorf("got %q, %v after %v, want what came once the first answer was given up", text, err, c.Elapsed())
		}
		if call, ok := layers.CallFrom(resp.Request.Context()); !ok || call.Route() != "reports" || call.Attempts() != 2 {
			t.Errorf("the answer's call is %v", call)
		}
		if ends[0] != t.Context().Done() {
			t.Error("the first send has a context of its own")
		}
	})
}

// TestContextThatEnds: where a layer may end a send, or is the user's, or
// somebody observes, the context ends with the call.
func TestContextThatEnds(t *testing.T) {
	own := func(next http.RoundTripper) http.RoundTripper {
		return layers.RoundTripperFunc(next.RoundTrip)
	}
	for name, layer := range map[string]func(*layers.Env) layers.Layer{
		"deadline": func(e *layers.Env) layers.Layer { return layers.Deadline(e, time.Minute) },
		"timeouts": func(e *layers.Env) layers.Layer { return layers.Timeouts(e, policy.Timeouts{}) },
		"hedge":    func(e *layers.Env) layers.Layer { return layers.Hedge(e, policy.Hedge{Delay: time.Second}) },
		"stream":   func(e *layers.Env) layers.Layer { return layers.StreamGuard(e, policy.Stream{}) },
		"inner":    func(e *layers.Env) layers.Layer { return layers.Inner(e, own) },
		"outer":    func(*layers.Env) layers.Layer { return own },
		"observer": func(e *layers.Env) layers.Layer {
			e.Observer = new(layers.Timeline)
			return layers.Retry(e, policy.Retry{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				env := &layers.Env{Clock: c}
				layer := layer(env)
				resp, _, err := fetch(t, layers.Chain(clocktest.NewUpstream(t, c, clocktest.Reply(200)), layers.Open(env, ""), layer))
				if err != nil {
					t.Fatal(err)
				}
				call, ok := layers.CallFrom(resp.Request.Context())
				if !ok || call.Err() == nil {
					t.Error("the context did not end with the call")
				}
			})
		})
	}
}

// curious is a context that asks a call whenever it is asked.
type curious struct {
	context.Context
	call atomic.Pointer[layers.Call]
}

func (c *curious) Value(key any) any {
	if call := c.call.Load(); call != nil {
		_ = call.Reason()
	}
	return c.Context.Value(key)
}

// TestContextThatAsks: a context of the user's is asked under no lock of the call's.
func TestContextThatAsks(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		for _, expires := range []bool{false, true} {
			parent, cancel := context.WithCancel(t.Context())
			defer cancel()
			ctx := &curious{Context: parent}
			env := &layers.Env{Clock: c}
			look := func(next http.RoundTripper) http.RoundTripper {
				return layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
					call, _ := layers.CallFrom(req.Context())
					ctx.call.Store(call)
					return next.RoundTrip(req)
				})
			}
			rt := layers.Chain(clocktest.NewUpstream(t, c, clocktest.Reply(200).Body("x").Silent()), layers.Deadline(env, time.Minute),
				layers.InFlight(env, policy.StateID{}, policy.InFlight{Max: 1}), layers.Inner(env, look), layers.Timeouts(env, policy.Timeouts{}))
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example.com/", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := fetch(t, rt); err == nil { // which asks for the only slot
				t.Error("a second call got the slot of the first")
			}
			call, _ := layers.CallFrom(resp.Request.Context())
			done := call.Done()
			if expires {
				c.Add(2 * time.Minute)
			}
			resp.Body.Close()
			<-done
		}
	})
}

// TestLateLayer: a layer that may end a send, and that one of the user's hides
// from those around it, ends the send all the same.
func TestLateLayer(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		env := &layers.Env{Clock: c}
		hidden := func(next http.RoundTripper) http.RoundTripper { return layers.RoundTripperFunc(next.RoundTrip) }
		rt := layers.Chain(clocktest.NewUpstream(t, c, clocktest.NoReply()),
			layers.CircuitBreaker(env, policy.StateID{}, policy.Breaker{Failures: 5}), hidden, layers.Timeouts(env, policy.Timeouts{Read: time.Second}))
		if _, _, err := fetch(t, rt); err == nil || c.Elapsed() != time.Second {
			t.Errorf("got %v after %v", err, c.Elapsed())
		}
	})
}
