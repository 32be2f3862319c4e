package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// user is what a stack calls of its user's.
type user struct {
	asked func(context.Context) // by each function of a policy's
	told  layers.ObserverFunc
}

func (u *user) ask(ctx context.Context) {
	if u.asked != nil {
		u.asked(ctx)
	}
}

func (u *user) key(r *http.Request) string {
	u.ask(r.Context())
	return "one"
}

func (u *user) retry() policy.Retry {
	return policy.Retry{
		BaseDelay: policy.Off,
		Check: func(ctx context.Context, resp *http.Response, err error) (bool, error) {
			u.ask(ctx)
			return err != nil || resp.StatusCode >= 500, nil
		},
	}
}

// A subject is a stack that has to keep the contract of a RoundTripper.
type subject struct {
	name  string
	build func(t *testing.T, c clock.Clock, base http.RoundTripper, u *user) http.RoundTripper
	codes bool // it calls functions of the user's
}

// whole is a stack with every layer of s on, and layers of the user's.
func whole(name string, s policy.Settings) subject {
	return subject{name: name, codes: true, build: func(t *testing.T, c clock.Clock, base http.RoundTripper, u *user) http.RoundTripper {
		s.Retry = u.retry()
		s.Breaker.Key, s.Rate.Key, s.InFlight.Key = u.key, u.key, u.key
		s.Rate.Cost = func(r *http.Request) int {
			u.ask(r.Context())
			return 1
		}
		pass := around(passOn)
		watch := func(*transport.Config) {}
		if u.told != nil {
			watch = observer(u.told)
		}
		return newTransport(t, c, base, settings(s), inner(pass), outer(pass), watch)
	}}
}

// alone is a stack of one layer.
func alone(name string, codes bool, layer func(env *layers.Env, s policy.Settings, u *user) layers.Layer) subject {
	return subject{name: name, codes: codes, build: func(_ *testing.T, c clock.Clock, base http.RoundTripper, u *user) http.RoundTripper {
		env := &layers.Env{Clock: c, Rand: noJitter}
		if u.told != nil {
			env.Observer = u.told
		}
		return layers.Chain(base, layer(env, streams(), u))
	}}
}

var subjects = []subject{
	whole("transport", everything()),
	whole("transport with streams", streams()),
	alone("open", false, func(env *layers.Env, _ policy.Settings, _ *user) layers.Layer { return layers.Open(env, "all") }),
	alone("deadline", false, func(env *layers.Env, s policy.Settings, _ *user) layers.Layer {
		return layers.Deadline(env, s.Deadline)
	}),
	alone("retry", true, func(env *layers.Env, _ policy.Settings, u *user) layers.Layer { return layers.Retry(env, u.retry()) }),
	alone("hedge", false, func(env *layers.Env, s policy.Settings, _ *user) layers.Layer { return layers.Hedge(env, s.Hedge) }),
	alone("breaker", true, func(env *layers.Env, s policy.Settings, u *user) layers.Layer {
		s.Breaker.Key = u.key
		return layers.CircuitBreaker(env, policy.StateID{}, s.Breaker)
	}),
	alone("rate", true, func(env *layers.Env, s policy.Settings, u *user) layers.Layer {
		s.Rate.Key = u.key
		return layers.RateBudget(env, layers.Budget{Rate: s.Rate})
	}),
	alone("in-flight", true, func(env *layers.Env, s policy.Settings, u *user) layers.Layer {
		s.InFlight.Key = u.key
		return layers.InFlight(env, policy.StateID{}, s.InFlight)
	}),
	alone("inner", true, func(env *layers.Env, _ policy.Settings, u *user) layers.Layer {
		return layers.Inner(env, around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			u.ask(req.Context())
			return next.RoundTrip(req)
		}))
	}),
	alone("auth", false, func(*layers.Env, policy.Settings, *user) layers.Layer {
		return layers.Auth(layers.TokenFunc(func(context.Context) (layers.Token, error) { return layers.Token{Value: "t"}, nil }))
	}),
	alone("stream", false, func(env *layers.Env, s policy.Settings, _ *user) layers.Layer {
		return layers.StreamGuard(env, s.Stream)
	}),
	alone("timeouts", false, func(env *layers.Env, s policy.Settings, _ *user) layers.Layer {
		return layers.Timeouts(env, s.Timeouts)
	}),
}

// A party is a subject over a real http.Transport.
type party struct {
	*wire

	c       *clocktest.Clock
	subject http.RoundTripper
	user    *user
	kind    string
	url     string
}

// RoundTrip is the subject's.
func (p *party) RoundTrip(req *http.Request) (*http.Response, error) { return p.subject.RoundTrip(req) }

