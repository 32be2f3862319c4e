package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// mint is a TokenSource that takes a while.
type mint struct {
	c      *clocktest.Clock
	takes  time.Duration
	lasts  time.Duration
	made   atomic.Int32
	ended  atomic.Int32 // makings cut short
	failed error
}

func (m *mint) Token(ctx context.Context) (layers.Token, error) {
	n := m.made.Add(1)
	done := make(chan struct{})
	defer m.c.AfterFunc(m.takes, func() { close(done) }).Stop()
	select {
	case <-done:
	case <-ctx.Done():
		m.ended.Add(1)
		return layers.Token{}, context.Cause(ctx)
	}
	if m.failed != nil {
		return layers.Token{}, m.failed
	}
	t := layers.Token{Value: fmt.Sprintf("token-%d", n)}
	if m.lasts > 0 {
		t.Expiry = m.c.Now().Add(m.lasts)
	}
	return t, nil
}

// endpoint is a TokenSource that asks a server, through a transport that may be the one
// that needs the token.
type endpoint struct {
	c     *clocktest.Clock
	via   *transport.Transport
	url   string
	lasts time.Duration
}

func (e *endpoint) Token(ctx context.Context) (layers.Token, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, nil)
	if err != nil {
		return layers.Token{}, err
	}
	resp, err := e.via.RoundTrip(req)
	if err != nil {
		return layers.Token{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	t := layers.Token{Value: string(b)}
	if e.lasts > 0 {
		t.Expiry = e.c.Now().Add(e.lasts)
	}
	return t, err
}

// guarded answers 401 to any token but those that it accepts.
func guarded(accepts func(token string) bool) clocktest.Step {
	return clocktest.Func(func(r *http.Request) clocktest.Step {
		if accepts(r.Header.Get("Authorization")) {
			return clocktest.Reply(200).Body("fine")
		}
		return clocktest.Reply(401).Body("who are you")
	}).Forever()
}

func TestAuthMintsOnceForAll(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		m := &mint{c: c, takes: time.Second, lasts: time.Minute}
		up := clocktest.NewUpstream(t, c, guarded(func(s string) bool { return strings.HasPrefix(s, "Bearer token-") }))
		tr := newTransport(t, c, up, policy.Policy{}, inner(layers.Auth(m)))
		for _, r := range fleet(t, c, tr, 20, same(t)) {
			wantStatus(t, r, 200)
			wantTook(t, r, time.Second)
		}
		equal(t, "the number of tokens made", m.made.Load(), 1)
		wantTook(t, get(t, c, tr), 0)
		c.Add(50 * time.Second) // 10 s before its end it is renewed
		wantTook(t, get(t, c, tr), time.Second)
		equal(t, "the number of tokens made", m.made.Load(), 2)
	})
}

// TestAuthSurvivesItsMaker: the call that began the making gives up, and the
// others get the token all the same.
func TestAuthSurvivesItsMaker(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		m := &mint{c: c, takes: 2 * time.Second}
		up := clocktest.NewUpstream(t, c, guarded(func(string) bool { return true }))
		tr := newTransport(t, c, up, policy.Policy{}, inner(layers.Auth(m)))
		results := fleet(t, c, tr, 3, func(i int) context.Context {
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)
			if i == 0 {
				c.AfterFunc(time.Second, cancel)
			}
			return ctx
		})
		if !errors.Is(results[0].err, context.Canceled) {
			t.Errorf("the maker got %v", results[0].err)
		}
		wantTook(t, results[0], time.Second)
		for _, r := range results[1:] {
			wantStatus(t, r, 200)
			wantTook(t, r, 2*time.Second)
		}
		equal(t, "the number of tokens made", m.made.Load(), 1)
	})
}

