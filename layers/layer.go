package layers

import (
	"errors"
	"net/http"
	"slices"
)

// Layer wraps a RoundTripper in another. Layers are composed with [Chain].
type Layer = func(next http.RoundTripper) http.RoundTripper

// RoundTripperFunc lets a function be a RoundTripper.
type RoundTripperFunc func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f RoundTripperFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// Chain puts layers around base. The first one is the outermost: it sees a
// request first and its response last. A nil layer is passed over.
func Chain(base http.RoundTripper, outermostFirst ...Layer) http.RoundTripper {
	rt := base
	for _, layer := range slices.Backward(outermostFirst) {
		if layer != nil {
			rt = layer(rt)
		}
	}
	return rt
}

// rank is the place of one of our layers in the order that the package comment
// argues, outermost first.
type rank uint8

const (
	rankOpen rank = iota
	rankDeadline
	rankRetry
	rankHedge
	rankBreaker
	rankRate
	rankInFlight
	rankInner
	rankOnward
	rankStream
	rankTimeouts
	rankBase
)

var rankNames = [...]string{"open", "deadline", "retry", "hedge", "breaker", "rate", "in-flight", "inner", "deadline header", "stream", "timeouts", "base"}

func (r rank) String() string { return rankNames[r] }

// sender is what our layers are to each other: the attempt is handed down
// beside the request, so that no layer looks it up in the context.
type sender interface {
	send(a *attempt, req *http.Request) (*http.Response, error)
}

// stage is one of our layers seen from outside: an http.RoundTripper that
// finds the attempt in the request's context, or opens a call of its own.
type stage struct {
	env   *Env
	rank  rank
	route string // only of an opening stage
	sender
	next http.RoundTripper
	ends bool // a layer from here on may end a send, or is the user's
}

// layer makes a Layer of what build returns for the next sender.
func (e *Env) layer(r rank, route string, build func(env *Env, next sender) sender) Layer {
	e = e.ready()
	return func(next http.RoundTripper) http.RoundTripper {
		return &stage{env: e, rank: r, route: route, sender: build(e, e.sender(r, next)), next: next, ends: e.ends(r, next)}
	}
}

// ends reports that a layer of rank r around next may end a send, or one further
// in may, or one of the user's.
func (e *Env) ends(r rank, next http.RoundTripper) bool {
	s, ours := next.(*stage)
	switch r {
	case rankDeadline, rankHedge, rankInner, rankStream, rankTimeouts:
		return true
	case rankOpen:
		return !ours || s.ends
	}
	return ours && s.ends
}

// sender returns how a layer of rank r hands an attempt to next: directly if
// next is one of ours and further in, else across an edge.
func (e *Env) sender(r rank, next http.RoundTripper) sender {
	s, ours := next.(*stage)
	switch {
	case !ours || s.env != e:
		return &edge{rank: r, next: next}
	case s.rank <= r:
		return misplaced{outer: r, inner: s.rank}
	}
	return s.sender
}

var errNoURL = errors.New("the request has no URL")

// RoundTrip implements http.RoundTripper. Behind it, every request has a URL.
func (s *stage) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL == nil {
		e := s.env.Refuse(s.rank.String(), req, errNoURL)
		e.Route = s.route
		return nil, e
	}
	if s.rank > rankOpen {
		if a := attemptFrom(req.Context()); a != nil && a.call.env == s.env {
			switch b, was, joined := a.join(s.rank, req); {
			case b != nil:
				return s.goOn(a, b, was, joined)
			case joined == nil:
				s.env.CloseBody(req)
				return nil, errUploadAborted
			}
		}
	}
	return s.open(req)
}

// goOn sends an attempt that came to this stage from a layer of the user's, which was
// handed from: the attempt itself, or the one around it.
func (s *stage) goOn(from, a *attempt, was rank, req *http.Request) (*http.Response, error) {
	passes := a.passes.Load()
	resp, err := func() (*http.Response, error) {
		if a != from {
			defer from.goesWith(a) // before a Close of the body may block
		}
		return s.send(a, req)
	}()
	a.handOver(was, err == nil)
	if err != nil && a.passes.Load() == passes { // nobody further in took the body
		s.env.CloseBody(req)
		if a != from {
			a.settle(outcome{err: err, abandoned: true})
		}
	}
	return resp, err
}

// goesWith notes that a has gone if b has, which was made inside it.
func (a *attempt) goesWith(b *attempt) {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	if a.went == goneAssumed {
		a.went = b.went
	}
}

