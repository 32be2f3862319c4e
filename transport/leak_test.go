package transport_test

import (
	"context"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

// parent is a long-lived context that counts what waits for its end.
type parent struct {
	context.Context
	done     chan struct{}
	children atomic.Int32
	ever     atomic.Int32
}

func newParent() *parent { return &parent{Context: context.Background(), done: make(chan struct{})} }

func (p *parent) Done() <-chan struct{} { return p.done }

// AfterFunc is how package context joins a child to a parent that is not one of
// its own.
func (p *parent) AfterFunc(func()) (stop func() bool) {
	p.children.Add(1)
	p.ever.Add(1)
	return sync.OnceValue(func() bool {
		p.children.Add(-1)
		return true
	})
}

// TestNothingIsLeft: neither a child of a long-lived context, nor a goroutine,
// however a call ends. (The bubble's end fails the test if a goroutine is left.)
func TestNothingIsLeft(t *testing.T) {
	stream := func() io.Reader { return plain{strings.NewReader("hello")} }
	ways := []struct {
		name string
		step clocktest.Step
		body func() io.Reader
		end  func(resp *http.Response, cancel func())
	}{
		{name: "read to its end", step: clocktest.Reply(200).Body("fine"), body: stream},
		{name: "no body", step: clocktest.Reply(204)},
		{name: "exhausted", step: clocktest.Reply(503).Body("busy")},
		{name: "reset", step: clocktest.Fail(clocktest.ErrReset), body: stream},
		{name: "dial refused", step: clocktest.FailDial(clocktest.ErrRefused)},
		{name: "pool timeout", step: clocktest.Reply(200).Pool(time.Hour)},
		{name: "write timeout", step: clocktest.NoReply().IgnoreBody(), body: stream},
		{name: "read timeout", step: clocktest.NoReply()},
		{name: "closed early", step: clocktest.Reply(200).Silent(), end: func(resp *http.Response, _ func()) { resp.Body.Close() }},
		{name: "body timeout", step: clocktest.Reply(200).Silent()},
		{name: "never closed", step: clocktest.Reply(200).Silent(), end: func(*http.Response, func()) {}},
		{name: "canceled", step: clocktest.Reply(200).Silent(), end: func(_ *http.Response, cancel func()) { cancel() }},
	}
	for _, test := range []struct {
		calls int
		s     policy.Settings
	}{
		{10_000, policy.Settings{Retry: policy.Retry{BaseDelay: time.Millisecond, Budget: policy.Off}}},
		{1000, everything()}, {1000, nothing()},
	} {
		calls, s := test.calls, test.s
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			if s.Hedge.Delay > 0 { // bounds that leave no way for ever
				s.Deadline, s.Hedge.Delay, s.Timeouts.Attempt = time.Minute, time.Second, 0
				s.InFlight.Max, s.Breaker.Failures, s.Rate = calls, calls, policy.Rate{PerSecond: 1e6, Burst: calls}
			}
			p, want := newParent(), 0
			for i, way := range ways {
				up := clocktest.NewUpstream(ignoreOpen{t}, c, way.step.Forever())
				tr := newTransport(t, c, up, settings(s))
				if s.Deadline == policy.Off && (strings.Contains(way.name, "timeout") || way.name == "never closed" || i == 4) {
					continue // nothing would end these
				}
				want += calls / len(ways)
				var under sync.WaitGroup
				for range calls / len(ways) {
					under.Go(func() {
						ctx, cancel := context.Context(p), func() {}
						if way.name == "canceled" {
							ctx, cancel = context.WithCancel(p)
						}
						defer cancel()
						var body io.Reader
						if way.body != nil {
							body = way.body()
						}
						resp, err := tr.RoundTrip(request(t, ctx, "PUT", url, body))
						switch {
						case err != nil:
						case way.end != nil:
							way.end(resp, cancel)
						default:
							io.Copy(io.Discard, resp.Body)
							resp.Body.Close()
						}
					})
				}
				under.Wait()
				c.Add(2 * time.Minute) // the deadline of those that nobody closed
				equal(t, "the number of children left by \""+way.name+"\"", p.children.Load(), 0)
			}
			if ever := int(p.ever.Load()); ever < want {
				t.Errorf("%d calls had %d children", want, ever)
			}
		})
	}
}

// ignoreOpen lets an upstream end with bodies open.
type ignoreOpen struct{ testing.TB }

func (ignoreOpen) Cleanup(func()) {}

// TestNoTimerIsLeft: the clock has no timer of a call that has ended.
func TestNoTimerIsLeft(t *testing.T) {
	mock := clock.NewMock()
	answers := []func(*http.Request) (*http.Response, error){
		func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("fine"))}, nil
		},
		func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: 204}, nil },
		func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 503, Body: io.NopCloser(strings.NewReader("busy"))}, nil
		},
		func(*http.Request) (*http.Response, error) { return nil, clocktest.ErrReset },
	}
	var turn atomic.Int32
	s := everything()
	s.Retry = noWait
	s.Breaker.Failures, s.Rate = 1e6, policy.Rate{PerSecond: 1e6, Burst: 1e6}
	tr := newTransport(t, mock, layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		if req.Body != nil {
			io.Copy(io.Discard, req.Body)
			req.Body.Close()
		}
		return answers[int(turn.Add(1))%len(answers)](req)
	}), settings(s))
	for i := range 10_000 {
		var body io.Reader
		if i%2 == 0 {
			body = plain{strings.NewReader("hello")}
		}
		resp, err := tr.RoundTrip(request(t, t.Context(), "PUT", url, body))
		if err != nil {
			continue
		}
		if i%3 > 0 {
			io.Copy(io.Discard, resp.Body)
		}
		resp.Body.Close()
	}
	equal(t, "the number of timers", reflect.ValueOf(mock).Elem().FieldByName("timers").Len(), 0)
}