// TestAuthWithoutTakers: a making that nobody waits for any more ends.
func TestAuthWithoutTakers(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		m := &mint{c: c, takes: time.Hour}
		tr := newTransport(t, c, clocktest.NewUpstream(t, c), policy.Policy{}, inner(layers.Auth(m)))
		ctx, cancel := context.WithCancel(t.Context())
		c.AfterFunc(time.Second, cancel)
		do(c, tr, request(t, ctx, "GET", url, nil))
		c.Add(0)
		equal(t, "the number of makings cut short", m.ended.Load(), 1)
	})
}

// deaf is a mint whose first making does not hear that its context has ended.
type deaf struct {
	mint
	takes time.Duration
	fails error
	now   atomic.Int32 // goroutines in Token
	most  atomic.Int32
}

func (d *deaf) Token(ctx context.Context) (layers.Token, error) {
	d.most.Store(max(d.most.Load(), d.now.Add(1)))
	defer d.now.Add(-1)
	if d.made.Load() > 0 {
		return d.mint.Token(ctx)
	}
	d.made.Add(1)
	d.c.Sleep(d.takes)
	return layers.Token{Value: "late"}, d.fails
}

// TestDeafTokenSource: while a source goes on for nobody, it is not called again. Who
// comes meanwhile waits, no longer than its deadline, and takes what it makes.
func TestDeafTokenSource(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, guarded(func(token string) bool { return token == "Bearer late" }))
		src := &deaf{mint: mint{c: c}, takes: 10 * time.Second}
		tr := newTransport(t, c, up, policy.Policy{}, inner(layers.Auth(src)))
		for range 2 {
			r := do(c, tr, request(t, layers.WithDeadline(t.Context(), c.Now().Add(time.Second)), "GET", url, nil))
			wantTimeout(t, r.err, layers.PhaseDeadline)
			wantTook(t, r, time.Second)
		}
		r := get(t, c, tr)
		wantStatus(t, r, 200)
		wantTook(t, r, 8*time.Second)
		equal(t, "the number of goroutines in Token at once", src.most.Load(), 1)
	})
}

// TestMakingAfterADeafOne: the making that follows one which failed for nobody is one like
// any other, and ends with the last call that waits for it.
func TestMakingAfterADeafOne(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		src := &deaf{mint: mint{c: c, takes: time.Hour}, takes: 5 * time.Second, fails: errors.New("no")}
		tr := newTransport(t, c, up, policy.Policy{}, inner(layers.Auth(src)))
		for at, ended := range []int32{0, 1} {
			ctx, cancel := context.WithCancel(t.Context())
			c.AfterFunc(time.Duration(1+9*at)*time.Second, cancel)
			do(c, tr, request(t, ctx, "GET", url, nil))
			c.Add(0)
			equal(t, "the number of makings cut short", src.ended.Load(), ended)
		}
		equal(t, "the number of goroutines in Token at once", src.most.Load(), 1)
	})
}

// TestShortTokens: a token that is good for seconds is kept for most of them.
func TestShortTokens(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		m := &mint{c: c, lasts: 8 * time.Second}
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		tr := newTransport(t, c, up, policy.Policy{}, inner(layers.Auth(m)))
		for range 16 {
			get(t, c, tr)
			c.Add(time.Second)
		}
		equal(t, "the number of tokens made", m.made.Load(), 3) // at 0, 7 and 14 s
	})
}

func TestAuthIsInsideTheDeadline(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		m := &mint{c: c, takes: time.Hour}
		body := &closeCounter{Reader: strings.NewReader("x")}
		tr := newTransport(t, c, clocktest.NewUpstream(t, c), settings(policy.Settings{
			Deadline: 5 * time.Second, Breaker: policy.Breaker{Failures: 1},
		}), inner(layers.Auth(m)))
		for range 2 { // it says nothing of the server
			r := do(c, tr, request(t, t.Context(), "POST", url, body))
			e := wantTimeout(t, r.err, layers.PhaseDeadline)
			wantTook(t, r, 5*time.Second)
			equal(t, "what was sent", e.Sent, layers.Unsent)
			equal(t, "the number of attempts", e.Attempts, 0)
		}
	})
}

