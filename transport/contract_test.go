package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
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

// closeCounter is a request body that is no known type.
type closeCounter struct {
	io.Reader
	closes atomic.Int32
}

func (b *closeCounter) Read(p []byte) (int, error) {
	if b.closes.Load() > 0 {
		return 0, errors.New("read after close")
	}
	if b.Reader == nil {
		return 0, io.EOF
	}
	return b.Reader.Read(p)
}

func (b *closeCounter) Close() error {
	b.closes.Add(1)
	return nil
}

// tracked makes a request whose every body, those of GetBody included, is
// counted.
type tracked struct {
	mu     sync.Mutex
	bodies []*closeCounter
}

func (b *tracked) open(text string) io.ReadCloser {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &closeCounter{Reader: strings.NewReader(text)}
	b.bodies = append(b.bodies, c)
	return c
}

// check reports whether each was closed once.
func (b *tracked) check(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, c := range b.bodies {
		equal(t, fmt.Sprintf("the number of closes of body %d", i), int(c.closes.Load()), 1)
	}
}

// like compares what a caller can see of a request.
func like(t *testing.T, got, want *http.Request) {
	t.Helper()
	a, b := *got, *want
	if (a.GetBody == nil) != (b.GetBody == nil) {
		t.Error("GetBody was changed")
	}
	if a.Context() != b.Context() {
		t.Error("the context was changed")
	}
	if a.Body != b.Body {
		t.Error("Body was changed")
	}
	a.GetBody, b.GetBody, a.Body, b.Body = nil, nil, nil, nil
	if !reflect.DeepEqual(&a, &b) {
		t.Errorf("the request was changed: %+v, was %+v", a, b)
	}
}

