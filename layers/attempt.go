package layers

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/stream"
)

// phase is where a send is. It follows the transport's hooks, which come late,
// twice or out of order.
type phase uint8

const (
	phaseNone    phase = iota // before the send, or after its headers
	phasePool                 // GetConn
	phaseConnect              // a dial has begun
	phaseWrite                // GotConn
	phaseRead                 // the request is written, or the base has no hooks
	phaseBody                 // in a Read of the response body
)

func (p phase) name() Phase {
	return [...]Phase{"", PhasePool, PhaseConnect, PhaseWrite, PhaseRead, PhaseRead}[p]
}

// limit is the timeout of a phase.
func (p phase) limit(t *policy.Timeouts) time.Duration {
	switch p {
	case phasePool:
		return t.Pool
	case phaseConnect:
		return t.Connect
	case phaseWrite:
		return t.Write
	case phaseRead, phaseBody:
		return t.Read
	}
	return 0
}

// outcome is how an attempt ended.
type outcome struct {
	// status is the response's, 0 if none came.
	status int
	// err is why the attempt or its body failed. It is nil if the body was
	// read to its end, and if it was closed before.
	err error
	// abandoned reports that the caller closed the body early or gave up the
	// call.
	abandoned bool
	// foreign reports that a layer of the user's failed, or the caller's body,
	// and not the send.
	foreign bool
}

// gone says whether a send has passed every gate.
type gone uint8

const (
	goneNot     gone = iota
	goneAssumed      // it is with a layer of the user's, or the base: there may be a gate further in
	goneSurely
)

// attempt is one send of a call. It is also the context that the send runs
// under, and holds the request that is sent. The mutex of its call guards it.
//
// It is made for every send, and kept for as long as the base keeps contexts:
// what few sends need stands in rare. Its size is that of a class of the
// allocator, but for a word or two: TestAllocations of package transport tells
// when another class of 128 bytes more is needed.
type attempt struct {
	// One of the standard library's, so that contexts derived from it cost no
	// goroutine.
	context.Context
	cancel context.CancelCauseFunc // nil: no layer may end the send but by the body
	call   *Call
	base   context.Context // what Context, or a successor's, is derived from
	next   *attempt        // in Call.live
	rare   *rare           // nil: all of it is zero

	n       int32        // from 1
	status  int32        // of the response
	passes  atomic.Int32 // times that it left our layers
	answers int32        // responses that came straight from the base
	depth   int32        // layers of others, or the base, that it is inside of
	rank    rank         // the innermost of our layers that the send has left
	phase   phase
	sent    Sent
	sought  uint8 // connections, up to 2, by a base that fires hooks

	borrows  bool // the context of an attempt before it
	exposed  bool // a layer of the user's holds the context: use a sibling's
	counted  bool // as a send, or is part of one that does
	went     gone // past every gate, since its latest turn
	gotConn  bool // once: what was sent on it cannot be known
	lastCall bool // phaseDue has passed just now
	untold   bool // that it is in the pool phase; see enter
	secure   bool // the server has TLS
	streamed bool // the response says it is a stream, and is not guarded
	guarded  bool // it is one, and is
	open     bool // the stream is open
	handed   bool // the response has gone up
	final    bool // the caller has its response
	settled  bool
	reading  bool
	hedge    bool // sent beside another
	dropped  bool // another won
	pays     bool // into Call.extra
	extra    bool // it is taken out of that
	asked    bool // a layer of the user's wants one more send
	inside   bool // another send, which a layer of the user's holds
	behind   bool // a layer of the user's was left, which is held up by the caller's body
	told     bool // by such a one, what becomes of it
	received bool // perhaps, is a send that was made inside this one

	limits   *policy.Timeouts // nil: no phase is timed
	since    instant          // when the phase began
	phaseDue instant
	least    time.Duration // a further attempt is not worth less time

	traced  atomic.Pointer[hooks] // what the context answers for httptrace; nil: nothing
	conn    net.Conn              // that the send got
	guard   *guard                // of the stream; nil: the response is none
	expired *Error
	retry   *retry  // that judges the outcome; nil: none
	askable *replay // of the retry layer that can be asked
	replay  replay  // of the retry layer that began it

	turns   turns // of the rate budgets
	circuit Circuit
	pass    Pass // of the circuit
	slot    slot // of the in-flight limit

	response body
	req      http.Request
}