// eachSubject runs f with each subject, over the kinds of HTTP in only, or all.
// The functions of u, if it is not nil, are called with the party.
func eachSubject(t *testing.T, h http.Handler, only string, u func(t *testing.T, p *party) *user, f func(t *testing.T, p *party)) {
	for _, s := range subjects {
		for _, k := range kinds {
			if only != "" && !strings.Contains(only, k.name) {
				continue
			}
			t.Run(s.name+" "+k.name, func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					p := &party{c: c, wire: newWire(t, c, k.name, h, policy.Policy{}), kind: k.name, url: k.url, user: new(user)}
					if u != nil {
						p.user = u(t, p)
					}
					p.subject = s.build(t, c, p.base, p.user)
					f(t, p)
				})
			})
		}
	}
}

// eachAlone runs f with each subject over a base of its own.
func eachAlone(t *testing.T, f func(t *testing.T, c *clocktest.Clock, s subject)) {
	for _, s := range subjects {
		t.Run(s.name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) { f(t, c, s) })
		})
	}
}

// echo answers with what it is sent.
func echo(rw http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	rw.Write(b)
}

// TestContractRequest: a request is as before, and its body closed once, when a
// call has ended in whatever way.
func TestContractRequest(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/busy", func(rw http.ResponseWriter, r *http.Request) {
		echo(rw, r)
		panic(http.ErrAbortHandler)
	})
	mux.HandleFunc("/early", func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(413) })
	mux.HandleFunc("/never", never)
	mux.HandleFunc("/half", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Length", "100")
		echo(rw, r)
	})
	for _, path := range []string{"/echo", "/early", "/busy", "/half", "/never", "/unread", "/canceled", "/refused"} {
		for body, attach := range attached {
			t.Run(path[1:]+", "+body, func(t *testing.T) {
				eachSubject(t, mux, "", nil, func(t *testing.T, p *party) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					target := p.url + path
					switch path {
					case "/never":
						p.c.AfterFunc(time.Second, cancel)
					case "/canceled":
						cancel()
					case "/refused":
						target = strings.Replace(target, "api", "nowhere", 1)
					case "/unread":
						target = strings.Replace(target, "unread", "echo", 1)
					}
					req := request(t, ctx, "PUT", target, nil)
					req.Header.Set("X-Kept", "yes")
					bodies := new(tracked)
					attach(bodies, req)
					before := req.Clone(ctx)
					before.Body = req.Body
					if path == "/unread" {
						if resp, err := p.RoundTrip(req); err == nil {
							resp.Body.Close()
						}
					} else if r := do(p.c, p, req); r.err == nil && (path == "/never" || path == "/canceled" || path == "/refused") {
						t.Error("no error")
					} else if (path == "/never" || path == "/canceled") && r.err != context.Canceled {
						t.Errorf("got %v, want the caller's own error", r.err)
					}
					p.c.Add(0)
					bodies.check(t)
					like(t, req, before)
				})
			})
		}
	}
}

// TestContractOdd: an error or a response, never both, always a body, and a
// panic that passes as it is, whatever the base does.
func TestContractOdd(t *testing.T) {
	broken := errors.New("broken")
	for name, answer := range map[string]struct {
		resp *http.Response
		err  error
	}{
		"nothing": {nil, nil}, "both": {&http.Response{StatusCode: 200}, broken}, "no body": {&http.Response{StatusCode: 200}, nil}, "panic": {},
	} {
		t.Run(name, func(t *testing.T) {
			eachAlone(t, func(t *testing.T, c *clocktest.Clock, s subject) {
				dropped, sent := new(closeCounter), &closeCounter{Reader: strings.NewReader("x")}
				base := layers.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
					if name == "panic" {
						panic(broken)
					}
					r.Body.Close()
					if answer.resp == nil {
						return nil, answer.err
					}
					resp := *answer.resp
					if name == "both" {
						resp.Body = dropped
					}
					return &resp, answer.err
				})
				rt := s.build(t, c, base, new(user))
				req := request(t, t.Context(), "POST", url, sent)
				resp, recovered, err := roundTrip(rt, req)
				if s.name == "auth" && name == "panic" {
					return // the base is in charge of the body
				}
				equal(t, "what is recovered", recovered, map[bool]any{true: broken}[name == "panic"])
				if name != "panic" && (resp == nil) == (err == nil) {
					t.Errorf("got %v and %v", resp, err)
				}
				switch {
				case resp == nil, s.name == "auth" && name == "no body": // it has no Call
				case resp.Body == nil || resp.Request == nil:
					t.Error("a response without a body, or a request")
				default:
					resp.Body.Close()
				}
				if name == "both" {
					if !errors.Is(err, broken) {
						t.Errorf("got %v, want the base's error", err)
					}
					equal(t, "the number of closes of the response's body", int(dropped.closes.Load()), 1)
				}
				c.Add(0)
				equal(t, "the number of closes of the request's body", int(sent.closes.Load()), 1)
			})
		})
	}
}

