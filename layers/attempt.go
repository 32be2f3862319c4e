package layers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/policy"
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

// ender is who must learn how an attempt ended.
type ender interface {
	// ended is called once, under no lock, on the goroutine that ended the
	// attempt.
	ended(a *attempt, o outcome)
}

// attempt is one send of a call. The mutex of its call guards it.
type attempt struct {
	call   *Call
	ctx    context.Context // what the send runs under
	cancel context.CancelCauseFunc
	base   context.Context // what ctx, or a successor's, is derived from
	n      int             // from 1

	rank    rank // the innermost of our layers that the send has left
	depth   int  // layers of others, or the base, that it is inside of
	passes  int  // times that it left our layers
	answers int  // responses that came straight from the base
	exposed bool // a layer of the user's holds ctx: use a sibling's
	counted bool // as a send

	phase    phase
	sent     Sent
	gotConn  bool             // once: what was sent on it cannot be known
	limits   *policy.Timeouts // nil: no phase is timed
	since    instant          // when the phase began
	phaseDue instant
	lastCall bool          // phaseDue has passed just now
	endDue   instant       // of the whole attempt
	endLimit time.Duration // what endDue enforces
	hooked   bool          // the base fires hooks
	secure   bool          // TLS follows a dial
	conn     net.Conn      // that the send got

	traced    atomic.Pointer[hooks] // what ctx answers for httptrace; nil: nothing
	dialTrace context.Context       // the same for a dial

	dial     *dialing      // the latest
	upload   *upload       // the guarded request body
	guard    *guard        // of the stream; nil: the response is none
	least    time.Duration // a further attempt is not worth less time
	streamed bool          // the response says it is a stream, and is not guarded
	open     bool          // the stream is open
	handed   bool          // the response has gone up

	expired   *Error
	settled   bool
	reading   bool
	readSince instant       // when the latest Read of the body began
	longest   time.Duration // how long the longest took, if there is an observer
	status    int
	result    *outcome // how the body ended while the send was still inside

	replay  replay  // of the retry layer that began it
	askable *replay // of the retry layer that can be asked
	asked   string  // why a layer of the user's wants one more send

	ends  [4]ender
	nEnds int

	won     *attempt     // whose outcome a hedge passes off as this one's
	hedge   bool         // sent beside another
	dropped bool         // another won
	extra   *extraBudget // that a first send pays into
	ratio   float64      // and how much

	turns   turns // of the rate budgets
	circuit Circuit
	pass    Pass // of the circuit
	slot    slot // of the in-flight limit

	next *attempt // in Call.live
	hit  *attempt // in one run of Call.wake

	response body
}

func (a *attempt) init(c *Call, base context.Context) {
	a.call, a.base, a.n = c, base, c.Attempts()+1
	a.phaseDue, a.endDue = never, never
	a.next, c.live = c.live, a
}

// child is an attempt with a context of its own.
type child struct {
	context.Context
	attempt
}

