package transport_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

// TestNoBodyLeavesTheContext: an answer without a body ends its call before it
// goes up. Who holds it goes on with the context of its request all the same,
// as behind a bare transport, and still finds the call.
func TestNoBodyLeavesTheContext(t *testing.T) {
	eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
		w := newWire(t, c, kind, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/none" {
				rw.WriteHeader(http.StatusNoContent)
			}
		}), policy.Policy{})
		for _, ask := range []string{"GET /none", "GET /empty", "HEAD /head"} {
			method, path, _ := strings.Cut(ask, " ")
			ctx, cancel := context.WithCancel(layers.WithDeadline(t.Context(), c.Now().Add(time.Minute)))
			resp, err := w.RoundTrip(request(t, ctx, method, url+path, nil))
			if err != nil {
				t.Fatal(err)
			}
			if err := resp.Request.Context().Err(); err != nil {
				t.Errorf("%s: the context is dead: %v", ask, err)
			}
			call := callOf(t, resp)
			equal(t, ask+": the number of attempts", call.Attempts(), 1)
			again, err := w.RoundTrip(request(t, resp.Request.Context(), method, url+path, nil))
			if err != nil {
				t.Fatalf("%s: a call on that context: %v", ask, err)
			}
			if callOf(t, again) == call {
				t.Errorf("%s: a call on that context is the same call", ask)
			}
			again.Body.Close()
			resp.Body.Close()
			if call.Err() == nil {
				t.Errorf("%s: the call goes on", ask)
			}
			cancel()
			if resp.Request.Context().Err() == nil {
				t.Errorf("%s: the context outlives the caller's", ask)
			}
		}
	})
}

// TestContextOfAnEndedCall: nor does a call on it go before others, as one does
// that another call waits for.
func TestContextOfAnEndedCall(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(204).Times(3))
		tr := newTransport(t, c, up, settings(policy.Settings{Rate: policy.Rate{PerSecond: 1}}))
		ended := get(t, c, tr)
		first := make(chan result)
		go func() { first <- get(t, c, tr) }()
		time.Sleep(time.Millisecond)
		later := do(c, tr, request(t, ended.resp.Request.Context(), "GET", url, nil))
		wantTook(t, <-first, time.Second)
		wantTook(t, later, 2*time.Second-time.Millisecond)
	})
}

// TestZeroDeadline: the zero time is long past on a mock clock too.
func TestZeroDeadline(t *testing.T) {
	c := clock.NewMock()
	tr := newTransport(t, c, clocktest.NewUpstream(t, c, clocktest.Reply(204)), policy.Policy{})
	if _, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil)); err != nil {
		t.Fatal(err)
	}
	c.Add(time.Hour)
	_, err := tr.RoundTrip(request(t, layers.WithDeadline(t.Context(), time.Time{}), "GET", url, nil))
	if e := wantTimeout(t, err, layers.PhaseDeadline); e.Limit != 0 {
		t.Errorf("the limit is %v", e.Limit)
	}
}

// TestContentlessBody: over HTTP/2, headers that promise no content need not end
// the stream. What ends it is waited for, with its trailers.
func TestContentlessBody(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		w := newWire(t, c, "http2", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Trailer", "X-Sum")
			rw.WriteHeader(http.StatusNoContent)
			http.NewResponseController(rw).Flush()
			time.Sleep(time.Second)
			rw.Header().Set("X-Sum", "42")
		}), settings(policy.Settings{Stream: policy.Stream{Enabled: policy.On, FirstContent: time.Second / 2}, InFlight: policy.InFlight{Max: 1}}))
		for range 2 {
			r := do(c, w, request(t, t.Context(), "DELETE", "https://api.test/", nil))
			wantStatus(t, r, http.StatusNoContent)
			wantTook(t, r, time.Second)
			equal(t, "the trailer", r.resp.Trailer.Get("X-Sum"), "42")
		}
	})
}

// renamed is a base that says of each response that it answers a request of
// its own.
func renamed(base http.RoundTripper, f func(*http.Request) *http.Request) http.RoundTripper {
	return layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(req)
		if err == nil {
			resp.Request = f(req)
		}
		return resp, err
	})
}

