package transport_test

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// slowUpload is the body of a request that a server hands on: while its client is
// silent, a Read blocks, and a Close waits for it or for the client.
type slowUpload struct {
	turn  chan struct{} // held by a Read or a Close
	heard chan struct{} // closed when the client goes on
	waits bool          // in a Close too
}

func newSlowUpload(c *clocktest.Clock, silent time.Duration, waits bool) *slowUpload {
	u := &slowUpload{make(chan struct{}, 1), make(chan struct{}), waits}
	c.AfterFunc(silent, func() { close(u.heard) })
	return u
}

func (u *slowUpload) Read([]byte) (int, error) {
	u.turn <- struct{}{}
	<-u.heard
	<-u.turn
	return 0, io.EOF
}

func (u *slowUpload) Close() error {
	u.turn <- struct{}{}
	if u.waits {
		<-u.heard
	}
	<-u.turn
	return nil
}

// TestCloseThatBlocks: a call has its outcome when it has, whatever the Close of its
// body waits for.
func TestCloseThatBlocks(t *testing.T) {
	refuses := around(func(_ http.RoundTripper, req *http.Request) (*http.Response, error) { return nil, io.ErrClosedPipe })
	attempt := policy.Timeouts{Attempt: time.Second}
	for name, test := range map[string]struct {
		policy.Settings
		layers func(*transport.Config)
		took   time.Duration
	}{
		"attempts":    {policy.Settings{Timeouts: attempt, Retry: noWait}, inner(), 3 * time.Second},
		"one attempt": {policy.Settings{Timeouts: attempt, Retry: policy.Retry{Enabled: policy.Off}}, inner(), time.Second},
		"no turn for another": {
			policy.Settings{Timeouts: attempt, Retry: noWait, Rate: policy.Rate{PerSecond: 0.001, Burst: 2, MaxWait: policy.Off}}, inner(), time.Second,
		},
		"no turn": {policy.Settings{Rate: policy.Rate{PerSecond: 0.001, Burst: 1, MaxWait: policy.Off}}, inner(), 0},
		"no slot": {policy.Settings{InFlight: policy.InFlight{Max: 1, MaxWait: time.Second}}, inner(), time.Second},
		"a layer": {policy.Settings{Retry: policy.Retry{MaxAttempts: 1}}, inner(refuses), 0},
		"around":  {policy.Settings{Retry: policy.Retry{MaxAttempts: 1}}, outer(refuses), 0},
	} {
		for _, waits := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					if test.Deadline == 0 {
						test.Deadline = policy.Off
					}
					up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Chunks(clocktest.Chunk{After: time.Hour}), clocktest.Reply(200).Times(9))
					tr := newTransport(t, c, up, settings(test.Settings), test.layers)
					first, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
					if err == nil {
						defer first.Body.Close()
					}
					req := request(t, t.Context(), "PUT", url, nil)
					body := newSlowUpload(c, time.Minute, waits)
					req.Body, req.ContentLength = body, -1
					r := do(c, tr, req)
					wantError(t, r.err)
					if over := r.took - test.took; over < 0 || over > 10*time.Millisecond {
						t.Errorf("the call took %v, want %v", r.took, test.took)
					}
					time.Sleep(time.Hour)
				})
			})
		}
	}
}

// TestCloseThatBlocksBeforeTheStack: nor is one held up that no chain serves.
func TestCloseThatBlocksBeforeTheStack(t *testing.T) {
	for name, change := range map[string]func(*http.Request) *http.Request{
		"no URL": func(r *http.Request) *http.Request { r.URL = nil; return r },
		"an override that cannot work": func(r *http.Request) *http.Request {
			return r.WithContext(policy.WithOverride(r.Context(), policy.Settings{Retry: policy.Retry{MaxAttempts: 99}}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				req := change(request(t, t.Context(), "POST", url, nil))
				req.Body = newSlowUpload(c, time.Minute, true)
				r := do(c, newTransport(t, c, clocktest.NewUpstream(t, c), policy.Policy{}), req)
				wantError(t, r.err)
				wantTook(t, r, time.Millisecond)
				time.Sleep(time.Hour)
			})
		})
	}
}

// closes is a body with a Close of its own.
type closes struct {
	io.Reader
	close func()
}

func (b closes) Close() error { b.close(); return nil }

// TestCloseThatPanics: a panic in the Close of a body comes to the caller, who may
// recover from it, and leaves nothing behind. One that ends its goroutine is over.
func TestCloseThatPanics(t *testing.T) {
	fails := around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		if req.Method == http.MethodGet {
			return next.RoundTrip(req)
		}
		return nil, io.ErrClosedPipe
	})
	noTurn := settings(policy.Settings{Rate: policy.Rate{PerSecond: 0.001, Burst: 1, MaxWait: policy.Off}})
	for name, test := range map[string]struct {
		policy.Policy
		layers func(*transport.Config)
	}{
		"refused":         {noTurn, inner()},
		"refused, around": {noTurn, outer(around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) { return next.RoundTrip(req) }))},
		"a layer":         {settings(policy.Settings{Retry: policy.Retry{MaxAttempts: 1}}), inner(fails)},
		"around":          {policy.Policy{}, outer(fails)},
	} {
		for _, length := range []int64{-1, 4, 1 << 20} { // recorded or not
			for what, ends := range map[string]func(){"panic": func() { panic("mine") }, "end": runtime.Goexit} {
				t.Run(name+", "+what, func(t *testing.T) {
					clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
						ended := 0
						tr := newTransport(t, c, clocktest.NewUpstream(t, c, clocktest.Reply(200)), test.Policy, test.layers,
							observer(func(_ context.Context, e layers.Event) {
								if e.Kind == layers.KindEnd {
									ended++
								}
							}))
						wantStatus(t, get(t, c, tr), 200)
						closed := 0
						req := request(t, t.Context(), "POST", url, nil)
						req.Body, req.ContentLength = closes{strings.NewReader("text"), func() { closed++; ends() }}, length
						func() {
							defer func() {
								if p := recover(); (p == "mine") != (what == "panic") {
									t.Errorf("recovered %v", p)
								}
							}()
							wantError(t, do(c, tr, req).err)
						}()
						equal(t, "the number of closes", closed, 1)
						equal(t, "the number of calls that ended", ended, 2)
					})
				})
			}
		}
	}
}

