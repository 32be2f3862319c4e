package clocktest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
)

// Upstream is an http.RoundTripper that answers as its steps say, at exact times
// of its clock, and remembers what it was asked. It may be used concurrently.
//
// To the layers above it, it behaves as an *http.Transport does. It fires the
// httptrace hooks of a connection. It closes the request's body on every path.
// When the request's context ends, RoundTrip and the body's Read return the
// context's cause at once, but what has arrived by then is delivered first, also
// what arrives at that very instant. Like HTTP/1, RoundTrip cannot return while a
// Read of the request's body blocks.
//
// It works with any clock, in and outside of a bubble.
type Upstream struct {
	// HTTP2 makes answers say HTTP/2, a cancellation return the context's Err
	// instead of its cause, and RoundTrip return then even if the request's body
	// blocks. A 204 or 304 then has the body or trailer that its step sets, as in
	// net/http when the headers do not end the stream; else it has none. Set it
	// before the first request.
	HTTP2 bool

	clock clock.Clock

	mu       sync.Mutex
	steps    []Step
	requests []*Request
	surplus  []*Request         // those that found no step
	open     map[*body]*Request // response bodies not yet closed
}

// A Request is what an [Upstream] saw of one request.
type Request struct {
	At     time.Time // when RoundTrip was called
	Method string
	URL    *url.URL
	Header http.Header
	Body   []byte // as far as it was read

	// End is when the exchange ended: RoundTrip failed, or the response's body
	// ended, was closed or was cut off. It is zero while that is to come.
	End time.Time
	// Canceled says that the request's context had ended by then.
	Canceled bool
}

func newRequest(req *http.Request, at time.Time) *Request {
	return &Request{
		At:     at,
		Method: cmp.Or(req.Method, http.MethodGet),
		URL:    new(*req.URL),
		Header: req.Header.Clone(),
	}
}

// line returns the method and the URL, without userinfo and query.
func (r *Request) line() string {
	return fmt.Sprintf("%s %s://%s%s", r.Method, r.URL.Scheme, r.URL.Host, r.URL.EscapedPath())
}

// NewUpstream returns an upstream that takes one step a request, in the order in
// which requests arrive. A request for which no step is left fails, and so does
// then the test at its end, as it does if a response's body was not closed. Steps
// that are left over are no failure: how often it was asked, Requests says. A nil
// clock is the real one.
func NewUpstream(t testing.TB, c clock.Clock, steps ...Step) *Upstream {
	if c == nil {
		c = clock.New()
	}
	u := &Upstream{clock: c, steps: slices.Clone(steps), open: make(map[*body]*Request)}
	t.Cleanup(func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		for _, r := range u.surplus {
			t.Errorf("clocktest: no step was left for %s", r.line())
		}
		for _, r := range u.open {
			t.Errorf("clocktest: the response's body was not closed: %s", r.line())
		}
	})
	return u
}

// Requests returns what has been asked so far, in order of arrival. Requests that
// found no step are not among it, nor those whose context had ended beforehand.
func (u *Upstream) Requests() []Request {
	u.mu.Lock()
	defer u.mu.Unlock()
	var all []Request
	for _, r := range u.requests {
		c := *r
		c.Body = bytes.Clone(r.Body)
		all = append(all, c)
	}
	return all
}

// RoundTrip answers req as its step says.
func (u *Upstream) RoundTrip(req *http.Request) (*http.Response, error) {
	x, err := u.begin(req)
	if err != nil {
		closeBody(req)
		return nil, err
	}
	resp, err := x.run()
	if err != nil || resp.Body == http.NoBody {
		x.end()
	}
	return resp, err
}

// begin takes the step for req.
func (u *Upstream) begin(req *http.Request) (*exchange, error) {
	ctx := req.Context()
	if ctx.Err() != nil {
		return nil, u.canceled(ctx)
	}
	x := newExchange(u, req)
	u.mu.Lock()
	step, ok := u.next()
	if ok {
		u.requests = append(u.requests, x.seen)
	} else {
		u.surplus = append(u.surplus, x.seen)
	}
	u.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("clocktest: no step is left for %s", x.seen.line())
	}
	for step.choose != nil {
		step = step.choose(req)
	}
	x.step = step
	x.unwatch = context.AfterFunc(ctx, x.over)
	return x, nil
}

// next takes the next step. It is called with u.mu held.
func (u *Upstream) next() (Step, bool) {
	for len(u.steps) > 0 {
		s := &u.steps[0]
		if s.forever {
			return *s, true
		}
		if s.more >= 0 {
			s.more--
			return *s, true
		}
		u.steps = u.steps[1:]
	}
	return Step{}, false
}

// canceled returns what net/http does when ctx has ended.
func (u *Upstream) canceled(ctx context.Context) error {
	if u.HTTP2 {
		return ctx.Err()
	}
	return context.Cause(ctx)
}

// closeBody closes the request's body, if it has one.
func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}