var strangers = map[string]func(*http.Request) *http.Request{
	"clone": func(req *http.Request) *http.Request { return req.Clone(context.Background()) },
	"fresh": func(req *http.Request) *http.Request { return &http.Request{Method: req.Method, URL: req.URL} },
	"none":  func(*http.Request) *http.Request { return nil },
}

// TestHopsOverAnyBase: redirects are one call whatever request a base, or another
// stack below, says that its response answers; and no token follows them to
// another origin.
func TestHopsOverAnyBase(t *testing.T) {
	hop := clocktest.Reply(302).Header("Location", "/next").After(4 * time.Second)
	bases := map[string]func(t *testing.T, c *clocktest.Clock, base http.RoundTripper) http.RoundTripper{
		"weir": func(t *testing.T, c *clocktest.Clock, base http.RoundTripper) http.RoundTripper {
			return newTransport(t, c, base, policy.Policy{})
		},
	}
	for name, f := range strangers {
		bases[name] = func(_ *testing.T, _ *clocktest.Clock, base http.RoundTripper) http.RoundTripper {
			return renamed(base, f)
		}
	}
	for name, base := range bases {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, hop.Times(3))
				tr := newTransport(t, c, base(t, c, up), settings(policy.Settings{Deadline: 10 * time.Second}))
				_, err := tr.Client().Get(url)
				e := wantTimeout(t, err, layers.PhaseDeadline)
				equal(t, "the time", c.Elapsed(), 10*time.Second)
				equal(t, "the number of attempts", e.Attempts, 3)
			})
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c,
					clocktest.Reply(302).Header("Location", "http://evil.example/1"),
					clocktest.Reply(302).Header("Location", "http://evil.example/2"), clocktest.Reply(200))
				tokens := layers.TokenFunc(func(context.Context) (layers.Token, error) { return layers.Token{Value: "secret"}, nil })
				tr := newTransport(t, c, base(t, c, up), policy.Policy{}, inner(layers.Auth(tokens)))
				resp, err := (&http.Client{Transport: tr}).Get(url)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				var got []string
				for _, r := range up.Requests() {
					got = append(got, r.Header.Get("Authorization"))
				}
				equal(t, "the tokens", fmt.Sprintf("%q", got), `["Bearer secret" "" ""]`)
			})
		})
	}
}

// TestCopyOfARedirectedRequest: a request that was answered can be copied and sent
// again, whatever it followed: it is a call of its own.
func TestCopyOfARedirectedRequest(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(302).Header("Location", "/job"), clocktest.Reply(200).Body("queued").Times(3))
		client := newTransport(t, c, up, settings(policy.Settings{Deadline: 3 * time.Second})).Client()
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		for range 2 {
			time.Sleep(time.Minute)
			again, err := client.Do(resp.Request.Clone(t.Context()))
			if err != nil {
				t.Fatal(err)
			}
			again.Body.Close()
			equal(t, "the number of attempts", callOf(t, again).Attempts(), 1)
		}
	})
}

// TestFailedHopIsSentAgain: a layer around the transport that sends a hop again
// after an error goes on with the same call.
func TestFailedHopIsSentAgain(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(302).Header("Location", "/next"), clocktest.Fail(io.ErrUnexpectedEOF).After(time.Second), clocktest.Reply(200))
		tr := newTransport(t, c, up, settings(policy.Settings{Retry: policy.Retry{Enabled: policy.Off}}))
		client := &http.Client{Transport: layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			resp, err := tr.RoundTrip(req)
			if err != nil {
				resp, err = tr.RoundTrip(req)
			}
			return resp, err
		})}
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		equal(t, "the number of attempts", callOf(t, resp).Attempts(), 3)
	})
}

