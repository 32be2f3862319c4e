package transport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// around makes a layer of the user's of a function.
func around(f func(next http.RoundTripper, req *http.Request) (*http.Response, error)) layers.Layer {
	return func(next http.RoundTripper) http.RoundTripper {
		return layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) { return f(next, req) })
	}
}

// closing makes a layer close the request's body when it fails by itself.
func closing(req *http.Request, err error) (*http.Response, error) {
	if req.Body != nil {
		req.Body.Close()
	}
	return nil, err
}

// fetchToken asks for a token through rt, on the context of the call that needs it.
func fetchToken(rt http.RoundTripper, ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, "POST", "http://auth.example/token", strings.NewReader("grant"))
	if err != nil {
		return "", err
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	token, err := io.ReadAll(resp.Body)
	return string(token), err
}

// minting is an Inner layer that mints a token for each send.
func minting(rt *http.RoundTripper) layers.Layer {
	return around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		token, err := fetchToken(*rt, req.Context())
		if err != nil {
			return closing(req, err)
		}
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", token)
		return next.RoundTrip(req)
	})
}

// mintRoutes is a policy in which tokens have numbers of their own. No layer of
// Inner stands in the way of a mint, which would need a token itself.
func mintRoutes(s, token policy.Settings) policy.Policy {
	return policy.Policy{Settings: s, Routes: []policy.Route{{Pattern: "auth.example/token", Name: "token", Settings: token}}}
}

// mintThroughItself returns a transport whose sends mint tokens through it.
func mintThroughItself(t *testing.T, c *clocktest.Clock, up http.RoundTripper, p policy.Policy, change ...func(*transport.Config)) http.RoundTripper {
	t.Helper()
	var rt http.RoundTripper
	unlessToken := around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		if req.URL.Path == "/token" {
			return next.RoundTrip(req)
		}
		return minting(&rt)(next).RoundTrip(req)
	})
	rt = newTransport(t, c, up, p, append(change, inner(unlessToken))...)
	return rt
}

// TestTokenMint: a RoundTrip on the call's context is a call of its own, under
// the same deadline, and its phases never touch the outer one's.
func TestTokenMint(t *testing.T) {
	p := mintRoutes(
		policy.Settings{Deadline: 10 * time.Second, Timeouts: policy.Timeouts{Pool: time.Second, Connect: time.Second, Write: time.Second, Read: time.Second}, Retry: noWait},
		policy.Settings{Deadline: time.Minute, Timeouts: policy.Timeouts{Read: 20 * time.Second, Connect: 20 * time.Second}},
	)
	// Slower than any limit of the outer call's.
	token := clocktest.Reply(200).Connect(2 * time.Second).After(2 * time.Second).Chunks(clocktest.Chunk{After: 2 * time.Second, Data: "t1"})
	t.Run("fine", func(t *testing.T) {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, token, clocktest.Reply(200).Body("hello"))
			var events []string
			tr := mintThroughItself(t, c, up, p, observer(func(ctx context.Context, e layers.Event) {
				call, _ := layers.CallFrom(ctx)
				if e.Kind == layers.KindSend || e.Kind == layers.KindEnd {
					events = append(events, fmt.Sprintf("%s %s %d", call.Route(), e.Kind, call.Attempts()))
				}
			}))
			r := do(c, tr, request(t, t.Context(), "POST", url, strings.NewReader("x")))
			wantStatus(t, r, 200)
			wantTook(t, r, 6*time.Second)
			equal(t, "the token", up.Requests()[1].Header.Get("Authorization"), "t1")
			equal(t, "the number of attempts", r.call(t).Attempts(), 1)
			equal(t, "the events", strings.Join(events, ", "), "token send 1, token end 1,  send 1,  end 1")
		})
	})
	t.Run("the same deadline", func(t *testing.T) {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, clocktest.NoReply())
			r := do(c, mintThroughItself(t, c, up, p), request(t, t.Context(), "POST", url, strings.NewReader("x")))
			wantTook(t, r, 10*time.Second)
			e := wantTimeout(t, r.err, layers.PhaseDeadline)
			equal(t, "the number of attempts", e.Attempts, 0)
			equal(t, "what was sent", e.Sent, layers.Unsent)
			equal(t, "whether it can be repeated", e.Retryable, true)
			equal(t, "the text", e.Error(), "deadline exceeded after 10s, before attempt 1 was sent (deadline exhausted)")
		})
	})
	t.Run("for each attempt", func(t *testing.T) {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			quick := clocktest.Reply(200).Body("t")
			up := clocktest.NewUpstream(t, c, quick, clocktest.NoReply(), quick, clocktest.NoReply(), quick, clocktest.NoReply())
			r := do(c, mintThroughItself(t, c, up, p), request(t, t.Context(), "GET", url, nil))
			wantTook(t, r, 3*time.Second)
			equal(t, "the number of attempts", wantTimeout(t, r.err, layers.PhaseRead).Attempts, 3)
		})
	})
	t.Run("the caller cancels", func(t *testing.T) {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, clocktest.NoReply())
			ctx, cancel := context.WithCancel(t.Context())
			c.AfterFunc(time.Second, cancel)
			r := do(c, mintThroughItself(t, c, up, p), request(t, ctx, "POST", url, strings.NewReader("x")))
			wantTook(t, r, time.Second)
			if r.err != context.Canceled {
				t.Errorf("got %v, want context.Canceled itself", r.err)
			}
		})
	})
}

// TestTokenMintOfTheBase: below the timeouts too, the phases of a call on the
// call's context are its own.
func TestTokenMintOfTheBase(t *testing.T) {
	for name, dials := range map[string]bool{"pooled": false, "dialed": true} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				slow := clocktest.Reply(200).Pool(3 * time.Second).After(3 * time.Second).Body("t")
				if dials {
					slow = clocktest.Reply(200).Connect(3 * time.Second).After(3 * time.Second).Body("t")
				}
				up := clocktest.NewUpstream(t, c, slow, clocktest.Reply(200))
				below := newTransport(t, c, up, policy.Policy{})
				base := layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
					if _, err := fetchToken(below, req.Context()); err != nil {
						return closing(req, err)
					}
					return up.RoundTrip(req)
				})
				tr := newTransport(t, c, base, settings(policy.Settings{
					Timeouts: policy.Timeouts{Pool: time.Second, Connect: time.Second, Write: time.Second, Read: 7 * time.Second},
				}))
				r := do(c, tr, request(t, t.Context(), "POST", url, strings.NewReader("x")))
				wantStatus(t, r, 200)
				wantTook(t, r, 6*time.Second)
			})
		})
	}
}