// TestAuthTakerOutlivesTheMakersDeadline: a making that the deadline of its
// call ended is begun again by one that has more time.
func TestAuthTakerOutlivesTheMakersDeadline(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		m := &mint{c: c, takes: 3 * time.Second}
		up := clocktest.NewUpstream(t, c, guarded(func(string) bool { return true }))
		tr := newTransport(t, c, up, policy.Policy{}, inner(layers.Auth(m)))
		results := fleet(t, c, tr, 2, func(i int) context.Context {
			if i == 0 {
				return layers.WithDeadline(t.Context(), c.Now().Add(2*time.Second))
			}
			return t.Context()
		})
		wantTook(t, results[0], 2*time.Second)
		wantTimeout(t, results[0].err, layers.PhaseDeadline)
		wantStatus(t, results[1], 200)
		wantTook(t, results[1], 5*time.Second)
	})
}

func TestAuthRefreshesOnce(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		m := &mint{c: c}
		up := clocktest.NewUpstream(t, c, guarded(func(s string) bool { return s == "Bearer token-2" }))
		tr := newTransport(t, c, up, settings(policy.Settings{Retry: policy.Retry{MaxAttempts: 1}}), inner(layers.Auth(m)))
		r := do(c, tr, request(t, t.Context(), "POST", url, strings.NewReader("order")))
		wantStatus(t, r, 200)
		equal(t, "the number of sends", r.call(t).Attempts(), 2)
		for _, s := range up.Requests() {
			equal(t, "the body", string(s.Body), "order")
		}
	})
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		m := &mint{c: c}
		up := clocktest.NewUpstream(t, c, guarded(func(string) bool { return false }))
		tr := newTransport(t, c, up, policy.Policy{}, inner(layers.Auth(m)))
		r := get(t, c, tr)
		wantStatus(t, r, 401)
		equal(t, "the body", r.body, "who are you")
		equal(t, "the number of sends", len(up.Requests()), 2)
	})
}

func TestAuthConcurrent401s(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		m := &mint{c: c, takes: time.Second}
		up := clocktest.NewUpstream(t, c, guarded(func(s string) bool { return s == "Bearer token-2" }))
		tr := newTransport(t, c, up, settings(policy.Settings{Retry: policy.Retry{Budget: policy.Off}}), inner(layers.Auth(m)))
		for _, r := range fleet(t, c, tr, 10, same(t)) {
			wantStatus(t, r, 200)
		}
		equal(t, "the number of tokens made", m.made.Load(), 2)
	})
}

func TestAuthStaysOnItsOrigin(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c,
			clocktest.Reply(302).Header("Location", "/same"),
			clocktest.Reply(302).Header("Location", "http://evil.example/"),
			clocktest.Reply(302).Header("Location", url),
			clocktest.Reply(200))
		tr := newTransport(t, c, up, policy.Policy{}, inner(layers.Auth(&mint{c: c})))
		resp, err := tr.Client().Get(url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		var got []string
		for _, r := range up.Requests() {
			got = append(got, r.Header.Get("Authorization"))
		}
		want := []string{"Bearer token-1", "Bearer token-1", "", "Bearer token-1"}
		for i := range want {
			equal(t, fmt.Sprintf("the token of hop %d", i), got[i], want[i])
		}
	})
}

