package layers

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// body is the one wrapper around a response body: it times each Read, and
// tells the attempt how the body ended. The innermost of our layers puts it
// on. A gate above a layer of the user's that replaced the body puts on a
// further one.
type body struct {
	io.ReadCloser
	a      *attempt
	err    error
	guard  *guard // of a stream
	status int16
	outer  bool  // around a body of the user's, whose Reads are timed further in
	whole  bool  // its end cannot be mistaken
	answer int32 // of the attempt, which may get another if a layer of the user's asks again
	shut   atomic.Bool
	over   atomic.Bool // its end was told
}

// arrival is how a response came back.
type arrival struct {
	answer    int32  // of the attempt, from 1; 0: from a layer of the user's alone
	innermost bool   // straight from the base
	guard     *guard // of a stream
}

// wrapBody puts the attempt's wrapper around the body of resp.
func (a *attempt) wrapBody(from arrival, req *http.Request, resp *http.Response) {
	if b, ok := resp.Body.(interface{ of() *attempt }); ok && b.of() == a {
		return
	}
	if resp.Body == nil {
		resp.Body = http.NoBody
	}
	bare := resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols:
		a.detach(from, resp)
	case resp.Body == http.NoBody && !from.guard.missing(resp), req.Method == http.MethodHead, bare && resp.ContentLength == 0:
		a.bodyEnded(from.answer, outcome{status: resp.StatusCode})
	default:
		if bare { // over HTTP/2, trailers may come, but no stream
			from.guard = nil
		}
		b := &a.response // is the first answer's: there may be several at once
		if !from.innermost || from.answer > 1 {
			b = &body{outer: !from.innermost}
		}
		upstream := resp.Body
		if resp.ProtoMajor == 2 && from.innermost {
			upstream = a.call.env.mux(req.Context(), upstream)
		}
		a.call.mu.Lock() // the attempt may be stopped just now
		b.ReadCloser, b.a, b.status, b.answer = upstream, a, int16(resp.StatusCode), from.answer
		b.whole = resp.ContentLength >= 0 || resp.Uncompressed
		a.call.mu.Unlock()
		resp.Body = b
		if from.innermost {
			a.guardBody(from.guard, b, resp)
		}
	}
}

func (b *body) of() *attempt { return b.a }

// Read implements io.Reader. Bytes that arrived are delivered before any
// error, and an error stays.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	a := b.a
	if expired := b.beginRead(); expired != nil {
		b.end(expired)
		return 0, expired
	}
	n, err := b.ReadCloser.Read(p)
	expired := b.endRead()
	if n > 0 && !b.outer {
		a.pass.content(a)
	}
	switch {
	case err == io.EOF && b.complete(expired):
		b.end(nil)
		b.err = err
	case err == nil && expired == nil:
	default:
		switch err {
		case nil:
			err = expired
		case io.EOF:
			err = http.ErrBodyReadAfterClose
		}
		err = a.bodyError(err)
		b.end(err)
	}
	if b.err != nil {
		err = b.err
	}
	return n, err
}

// complete reports whether an end of the body is the end of the response. A
// server that sees the caller, or a limit of ours, give up or close may end a
// body without a length as if it were whole, and be heard before the connection
// is closed.
func (b *body) complete(expired error) bool {
	return b.whole || expired == nil && !b.shut.Load() && b.a.givenUp() == nil
}

// end settles the attempt with how the body ended; nil is its end.
func (b *body) end(err error) {
	b.err = err
	if err == nil {
		b.ended(outcome{status: int(b.status)})
		return
	}
	own := b.a.givenUp()
	b.a.call.mu.Lock()
	given := own != nil || b.a.dropped || b.a.expired != nil && b.a.expired.Owner == OwnerJob || b.shut.Load()
	b.a.call.mu.Unlock()
	b.ended(outcome{status: int(b.status), err: err, abandoned: given})
}

// ended settles the attempt.
func (b *body) ended(o outcome) {
	if b.guard != nil {
		o = b.guard.verdict(o)
	}
	b.a.bodyEnded(b.answer, o)
	b.over.Store(true)
}

// Close implements io.Closer. It is safe during a Read, and to repeat.
func (b *body) Close() error {
	if b.shut.Swap(true) {
		return nil
	}
	if b.guard != nil {
		b.guard.leave(b.a)
	} else if b.over.Load() {
		return b.ReadCloser.Close()
	}
	// The body first: a pooled connection outlives a closed body, but not a
	// cancelled request. HTTP/2 waits for the stream's end meanwhile.
	_ = b.beginRead()
	err := b.ReadCloser.Close()
	_ = b.endRead()
	b.ended(outcome{status: int(b.status), abandoned: true})
	return err
}