// TestFailureOfAnotherCall: what a layer's own call failed at says nothing of
// the call around it.
func TestFailureOfAnotherCall(t *testing.T) {
	quick := clocktest.Reply(200).Body("t")
	p := mintRoutes(policy.Settings{Retry: noWait}, policy.Settings{Deadline: 3 * time.Second, Retry: policy.Retry{MaxAttempts: 1}})
	for _, test := range []struct {
		name     string
		steps    []clocktest.Step // of token, send, audit of the outer call's attempts
		ok       bool
		attempts int
		sent     layers.Sent
		repeat   bool
		phase    layers.Phase
	}{
		// Before the send: nothing was sent, so that even a POST is sent again.
		{"dial", []clocktest.Step{clocktest.FailDial(clocktest.ErrRefused), quick, quick, quick}, true, 1, 0, false, ""},
		{"reset", []clocktest.Step{clocktest.Fail(clocktest.ErrReset), quick, quick, quick}, true, 1, 0, false, ""},
		{"its own deadline", []clocktest.Step{clocktest.NoReply(), quick, quick, quick}, true, 1, 0, false, ""},
		{"for ever", []clocktest.Step{clocktest.NoReply(), clocktest.NoReply(), clocktest.NoReply()}, false, 0, layers.Unsent, true, ""},
		// After it: the answer has come.
		{"audit", []clocktest.Step{quick, quick, clocktest.FailDial(clocktest.ErrRefused)}, false, 1, layers.Answered, false, ""},
		{"audit's deadline", []clocktest.Step{quick, quick, clocktest.NoReply()}, false, 1, layers.Answered, false, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, test.steps...)
				var rt http.RoundTripper
				auditing := around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
					if req.URL.Path == "/token" {
						return next.RoundTrip(req)
					}
					if _, err := fetchToken(rt, req.Context()); err != nil {
						return closing(req, err)
					}
					resp, err := next.RoundTrip(req)
					if err != nil {
						return nil, err
					}
					if _, err = fetchToken(rt, req.Context()); err != nil {
						resp.Body.Close()
						return nil, err
					}
					return resp, nil
				})
				rt = newTransport(t, c, up, p, inner(auditing))
				r := do(c, rt, request(t, t.Context(), "POST", url, strings.NewReader("x")))
				if test.ok {
					wantStatus(t, r, 200)
					equal(t, "the number of attempts", r.call(t).Attempts(), test.attempts)
					return
				}
				e := wantError(t, r.err)
				equal(t, "the number of attempts", e.Attempts, test.attempts)
				equal(t, "what was sent", e.Sent, test.sent)
				equal(t, "whether it can be repeated", e.Retryable, test.repeat)
				equal(t, "the phase", e.Phase, test.phase)
				var cause *layers.Error
				if !errors.As(e.Err, &cause) {
					t.Fatalf("%v does not wrap the other call's error", e)
				}
				equal(t, "the other call's route", cause.Route, "token")
				equal(t, "the other call's attempts", cause.Attempts, 1)
			})
		})
	}
}

// TestStackOverStack: a stack below another is a base like any other, whose
// proof that nothing was sent holds.
func TestStackOverStack(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.FailDial(clocktest.ErrRefused), clocktest.Fail(clocktest.ErrReset))
		below := newTransport(t, c, up, retrying(policy.Retry{MaxAttempts: 1}))
		r := do(c, newTransport(t, c, below, retrying(noWait)), request(t, t.Context(), "POST", url, strings.NewReader("x")))
		e := wantError(t, r.err)
		equal(t, "the number of attempts", e.Attempts, 2)
		equal(t, "what was sent", e.Sent, layers.MaybeSent)
		equal(t, "the reason", e.Reason, layers.ReasonNotSafe)
		if !errors.Is(e, clocktest.ErrReset) {
			t.Errorf("%v does not wrap the cause", e)
		}
	})
}

// TestInnerReplacesTheBody: whatever a layer makes of a response body, nothing
// of it is lost, and the attempt lasts until it ends.
func TestInnerReplacesTheBody(t *testing.T) {
	text := strings.Repeat("0123456789", 200)
	slow := clocktest.Reply(200).Chunks(clocktest.Drip(text, 100, time.Second)...)
	type hooked struct {
		io.Reader
		io.Closer
	}
	for name, replace := range map[string]func(resp *http.Response) error{
		"same":    func(*http.Response) error { return nil },
		"wrapped": func(resp *http.Response) error { resp.Body = hooked{resp.Body, resp.Body}; return nil },
		"ahead": func(resp *http.Response) error {
			first := make([]byte, 10)
			_, err := io.ReadFull(resp.Body, first)
			resp.Body = hooked{io.MultiReader(bytes.NewReader(first), resp.Body), resp.Body}
			return err
		},
		"buffered": func(resp *http.Response) error {
			all, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			resp.Body = io.NopCloser(bytes.NewReader(all))
			return err
		},
		"piped": func(resp *http.Response) error {
			pr, pw := io.Pipe()
			body := resp.Body
			go func() {
				_, err := io.Copy(pw, body)
				body.Close()
				pw.CloseWithError(err)
			}()
			resp.Body = pr
			return nil
		},
		"other response": func(resp *http.Response) error {
			all, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			*resp = http.Response{StatusCode: resp.StatusCode, Header: resp.Header, Body: io.NopCloser(bytes.NewReader(all)), Request: resp.Request}
			return err
		},
	} {
		for _, attempt := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, attempt %d", name, attempt), func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					steps := []clocktest.Step{slow}
					if attempt == 2 {
						steps = []clocktest.Step{clocktest.Reply(503).Body("busy"), slow}
					}
					up := clocktest.NewUpstream(t, c, steps...)
					done := 0
					tr := newTransport(t, c, up, retrying(noWait), inner(around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
						resp, err := next.RoundTrip(req)
						if err != nil {
							return nil, err
						}
						if err = replace(resp); err != nil {
							resp.Body.Close()
							return nil, err
						}
						return resp, nil
					})), observer(func(_ context.Context, e layers.Event) {
						if e.Kind == layers.KindDone && e.Status == 200 {
							done++
							if e.Err != nil {
								t.Errorf("the attempt ended in %v", e.Err)
							}
							equal(t, "the end of the attempt", c.Elapsed(), 20*time.Second)
						}
					}))
					r := get(t, c, tr)
					wantStatus(t, r, 200)
					wantTook(t, r, 20*time.Second)
					if r.body != text {
						t.Errorf("got %d bytes of %d", len(r.body), len(text))
					}
					equal(t, "how often the attempt ended", done, 1)
				})
			})
		}
	}
}

// TestInnerTurnsAFailureIntoAnAnswer: a layer may make up for a send.
func TestInnerTurnsAFailureIntoAnAnswer(t *testing.T) {
	fallback := inner(around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err != nil {
			return &http.Response{StatusCode: 203, Body: io.NopCloser(strings.NewReader("stale"))}, nil
		}
		return resp, nil
	}))
	for name, step := range map[string]clocktest.Step{"reset": clocktest.Fail(clocktest.ErrReset), "timeout": clocktest.NoReply()} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, step)
				r := get(t, c, newTransport(t, c, up, policy.Policy{}, fallback))
				wantStatus(t, r, 203)
				equal(t, "the body", r.body, "stale")
			})
		})
	}
}