func roundTrip(rt http.RoundTripper, req *http.Request) (resp *http.Response, recovered any, err error) {
	defer func() { recovered = recover() }()
	resp, err = rt.RoundTrip(req)
	return resp, nil, err
}

// slow is the key of a context whose call meets a user who is slow, or worse.
type slow struct{}

// TestContractUserPanics: what the user's own function panics with comes
// through, with the body closed, and holds up no later call.
func TestContractUserPanics(t *testing.T) {
	for _, told := range []bool{false, true} {
		t.Run(map[bool]string{false: "functions", true: "observer"}[told], func(t *testing.T) {
			eachAlone(t, func(t *testing.T, c *clocktest.Clock, s subject) {
				up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
				var u user
				panics := func(ctx context.Context) {
					if ctx.Value(slow{}) != nil {
						panic("boom")
					}
				}
				if told {
					u.told = func(ctx context.Context, _ layers.Event) { panics(ctx) }
				} else if u.asked = panics; !s.codes {
					return
				}
				rt := s.build(t, c, up, &u)
				for range 20 {
					body := &closeCounter{Reader: strings.NewReader("x")}
					req := request(t, context.WithValue(t.Context(), slow{}, true), "POST", url, body)
					_, recovered, err := roundTrip(rt, req)
					if s.name != "auth" {
						equal(t, "what is recovered", recovered, any("boom"))
					}
					c.Add(0)
					equal(t, fmt.Sprintf("the number of closes, with error %v", err), int(body.closes.Load()), 1)
				}
				wantStatus(t, get(t, c, rt), 200)
			})
		})
	}
}

// TestContractSlowUser: a slow function or observer of the user's delays its own
// call and no other, and may make calls itself.
func TestContractSlowUser(t *testing.T) {
	for _, test := range []struct {
		name       string
		told, cold bool // the observer is slow; there is no connection yet
	}{{"functions", false, false}, {"observer", true, false}, {"functions, cold", false, true}, {"observer, cold", true, true}} {
		t.Run(test.name, func(t *testing.T) {
			var waits atomic.Int32
			eachSubject(t, http.HandlerFunc(echo), "", func(t *testing.T, p *party) *user {
				waits.Store(0)
				wait := func(ctx context.Context) {
					if ctx.Value(slow{}) == nil {
						return
					}
					waits.Add(1)
					p.c.Sleep(time.Second)
					wantStatus(t, do(p.c, p, request(t, t.Context(), "GET", p.url, nil)), 200)
				}
				if test.told {
					return &user{told: func(ctx context.Context, _ layers.Event) { wait(ctx) }}
				}
				return &user{asked: wait}
			}, func(t *testing.T, p *party) {
				if !test.cold {
					wantStatus(t, do(p.c, p, request(t, t.Context(), "GET", p.url, nil)), 200)
				}
				done := make(chan result)
				go func() {
					done <- do(p.c, p, request(t, context.WithValue(t.Context(), slow{}, true), "GET", p.url, nil))
				}()
				for range 3 {
					p.c.Add(300 * time.Millisecond)
					r := do(p.c, p, request(t, t.Context(), "GET", p.url, nil))
					wantStatus(t, r, 200)
					wantTook(t, r, 0)
				}
				r := <-done
				wantStatus(t, r, 200)
				if waits.Load() > 0 && r.took < time.Second {
					t.Errorf("the call took %v", r.took)
				}
			})
		})
	}
}