// join returns the attempt, and the request, that a layer of rank r goes on
// with when it finds a in its context: nil if a has already been there, so that
// the request must be another one on the same context, such as a token mint, or
// one that is sent beside it; and no request either if the attempt has its
// outcome, and has left a layer of the user's behind that goes on only now.
// Whoever comes first is in until handOver is told where the attempt was.
func (a *attempt) join(r rank, req *http.Request) (_ *attempt, was rank, _ *http.Request) {
	c := a.call
	c.mu.Lock()
	inside := a.depth > 0 || a.passes.Load() == 0 // else it is back already
	joins := inside && a.rank < r && !a.settled && !c.done
	held := a.exposed || a.depth > 0 && r <= rankRetry || a.cancel == nil
	counted := a.counted && !a.told // a second one is a send of its own
	behind := a.behind
	joins = joins && !behind
	if was = a.rank; joins && !held {
		a.rank = r
	}
	a.told = a.told || joins && held && counted
	if joins && !held && a.went == goneAssumed {
		a.went = goneNot
	}
	c.mu.Unlock()
	switch {
	case behind:
		return nil, was, nil
	case !joins:
		return nil, was, req
	}
	if held { // by a layer of the user's, whose context an abort must not end, or cannot
		a, was = a.sibling(req.Context(), counted), rankOpen
		a.inside = true
		req = a.carry(req)
	}
	return a, was, req
}

// around returns the attempt on whose context the call of a was made, such as
// the one that needs the token; nil: there is none, or it has ended.
func (a *attempt) around() *attempt {
	o := attemptFrom(a.base)
	if o == nil {
		return nil
	}
	o.call.mu.Lock()
	defer o.call.mu.Unlock()
	if o.call.done {
		return nil
	}
	return o
}

// open begins a call at this stage and ends it with the outcome.
func (s *stage) open(req *http.Request) (*http.Response, error) {
	c, req, err := s.begin(req)
	if err != nil {
		return nil, err
	}
	ended := false
	defer func() {
		if !ended { // a panic below
			c.finish(outcome{err: errPanic, abandoned: true})
		}
	}()
	c.emit(Event{Kind: KindStart})
	resp, err := s.send(&c.first, req)
	resp, err = c.deliver(req, resp, err)
	ended = true
	return resp, err
}

// CloseIdleConnections passes the call on, as http.Client expects.
func (s *stage) CloseIdleConnections() { closeIdle(s.next) }

func closeIdle(rt http.RoundTripper) {
	if c, ok := rt.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// misplaced answers for a layer that stands inside one that belongs inside it.
type misplaced struct{ outer, inner rank }

func (m misplaced) send(a *attempt, req *http.Request) (*http.Response, error) {
	return nil, &Error{
		Layer: m.outer.String(), Route: a.call.Route(),
		Err: orderError{m}, local: true,
	}
}

type orderError struct{ misplaced }

func (e orderError) Error() string {
	return "layer " + e.inner.String() + " stands inside layer " + e.outer.String() +
		": put " + e.inner.String() + " outside it, once, and see the order in the documentation of package layers"
}

// Open returns the outermost layer of a stack: it opens the call of a route.
// Every other layer opens one too when it finds none, so it is needed only to
// name the route, or to let layers of one's own see the call.
func Open(env *Env, route string) Layer {
	return env.layer(rankOpen, route, func(_ *Env, next sender) sender { return next })
}

// Inner returns one layer of layers of the user's that stand around each send:
// auth, signing. What they fail at by themselves is told from a failure of the
// send: it is proof that nothing was sent, and no fault of the server's. list
// begins with the outermost.
//
// A layer that sends something beside, to a mirror say, does so on a context that
// does not come from the request's, or from another client: of several sends at
// once on one context, the first is the call's, whoever waits for it.
func Inner(env *Env, list ...Layer) Layer {
	env = env.ready()
	return func(next http.RoundTripper) http.RoundTripper {
		if s, ours := next.(*stage); !ours || s.env != env {
			next = &stage{env: env, rank: rankBase, sender: &edge{rank: rankBase, next: next}, next: next}
		}
		// Idle connections are closed past the user's layers, which need not pass that on.
		return &stage{env: env, rank: rankInner, sender: &edge{rank: rankInner, next: Chain(next, list...)}, next: next, ends: true}
	}
}