// TestInnerBuffersTheUpload: signing needs the whole body, and the write phase
// still goes by its progress.
func TestInnerBuffersTheUpload(t *testing.T) {
	text := strings.Repeat("0123456789", 10<<10)
	for name, replace := range map[string]func(req *http.Request) error{
		"buffer": func(req *http.Request) error {
			all, err := io.ReadAll(req.Body)
			req.Body.Close()
			setBody(req, bytes.NewReader(all))
			return err
		},
		"unknown type": func(req *http.Request) error {
			all, err := io.ReadAll(req.Body)
			req.Body.Close()
			req.Body = plain{bytes.NewReader(all)}
			return err
		},
		"pipe": func(req *http.Request) error {
			pr, pw := io.Pipe()
			body := req.Body
			go func() {
				_, err := io.Copy(pw, body)
				body.Close()
				pw.CloseWithError(err)
			}()
			req.Body = pr
			return nil
		},
	} {
		for _, known := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,%v", name, known), func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					up := clocktest.NewUpstream(t, c, clocktest.Reply(200).ReadBody(10<<10, 5*time.Second))
					tr := newTransport(t, c, up, settings(policy.Settings{Deadline: time.Hour, Retry: policy.Retry{MaxAttempts: 1}}), inner(around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
						req = req.Clone(req.Context())
						if err := replace(req); err != nil {
							return nil, err
						}
						return next.RoundTrip(req)
					})))
					body := &closeCounter{Reader: strings.NewReader(text)}
					req := request(t, t.Context(), "POST", url, body)
					if known {
						req.ContentLength = int64(len(text))
					}
					r := do(c, tr, req)
					wantStatus(t, r, 200)
					if got := string(up.Requests()[0].Body); got != text {
						t.Errorf("sent %d bytes of %d", len(got), len(text))
					}
					if r.took < 50*time.Second {
						t.Errorf("took %v", r.took)
					}
					equal(t, "the number of closes", int(body.closes.Load()), 1)
				})
			})
		}
	}
}

// TestInnerHoldsUpTheBody: a body that an Inner layer makes, and that blocks,
// cannot hold the call past its deadline either.
func TestInnerHoldsUpTheBody(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200))
		body := &blockedBody{stubborn: true, release: make(chan struct{})}
		tr := newTransport(t, c, up, settings(policy.Settings{Deadline: 3 * time.Second}), inner(around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			req = req.Clone(req.Context())
			req.Body.Close()
			req.Body = body
			return next.RoundTrip(req)
		})))
		r := do(c, tr, request(t, t.Context(), "POST", url, plain{strings.NewReader("x")}))
		wantTook(t, r, 3*time.Second)
		wantTimeout(t, r.err, layers.PhaseDeadline)
		close(body.release)
		c.Add(0)
		equal(t, "the number of closes", int(body.closes.Load()), 1)
	})
}

// TestInnerSendsAgain: a layer that answers a challenge by itself sends twice
// within an attempt. The second send is timed like the first.
func TestInnerSendsAgain(t *testing.T) {
	text := strings.Repeat("0123456789", 10<<10)
	limits := policy.Timeouts{Pool: time.Second, Connect: 2 * time.Second, Write: 3 * time.Second, Read: 4 * time.Second}
	// How the layer gets rid of the first response.
	for name, answer := range map[string]func(next http.RoundTripper, req *http.Request) (*http.Response, error){
		"drained": func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err != nil || resp.StatusCode != 401 {
				return resp, err
			}
			if _, err = io.Copy(io.Discard, resp.Body); err != nil {
				return nil, err
			}
			resp.Body.Close()
			return next.RoundTrip(again(req))
		},
		"closed": func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err != nil || resp.StatusCode != 401 {
				return resp, err
			}
			resp.Body.Close()
			return next.RoundTrip(again(req))
		},
		"deferred": func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err != nil || resp.StatusCode != 401 {
				return resp, err
			}
			defer resp.Body.Close()
			return next.RoundTrip(again(req))
		},
		"much later": func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err != nil || resp.StatusCode != 401 {
				return resp, err
			}
			second, err := next.RoundTrip(again(req))
			if err != nil {
				resp.Body.Close()
				return nil, err
			}
			body := second.Body
			second.Body = struct {
				io.Reader
				io.Closer
			}{body, closeFunc(func() error { resp.Body.Close(); return body.Close() })}
			return second, nil
		},
	} {
		for _, test := range []struct {
			name   string
			second clocktest.Step
			phase  layers.Phase // "": it is fine
			took   time.Duration
			sent   layers.Sent
		}{
			{"fine", clocktest.Reply(200).Pool(900*time.Millisecond).Connect(1900*time.Millisecond).ReadBody(25<<10, 2900*time.Millisecond).After(3900 * time.Millisecond).
				Chunks(clocktest.Drip("0123456789", 1, 3900*time.Millisecond)...), "", (900 + 1900 + 4*2900 + 11*3900) * time.Millisecond, 0},
			{"pool", clocktest.Reply(200).Pool(time.Hour), layers.PhasePool, time.Second, layers.MaybeSent},
			{"connect", clocktest.Reply(200).Connect(time.Hour), layers.PhaseConnect, 2 * time.Second, layers.MaybeSent},
			{"write", clocktest.NoReply().IgnoreBody(), layers.PhaseWrite, 3 * time.Second, layers.MaybeSent},
			{"headers", clocktest.NoReply(), layers.PhaseRead, 4 * time.Second, layers.MaybeSent},
			{"body", clocktest.Reply(200).Silent(), layers.PhaseRead, 4 * time.Second, layers.Answered},
		} {
			t.Run(name+" "+test.name, func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					up := clocktest.NewUpstream(t, c, clocktest.Reply(401).Body("who?"), test.second)
					tr := newTransport(t, c, up, settings(policy.Settings{Timeouts: limits, Retry: policy.Retry{MaxAttempts: 1}}), inner(around(answer)))
					r := do(c, tr, request(t, t.Context(), "POST", url, strings.NewReader(text)))
					wantTook(t, r, test.took)
					if test.phase == "" {
						wantStatus(t, r, 200)
						equal(t, "the body", r.body, "0123456789")
						equal(t, "what the second send sent", string(up.Requests()[1].Body), text)
						return
					}
					e := wantTimeout(t, r.err, test.phase)
					if e.Sent == layers.Unsent || e.Retryable {
						t.Errorf("sent %v, retryable %v after an answer to the first send", e.Sent, e.Retryable)
					}
					equal(t, "the elapsed time told", e.Elapsed, test.took)
				})
			})
		}
	}
}