// TestContractRefusals: a layer that refuses a call, alone, closes its body and
// changes nothing of it, and says that nothing was sent.
func TestContractRefusals(t *testing.T) {
	broken := errors.New("broken")
	fails := around(func(http.RoundTripper, *http.Request) (*http.Response, error) { return nil, broken })
	for name, layer := range map[string]func(env *layers.Env) layers.Layer{
		"deadline": func(env *layers.Env) layers.Layer { return layers.Deadline(env, time.Minute) },
		"breaker": func(env *layers.Env) layers.Layer {
			return layers.CircuitBreaker(env, policy.StateID{}, policy.Breaker{Failures: 1})
		},
		"rate": func(env *layers.Env) layers.Layer {
			return layers.RateBudget(env, layers.Budget{Rate: policy.Rate{PerSecond: 0.01, MaxWait: policy.Off}})
		},
		"in-flight": func(env *layers.Env) layers.Layer {
			return layers.InFlight(env, policy.StateID{}, policy.InFlight{Max: 1})
		},
		"inner": func(env *layers.Env) layers.Layer { return layers.Inner(env, fails) },
		"auth": func(*layers.Env) layers.Layer {
			return layers.Auth(layers.TokenFunc(func(context.Context) (layers.Token, error) { return layers.Token{}, broken }))
		},
		"misplaced": func(env *layers.Env) layers.Layer {
			return func(next http.RoundTripper) http.RoundTripper {
				return layers.Chain(next, layers.Retry(env, policy.Retry{}), layers.Deadline(env, time.Second))
			}
		},
	} {
		for body, attach := range attached {
			t.Run(name+", "+body, func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					up := clocktest.NewUpstream(t, c, clocktest.Reply(503).Silent().Forever())
					rt := layers.Chain(up, layer(&layers.Env{Clock: c, Rand: noJitter}))
					if first, err := rt.RoundTrip(request(t, t.Context(), "GET", url, nil)); err == nil {
						defer first.Body.Close() // twice does no harm
						if name != "in-flight" {
							first.Body.Close()
						}
					}
					sent := len(up.Requests())
					ctx := t.Context()
					if name == "deadline" {
						ctx = layers.WithDeadline(ctx, c.Now())
					}
					req := request(t, ctx, "POST", url, nil)
					bodies := new(tracked)
					attach(bodies, req)
					before := req.Clone(ctx)
					before.Body = req.Body
					resp, err := rt.RoundTrip(req)
					if resp != nil || err == nil {
						t.Errorf("got %v and %v", resp, err)
					}
					if name != "auth" {
						equal(t, "what was sent", wantError(t, err).Sent, layers.Unsent)
					}
					equal(t, "the number of sends", len(up.Requests()), sent)
					bodies.check(t)
					like(t, req, before)
				})
			})
		}
	}
}

// TestContractConnections: an answer that is read to its end costs no connection,
// and a failure only its own.
func TestContractConnections(t *testing.T) {
	h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hung":
			never(rw, r)
		case "/busy":
			rw.WriteHeader(503)
		}
		io.WriteString(rw, "body")
	})
	eachSubject(t, h, "", nil, func(t *testing.T, p *party) {
		p.net.Serve("other.test", h)
		other := strings.Replace(p.url, "api", "other", 1)
		for range 10 {
			do(p.c, p, request(t, t.Context(), "GET", p.url, nil))
			do(p.c, p, request(t, t.Context(), "GET", p.url+"/busy", nil))
			do(p.c, p, request(t, t.Context(), "GET", other, nil))
			p.c.Add(time.Minute)
		}
		warm := p.dials.Load()
		if warm != 2 && warm != 3 { // two sends at once, if there are hedges
			t.Errorf("there are %d connections", warm)
		}
		ctx, cancel := context.WithCancel(t.Context())
		p.c.AfterFunc(time.Second, cancel)
		do(p.c, p, request(t, ctx, "GET", p.url+"/hung", nil))
		do(p.c, p, request(t, t.Context(), "GET", other, nil))
		equal(t, "the number of connections", p.dials.Load(), warm)
	})
}

// TestContractNothingIsLeft: neither a timer nor a child of a long-lived context
// outlives a call.
func TestContractNothingIsLeft(t *testing.T) {
	for _, s := range subjects {
		for _, told := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, observed=%v", s.name, told), func(t *testing.T) {
				mock, n := clock.NewMock(), 0
				u := new(user)
				if told {
					u.told = func(context.Context, layers.Event) {}
				}
				rt := s.build(t, mock, layers.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
					r.Body.Close()
					switch n++; n % 4 {
					case 0:
						return nil, clocktest.ErrReset
					case 1:
						return &http.Response{StatusCode: 204, Header: http.Header{}, Body: http.NoBody}, nil
					}
					return &http.Response{StatusCode: 200 + n%2*303, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("text"))}, nil
				}), u)
				p := newParent()
				for i := range 48 { // the numbers of breaker and budget do not bind
					resp, err := rt.RoundTrip(request(t, p, "POST", url, plain{strings.NewReader("x")}))
					if err != nil {
						continue
					}
					if i%3 > 0 {
						io.Copy(io.Discard, resp.Body)
					}
					resp.Body.Close()
				}
				equal(t, "the number of timers", reflect.ValueOf(mock).Elem().FieldByName("timers").Len(), 0)
				equal(t, "the number of children", p.children.Load(), 0)
			})
		}
	}
}