// TestPastDeadline: what a job's deadline has passed for is not sent, whatever
// layers there are.
func TestPastDeadline(t *testing.T) {
	for name, p := range map[string]policy.Settings{
		"off": {Deadline: policy.Off},
		"alone": {
			Deadline: policy.Off, Retry: policy.Retry{Enabled: policy.Off},
			Timeouts: policy.Timeouts{Pool: policy.Off, Connect: policy.Off, Write: policy.Off, Read: policy.Off},
		},
		"on": {},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Times(100))
				tr := newTransport(t, c, up, settings(p))
				time.Sleep(time.Hour)
				for _, at := range []time.Time{{}, c.Now(), c.Now().Add(-1), c.Now().Add(-2 * time.Hour), c.Now().AddDate(-1000, 0, 0)} {
					for range 10 {
						_, err := tr.RoundTrip(request(t, layers.WithDeadline(t.Context(), at), "POST", url, strings.NewReader("x")))
						e := wantTimeout(t, err, layers.PhaseDeadline)
						if e.Attempts != 0 || e.Limit < 0 || e.Limit > time.Hour || e.Sent != layers.Unsent {
							t.Fatalf("%v: got %+v", at, e)
						}
					}
				}
				equal(t, "the number of requests", len(up.Requests()), 0)
			})
		})
	}
}

// TestPastDeadlineOfHops: neither is a redirect followed by then.
func TestPastDeadlineOfHops(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(302).Header("Location", "/next").Times(9))
		client := newTransport(t, c, up, settings(policy.Settings{Deadline: policy.Off})).Client()
		client.CheckRedirect = func(*http.Request, []*http.Request) error { time.Sleep(50 * time.Millisecond); return nil }
		_, err := client.Do(request(t, layers.WithDeadline(t.Context(), c.Now().Add(60*time.Millisecond)), "GET", url, nil))
		wantTimeout(t, err, layers.PhaseDeadline)
		equal(t, "the number of requests", len(up.Requests()), 2)
	})
}

// TestCallOutlivesASend: a send that ends for itself ends neither the call nor
// what is told of it.
func TestCallOutlivesASend(t *testing.T) {
	for name, p := range map[string]policy.Settings{
		"timeout": {Timeouts: policy.Timeouts{Read: time.Second}, Retry: noWait},
		"hedge":   {Hedge: policy.Hedge{Delay: time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, clocktest.NoReply(), clocktest.Reply(200).Chunks(clocktest.Chunk{Data: "a"}, clocktest.Chunk{After: time.Millisecond, Data: "b"}))
				var ended []string
				tr := newTransport(t, c, up, settings(p), observer(func(ctx context.Context, e layers.Event) {
					if _, ok := layers.CallFrom(ctx); !ok || ctx.Err() != nil || ctx.Value(mark{}) != "here" {
						ended = append(ended, string(e.Kind))
					}
				}))
				ctx := context.WithValue(t.Context(), mark{}, "here")
				resp, err := tr.RoundTrip(request(t, ctx, "GET", url, nil))
				if err != nil {
					t.Fatal(err)
				}
				call := callOf(t, resp)
				done := call.Done()
				if err := call.Err(); err != nil {
					t.Errorf("the call has ended: %v", err)
				}
				if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "ab" {
					t.Errorf("got %q, %v", b, err)
				}
				resp.Body.Close()
				<-done
				if call.Err() == nil {
					t.Error("the call goes on")
				}
				if len(ended) > 0 {
					t.Errorf("observed with a context that had ended: %q", ended)
				}
			})
		})
	}
}

type mark struct{}

// TestCallAsAContext: what is derived from a call ends with it, at the cost of no
// goroutine, and has no cause before.
func TestCallAsAContext(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.NoReply(), clocktest.Reply(200).Body("x"))
		tr := newTransport(t, c, up, settings(policy.Settings{Timeouts: policy.Timeouts{Read: time.Second}, Retry: noWait}))
		resp, err := tr.RoundTrip(request(t, context.WithValue(t.Context(), mark{}, "here"), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		call := callOf(t, resp)
		if cause := context.Cause(call); cause != nil {
			t.Errorf("the cause is that of a send: %v", cause)
		}
		others := goleak.IgnoreCurrent()
		ctx, cancel := context.WithCancel(call)
		defer cancel()
		if err := goleak.Find(others); err != nil {
			t.Error(err)
		}
		equal(t, "a value", ctx.Value(mark{}), any("here"))
		if found, _ := layers.CallFrom(ctx); found != call {
			t.Error("the call is not found")
		}
		resp.Body.Close()
		if ctx.Err() == nil || context.Cause(call) == nil {
			t.Error("it goes on")
		}
	})
}