// again returns a copy of req with its body from the start.
func again(req *http.Request) *http.Request {
	second := req.Clone(req.Context())
	second.Body, _ = req.GetBody()
	return second
}

type closeFunc func() error

func (f closeFunc) Close() error { return f() }

// TestInnerTakesItsTime: what a layer does between its sends is no phase of a send.
func TestInnerTakesItsTime(t *testing.T) {
	for name, first := range map[string]clocktest.Step{"error": clocktest.Fail(clocktest.ErrReset), "answer": clocktest.Reply(503)} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, first, clocktest.Reply(200))
				tr := newTransport(t, c, up, once(policy.Timeouts{Read: time.Second}), inner(around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
					if resp, err := next.RoundTrip(req); err == nil {
						resp.Body.Close()
					}
					c.Sleep(3 * time.Second)
					return next.RoundTrip(req)
				})))
				wantStatus(t, get(t, c, tr), 200)
			})
		})
	}
}

// TestInnerSendsThroughItsOwnDeadline: a deadline of a layer's for one send
// fails that send and no more.
func TestInnerSendsThroughItsOwnDeadline(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.NoReply(), clocktest.Reply(200))
		tr := newTransport(t, c, up, retrying(noWait), inner(around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			ctx, cancel := c.WithTimeout(req.Context(), time.Second)
			resp, err := next.RoundTrip(req.WithContext(ctx))
			if err != nil {
				cancel()
				return nil, err
			}
			t.Cleanup(cancel)
			return resp, nil
		})))
		r := get(t, c, tr)
		wantStatus(t, r, 200)
		wantTook(t, r, time.Second)
	})
}

// TestInnerEndsABlockedUpload: by a deadline of its own too.
func TestInnerEndsABlockedUpload(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, clocktest.Reply(200))
			up.HTTP2 = http2
			body := &blockedBody{stubborn: true, release: make(chan struct{})}
			tr := newTransport(t, c, up, retrying(policy.Retry{MaxAttempts: 1}), inner(around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
				ctx, cancel := c.WithTimeout(req.Context(), time.Second)
				defer cancel()
				return next.RoundTrip(req.WithContext(ctx))
			})))
			r := do(c, tr, request(t, t.Context(), "POST", url, body))
			wantTook(t, r, time.Second)
			if e := wantError(t, r.err); !errors.Is(e, context.DeadlineExceeded) || e.Sent != layers.MaybeSent {
				t.Errorf("got %v, sent %v", e, e.Sent)
			}
			close(body.release)
			c.Add(0)
			equal(t, "the number of closes", int(body.closes.Load()), 1)
		})
	}
}

// TestNoReadAfterTheSend: once a send has come back, nobody reads the caller's body any
// more, whatever the base does, and it is closed once.
func TestNoReadAfterTheSend(t *testing.T) {
	base := layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		_, err := io.Copy(io.Discard, req.Body)
		req.Body.Close()
		return nil, err
	})
	for name, ends := range map[string]func(*clocktest.Clock, *http.Request) *http.Request{
		"deadline": func(c *clocktest.Clock, req *http.Request) *http.Request {
			return req.WithContext(layers.WithDeadline(req.Context(), c.Now().Add(time.Second)))
		},
		"context": func(c *clocktest.Clock, req *http.Request) *http.Request {
			ctx, cancel := context.WithCancel(req.Context())
			c.AfterFunc(time.Second, cancel)
			return req.WithContext(ctx)
		},
		"channel": func(c *clocktest.Clock, req *http.Request) *http.Request {
			ended := make(chan struct{})
			c.AfterFunc(time.Second, func() { close(ended) })
			req.Cancel = ended //nolint:staticcheck // A RoundTripper has to honour it.
			return req
		},
		"layer": func(_ *clocktest.Clock, req *http.Request) *http.Request { return req },
	} {
		for _, layered := range []bool{false, true} {
			if name == "layer" && !layered {
				continue
			}
			t.Run(fmt.Sprintf("%s, layered %v", name, layered), func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					var reads, closes atomic.Int32
					body := struct {
						readFunc
						closeFunc
					}{func(p []byte) (int, error) {
						reads.Add(1)
						c.Sleep(3 * time.Second)
						return copy(p, "x"), nil
					}, func() error {
						closes.Add(1)
						return nil
					}}
					change := inner()
					if layered {
						change = inner(around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
							limit := time.Hour
							if name == "layer" {
								limit = time.Second
							}
							ctx, cancel := c.WithTimeout(req.Context(), limit)
							defer cancel()
							return next.RoundTrip(req.WithContext(ctx))
						}))
					}
					r := do(c, newTransport(t, c, base, policy.Policy{}, change), ends(c, request(t, t.Context(), "POST", url, body)))
					wantTook(t, r, time.Second)
					if r.err == nil {
						t.Error("the call did not fail")
					}
					c.Add(time.Minute)
					equal(t, "the number of Reads", reads.Load(), 1)
					equal(t, "the number of closes", closes.Load(), 1)
				})
			})
		}
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// TestInnerComesTooLate: a layer that held a send up past its deadline finds
// that it is not sent, and its body closed.
func TestInnerComesTooLate(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c)
		body := &closeCounter{Reader: strings.NewReader("x")}
		tr := newTransport(t, c, up, settings(policy.Settings{Deadline: time.Second}), inner(around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			c.Sleep(2 * time.Second)
			return next.RoundTrip(req)
		})))
		r := do(c, tr, request(t, t.Context(), "POST", url, body))
		e := wantTimeout(t, r.err, layers.PhaseDeadline)
		equal(t, "the number of attempts", e.Attempts, 0)
		equal(t, "what was sent", e.Sent, layers.Unsent)
		equal(t, "the number of closes", int(body.closes.Load()), 1)
	})
}

func TestInnerAnswersByItself(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c)
		body := &closeCounter{Reader: strings.NewReader("x")}
		var last *layers.Call
		tr := newTransport(t, c, up, policy.Policy{}, inner(around(func(_ http.RoundTripper, req *http.Request) (*http.Response, error) {
			last, _ = layers.CallFrom(req.Context())
			req.Body.Close()
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("cached"))}, nil
		})))
		r := do(c, tr, request(t, t.Context(), "POST", url, body))
		wantStatus(t, r, 200)
		equal(t, "the body", r.body, "cached")
		equal(t, "the number of closes", int(body.closes.Load()), 1)
		equal(t, "the number of attempts", last.Attempts(), 0)
		if last.Err() == nil {
			t.Error("the call goes on after its body")
		}
	})
}