// TestTheCallersRequest: it is not changed, and its body is closed, once, on
// every way that a call can take.
func TestTheCallersRequest(t *testing.T) {
	for _, test := range []struct {
		name   string
		s      policy.Settings
		steps  []clocktest.Step
		change func(*transport.Config)
		ctx    func(t *testing.T, c *clocktest.Clock) context.Context
		twist  func(*http.Request)
		warm   bool // another call goes first
	}{
		{name: "success", steps: []clocktest.Step{clocktest.Reply(200).Body("fine")}},
		{name: "retried", s: policy.Settings{Retry: noWait}, steps: []clocktest.Step{clocktest.Reply(503), clocktest.Fail(clocktest.ErrReset), clocktest.Reply(200)}},
		{name: "retried unread", s: policy.Settings{Retry: noWait}, steps: []clocktest.Step{clocktest.Reply(503).IgnoreBody(), clocktest.FailDial(clocktest.ErrRefused), clocktest.Reply(200)}},
		{name: "exhausted", s: policy.Settings{Retry: noWait}, steps: []clocktest.Step{clocktest.Reply(503).Times(3)}},
		{name: "retry refused", s: policy.Settings{Deadline: time.Second}, steps: []clocktest.Step{clocktest.Reply(503).Header("Retry-After", "5")}},
		{name: "dial refused", s: policy.Settings{Retry: policy.Retry{MaxAttempts: 1}}, steps: []clocktest.Step{clocktest.FailDial(clocktest.ErrRefused)}},
		{name: "pool timeout", s: policy.Settings{Retry: policy.Retry{MaxAttempts: 1}}, steps: []clocktest.Step{clocktest.Reply(200).Pool(time.Hour)}},
		{name: "write timeout", s: policy.Settings{Retry: policy.Retry{MaxAttempts: 1}}, steps: []clocktest.Step{clocktest.NoReply().IgnoreBody()}},
		{name: "read timeout", s: policy.Settings{Retry: policy.Retry{MaxAttempts: 1}}, steps: []clocktest.Step{clocktest.NoReply()}},
		{name: "deadline", s: policy.Settings{Deadline: 5 * time.Second}, steps: []clocktest.Step{clocktest.NoReply()}},
		{name: "early answer", steps: []clocktest.Step{clocktest.Reply(200).IgnoreBody().Body("early")}},
		{name: "no layer", s: nothing(), steps: []clocktest.Step{clocktest.Reply(200).Body("fine")}},
		{name: "canceled before", ctx: func(t *testing.T, _ *clocktest.Clock) context.Context {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return ctx
		}},
		{name: "canceled in a send", steps: []clocktest.Step{clocktest.NoReply()}, ctx: func(t *testing.T, c *clocktest.Clock) context.Context {
			ctx, cancel := context.WithCancel(t.Context())
			c.AfterFunc(time.Second, cancel)
			return ctx
		}},
		{name: "canceled in a backoff", s: policy.Settings{Retry: policy.Retry{BaseDelay: 5 * time.Second}}, steps: []clocktest.Step{clocktest.Reply(503)},
			ctx: func(t *testing.T, c *clocktest.Clock) context.Context {
				ctx, cancel := context.WithCancel(t.Context())
				c.AfterFunc(time.Second, cancel)
				return ctx
			}},
		{name: "a job's deadline is over", ctx: func(t *testing.T, c *clocktest.Clock) context.Context {
			return layers.WithDeadline(t.Context(), c.Now())
		}},
		{name: "a wrong override", ctx: func(t *testing.T, _ *clocktest.Clock) context.Context {
			return policy.WithOverride(t.Context(), policy.Settings{Deadline: time.Second, Timeouts: policy.Timeouts{Read: time.Minute}})
		}},
		{name: "open circuit", s: policy.Settings{Breaker: policy.Breaker{Failures: 1}, Retry: policy.Retry{MaxAttempts: 1}},
			steps: []clocktest.Step{clocktest.Fail(clocktest.ErrReset)}, warm: true},
		{name: "no turn", s: policy.Settings{Rate: policy.Rate{PerSecond: 0.01, MaxWait: policy.Off}}, steps: []clocktest.Step{clocktest.Reply(200)}, warm: true},
		{name: "no turn before the deadline", s: policy.Settings{Rate: policy.Rate{PerSecond: 0.01}}, steps: []clocktest.Step{clocktest.Reply(200)}, warm: true},
		{name: "an inner layer fails", s: policy.Settings{Retry: noWait}, change: inner(around(func(_ http.RoundTripper, req *http.Request) (*http.Response, error) {
			return closing(req, errors.New("no key"))
		}))},
		{name: "an outer layer fails", change: outer(around(func(_ http.RoundTripper, req *http.Request) (*http.Response, error) {
			return closing(req, errors.New("no consent"))
		}))},
		{name: "no URL", twist: func(r *http.Request) { r.URL = nil }},
	} {
		for body, attach := range attached {
			for layout, change := range layouts {
				if test.change != nil {
					change = test.change
				}
				t.Run(test.name+", "+body+", "+layout, func(t *testing.T) {
					clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
						up := clocktest.NewUpstream(t, c, test.steps...)
						if body == "too long to record" && strings.HasPrefix(test.name, "retried") {
							up = clocktest.NewUpstream(t, c, test.steps[0])
						}
						tr := newTransport(t, c, up, settings(test.s), change)
						if test.warm {
							get(t, c, tr)
						}
						ctx := t.Context()
						if test.ctx != nil {
							ctx = test.ctx(t, c)
						}
						req := request(t, ctx, "PUT", "http://user:pw@api.example/v1?q=1#frag", nil)
						req.Header.Set("X-Kept", "yes")
						req.Host = "other.example"
						bodies := new(tracked)
						attach(bodies, req)
						if test.twist != nil {
							test.twist(req)
						}
						before := req.Clone(ctx)
						before.Body = req.Body
						r := do(c, tr, req)
						if (r.resp == nil) == (r.err == nil) && test.name != "deadline" {
							t.Errorf("got %v and %v", r.resp, r.err)
						}
						c.Add(0)
						bodies.check(t)
						like(t, req, before)
					})
				})
			}
		}
	}
}

