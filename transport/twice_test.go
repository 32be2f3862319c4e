package transport_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

// endings are what may become of a send, and whether the server had it.
var endings = map[string]struct {
	received bool
	err      error
}{
	"reset":  {true, io.ErrUnexpectedEOF},
	"503":    {true, nil},
	"dial":   {false, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}},
	"goaway": {false, errors.New("http2: Transport received GOAWAY from server ErrCode:0")},
}

// TestALayerSendsTwice: that the last of the sends which a layer of the user's made
// came to nothing is no proof that none did, wherever the layer stands.
func TestALayerSendsTwice(t *testing.T) {
	twice := around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		if resp, err := next.RoundTrip(req); err == nil {
			drain(resp)
		}
		return next.RoundTrip(again(req))
	})
	once := policy.Retry{Enabled: policy.Off}
	stacks := map[string]func(c *clocktest.Clock, base http.RoundTripper) http.RoundTripper{
		"inner": func(c *clocktest.Clock, base http.RoundTripper) http.RoundTripper {
			return newTransport(t, c, base, settings(policy.Settings{Retry: noWait}), inner(passes, twice, passes))
		},
		"outer": func(c *clocktest.Clock, base http.RoundTripper) http.RoundTripper {
			return newTransport(t, c, base, settings(policy.Settings{Retry: policy.Retry{MaxAttempts: 1}}), outer(twice))
		},
		"inner, in a base": func(c *clocktest.Clock, base http.RoundTripper) http.RoundTripper {
			return newTransport(t, c, newTransport(t, c, base, settings(policy.Settings{Retry: once}), inner(twice)), settings(policy.Settings{Retry: noWait}))
		},
		"outer, in a base": func(c *clocktest.Clock, base http.RoundTripper) http.RoundTripper {
			return newTransport(t, c, newTransport(t, c, base, settings(policy.Settings{Retry: once}), outer(twice)), settings(policy.Settings{Retry: noWait}))
		},
		"around a base": func(c *clocktest.Clock, base http.RoundTripper) http.RoundTripper {
			return newTransport(t, c, newTransport(t, c, base, settings(policy.Settings{Retry: once})), settings(policy.Settings{Retry: noWait}), inner(twice))
		},
		"between retry and timeouts": func(c *clocktest.Clock, base http.RoundTripper) http.RoundTripper {
			env := &layers.Env{Clock: c}
			return layers.Chain(base, layers.Retry(env, noWait), twice, layers.Timeouts(env, policy.Timeouts{}))
		},
		"below a deadline": func(c *clocktest.Clock, base http.RoundTripper) http.RoundTripper {
			env := &layers.Env{Clock: c}
			return layers.Chain(base, layers.Deadline(env, time.Minute), layers.Retry(env, noWait), twice, layers.Timeouts(env, policy.Timeouts{}))
		},
		"around a gate": func(c *clocktest.Clock, base http.RoundTripper) http.RoundTripper {
			env := &layers.Env{Clock: c}
			gate := layers.RateBudget(env, layers.Budget{Rate: policy.Rate{PerSecond: 0.001, MaxWait: policy.Off}})
			return layers.Chain(base, layers.Deadline(env, time.Minute), layers.Retry(env, noWait), twice, gate, layers.Timeouts(env, policy.Timeouts{}))
		},
	}
	for _, sends := range []string{
		"dial dial", "goaway goaway", "goaway dial", "reset dial", "reset goaway", "503 dial", "503 goaway",
		"dial dial reset dial", "dial dial reset goaway", "goaway goaway 503 goaway",
	} {
		for name, stack := range stacks {
			for _, hooks := range []bool{false, true} { // or a base without
				t.Run(fmt.Sprint(name, "/", sends, "/", hooks), func(t *testing.T) {
					clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
						todo := strings.Fields(sends)
						sent, received := 0, 0
						rt := stack(c, layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
							what := todo[min(sent, len(todo)-1)]
							sent++
							if end := endings[what]; end.received {
								received++
							}
							trace := httptrace.ContextClientTrace(req.Context())
							if hooks && trace != nil && trace.GetConn != nil {
								trace.GetConn("")
								if what != "dial" {
									trace.GotConn(httptrace.GotConnInfo{})
								}
							}
							if err := endings[what].err; err != nil {
								return closing(req, err)
							}
							_, _ = closing(req, nil)
							return &http.Response{StatusCode: 503, Body: io.NopCloser(strings.NewReader("x")), ContentLength: 1}, nil
						}))
						_, err := rt.RoundTrip(request(t, t.Context(), "POST", url, strings.NewReader("x")))
						e := wantError(t, err)
						equal(t, "whether it can be repeated", e.Retryable, received == 0)
						if received > 0 && sent > len(todo) {
							t.Errorf("%d sends: %v", sent, err)
						}
					})
				})
			}
		}
	}
}

// TestHooksOfTheSecondSendAlone: a hook that tells that a send waits for a connection
// tells nothing of the one before, though that fired none.
func TestHooksOfTheSecondSendAlone(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		sends := 0
		base := layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			if sends++; sends == 1 {
				return closing(req, io.ErrUnexpectedEOF)
			}
			httptrace.ContextClientTrace(req.Context()).GetConn("api.example:80")
			return closing(req, &net.OpError{Op: "dial", Err: io.ErrClosedPipe})
		})
		again := around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			if resp, err := next.RoundTrip(req); err == nil {
				return resp, nil
			}
			return next.RoundTrip(req)
		})
		env := &layers.Env{Clock: c}
		rt := layers.Chain(base, layers.Deadline(env, time.Minute), layers.Retry(env, policy.Retry{}), layers.Inner(env, again), layers.Timeouts(env, policy.Timeouts{}))
		r := do(c, rt, request(t, t.Context(), "POST", "http://api.example/", nil))
		equal(t, "what was sent", wantError(t, r.err).Sent, layers.MaybeSent)
		equal(t, "the sends", sends, 2)
	})
}