// TestOuterHoldsTheContext: the end of an attempt is not that of the context
// that an Outer layer has.
func TestOuterHoldsTheContext(t *testing.T) {
	type key struct{}
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.NoReply(), clocktest.NoReply(), clocktest.Reply(200).Chunks(clocktest.Drip("slow", 1, time.Second)...))
		var held context.Context
		tr := newTransport(t, c, up, settings(policy.Settings{Timeouts: policy.Timeouts{Read: 2 * time.Second}, Retry: noWait}),
			outer(around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
				held = context.WithValue(req.Context(), key{}, "span")
				resp, err := next.RoundTrip(req.WithContext(held))
				if held.Err() != nil {
					t.Errorf("the call's context ended with an attempt: %v", context.Cause(held))
				}
				return resp, err
			})),
			inner(around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
				equal(t, "the value of the Outer layer's", fmt.Sprint(req.Context().Value(key{})), "span")
				return next.RoundTrip(req)
			})))
		r := get(t, c, tr)
		wantStatus(t, r, 200)
		equal(t, "the body", r.body, "slow")
		equal(t, "the number of attempts", r.call(t).Attempts(), 3)
		equalTimes(t, times(c, up), 0, 2*time.Second, 4*time.Second)
		if held.Err() == nil {
			t.Error("the call's context goes on after its body")
		}
	})
}

// TestOuterGivesUp: an Outer layer that ends its context ends the call.
func TestOuterGivesUp(t *testing.T) {
	for name, step := range map[string]clocktest.Step{"send": clocktest.NoReply(), "backoff": clocktest.Reply(503)} {
		for _, http2 := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					up := clocktest.NewUpstream(t, c, step)
					up.HTTP2 = http2
					var inside error
					tr := newTransport(t, c, up, settings(policy.Settings{Retry: policy.Retry{BaseDelay: 5 * time.Second}}),
						outer(around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
							ctx, cancel := context.WithCancel(req.Context())
							c.AfterFunc(time.Second, cancel)
							resp, err := next.RoundTrip(req.WithContext(ctx))
							inside = err
							return resp, err
						})))
					r := get(t, c, tr)
					wantTook(t, r, time.Second)
					if inside != context.Canceled {
						t.Errorf("the layer got %v, want its own cancellation", inside)
					}
					if !errors.Is(r.err, context.Canceled) {
						t.Errorf("got %v, want a cancellation", r.err)
					}
					equal(t, "the number of sends", len(up.Requests()), 1)
				})
			})
		}
	}
}

func TestOuterSendsAgain(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Body("one").After(4*time.Second), clocktest.NoReply())
		tr := newTransport(t, c, up, settings(policy.Settings{Deadline: 10 * time.Second}),
			outer(around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(req)
				if err != nil {
					return nil, err
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				return next.RoundTrip(req.Clone(req.Context()))
			})))
		r := get(t, c, tr)
		wantTook(t, r, 10*time.Second)
		equal(t, "the number of attempts", wantTimeout(t, r.err, layers.PhaseDeadline).Attempts, 2)
	})
}

// TestOuterReturnsTheEarlierAnswer: a call lasts as long as the answer that goes up,
// though another came later.
func TestOuterReturnsTheEarlierAnswer(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		slow := clocktest.Reply(200).Chunks(clocktest.Drip("0123456789", 1, time.Second)...)
		up := clocktest.NewUpstream(t, c, slow, clocktest.Reply(204))
		tr := newTransport(t, c, up, policy.Policy{}, outer(around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if again, err := next.RoundTrip(req.Clone(req.Context())); err == nil {
				again.Body.Close()
			}
			return resp, err
		})))
		r := get(t, c, tr)
		wantStatus(t, r, 200)
		equal(t, "the body", r.body, "0123456789")
		if r.call(t).Err() == nil {
			t.Error("the call goes on after its body")
		}
	})
}

// TestOuterFailsWithAnothersError: what another call failed at says nothing of the sends
// of this one.
func TestOuterFailsWithAnothersError(t *testing.T) {
	for name, sent := range map[string]layers.Sent{"before a send": layers.Unsent, "after it": layers.MaybeSent} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, clocktest.FailDial(clocktest.ErrRefused), clocktest.Reply(200))
				other := get(t, c, newTransport(t, c, up, retrying(policy.Retry{MaxAttempts: 1}))).err
				tr := newTransport(t, c, up, policy.Policy{}, outer(around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
					if sent != layers.Unsent {
						if resp, err := next.RoundTrip(req); err == nil {
							resp.Body.Close()
						}
					}
					return nil, other
				})))
				e := wantError(t, do(c, tr, request(t, t.Context(), "POST", url, nil)).err)
				equal(t, "the layer", e.Layer, "outer")
				equal(t, "what was sent", e.Sent, sent)
				equal(t, "whether it can be repeated", e.Retryable, sent == layers.Unsent)
				equal(t, "the cause", e.Err, other)
			})
		})
	}
}

// TestOuterPassesAnErrorOn: an error is the send's, whatever a layer around the call
// says more about it, and also if the layer got it from the body.
func TestOuterPassesAnErrorOn(t *testing.T) {
	span := errors.New("in a span")
	for name, test := range map[string]struct {
		step clocktest.Step
		pass func(err error) error
		sent layers.Sent
	}{
		"as it is": {clocktest.NoReply(), func(err error) error { return err }, layers.MaybeSent},
		"wrapped":  {clocktest.NoReply(), func(err error) error { return fmt.Errorf("%w: %w", span, err) }, layers.MaybeSent},
		"body":     {clocktest.Reply(200).Silent(), func(err error) error { return err }, layers.Answered},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, test.step)
				tr := newTransport(t, c, up, settings(policy.Settings{Timeouts: policy.Timeouts{Read: time.Second}, Retry: policy.Retry{Enabled: policy.Off}}),
					outer(around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
						resp, err := next.RoundTrip(req)
						if err == nil {
							_, err = io.ReadAll(resp.Body)
							resp.Body.Close()
						}
						return nil, test.pass(err)
					})))
				r := get(t, c, tr)
				e := wantTimeout(t, r.err, layers.PhaseRead)
				equal(t, "the layer", e.Layer, "timeouts")
				equal(t, "the number of attempts", e.Attempts, 1)
				equal(t, "what was sent", e.Sent, test.sent)
				equal(t, "whether it wraps the layer's error", errors.Is(e, span), name == "wrapped")
			})
		})
	}
}

func TestOuterAnswersOrFailsByItself(t *testing.T) {
	broken := errors.New("no consent")
	for name, answer := range map[string]func() (*http.Response, error){
		"answer": func() (*http.Response, error) { return &http.Response{StatusCode: 200, Body: http.NoBody}, nil },
		"body": func() (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(""))}, nil
		},
		"failure": func() (*http.Response, error) { return nil, broken },
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c)
				body := &closeCounter{Reader: strings.NewReader("x")}
				var last *layers.Call
				tr := newTransport(t, c, up, policy.Policy{}, outer(around(func(_ http.RoundTripper, req *http.Request) (*http.Response, error) {
					last, _ = layers.CallFrom(req.Context())
					req.Body.Close()
					return answer()
				})))
				req := request(t, t.Context(), "POST", url, body)
				resp, err := tr.RoundTrip(req)
				if name == "failure" {
					e := wantError(t, err)
					equal(t, "what was sent", e.Sent, layers.Unsent)
					equal(t, "whether it can be repeated", e.Retryable, true)
					equal(t, "the layer", e.Layer, "outer")
					equal(t, "whether it wraps the layer's error", errors.Is(e, broken), true)
				} else if err != nil || resp.StatusCode != 200 {
					t.Errorf("got %v, %v", resp, err)
				} else {
					equal(t, "the call of the answer", callOf(t, resp), last)
					resp.Body.Close()
				}
				equal(t, "the number of closes", int(body.closes.Load()), 1)
				if last.Err() == nil {
					t.Error("the call goes on")
				}
			})
		})
	}
}

