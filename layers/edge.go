package layers

import (
	"errors"
	"net/http"
)

// edge is where a send leaves our layers, for a layer of the user's or for the
// base.
type edge struct {
	rank rank
	next http.RoundTripper
}

var errNothing = errors.New("the RoundTripper returned neither a response nor an error")

func (e *edge) send(a *attempt, req *http.Request) (*http.Response, error) {
	if e.rank == rankOpen {
		// A layer around the whole call. It holds the call's context, so the
		// attempts below it get contexts of their own.
		a.exposed = true
		a.call.lend(req)
		resp, err := e.next.RoundTrip(req)
		return only(resp, err)
	}
	returned := false
	defer func() {
		if !returned { // a panic: whatever the attempt holds is given back
			a.panicked(req)
			a.settle(outcome{err: errPanic, abandoned: true})
		}
	}()
	nth, err := a.leave(e.rank)
	if err != nil {
		returned = true
		return nil, err
	}
	resp, err := a.roundTrip(e.next, req)
	resp, err = e.back(a, nth, req, resp, err)
	returned = true
	return resp, err
}

// only returns a response or an error, and never both or neither.
func only(resp *http.Response, err error) (*http.Response, error) {
	switch {
	case err == nil && resp == nil:
		return nil, errNothing
	case err != nil && resp != nil && resp.Body != nil:
		_ = resp.Body.Close()
		return nil, err
	case err != nil:
		return nil, err
	}
	return resp, nil
}

// unclosed closes the request bodies that the base never saw: a layer of the
// user's failed, and may have forgotten them.
func (a *attempt) unclosed() {
	a.call.mu.Lock()
	u, counted := a.seldom().upload, a.counted
	a.call.mu.Unlock()
	for ; u != nil && !counted; u = u.prev {
		a.call.env.close(u)
	}
}

// panicked closes the request bodies after a panic, whoever was to close them:
// the one that the base was handed, and those that guard it.
func (a *attempt) panicked(req *http.Request) {
	a.call.mu.Lock()
	u := a.seldom().upload
	a.call.mu.Unlock()
	if u == nil {
		a.call.env.CloseBody(req)
	}
	for ; u != nil; u = u.prev {
		a.call.env.close(u)
	}
}

var errPanic = errors.New("panic in a RoundTripper")

// leave notes that the send goes beyond our layers of rank r, for the nth time. The first
// time, the attempt counts as a send, and the base is in charge of its body.
func (a *attempt) leave(r rank) (nth int32, _ error) {
	c := a.call
	c.mu.Lock()
	if a.expired == nil && c.expired != nil {
		a.expired = c.expired
	}
	if own := callerEnded(c.first.base); own != nil && a.expired == nil {
		defer c.mu.Unlock()
		return 0, own
	}
	if a.expired != nil {
		defer c.mu.Unlock()
		return 0, a.expired
	}
	if a.settled { // and was left behind in a gate
		defer c.mu.Unlock()
		return 0, errUploadAborted
	}
	if a.extra && c.extra != nil && !c.extra.withdraw() {
		defer c.mu.Unlock()
		return 0, &Error{Layer: rankRetry.String(), Reason: ReasonBudget, Err: errExtra, local: true}
	}
	a.extra = false
	if a.went == goneNot && r != rankInner {
		a.went = goneAssumed
	}
	first := a.went > goneNot && !a.counted
	if first {
		a.counted, a.sent = true, MaybeSent
		a.n = c.account().sends.Add(1)
	}
	if !c.lent {
		c.unread = false
	}
	nth = a.passes.Add(1)
	a.rank = r
	a.depth++
	race := a.seldom().race
	if first && a.pays {
		c.extra.deposit(c.ratio)
	}
	c.mu.Unlock()
	if nth == 1 {
		a.pass.Sent()
	}
	if race != nil && r != rankInner {
		race.start()
	}
	if first {
		a.emit(Event{Kind: KindSend})
	}
	return nth, nil
}

var errExtra = errors.New("the retry budget of the origin is empty")

// arrive notes that the send is back, and reports whether it is outside every
// layer of the user's. The mutex must be held.
func (a *attempt) arrive() (outermost bool) {
	if a.went == goneAssumed {
		a.went = goneSurely
	}
	a.depth--
	a.leavePhase()
	return a.depth == 0
}

// back takes what came back from beyond our layers.
func (e *edge) back(a *attempt, nth int32, req *http.Request, resp *http.Response, err error) (*http.Response, error) {
	if resp, err = only(resp, err); err != nil {
		a.unclosed()
		err = a.failure(err, e.rank, a.passes.Load() == nth)
		a.abandonDial()
		a.outside(err)
		o := a.failed(e.rank, err)
		a.call.mu.Lock()
		if a.arrive() {
			a.close(o)
		} else {
			a.call.mu.Unlock()
		}
		return nil, err
	}
	if resp.Request == nil {
		resp.Request = req
	}
	a.outside(nil)
	from := a.answered(nth, resp.StatusCode)
	if from.innermost {
		a.turns.listen(a.call.env, resp) // before what the send holds is free for others
	}
	a.wrapBody(from, req, resp)
	var result *outcome
	b, ours := resp.Body.(*body)
	replaced := ours && b.a == a && b.outer
	a.call.mu.Lock()
	if a.arrive() {
		a.call.last = a
		result = a.seldom().result
		if replaced { // by what counts now, though another answer came beside it
			b.answer = a.answers
		}
	}
	a.call.mu.Unlock()
	if result != nil && !replaced {
		a.settle(*result)
	}
	return resp, nil
}

// outside notes that the server may have received a send, with those that it is
// inside of: an error of theirs then proves nothing, since the layer of the user's
// that made it may make several.
func (a *attempt) outside(err error) {
	c := a.call
	e, ours := err.(*Error) //nolint:errorlint // Anything else is the caller's.
	if !a.inside || ours && e.Sent == Unsent {
		return
	}
	c.mu.Lock()
	counted := a.counted
	c.first.received = c.first.received || counted // which the call goes by
	c.mu.Unlock()
	for o := attemptFrom(a.base); o != nil && o.call == c; o = attemptFrom(o.base) {
		c.mu.Lock()
		o.received = o.received || counted
		c.mu.Unlock()
	}
}

// failed is the outcome of a send that came back with err.
func (a *attempt) failed(r rank, err error) outcome {
	e, ours := err.(*Error) //nolint:errorlint // Anything else is the caller's.
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	inner := r == rankInner && (!a.counted || ours && e.Layer == r.String())
	return outcome{
		err: err, abandoned: !ours || a.dropped || a.expired != nil && a.expired.Owner == OwnerJob,
		foreign: inner || ours && e.local,
	}
}

// answered notes the headers of a response, and returns how it came. If that is
// straight from the base, the guard is off.
func (a *attempt) answered(nth int32, status int) arrival {
	a.call.mu.Lock()
	first := a.sent != Answered && a.counted && !a.told
	a.sent, a.status = Answered, int32(status)
	a.leavePhase()
	var from arrival
	if from.innermost = a.passes.Load() == nth; from.innermost {
		from.guard, a.guard = a.guard, nil
		a.streamed = false
		if a.rare != nil {
			a.rare.result = nil
		}
		a.answers++
	}
	from.answer = a.answers
	a.call.mu.Unlock()
	if first {
		a.emit(Event{Kind: KindResponse, Status: status})
	}
	return from
}