// timed reports that the Reads of b are the attempt's to time. The mutex must
// be held.
func (b *body) timed() bool { return !b.outer && b.answer == b.a.answers }

// expired returns what stops a Read. The mutex must be held.
func (b *body) expired() error {
	if b.a.expired == nil {
		return nil
	}
	return b.stopped()
}

// stopped does that once a limit of the attempt has expired. A body that a layer
// of the user's made is read on if that was a phase's: the layer may have made up
// for it.
func (b *body) stopped() error {
	e := b.a.expired
	if b.outer && e.Phase != PhaseDeadline {
		return nil
	}
	return b.a.call.told(e)
}

// beginRead starts the clock of one Read, unless the attempt has expired.
func (b *body) beginRead() error {
	a, c := b.a, b.a.call
	var now instant
	c.mu.Lock()
	if b.timed() && (c.heard || a.limits != nil && a.limits.Read > 0) { // else nobody asks for it
		now = c.env.now()
	}
	expired := b.begin(now)
	c.mu.Unlock()
	return expired
}

// begin does that at an instant. The mutex must be held.
func (b *body) begin(now instant) error {
	if expired := b.expired(); expired != nil {
		return expired
	}
	if a := b.a; b.timed() && !a.settled {
		a.reading = true
		if a.call.heard {
			a.mark().readSince = now
		}
		if a.limits != nil && a.limits.Read > 0 {
			a.enterPhase(phaseBody, now)
		}
	}
	return nil
}

// endRead stops it, and returns what expired meanwhile.
func (b *body) endRead() error {
	c := b.a.call
	var now instant
	c.mu.Lock()
	if c.heard && b.timed() {
		now = c.env.now()
	}
	expired := b.endAt(now)
	c.mu.Unlock()
	return expired
}

// endAt does that at an instant. The mutex must be held.
func (b *body) endAt(now instant) error {
	if a := b.a; b.timed() {
		if a.reading && a.call.heard {
			a.rare.longest = max(a.rare.longest, now-a.rare.readSince)
		}
		a.reading = false
		a.leavePhase()
	}
	return b.expired()
}

// bodyError returns what a failed Read means.
func (a *attempt) bodyError(err error) error {
	if own := a.givenUp(); own != nil {
		return own
	}
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	switch {
	case a.expired != nil:
		return a.call.told(a.expired)
	case a.dropped && errors.Is(err, context.Canceled): // HTTP/2 says no more
		return ErrOutrun
	}
	return safe(err)
}

// bodyEnded settles the attempt, once its response has passed every layer of
// the user's. The end of an answer that another has followed says nothing.
func (a *attempt) bodyEnded(answer int32, o outcome) {
	a.call.mu.Lock()
	switch {
	case answer != a.answers:
	case a.depth == 0:
		a.close(o)
		return
	case a.seldom().result == nil:
		result := o // o itself stays off the heap
		a.mark().result = &result
	}
	a.call.mu.Unlock()
}

// upgraded is the body of a 101 response: a connection that belongs to the
// caller, with no clock on it. Its attempt ends when it is closed.
type upgraded struct {
	io.ReadWriteCloser
	a *attempt
}

func (u *upgraded) of() *attempt { return u.a }

func (u *upgraded) Close() error {
	err := u.ReadWriteCloser.Close()
	u.a.settle(outcome{status: http.StatusSwitchingProtocols})
	return err
}

// upgradedHalf can also close its writing side, as those of net/http can.
type upgradedHalf struct{ *upgraded }

func (u upgradedHalf) CloseWrite() error {
	return u.ReadWriteCloser.(closeWriter).CloseWrite()
}

type closeWriter interface{ CloseWrite() error }

// detach takes every clock off an upgraded connection.
func (a *attempt) detach(from arrival, resp *http.Response) {
	rwc, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		a.bodyEnded(from.answer, outcome{status: resp.StatusCode})
		return
	}
	c := a.call
	c.mu.Lock()
	c.end = never
	a.unbound()
	a.leavePhase()
	c.mu.Unlock()
	a.pass.content(a) // there may be none that we see
	u := &upgraded{ReadWriteCloser: rwc, a: a}
	if _, ok := rwc.(closeWriter); ok {
		resp.Body = upgradedHalf{u}
	} else {
		resp.Body = u
	}
}