func (c *child) Value(key any) any {
	if key == (callKey{}) {
		return &c.attempt
	}
	if v := c.traceValue(c.Context, key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

func (c *child) Deadline() (time.Time, bool) { return c.call.Deadline() }

// sibling returns a further attempt, under a context derived from base.
func (a *attempt) sibling(base context.Context) *attempt {
	c := new(child)
	var cancel context.CancelCauseFunc
	c.Context, cancel = context.WithCancelCause(base)
	call := a.call
	call.mu.Lock()
	c.init(call, base)
	call.mu.Unlock()
	c.ctx, c.attempt.cancel = c, cancel
	return &c.attempt
}

// onEnd puts e on the end list. Those put on later, further in, are told
// first.
func (a *attempt) onEnd(e ender) {
	a.call.mu.Lock()
	a.ends[a.nEnds] = e
	a.nEnds++
	a.call.mu.Unlock()
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
		a.call.arm(a.phaseDue)
	}
}

// boundBy bounds what is left of the attempt.
func (a *attempt) boundBy(d time.Duration) {
	c := a.call
	now := c.env.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if due := after(now, d); due < a.endDue && !a.settled {
		a.endDue, a.endLimit = due, d
		c.arm(due)
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
	if now >= a.endDue {
		return a.timeout(PhaseAttempt, a.endLimit, now-a.endDue+a.endLimit)
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
	upload := a.upload
	idle := a.depth == 0 && !a.reading && (a.counted || a.call.delivered == a)
	o := outcome{status: a.status, err: a.expired}
	// Nobody waited on the server, or the deadline was not the policy's.
	o.abandoned = a.expired.Phase == PhaseDeadline && (idle || a.expired.Owner == OwnerJob)
	a.call.mu.Unlock()
	a.abandonDial()
	a.cancel(o.err)
	for ; upload != nil; upload = upload.prev {
		upload.abort()
	}
	if idle {
		a.settle(o)
	}
}

// settle ends the attempt and tells the end list, once.
func (a *attempt) settle(o outcome) {
	c := a.call
	c.mu.Lock()
	if a.settled {
		c.mu.Unlock()
		return
	}
	a.settled = true
	a.leavePhase()
	a.endDue = never
	for p := &c.live; *p != nil; p = &(*p).next {
		if *p == a {
			*p = a.next
			break
		}
	}
	final := c.delivered == a
	n := a.nEnds
	longest := a.longest
	c.mu.Unlock()
	for n--; n >= 0; n-- {
		a.ends[n].ended(a, o)
	}
	if a != &c.first {
		a.cancel(nil)
	}
	if a.counted {
		a.emit(Event{Kind: KindDone, Status: o.status, Err: o.err, Longest: longest, Abandoned: o.abandoned})
	}
	if final {
		c.finish()
	}
}

// givenUp returns the error of who gave up the attempt: the caller's own, or
// that of a context which a layer of the user's put around it.
func (a *attempt) givenUp() error {
	c := a.call
	if own := c.callerEnded(); own != nil {
		return own
	}
	c.mu.Lock()
	ended := a.expired != nil || c.expired != nil || c.done // by us
	c.mu.Unlock()
	if ended {
		return nil
	}
	return callerEnded(a.base)
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
	if e, ok := err.(*Error); ok && !e.told { //nolint:errorlint // Only the outermost can be this call's.
		return e
	}
	// Another call's error, such as a token mint's, is a cause like any other.
	e := &Error{Layer: rankBase.String(), Phase: a.phase.name(), Err: err, Sent: a.sent, Elapsed: a.call.env.now() - a.call.start}
	if r == rankInner && (!a.counted || a.sent == Answered) { // the send did not fail
		e.Layer = r.String()
	}
	if proof && !a.gotConn && e.Sent == MaybeSent && provenUnsent(err) {
		e.Sent = Unsent
	}
	for u := a.upload; u != nil; u = u.prev {
		if u.err != nil && errors.Is(err, u.err) {
			e.local, e.Reason = true, ReasonNotRetryable
		}
	}
	var other *Error
	if errors.As(err, &other) && other.local {
		e.local, e.Reason, e.RetryAfter = true, other.Reason, other.RetryAfter
	}
	return e
}

// provenUnsent reports that err happened before a connection was there.
func provenUnsent(err error) bool {
	var op *net.OpError
	var unverified *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var other *Error
	return errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect") ||
		errors.As(err, &unverified) || errors.As(err, &authority) ||
		errors.As(err, &other) && other.told && other.Sent == Unsent
}

// safeToRepeat reports that sending req twice does no more than sending it
// once: RFC 9110 section 9.2.2, and the header that net/http goes by too.
func safeToRepeat(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	_, key := req.Header["Idempotency-Key"]
	_, xkey := req.Header["X-Idempotency-Key"]
	return key || xkey
}