// rare is what few attempts need.
type rare struct {
	endDue   instant       // of the whole attempt; 0: none
	endLimit time.Duration // what it enforces
	draining bool          // it is how long an answer is read that another attempt takes the place of
	result   *outcome      // how the body ended while the send was still inside
	dial     *dialing      // the latest
	upload   *upload       // the guarded request body
	race     *race         // that it is the first of
	won      *attempt      // whose outcome that passes off as this one's
	held     held          // the response, while another attempt is made
	again    *guard        // of the latest answer, if a layer of the user's asked again
	lender   *attempt      // whose slot it shares
	lost     bool          // perhaps it was received, and a layer of the user's may send again
	anew     bool          // net/http began it again by itself: an answer is to the last only

	// Of the first attempt, for its call.
	reason string
	own    context.Context // of the call alone; nil: nobody has asked for it
	end    context.CancelCauseFunc
	job    bool
	jobEnd instant // the part of Call.end that comes from WithDeadline, if job

	// If there is an observer.
	readSince instant       // when the latest Read of the body began
	longest   time.Duration // how long the longest took
}

var nothingRare rare

// seldom returns what there is of the rare, to read. The mutex must be held.
func (a *attempt) seldom() *rare {
	if a.rare == nil {
		return &nothingRare
	}
	return a.rare
}

// mark returns the rare, to write. The mutex must be held.
func (a *attempt) mark() *rare {
	if a.rare == nil {
		a.rare = new(rare)
	}
	return a.rare
}

func (a *attempt) init(c *Call, base context.Context) {
	a.call, a.base, a.n = c, base, int32(c.Attempts()+1)
	a.phaseDue = never
	a.next, c.live = c.live, a
}

// Value finds the attempt, and whatever the caller's context holds.
func (a *attempt) Value(key any) any {
	if found := a.known(key); found != nil {
		return found
	}
	if v := a.traceValue(key); v != nil {
		return v
	}
	return a.Context.Value(key)
}

// known returns the attempt itself, for the keys that it is found by.
func (a *attempt) known(key any) any {
	if key == (callKey{}) || stream.IsGuardKey(key) {
		return a
	}
	return nil
}

func (a *attempt) Deadline() (time.Time, bool) { return a.call.Deadline() }

// carry returns a copy of req that the attempt sends, under its context.
func (a *attempt) carry(req *http.Request) *http.Request {
	a.req = *req.WithContext(a) // the copy that this makes stays off the heap
	return &a.req
}

// sibling returns a further attempt, under a context derived from base. counted
// says that it is part of a send that counts already.
func (a *attempt) sibling(base context.Context, counted bool) *attempt {
	b := &attempt{counted: counted, inside: a.inside} // the call may end it as soon as it is one of its attempts
	if counted {
		b.sent = MaybeSent
	}
	b.Context, b.cancel = context.WithCancelCause(base)
	c := a.call
	c.mu.Lock()
	b.init(c, base)
	if counted {
		b.n = a.n
	}
	c.mu.Unlock()
	return b
}

// successor returns the attempt that follows a, which has ended. It goes on
// under the context of a unless that has ended too, or may yet be ended by what
// ended a.
func (a *attempt) successor() *attempt {
	c, ended := a.call, a.Context.Err() != nil // which may be the user's
	c.mu.Lock()
	if !a.settled || a.expired != nil || a.dropped || a.exposed || a.guarded || ended {
		c.mu.Unlock()
		return a.sibling(a.base, false)
	}
	b := &attempt{Context: a.Context, cancel: a.cancel, borrows: true, inside: a.inside}
	b.init(c, a.base)
	c.mu.Unlock()
	return b
}