// TestRefusedBehindALayer: what is refused behind a layer of the user's has its body
// closed, once.
func TestRefusedBehindALayer(t *testing.T) {
	pass := around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) { return next.RoundTrip(req) })
	for name, gate := range map[string]func(env *layers.Env) layers.Layer{
		"rate": func(env *layers.Env) layers.Layer {
			return layers.RateBudget(env, layers.Budget{Rate: policy.Rate{PerSecond: 0.001, MaxWait: policy.Off}})
		},
		"slots": func(env *layers.Env) layers.Layer {
			return layers.InFlight(env, policy.StateID{}, policy.InFlight{Max: 1})
		},
		"breaker": func(env *layers.Env) layers.Layer {
			return layers.CircuitBreaker(env, policy.StateID{}, policy.Breaker{Failures: 1})
		},
		"deadline": func(env *layers.Env) layers.Layer {
			return around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
				env.Clock.Sleep(time.Minute)
				return next.RoundTrip(req)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				env := &layers.Env{Clock: c}
				up := clocktest.NewUpstream(t, c, clocktest.Reply(500).Body("x"))
				rt := layers.Chain(up, layers.Deadline(env, time.Second), pass, layers.Retry(env, policy.Retry{MaxAttempts: 1}), pass, gate(env), pass, layers.Timeouts(env, policy.Timeouts{}))
				if name != "deadline" {
					resp, err := rt.RoundTrip(request(t, t.Context(), "GET", url, nil))
					if err != nil {
						t.Fatal(err)
					}
					if name == "breaker" {
						drain(resp)
					}
					defer resp.Body.Close()
				}
				var bodies tracked
				req := request(t, t.Context(), "POST", url, bodies.open("text"))
				if _, err := rt.RoundTrip(req); err == nil {
					t.Fatal("no error")
				}
				bodies.check(t)
			})
		})
	}
}

// TestSecondCloseOfAnUpload: who closes a body again while that goes on is not held up.
func TestSecondCloseOfAnUpload(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		twice := around(func(_ http.RoundTripper, req *http.Request) (*http.Response, error) {
			go req.Body.Close()
			time.Sleep(time.Second)
			return closing(req, io.ErrClosedPipe)
		})
		req := request(t, t.Context(), "POST", url, nil)
		req.Body = newSlowUpload(c, time.Minute, true)
		wantTook(t, do(c, newTransport(t, c, clocktest.NewUpstream(t, c), policy.Policy{}, outer(twice)), req), time.Second)
		time.Sleep(time.Hour)
	})
}

// stuckAnswer is the body of an answer that does not go on, and whose Close waits for
// the connection.
type stuckAnswer struct {
	ctx  context.Context
	free chan struct{}
}

func (b *stuckAnswer) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

func (b *stuckAnswer) Close() error {
	<-b.free
	return nil
}

// TestCloseOfAnAnswerBlocks: over HTTP/2, a Close may wait for the socket. It holds up
// neither the caller, nor the next attempt, nor who waits for the slot.
func TestCloseOfAnAnswerBlocks(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		status       int
		after, takes time.Duration // when the caller closes its answer, and how long it takes
	}{
		"closed early":              {status: 200, takes: ms},
		"closed after the deadline": {status: 200, after: 3 * time.Second, takes: ms},
		"given up for another":      {status: 503, after: time.Second + ms},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				free := make(chan struct{})
				defer close(free)
				sends := 0
				tr := newTransport(t, c, layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
					resp := &http.Response{StatusCode: 200, ProtoMajor: 2, ContentLength: -1, Header: http.Header{}, Body: http.NoBody, Request: req}
					if sends++; sends == 1 {
						resp.StatusCode, resp.Body = test.status, &stuckAnswer{req.Context(), free}
					}
					return resp, nil
				}), settings(policy.Settings{Deadline: 2 * time.Second, Retry: noWait, InFlight: policy.InFlight{Max: 1}}))
				resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
				if err != nil {
					t.Fatal(err)
				}
				equal(t, "the status", resp.StatusCode, 200)
				time.Sleep(test.after - c.Elapsed())
				began := c.Elapsed()
				equal(t, "the end of the wait", began, test.after)
				resp.Body.Close()
				equal(t, "the Close took", c.Elapsed()-began, test.takes)
				wantStatus(t, get(t, c, tr), 200)
			})
		})
	}
}