// TestAuthIsForItsHosts: no other host is sent the token, whoever asks it.
func TestAuthIsForItsHosts(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		m := &mint{c: c}
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		tr := newTransport(t, c, up, policy.Policy{}, inner(layers.Auth(m, "API.example", "*.cdn.test", "localhost:81")))
		for _, test := range []struct{ url, want string }{
			{"http://stranger.test/", ""},
			{"http://api.example.stranger.test/", ""},
			{"http://cdn.test/", ""},
			{"http://localhost:82/", ""},
			{"https://api.example/", "Bearer token-1"},
			{"http://api.EXAMPLE:8080/", "Bearer token-1"},
			{"http://a.cdn.test/", "Bearer token-1"},
			{"http://localhost:81/", "Bearer token-1"},
		} {
			wantStatus(t, do(c, tr, request(t, t.Context(), "GET", test.url, nil)), 200)
			sent := up.Requests()
			equal(t, "what "+test.url+" was sent", sent[len(sent)-1].Header.Get("Authorization"), test.want)
		}
		equal(t, "the number of tokens made", m.made.Load(), 1)
	})
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		body := new(tracked)
		tr := newTransport(t, c, clocktest.NewUpstream(t, c), policy.Policy{}, inner(layers.Auth(&mint{c: c}, "https://api.example")))
		r := do(c, tr, request(t, t.Context(), "POST", "https://api.example/", body.open("x")))
		e := wantError(t, r.err)
		if equal(t, "the reason", e.Reason, layers.ReasonNotRetryable); !strings.Contains(r.err.Error(), "has no scheme") {
			t.Errorf("got %v", r.err)
		}
		body.check(t)
	})
}

// TestAuthLeavesTheCallers: what the caller says of one request stands.
func TestAuthLeavesTheCallers(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		m := &mint{c: c}
		up := clocktest.NewUpstream(t, c, clocktest.Reply(401))
		tr := newTransport(t, c, up, policy.Policy{}, inner(layers.Auth(m)))
		req := request(t, t.Context(), "GET", url, nil)
		req.Header.Set("Authorization", "Basic mine")
		wantStatus(t, do(c, tr, req), 401)
		equal(t, "what was sent", up.Requests()[0].Header.Get("Authorization"), "Basic mine")
		equal(t, "the number of tokens made", m.made.Load(), 0)
	})
}

// TestAuthWithoutAHistory: a redirect that cannot be followed back is sent no
// token, whatever request the base, or a layer, says that it answers.
func TestAuthWithoutAHistory(t *testing.T) {
	for name, other := range map[string]func(*http.Request) *http.Request{
		"a new one": func(r *http.Request) *http.Request {
			fresh, _ := http.NewRequest(r.Method, r.URL.String(), nil)
			return fresh
		},
		"a new one with the context": func(r *http.Request) *http.Request {
			fresh, _ := http.NewRequestWithContext(r.Context(), r.Method, r.URL.String(), nil)
			return fresh
		},
	} {
		lies := func(rt http.RoundTripper) http.RoundTripper {
			return layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				resp, err := rt.RoundTrip(req)
				if err == nil {
					resp.Request = other(req)
				}
				return resp, err
			})
		}
		for _, where := range []string{"base", "inner", "outer", "alone"} {
			t.Run(name+" of "+where, func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					up := clocktest.NewUpstream(t, c,
						clocktest.Reply(302).Header("Location", "http://evil.test/1"),
						clocktest.Reply(302).Header("Location", "http://evil.test/2"),
						clocktest.Reply(302).Header("Location", "http://evil.test/3"),
						clocktest.Reply(200))
					auth := layers.Auth(&mint{c: c})
					var rt http.RoundTripper
					switch where {
					case "base":
						rt = newTransport(t, c, lies(up), policy.Policy{}, inner(auth))
					case "inner":
						rt = newTransport(t, c, up, policy.Policy{}, inner(lies, auth))
					case "outer":
						rt = newTransport(t, c, up, policy.Policy{}, inner(auth), outer(lies))
					case "alone":
						rt = auth(lies(up))
					}
					resp, err := (&http.Client{Transport: rt}).Get("http://a.test/")
					if err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()
					for i, r := range up.Requests() {
						if got := r.Header.Get("Authorization"); (got != "") != (i == 0) {
							t.Errorf("%s was sent %q", r.URL, got)
						}
					}
				})
			})
		}
	}
}