// enterPhase starts the clock of a phase. The mutex must be held.
func (a *attempt) enterPhase(p phase, now instant) {
	a.phase, a.since, a.phaseDue, a.lastCall = p, now, never, false
	if a.limits == nil {
		return
	}
	if a.guard != nil && (p == phaseRead || p == phaseBody) {
		return // its own clock runs
	}
	if d := p.limit(a.limits); d > 0 {
		a.phaseDue = after(now, d)
		a.call.arm(a.phaseDue, now)
	}
}

// boundBy bounds what is left of the attempt, or the draining of its answer.
func (a *attempt) boundBy(d time.Duration, draining bool) {
	c := a.call
	now := c.env.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.settled {
		return
	}
	if due, r := after(now, d), a.mark(); r.endDue == 0 || due < r.endDue {
		r.endDue, r.endLimit, r.draining = due, d, draining
		c.arm(due, now)
	}
}

// unbound takes that bound back. The mutex must be held.
func (a *attempt) unbound() {
	if a.rare != nil {
		a.rare.endDue = 0
	}
}

// during names what the attempt waits for. The mutex must be held.
func (a *attempt) during() Phase {
	if a.guard != nil && !a.open && (a.phase == phaseRead || a.phase == phaseBody) {
		return PhaseFirst
	}
	return a.phase.name()
}

// leavePhase stops the clock. The mutex must be held.
func (a *attempt) leavePhase() { a.phase, a.phaseDue = phaseNone, never }

// overdue returns the timeout that has expired. The mutex must be held.
func (a *attempt) overdue(now instant) *Error {
	if r := a.seldom(); r.endDue > 0 && now >= r.endDue {
		e := a.timeout(PhaseAttempt, r.endLimit, now-r.endDue+r.endLimit)
		if r.draining {
			e.Layer, e.Phase, e.Err, e.timeout = rankRetry.String(), PhaseRead, ErrSuperseded, false
		}
		return e
	}
	if now < a.phaseDue {
		return nil
	}
	limit := a.phase.limit(a.limits)
	if a.conn != nil && (a.phase == phaseRead || a.phase == phaseBody) {
		// Bytes may trickle in unseen: inside one chunk, one block of gzip,
		// or the header.
		if last, known := lastRead(a.conn, a.call.env); known && last > a.since {
			a.since, a.phaseDue, a.lastCall = last, after(last, limit), false
		}
		if now < a.phaseDue {
			return nil
		}
	}
	if !a.lastCall && (a.phase == phaseRead || a.phase == phaseBody) {
		// What arrives at this very instant is to be read first.
		a.lastCall = true
		a.call.env.soon(a.call.wake)
		return nil
	}
	return a.timeout(a.phase.name(), limit, now-a.since)
}

func (a *attempt) timeout(p Phase, limit, elapsed time.Duration) *Error {
	return &Error{Layer: rankTimeouts.String(), Phase: p, Limit: limit, Elapsed: elapsed, Sent: a.sent, timeout: true}
}

// abort ends the send with its expired error. The error is taken from the
// attempt, since HTTP/2 reports a cause as a plain cancellation.
func (a *attempt) abort() {
	a.call.mu.Lock()
	upload := a.seldom().upload
	idle := a.depth == 0 && !a.reading && (a.counted || a.final)
	o := outcome{status: int(a.status), err: a.expired, abandoned: a.expired.Phase == PhaseDeadline}
	a.call.mu.Unlock()
	a.abandonDial()
	a.stop(o.err)
	for ; upload != nil; upload = upload.prev {
		upload.abort()
	}
	if idle { // nobody waited on the server
		a.settle(o)
	}
}