// TestOuterAnswersFromElsewhere: what another RoundTripper sends for the call
// lives as long as its body, within the call's own context.
func TestOuterAnswersFromElsewhere(t *testing.T) {
	slow := clocktest.Reply(200).Chunks(clocktest.Drip("0123456789", 1, time.Second)...)
	for name, steps := range map[string][]clocktest.Step{"instead": nil, "after a failure": {clocktest.Fail(clocktest.ErrReset)}, "after an answer": {clocktest.Reply(503).Body("busy")}} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				other := clocktest.NewUpstream(t, c, slow)
				tr := newTransport(t, c, clocktest.NewUpstream(t, c, steps...), retrying(policy.Retry{MaxAttempts: 1}),
					outer(around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
						if steps == nil {
							return other.RoundTrip(req)
						}
						resp, err := next.RoundTrip(req)
						if err == nil {
							resp.Body.Close()
						}
						return other.RoundTrip(req)
					})))
				r := get(t, c, tr)
				wantStatus(t, r, 200)
				equal(t, "the body", r.body, "0123456789")
				if r.call(t).Err() == nil {
					t.Error("the call goes on after its body")
				}
			})
		})
	}
}

// TestOuterDropsAnAnswer: what an answer holds is given back with the call, even
// if a layer of the user's leaves it open.
func TestOuterDropsAnAnswer(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(ignoreOpen{t}, c, clocktest.Reply(200).Silent().Times(2))
		tr := newTransport(t, c, up, settings(policy.Settings{InFlight: policy.InFlight{Max: 1}}),
			outer(around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
				if _, err := next.RoundTrip(req); err != nil {
					return nil, err
				}
				return &http.Response{StatusCode: 203, Body: io.NopCloser(strings.NewReader("own"))}, nil
			})))
		for range 2 {
			r := get(t, c, tr)
			wantStatus(t, r, 203)
			equal(t, "the body", r.body, "own")
		}
	})
}

// TestLayersAlone: each layer works without the others, with an Env or none.
func TestLayersAlone(t *testing.T) {
	for _, shared := range []bool{true, false} {
		run := func(name string, f func(t *testing.T, c *clocktest.Clock, env *layers.Env)) {
			t.Run(fmt.Sprintf("%s,env=%v", name, shared), func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					var env *layers.Env
					if shared {
						env = &layers.Env{Clock: c, Rand: noJitter}
					}
					f(t, c, env)
				})
			})
		}
		run("deadline", func(t *testing.T, c *clocktest.Clock, env *layers.Env) {
			up := clocktest.NewUpstream(t, c, clocktest.NoReply())
			r := get(t, c, layers.Chain(up, layers.Deadline(env, 3*time.Second)))
			wantTook(t, r, 3*time.Second)
			equal(t, "the number of attempts", wantTimeout(t, r.err, layers.PhaseDeadline).Attempts, 1)
		})
		run("timeouts", func(t *testing.T, c *clocktest.Clock, env *layers.Env) {
			up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Silent())
			r := get(t, c, layers.Chain(up, layers.Timeouts(env, policy.Timeouts{Read: 3 * time.Second})))
			wantTook(t, r, 3*time.Second)
			wantTimeout(t, r.err, layers.PhaseRead)
		})
		run("retry", func(t *testing.T, c *clocktest.Clock, env *layers.Env) {
			up := clocktest.NewUpstream(t, c, clocktest.Reply(503), clocktest.Fail(clocktest.ErrReset), clocktest.Reply(200))
			wantStatus(t, do(c, layers.Chain(up, layers.Retry(env, noWait)), request(t, t.Context(), "PUT", url, strings.NewReader("x"))), 200)
		})
		run("breaker", func(t *testing.T, c *clocktest.Clock, env *layers.Env) {
			up := clocktest.NewUpstream(t, c, clocktest.Reply(500))
			rt := layers.Chain(up, layers.CircuitBreaker(env, policy.StateID{}, policy.Breaker{Failures: 1}))
			get(t, c, rt)
			if wait := wantError(t, get(t, c, rt).err).RetryAfter; wait < 10*time.Second || wait > 11*time.Second {
				t.Errorf("it stays open for %v, and not as by default", wait)
			}
		})
		run("hedge, off", func(t *testing.T, c *clocktest.Clock, env *layers.Env) {
			up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(time.Minute))
			wantStatus(t, get(t, c, layers.Chain(up, layers.Hedge(env, policy.Hedge{Delay: policy.Off}))), 200)
		})
		run("all", func(t *testing.T, c *clocktest.Clock, env *layers.Env) {
			up := clocktest.NewUpstream(t, c, clocktest.NoReply().Times(3))
			r := get(t, c, layers.Chain(up,
				layers.Deadline(env, 10*time.Second), nil, layers.Retry(env, noWait), layers.Timeouts(env, policy.Timeouts{Read: 4 * time.Second})))
			wantTook(t, r, 10*time.Second)
			wantTimeout(t, r.err, layers.PhaseDeadline)
			equalTimes(t, times(c, up), 0, 4*time.Second, 8*time.Second)
		})
		run("between layers of the user's", func(t *testing.T, c *clocktest.Clock, env *layers.Env) {
			up := clocktest.NewUpstream(t, c, clocktest.NoReply(), clocktest.Reply(200).Body("fine"))
			pass := around(passOn)
			r := get(t, c, layers.Chain(up, pass, layers.Deadline(env, 10*time.Second), pass, layers.Retry(env, noWait), pass, layers.Timeouts(env, policy.Timeouts{Read: 4 * time.Second}), pass))
			wantStatus(t, r, 200)
			equal(t, "the body", r.body, "fine")
			wantTook(t, r, 4*time.Second)
		})
	}
}