// TestObserverSends: what an observer sends on the context that it is given is no
// part of the attempt, whose phases and proofs it would confuse.
func TestObserverSends(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		collector := clocktest.NewNetwork(t).Transport()
		defer collector.CloseIdleConnections()
		var causes []error
		base := layers.RoundTripperFunc(func(*http.Request) (*http.Response, error) { return nil, clocktest.ErrReset })
		tr := newTransport(t, c, base, policy.Policy{}, observer(func(ctx context.Context, _ layers.Event) {
			if _, err := collector.RoundTrip(request(t, ctx, "GET", "http://nobody.test/", nil)); err == nil {
				t.Error("somebody answered")
			}
			if err := context.Cause(ctx); err != nil {
				causes = append(causes, err)
			}
		}))
		e := wantError(t, do(c, tr, request(t, t.Context(), "POST", url, nil)).err)
		equal(t, "what was sent", e.Sent, layers.MaybeSent)
		equal(t, "the number of attempts", e.Attempts, 1)
		if len(causes) > 0 {
			t.Errorf("contexts that never end have causes: %v", causes)
		}
	})
}

// TestCallEndsWithItsDeadline: and with its caller's context.
func TestCallEndsWithItsDeadline(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		for _, give := range []func() (context.Context, context.CancelFunc){
			func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) },
			func() (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				return ctx, cancel
			},
		} {
			ctx, cancel := give()
			began := c.Elapsed()
			var over time.Duration
			base := layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				call, _ := layers.CallFrom(req.Context())
				<-call.Done()
				over = c.Elapsed() - began
				return nil, call.Err()
			})
			p := settings(policy.Settings{Deadline: time.Second, Timeouts: policy.Timeouts{Read: policy.Off, Pool: policy.Off, Connect: policy.Off, Write: policy.Off}})
			if _, err := newTransport(t, c, base, p).RoundTrip(request(t, ctx, "GET", url, nil)); err == nil {
				t.Error("no error")
			}
			equal(t, "the time", over, time.Second)
			cancel()
		}
	})
}

// TestCannedAnswer: what a layer of the user's answers by itself says nothing of
// the server, and is no send.
func TestCannedAnswer(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		canned := around(func(_ http.RoundTripper, req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 503, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("no")), Request: req}, nil
		})
		var kinds []string
		tr := newTransport(t, c, clocktest.NewUpstream(t, c), settings(policy.Settings{Breaker: policy.Breaker{Failures: 1}, Retry: policy.Retry{Enabled: policy.Off}}),
			inner(canned), observer(func(_ context.Context, e layers.Event) { kinds = append(kinds, string(e.Kind)) }))
		for range 3 {
			r := get(t, c, tr)
			wantStatus(t, r, 503)
			equal(t, "the number of attempts", r.call(t).Attempts(), 0)
		}
		equal(t, "what is observed", strings.Join(kinds, " "), "start end start end start end")
	})
}

// TestCallOnAnAnswersContext: a call on the context of a response is another one,
// also where layers are used without Open.
func TestCallOnAnAnswersContext(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		env := &layers.Env{Clock: c}
		rt := layers.Chain(clocktest.NewUpstream(t, c, clocktest.Reply(200).Body("x").Times(2)), layers.Retry(env, policy.Retry{}), layers.Timeouts(env, policy.Timeouts{}))
		resp, err := rt.RoundTrip(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		again, err := rt.RoundTrip(request(t, resp.Request.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		if callOf(t, again) == callOf(t, resp) {
			t.Error("it joins the call that was delivered")
		}
		again.Body.Close()
		resp.Body.Close()
	})
}