// attached are the kinds of body that a request has.
var attached = map[string]func(b *tracked, r *http.Request){
	"none": func(*tracked, *http.Request) {},
	"stream": func(b *tracked, r *http.Request) {
		r.Body, r.ContentLength = b.open("hello"), -1
	},
	"too long to record": func(b *tracked, r *http.Request) {
		r.Body, r.ContentLength = b.open(strings.Repeat("x", 70<<10)), 70<<10
	},
	"GetBody": func(b *tracked, r *http.Request) {
		r.GetBody = func() (io.ReadCloser, error) { return b.open("hello"), nil }
		r.Body, _ = r.GetBody()
		r.ContentLength = 5
	},
}

// layouts are the places of layers of the user's.
var layouts = map[string]func(*transport.Config){
	"none":  func(*transport.Config) {},
	"inner": inner(around(passOn)),
	"outer": outer(around(passOn)),
	"on a copy": outer(around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		return next.RoundTrip(req.Clone(req.Context()))
	})),
}

// passOn is a layer that does nothing.
func passOn(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	return next.RoundTrip(req)
}

// TestWhatTheBaseSees: the deadline, the cause of an abort, and a context that
// lives until the body is closed.
func TestWhatTheBaseSees(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		var last context.Context
		closedAlive := false
		answers := []func() (*http.Response, error){
			func() (*http.Response, error) { return nil, clocktest.ErrReset },
			func() (*http.Response, error) {
				return &http.Response{StatusCode: 200, Body: struct {
					io.Reader
					io.Closer
				}{zeros{}, closeFunc(func() error { closedAlive = last.Err() == nil; return nil })}}, nil
			},
		}
		base := layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			last = req.Context()
			at, ok := last.Deadline()
			equal(t, "whether there is a deadline", ok, true)
			equal(t, "the deadline", at, c.Now().Add(10*time.Second))
			if len(answers) == 0 {
				<-last.Done()
				return nil, last.Err()
			}
			answer := answers[0]
			answers = answers[1:]
			return answer()
		})
		tr := newTransport(t, c, base, settings(policy.Settings{Deadline: 10 * time.Second, Retry: noWait}))
		resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		equal(t, "whether the context outlived the body", closedAlive, true)
		if last.Err() == nil {
			t.Error("the context outlives the call")
		}
		wantTimeout(t, get(t, c, tr).err, layers.PhaseDeadline)
		if cause := context.Cause(last); !errors.Is(cause, context.DeadlineExceeded) {
			t.Errorf("the cause is %v", cause)
		}
	})
}

// TestEvents: one start and one end a call; a send, its phases, a response and a
// done an attempt; all in order, and none after the end.
func TestEvents(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).Connect(time.Second).Body("busy"), clocktest.Reply(200).Chunks(clocktest.Drip("ab", 1, time.Second)...))
		var got []string
		tr := newTransport(t, c, up, policy.Policy{}, observer(func(ctx context.Context, e layers.Event) {
			if _, ok := layers.CallFrom(ctx); !ok {
				t.Errorf("%s has no call", e.Kind)
			}
			equal(t, "the time of the event", e.At, c.Now())
			got = append(got, strings.TrimSpace(fmt.Sprintf("%v %d %s %s", c.Elapsed(), e.Attempt, e.Kind, e.Phase)))
		}))
		wantStatus(t, get(t, c, tr), 200)
		equal(t, "the events", strings.Join(got, "\n"), strings.Join([]string{
			"0s 0 start", "0s 1 send", "0s 1 phase pool", "0s 1 phase connect", "1s 1 phase write", "1s 1 phase read", "1s 1 response", "1s 1 done",
			"1s 1 wait backoff",
			"1.25s 2 send", "1.25s 2 phase pool", "1.25s 2 phase write", "1.25s 2 phase read", "1.25s 2 response", "3.25s 2 done",
			"3.25s 2 end",
		}, "\n"))
	})
}