func TestAuthFailure(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		failure := errors.New("no such key")
		m := &mint{c: c, failed: failure}
		body := &closeCounter{Reader: strings.NewReader("x")}
		tr := newTransport(t, c, clocktest.NewUpstream(t, c), settings(policy.Settings{
			Retry: policy.Retry{Enabled: policy.Off},
		}), inner(layers.Auth(m)))
		r := do(c, tr, request(t, t.Context(), "POST", url, body))
		e := wantError(t, r.err)
		if !errors.Is(r.err, failure) || e.Sent != layers.Unsent || e.Attempts != 0 || e.Layer != "inner" {
			t.Errorf("got %+v", e)
		}
		equal(t, "the number of closes", int(body.closes.Load()), 1)
	})
}

// TestAuthMintsThroughTheStack: the token endpoint is called through the same
// transport, as a call of its own under the same deadline.
func TestAuthMintsThroughTheStack(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Func(func(r *http.Request) clocktest.Step {
			if r.URL.Path == "/token" {
				return clocktest.Reply(200).After(time.Second).Body("secret")
			}
			return clocktest.Reply(200).After(time.Second).Body(r.Header.Get("Authorization"))
		}).Forever())
		plain := newTransport(t, c, up, settings(policy.Settings{InFlight: policy.InFlight{Max: 1}}))
		src := layers.TokenFunc(func(ctx context.Context) (layers.Token, error) {
			resp, err := plain.RoundTrip(request(t, ctx, "POST", "http://auth.example/token", nil))
			if err != nil {
				return layers.Token{}, err
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			return layers.Token{Type: "Key", Value: string(b)}, err
		})
		tr := newTransport(t, c, up, settings(policy.Settings{Deadline: 1500 * time.Millisecond}), inner(layers.Auth(src)))
		r := get(t, c, tr)
		wantTimeout(t, r.err, layers.PhaseDeadline)
		wantTook(t, r, 1500*time.Millisecond)
		r = get(t, c, tr)
		wantStatus(t, r, 200)
		equal(t, "the body", r.body, "Key secret")
	})
}

// TestTokenSourceGoexit: a source that ends its goroutine, as t.FailNow in one does,
// fails one send.
func TestTokenSourceGoexit(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		first := true
		src := layers.TokenFunc(func(context.Context) (layers.Token, error) {
			if first {
				first = false
				runtime.Goexit()
			}
			return layers.Token{Value: "x"}, nil
		})
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		tr := newTransport(t, c, up, policy.Policy{}, inner(layers.Auth(src)))
		r := get(t, c, tr)
		if r.took > time.Second {
			t.Errorf("the call took %v: %v", r.took, r.err)
		}
		wantStatus(t, get(t, c, tr), 200)
	})
}

// TestTokenSourcePanics: a panic of a source is that of the call that waits for the
// token, where it can be recovered, and no later one's.
func TestTokenSourcePanics(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		first := true
		src := layers.TokenFunc(func(context.Context) (layers.Token, error) {
			if first {
				first = false
				panic("boom")
			}
			return layers.Token{Value: "x"}, nil
		})
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200))
		tr := newTransport(t, c, up, policy.Policy{}, inner(layers.Auth(src)))
		func() {
			defer func() { equal(t, "the panic", recover(), any("boom")) }()
			get(t, c, tr)
		}()
		wantStatus(t, get(t, c, tr), 200)
	})
}

// TestMintThroughItself: a token may be made through the transport that needs it.
func TestMintThroughItself(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		src := &endpoint{c: c, url: "http://auth.example/token"}
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		src.via = newTransport(t, c, up, policy.Policy{}, inner(layers.Auth(src)))
		r := get(t, c, src.via)
		if r.took > 0 {
			t.Errorf("took %v: %v", r.took, r.err)
		}
	})
}