// TestMisplacedLayers: a wrong order refuses every call, and says so.
func TestMisplacedLayers(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		env := &layers.Env{Clock: c}
		up := clocktest.NewUpstream(t, c)
		for name, rt := range map[string]http.RoundTripper{
			"layer deadline stands inside layer retry":    layers.Chain(up, layers.Retry(env, policy.Retry{}), layers.Deadline(env, time.Second)),
			"layer deadline stands inside layer deadline": layers.Chain(up, layers.Deadline(env, time.Second), layers.Deadline(env, time.Second)),
			"layer retry stands inside layer timeouts":    layers.Chain(up, layers.Timeouts(env, policy.Timeouts{}), layers.Retry(env, policy.Retry{})),
		} {
			body := &closeCounter{Reader: strings.NewReader("x")}
			r := do(c, rt, request(t, t.Context(), "PUT", url, body))
			e := wantError(t, r.err)
			has(t, e.Error(), name)
			equal(t, "what was sent", e.Sent, layers.Unsent)
			equal(t, "the number of attempts", e.Attempts, 0)
			equal(t, "the number of closes", int(body.closes.Load()), 1)
			wantTook(t, r, 0)
		}
	})
}

// TestProofIsLostOnAConnection: once a connection was there, a dial that fails
// is no proof that nothing was sent. net/http sends again by itself on a
// connection that turned out dead.
func TestProofIsLostOnAConnection(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		for _, test := range []struct {
			first bool
			sent  layers.Sent
		}{{true, layers.MaybeSent}, {false, layers.Unsent}} {
			base := hooks(func(h *httptrace.ClientTrace, _ *http.Request) (*http.Response, error) {
				h.GetConn("a:80")
				if test.first {
					h.GotConn(httptrace.GotConnInfo{Reused: true})
					h.WroteRequest(httptrace.WroteRequestInfo{})
					h.GetConn("a:80")
				}
				return nil, clocktest.ErrRefused
			})
			r := do(c, newTransport(t, c, base, retrying(policy.Retry{MaxAttempts: 1})), request(t, t.Context(), "POST", url, nil))
			equal(t, "what was sent", wantError(t, r.err).Sent, test.sent)
		}
	})
}

// TestProofOfAnother: that a layer's own connection was refused says nothing of
// the send before it.
func TestProofOfAnother(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		base := layers.RoundTripperFunc(func(*http.Request) (*http.Response, error) { return nil, clocktest.ErrReset })
		tr := newTransport(t, c, base, retrying(noWait), inner(around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			if resp, err := next.RoundTrip(req); err == nil {
				return resp, nil
			}
			return nil, clocktest.ErrRefused // of the server that it reports to
		})))
		e := wantError(t, do(c, tr, request(t, t.Context(), "POST", url, nil)).err)
		equal(t, "what was sent", e.Sent, layers.MaybeSent)
		equal(t, "the number of attempts", e.Attempts, 1)
	})
}

// TestProofBehindALayer: a layer of the user's between two of ours proves nothing
// of what the send came to.
func TestProofBehindALayer(t *testing.T) {
	pass := around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) { return next.RoundTrip(req) })
	for name, list := range map[string]func(env *layers.Env) []layers.Layer{
		"inside": func(env *layers.Env) []layers.Layer {
			return []layers.Layer{layers.Deadline(env, 0), pass, layers.Retry(env, noWait)}
		},
		"outside": func(env *layers.Env) []layers.Layer {
			return []layers.Layer{layers.Retry(env, noWait), pass, layers.CircuitBreaker(env, policy.StateID{}, policy.Breaker{})}
		},
		"both": func(env *layers.Env) []layers.Layer {
			return []layers.Layer{layers.Deadline(env, 0), pass, layers.Retry(env, noWait), pass, layers.Timeouts(env, policy.Timeouts{})}
		},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				env := &layers.Env{Clock: c}
				sends := 0
				base := layers.RoundTripperFunc(func(*http.Request) (*http.Response, error) {
					sends++
					return nil, clocktest.ErrReset
				})
				e := wantError(t, do(c, layers.Chain(base, list(env)...), request(t, t.Context(), "POST", url, nil)).err)
				equal(t, "what was sent", e.Sent, layers.MaybeSent)
				equal(t, "the number of sends", sends, 1)
			})
		})
	}
}

// TestProofOfTheLastSend: nor does it prove anything of a call, or of an attempt, that
// the last send of such a layer came to nothing, if there was one before.
func TestProofOfTheLastSend(t *testing.T) {
	twice := around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		return next.RoundTrip(again(req))
	})
	for name, first := range map[string]clocktest.Step{"lost": clocktest.Fail(io.ErrUnexpectedEOF), "answered": clocktest.Reply(503)} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				env := &layers.Env{Clock: c}
				second := clocktest.FailDial(clocktest.ErrRefused)
				for _, rt := range []http.RoundTripper{
					newTransport(t, c, clocktest.NewUpstream(t, c, first, second), retrying(policy.Retry{MaxAttempts: 1}), outer(twice)),
					layers.Chain(clocktest.NewUpstream(t, c, first, second), layers.Retry(env, noWait), twice, layers.Timeouts(env, policy.Timeouts{})),
				} {
					e := wantError(t, do(c, rt, request(t, t.Context(), "POST", url, strings.NewReader("x"))).err)
					if e.Sent != layers.Unsent || e.Retryable {
						t.Errorf("sent %v, retryable %v", e.Sent, e.Retryable)
					}
				}
			})
		})
	}
}

// TestEventsBehindALayer: a send that is handed on to a layer further in is one send to
// an observer.
func TestEventsBehindALayer(t *testing.T) {
	pass := around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) { return next.RoundTrip(req) })
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		var events []string
		env := &layers.Env{Clock: c, Observer: layers.ObserverFunc(func(_ context.Context, e layers.Event) {
			if e.Kind != layers.KindPhase && e.Kind != layers.KindWait {
				events = append(events, e.String())
			}
		})}
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).Body("x"), clocktest.Reply(200).Body("x"))
		rt := layers.Chain(up, layers.Deadline(env, 0), pass, layers.Retry(env, noWait), pass,
			layers.RateBudget(env, layers.Budget{Rate: policy.Rate{PerSecond: 0.001, Burst: 2, MaxWait: policy.Off}}), layers.Timeouts(env, policy.Timeouts{}))
		wantStatus(t, do(c, rt, request(t, t.Context(), "GET", url, nil)), 200)
		equal(t, "the events", strings.Join(events, ", "),
			"start, send #1, response #1 503, done #1 503, send #2, response #2 200, done #2 200, end #2")
		events = nil
		if r := do(c, rt, request(t, t.Context(), "GET", url, nil)); r.err == nil {
			t.Error("no error")
		}
		equal(t, "the number of ends of a send that is refused", strings.Count(strings.Join(events, ", "), "done #1"), 1)
	})
}