// stop ends what the send does.
func (a *attempt) stop(cause error) {
	if a.cancel != nil {
		a.cancel(cause)
		return
	}
	a.call.mu.Lock()
	answered := a.response.a != nil
	a.call.mu.Unlock()
	if answered {
		_ = a.response.Close()
	}
}

// settle ends the attempt, once: the innermost layer that must learn of it is
// told first, on the goroutine that ended the attempt and under no lock.
func (a *attempt) settle(o outcome) {
	a.call.mu.Lock()
	a.close(o)
}

// close settles the attempt. The mutex must be held, and is free afterwards.
func (a *attempt) close(o outcome) {
	c := a.call
	if a.settled {
		c.mu.Unlock()
		return
	}
	a.settled = true
	a.leavePhase()
	a.unbound()
	a.outlived()
	for p := &c.live; *p != nil; p = &(*p).next {
		if *p == a {
			*p = a.next
			break
		}
	}
	final, longest, told := a.final, a.seldom().longest, a.told
	o.foreign = o.foreign || !a.counted // the answer of a layer of the user's

	if e, ours := o.err.(*Error); ours && e.superseded() { //nolint:errorlint // Only the outermost is of this attempt.
		o.err, o.abandoned = nil, true // nobody but us wanted no more of it
	}
	c.mu.Unlock()
	a.slot.ended(a, o)
	a.pass.ended(a, o)
	if a != &c.first && !a.borrows {
		a.cancel(nil)
	}
	if final {
		defer c.finish(o) // also if the observer panics
	}
	if a.counted && !told {
		a.emit(Event{Kind: KindDone, Status: o.status, Err: o.err, Longest: longest, Abandoned: o.abandoned})
	}
}

// givenUp returns the error of who gave up the attempt: the caller's own, or
// that of a context which a layer of the user's put around it.
func (a *attempt) givenUp() error {
	c := a.call
	if own := c.callerEnded(); own != nil {
		return own
	}
	other := callerEnded(a.base)
	if other == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.expired != nil || c.expired != nil || c.done { // by us
		return nil
	}
	return other
}

// failure returns what became of the send when err came back from beyond r: the
// error of who gave it up, else what expired, else err. proof says that an err
// which happened before a connection was there tells of this very send.
func (a *attempt) failure(err error, r rank, proof bool) error {
	if own := a.givenUp(); own != nil {
		return own
	}
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	if a.expired != nil {
		return a.expired
	}
	if a.dropped && errors.Is(err, context.Canceled) { // HTTP/2 says no more
		err = ErrOutrun
	}
	if e, ok := err.(*Error); ok && !e.told { //nolint:errorlint // Only the outermost can be this call's.
		if e.Sent == Unsent && (a.seldom().lost || a.sent == Answered) { // it tells of a further send
			again := *e
			again.Sent = a.sent
			return &again
		}
		return e
	}
	// Another call's error, such as a token mint's, is a cause like any other.
	e := &Error{Layer: rankBase.String(), Phase: a.phase.name(), Err: err, Sent: a.sent, Elapsed: a.call.env.now() - a.call.start}
	if r == rankInner && (!a.counted || a.sent == Answered) { // the send did not fail
		e.Layer = r.String()
	}
	switch {
	case !proof || e.Sent != MaybeSent:
	case !a.seldom().lost && (!a.gotConn && provenUnsent(err) || !a.seldom().anew && unprocessed(err)):
		e.Sent, a.gotConn = Unsent, false
	default:
		a.mark().lost = true
	}
	for u := a.seldom().upload; u != nil; u = u.prev {
		if u.err != nil && errors.Is(err, u.err) {
			e.local, e.Reason = true, ReasonNotRetryable
		}
	}
	if unfit(err) {
		e.local, e.Reason = true, ReasonNotRetryable
	}
	var other *Error
	if errors.As(err, &other) && other.local {
		e.local, e.Reason, e.RetryAfter = true, other.Reason, other.RetryAfter
	}
	return e
}