// TestRetryOnceTellsTheTruth: RetryOnce reports whether there will be one more send,
// which the retry budget may rule out.
func TestRetryOnceTellsTheTruth(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(401).Forever())
		granted := 0
		ask := func(next http.RoundTripper) http.RoundTripper {
			return layers.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(r)
				if layers.RetryOnce(r.Context(), "why") {
					granted++
				}
				return resp, err
			})
		}
		tr := newTransport(t, c, up, policy.Policy{}, inner(ask))
		for range 20 {
			if call := get(t, c, tr).call(t); call.Attempts() == 1 {
				equal(t, "the reason", call.Reason(), layers.ReasonBudget)
			}
		}
		equal(t, "RetryOnce said true", granted, len(up.Requests())-20)
	})
}

// TestProbeNeedsAToken: a circuit recovers whose probe needs a token from the same
// origin, since asking for that is part of the probe.
func TestProbeNeedsAToken(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		src := &endpoint{c: c, url: url + "/token", lasts: time.Minute}
		up := clocktest.NewUpstream(t, c, clocktest.Func(func(r *http.Request) clocktest.Step {
			if c.Elapsed() == 0 && r.URL.String() != src.url {
				return clocktest.Reply(500)
			}
			return clocktest.Reply(200).Body("token")
		}).Forever())
		src.via = newTransport(t, c, up, settings(policy.Settings{
			Retry:   policy.Retry{Enabled: policy.Off},
			Breaker: policy.Breaker{Failures: 1, OpenJitter: policy.Off},
		}), inner(layers.Auth(src)))
		circuit := func() layers.State { return src.via.Breakers()[0].State() }
		get(t, c, src.via)
		equal(t, "the circuit", circuit(), layers.StateOpen)
		c.Add(2 * time.Minute) // the token is over
		wantStatus(t, get(t, c, src.via), 200)
		equal(t, "the circuit", circuit(), layers.StateClosed)

		src.via.Breakers()[0].ForceOpen()
		c.Add(2 * time.Minute)
		e := wantError(t, get(t, c, src.via).err)
		equal(t, "the reason", e.Reason, layers.ReasonCircuit)
	})
}

// TestTokenInTheSlotOfItsSend: a token for the last slot of an origin is asked for in that
// slot.
func TestTokenInTheSlotOfItsSend(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		tr, up := tokenInASlot(t, c, 1)
		for _, r := range fleet(t, c, tr, 3, same(t)) {
			wantStatus(t, r, 200)
		}
		const first = 100 * time.Millisecond
		equalTimes(t, times(c, up), first, first+time.Second, first+2*time.Second, first+3*time.Second)
		equal(t, "the slots in use", tr.Slots()[0].Used, 0)
	})
}

// TestSlotOfATokenThatOutlivesItsSend: the slot is free only when the token is there too.
func TestSlotOfATokenThatOutlivesItsSend(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		tr, _ := tokenInASlot(t, c, 2)
		c.AfterFunc(700*time.Millisecond, func() {
			equal(t, "the slots in use", tr.Slots()[0].Used, 2)
			equal(t, "the number of those who wait", tr.Slots()[0].Waiting, 1)
		})
		results := fleet(t, c, tr, 3, func(i int) context.Context {
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)
			if i == 0 {
				c.AfterFunc(500*time.Millisecond, cancel)
			}
			return ctx
		})
		for _, r := range results[1:] {
			wantStatus(t, r, 200)
		}
		equal(t, "the slots in use", tr.Slots()[0].Used, 0)
	})
}

// tokenInASlot returns a transport whose tokens come from the origin of its calls, where
// anything takes a second. They are asked for after a tenth of one.
func tokenInASlot(t *testing.T, c *clocktest.Clock, slots int) (*transport.Transport, *clocktest.Upstream) {
	up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(time.Second).Body("token").Forever())
	src := &endpoint{c: c, url: url + "/token"}
	later := layers.TokenFunc(func(ctx context.Context) (layers.Token, error) {
		c.Sleep(100 * time.Millisecond)
		return src.Token(ctx)
	})
	src.via = newTransport(t, c, up, settings(policy.Settings{
		InFlight: policy.InFlight{Max: slots, MaxWait: 15 * time.Second},
	}), inner(layers.Auth(later)))
	return src.via, up
}