// TestSlotOfSeveralSends: a layer that sends again gives back the slot that it had.
func TestSlotOfSeveralSends(t *testing.T) {
	twice := around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		if resp, err := next.RoundTrip(req); err == nil {
			resp.Body.Close()
		}
		return next.RoundTrip(again(req))
	})
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		env := &layers.Env{Clock: c}
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).Body("x"), clocktest.Fail(io.ErrUnexpectedEOF), clocktest.Reply(200).Body("x").Times(2))
		rt := layers.Chain(up, layers.Deadline(env, 0), twice, layers.InFlight(env, policy.StateID{}, policy.InFlight{Max: 2}))
		for _, want := range []bool{false, true} {
			r := do(c, rt, request(t, t.Context(), "POST", url, strings.NewReader("x")))
			equal(t, "it is answered", r.err == nil, want)
			equal(t, "the slots in use", env.Slots()[0].Used, 0)
		}
	})
}

// TestSendsBeside: a layer of the user's that sends each request twice at once, on
// the context of the call. Whichever comes first is the call's, and nothing is left
// in the end.
func TestSendsBeside(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		base := layers.RoundTripperFunc(func(*http.Request) (*http.Response, error) {
			time.Sleep(time.Second) // both go on at once
			return &http.Response{
				StatusCode: 200, ContentLength: -1, Header: http.Header{"Content-Type": {"text/event-stream"}},
				Body: io.NopCloser(strings.NewReader("data: {}\n\n")),
			}, nil
		})
		var beside sync.WaitGroup
		twice := around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			beside.Go(func() {
				resp, err := next.RoundTrip(req.Clone(context.WithoutCancel(req.Context())))
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			})
			return next.RoundTrip(req)
		})
		for _, on := range []policy.Toggle{policy.On, policy.Off} {
			tr, err := transport.New(transport.Config{
				Base: base, Clock: c, Inner: []layers.Layer{twice}, Observer: new(layers.Timeline),
				Policy: policy.Policy{Settings: policy.Settings{Stream: policy.Stream{Enabled: on}, InFlight: policy.InFlight{Max: 1}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			for range 200 {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.example/", http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := tr.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				beside.Wait()
				if s := tr.Slots(); len(s) != 1 || s[0].Used != 0 {
					t.Fatalf("the slots are %+v", s)
				}
			}
		}
	})
}

// lazyBody is a body that is slow, and does not answer a Close meanwhile.
type lazyBody struct{ c *clocktest.Clock }

func (b lazyBody) Read([]byte) (int, error) {
	b.c.Sleep(2 * time.Second)
	return 0, io.EOF
}

func (lazyBody) Close() error { return nil }

// TestRetryOnceTooLate: a layer of the user's that was left behind, in a Read of
// the caller's body, gets no further send: the call has its outcome.
func TestRetryOnceTooLate(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		var asked, promised bool
		ask := around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			asked, promised = true, layers.RetryOnce(req.Context(), "token refused")
			return resp, err
		})
		base := layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			_, err := io.ReadAll(req.Body)
			return nil, errors.Join(err, req.Body.Close(), errors.New("refused"))
		})
		tr, err := transport.New(transport.Config{Base: base, Clock: c, Inner: []layers.Layer{ask}, Policy: policy.Policy{
			Settings: policy.Settings{Timeouts: policy.Timeouts{Attempt: time.Second}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://api.example/", lazyBody{c})
		if err != nil {
			t.Fatal(err)
		}
		req.GetBody = func() (io.ReadCloser, error) { return lazyBody{c}, nil }
		if _, err := tr.RoundTrip(req); err == nil || c.Elapsed() != time.Second {
			t.Errorf("%v after %v", err, c.Elapsed())
		}
		c.Add(2 * time.Second)
		if !asked || promised {
			t.Errorf("the layer asked: %v, and was promised a send: %v", asked, promised)
		}
	})
}

// TestTurnBesideALayer: a turn that was taken behind a layer of the user's, or before
// one, comes back too if a gate further in refuses the send.
func TestTurnBesideALayer(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		env := &layers.Env{Clock: c}
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Body("ok").Forever())
		one := layers.InFlight(env, policy.StateID{}, policy.InFlight{Max: 1})
		hand := around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) { return next.RoundTrip(req) })
		unread, err := layers.Chain(up, one).RoundTrip(request(t, t.Context(), "GET", "http://api.example/", nil))
		if err != nil {
			t.Fatal(err)
		}
		defer unread.Body.Close()
		retry, rate := layers.Retry(env, policy.Retry{MaxAttempts: 1}), layers.RateBudget(env, layers.Budget{Rate: policy.Rate{PerSecond: 0.001, Burst: 5}})
		for _, list := range [][]layers.Layer{{retry, hand, rate, one}, {retry, rate, hand, one}, {hand, rate, hand, one}, {layers.Open(env, ""), hand, rate, hand, one}} {
			r := get(t, c, layers.Chain(up, list...))
			equal(t, "the reason", wantError(t, r.err).Reason, layers.ReasonInFlight)
			equal(t, "the turns left", env.Budgets()[0].Level, 5)
		}
	})
}

// TestTurnOfASecondSend: so does the turn of a send that a layer of the user's makes
// after another, which has gone.
func TestTurnOfASecondSend(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		env := &layers.Env{Clock: c}
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Body("ok").Forever())
		again := around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err != nil {
				return nil, err
			}
			defer resp.Body.Close()
			return next.RoundTrip(req)
		})
		gone := false
		token := around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			if gone {
				return closing(req, io.ErrClosedPipe)
			}
			gone = true
			return next.RoundTrip(req)
		})
		rate := policy.Rate{PerSecond: 0.001, Burst: 5}
		r := get(t, c, layers.Chain(up, layers.Deadline(env, time.Minute), again, layers.RateBudget(env, layers.Budget{Rate: rate}), layers.Inner(env, token)))
		wantError(t, r.err)
		equal(t, "the turns left", env.Budgets()[0].Level, 4)
	})
}

// TestTurnThatWentStaysGone: a turn does not come back if a gate refuses what a layer
// of the user's sends after the send that the turn was for.
func TestTurnThatWentStaysGone(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		env := &layers.Env{Clock: c}
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Body("ok").Forever())
		one := layers.InFlight(env, policy.StateID{}, policy.InFlight{Max: 1})
		again := around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err != nil {
				return nil, err
			}
			drain(resp)
			unread, err := layers.Chain(up, one).RoundTrip(request(t, t.Context(), "GET", "http://api.example/", nil))
			if err != nil {
				return nil, err
			}
			defer unread.Body.Close()
			return next.RoundTrip(req)
		})
		retry, rate := layers.Retry(env, policy.Retry{MaxAttempts: 1}), layers.RateBudget(env, layers.Budget{Rate: policy.Rate{PerSecond: 0.001, Burst: 5}})
		for i, list := range [][]layers.Layer{{layers.Deadline(env, time.Minute), rate, again, one}, {retry, rate, again, one}} {
			r := get(t, c, layers.Chain(up, list...))
			equal(t, "the reason", wantError(t, r.err).Reason, layers.ReasonInFlight)
			equal(t, "the turns left", env.Budgets()[0].Level, float64(4-i))
		}
	})
}
