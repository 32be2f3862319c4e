package layers

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/policy"
)

// Call is one call through a stack: its deadline, its attempts, and why there
// was no further one. It is also the context of the call. A Call is safe for
// concurrent use, and can still be asked after the call ended.
//
// A redirect hop is a Call of its own that goes on with the start, the
// deadline and the count of the one before.
type Call struct {
	env      *Env
	opener   *stage
	start    instant
	ctxEnd   instant // the caller's context's deadline, which fires by itself
	hop      *hop    // nil: it follows no redirect
	accounts account

	mu       sync.Mutex
	end      instant // the deadline: policy's or job's, enforced by the alarm
	armed    instant // when the alarm fires; never if it does not
	alarm    *alarm
	expired  *Error       // set once the deadline has passed
	live     *attempt     // those not settled
	last     *attempt     // whose response goes up
	extra    *extraBudget // that further sends are taken out of; nil: of none
	ratio    float64      // that a first send pays into it
	safe     bool         // the request may be sent twice
	asked    bool         // what RetryOnce asked for was sent
	unread   bool         // nobody took charge of closing the request's body yet
	lent     bool         // the body stays the call's to close
	done     bool
	followed bool // its redirect was, to an answer
	heard    bool // there is an observer, which was not idle when the call began; does not change

	first attempt
}

// hop is a redirect from one call to the next.
type hop struct {
	from    *Call
	entered instant // later than the start of the next, which is that of from
	acted   bool    // a server did what must not be done twice, before it redirected
}

// account is what all hops of a call share.
type account struct {
	sends   atomic.Int32 // attempts that passed every gate
	resends atomic.Int32 // those beyond the first of each hop
}

type (
	callKey     struct{}
	deadlineKey struct{}
)

// Done is closed when the call has ended, its deadline has passed, or its caller
// has given it up. A send that ends for itself, to be followed by another, does
// not close it.
func (c *Call) Done() <-chan struct{} { return c.context().Done() }

// Err is not nil once Done is closed.
func (c *Call) Err() error { return c.context().Err() }

// context returns the context of the call alone, which few ask for: a first send
// has one of its own.
func (c *Call) context() context.Context {
	c.mu.Lock()
	own := c.first.seldom().own
	c.mu.Unlock()
	if own != nil {
		return own
	}
	fresh, end := context.WithCancelCause(c.first.base) // asks a context of the user's
	c.mu.Lock()
	r := c.first.mark()
	if own = r.own; own != nil {
		c.mu.Unlock()
		end(nil)
		return own
	}
	r.own, r.end = fresh, end
	ended := c.done || c.expired != nil
	c.mu.Unlock()
	if ended {
		end(nil)
	}
	return fresh
}

// contextEnd returns what ends it, to be called under no lock; nil: nobody has asked
// for it. The mutex must be held.
func (c *Call) contextEnd() context.CancelCauseFunc { return c.first.seldom().end }

// Value finds the call, and whatever the caller's context holds.
func (c *Call) Value(key any) any {
	if found := c.first.known(key); found != nil {
		return found
	}
	return c.context().Value(key) // whose end and cause are the call's
}

// Deadline returns the earlier of the policy's deadline, a job's and the
// caller's context's.
func (c *Call) Deadline() (time.Time, bool) {
	end := c.deadline()
	if end == never {
		return time.Time{}, false
	}
	return c.env.time(end), true
}

// Route returns the name of the call's route.
func (c *Call) Route() string { return c.opener.route }

// Attempts counts the sends so far, over all redirect hops.
func (c *Call) Attempts() int { return int(c.account().sends.Load()) }

// Start returns when the call, or the first hop of its redirects, began.
func (c *Call) Start() time.Time { return c.env.time(c.start) }

func (c *Call) account() *account { return &c.root().accounts }

// root returns the first hop of the call's redirects.
func (c *Call) root() *Call {
	for c.hop != nil {
		c = c.hop.from
	}
	return c
}

// Reason says why there was no further attempt. Empty: none was asked for, or
// the call goes on.
func (c *Call) Reason() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first.seldom().reason
}

// setReason notes why there was no further attempt. The mutex must be held.
func (c *Call) setReason(reason string) {
	if reason != c.first.seldom().reason {
		c.first.mark().reason = reason
	}
}

// CallFrom returns the call that ctx belongs to. It also finds the call of a
// response, in resp.Request.Context(). That context ends with the body, as with
// http.Client.Timeout, and for a response without one with the caller's.
func CallFrom(ctx context.Context) (*Call, bool) {
	if a := attemptFrom(ctx); a != nil {
		return a.call, true
	}
	return nil, false
}

func attemptFrom(ctx context.Context) *attempt {
	a, _ := ctx.Value(callKey{}).(*attempt)
	return a
}

// begin opens a call for req and returns the copy of it that the stack works
// on. It fails, with req's body closed, if the caller has already given up.
func (s *stage) begin(req *http.Request) (*Call, *http.Request, error) {
	e := s.env
	parent := req.Context()
	if err := callerEnded(parent); err != nil {
		e.CloseBody(req)
		return nil, nil, err
	}
	c := &Call{
		env: e, opener: s, start: e.now(), heard: e.heard(), safe: policy.Repeatable(req), unread: true,
		ctxEnd: never, end: never, armed: never,
	}
	a := &c.first
	a.Context = parent
	if at, ok := parent.Deadline(); ok {
		c.ctxEnd = e.instant(at)
	}
	if at, ok := parent.Value(deadlineKey{}).(time.Time); ok {
		c.end = max(0, e.instant(at)) // what is before the Env is long past
		r := a.mark()
		r.job, r.jobEnd = true, c.end
	}
	if prev := e.callBefore(req); prev != nil {
		prev.mu.Lock()
		c.start, c.hop = prev.start, &hop{prev, c.start, prev.actedBy(req.Response)}
		c.end = min(c.end, prev.end)
		prev.mu.Unlock()
	}
	if s.ends || c.end != never || c.heard { // who may go by the context
		a.Context, a.cancel = context.WithCancelCause(parent)
	}
	a.init(c, parent)
	if now := c.entered(); c.end != never {
		if c.end <= now {
			c.expired = c.overdue(now) // the alarm would come too late
		}
		c.arm(c.end, now)
	}
	return c, a.carry(req), nil
}

// acted reports that a server has done something for a hop before this one that must
// not be done twice.
func (c *Call) acted() bool { return c.hop != nil && c.hop.acted }

// actedBy reports the same of the hop that resp redirects to. The mutex must be held.
func (c *Call) actedBy(resp *http.Response) bool {
	return c.acted() || !c.safe && !keepsMethod(resp)
}

// Refuse closes the body of a request that a layer of that name cannot send, and
// returns the error of its call. It is never sent again.
func (e *Env) Refuse(layer string, req *http.Request, err error) *Error {
	e.CloseBody(req)
	refused := &Error{Layer: layer, Retryable: true, Reason: ReasonNotRetryable, Err: err, local: true, told: true}
	if prev := e.callBefore(req); prev != nil {
		prev.mu.Lock()
		refused.Attempts, refused.Retryable = prev.Attempts(), !prev.actedBy(req.Response)
		prev.mu.Unlock()
	}
	return refused
}

// callBefore returns the call whose redirect req follows. A request that another
// has answered before is no hop, but a later call made of a copy.
func (e *Env) callBefore(req *http.Request) *Call {
	prev, _ := hopBefore(req)
	if prev == nil {
		return nil
	}
	a := attemptFrom(prev.Context())
	if a == nil || a.call.env != e {
		return nil
	}
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	if a.call.followed {
		return nil
	}
	return a.call
}

// callerEnded returns the caller's own error if it gave up the call.
func (c *Call) callerEnded() error {
	if err := callerEnded(c.first.base); err != nil {
		return err
	}
	select {
	case <-c.aborted():
		if c.env.now() >= c.ctxEnd { // http.Client.Timeout ends both at once
			return context.DeadlineExceeded
		}
		return errRequestCanceled
	default:
		return nil
	}
}

// aborted is closed when the caller gives up by Request.Cancel.
func (c *Call) aborted() <-chan struct{} {
	return c.first.req.Cancel //nolint:staticcheck // Deprecated, but a RoundTripper has to honour it.
}

// wait waits for d, for a signal, or until the caller gives up ctx or the
// request.
func (c *Call) wait(ctx context.Context, d time.Duration, signal <-chan struct{}) {
	if d <= 0 {
		return
	}
	over := make(chan struct{})
	if d < never/2 {
		t := c.env.Clock.AfterFunc(d, func() { close(over) })
		defer t.Stop()
	}
	select {
	case <-over:
	case <-signal:
	case <-ctx.Done():
	case <-c.aborted():
	}
}

// deliver hands the outcome to the caller. The call ends at once, or with the
// response's body.
func (c *Call) deliver(req *http.Request, resp *http.Response, err error) (*http.Response, error) {
	if err != nil {
		err = c.failure(err)
		c.finish(outcome{err: err, abandoned: c.callerEnded() != nil})
		return nil, err
	}
	// The call is found by the request that the response is said to answer, whoever
	// said so.
	if resp.Request == nil || resp.Request != req && !c.owns(resp.Request.Context()) {
		resp.Request = req
	}
	if c.hop != nil {
		c.hop.from.mu.Lock()
		c.hop.from.followed = true
		c.hop.from.mu.Unlock()
	}
	var a *attempt
	if b, ok := resp.Body.(interface{ of() *attempt }); ok && b.of().call == c {
		a = b.of()
	} else if c.first.exposed { // a body of a layer of the user's own
		a = &c.first
		a.wrapBody(arrival{}, req, resp)
	}
	c.mu.Lock()
	if a == nil {
		a = c.last
	}
	if a != nil {
		a.final, a.handed = true, true
		a.lift()
	}
	ended := a == nil || a.settled
	c.mu.Unlock()
	if ended {
		c.finish(outcome{status: resp.StatusCode})
		resp.Request = resp.Request.WithContext(afterwards{c.first.base, attemptFrom(resp.Request.Context())})
	}
	return resp, nil
}

// owns reports that ctx belongs to one of the call's attempts.
func (c *Call) owns(ctx context.Context) bool {
	a := attemptFrom(ctx)
	return a != nil && a.call == c
}

// afterwards is the context of a request whose call ended before the response
// went up, since that has no body. It is the caller's, and still finds the call.
type afterwards struct {
	context.Context
	a *attempt
}

// Value finds the attempt, and whatever the caller's context holds.
func (c afterwards) Value(key any) any {
	if found := c.a.known(key); found != nil {
		return found
	}
	return c.Context.Value(key)
}

// failure completes what the caller is told: its own error if it gave up,
// else an *Error.
func (c *Call) failure(err error) error {
	if own := c.callerEnded(); own != nil {
		return own
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ours := err.(*Error) //nolint:errorlint // Only the outermost is ours to complete.
	switch {
	case ours && !e.told:
	case ours && c.last != nil && c.last.expired != nil: // a layer of the user's read the body
		e = c.last.expired
	case errors.As(err, &e) && !e.told: // a layer of the user's says more about it
		more := *e
		more.Err = err
		e = &more
	default: // a layer of the user's failed by itself
		e = &Error{Layer: "outer", Elapsed: c.env.now() - c.start, Err: err}
		if c.Attempts() > 0 {
			e.Sent = MaybeSent
		}
	}
	return c.told(e)
}

// told is e as the caller sees it. The mutex must be held.
func (c *Call) told(e *Error) *Error {
	t := *e
	t.told = true
	t.Route, t.Attempts = c.Route(), c.Attempts()
	if t.Reason == "" {
		t.Reason = c.first.seldom().reason
	}
	if t.Reason == ReasonDeadline && t.Owner == "" {
		t.Deadline, t.Owner = c.due()
	}
	t.Retryable = (c.safe || t.Sent == Unsent && !c.first.received) && !c.acted()
	return &t
}

// finish ends the call, as o: nothing of it is left in the clock or its parent.
func (c *Call) finish(o outcome) {
	c.mu.Lock()
	if c.done {
		c.mu.Unlock()
		return
	}
	c.done = true
	if e, ours := o.err.(*Error); ours && e.Reason != "" { //nolint:errorlint // Only the outermost is of this call.
		c.setReason(e.Reason)
	}
	end, alarm, unread := c.contextEnd(), c.alarm, c.unread
	c.alarm = nil
	var dropped []*attempt // whose answers a layer of the user's left unread
	for a := c.live; a != nil; a = a.next {
		if a.counted && a.depth == 0 && !a.reading {
			dropped = append(dropped, a)
		}
	}
	c.mu.Unlock()
	if end != nil {
		end(nil)
	}
	if alarm != nil {
		c.env.release(alarm)
	}
	if unread {
		defer c.env.CloseBody(&c.first.req) // which may panic
	}
	if cancel := c.first.cancel; cancel != nil {
		cancel(nil)
	}
	for _, a := range dropped {
		c.mu.Lock()
		a.close(outcome{status: int(a.status), abandoned: true})
	}
	c.emit(Event{Kind: KindEnd, Attempt: c.Attempts(), Status: o.status, Err: o.err, Abandoned: o.abandoned})
}

// lend hands the caller's body to layers of the user's around the call. What
// becomes of it there, it is closed once, at the end of the call at the latest.
func (c *Call) lend(req *http.Request) {
	if _, memory := inMemory(req.Body); memory || req.Body == nil || req.Body == http.NoBody {
		c.mu.Lock()
		c.unread = false
		c.mu.Unlock()
		return
	}
	req.Body = &onceClosed{ReadCloser: req.Body} // req is the call's own copy
	c.mu.Lock()
	c.unread, c.lent = true, true
	c.mu.Unlock()
}

// onceClosed is a body that is closed once, however often it is asked to.
type onceClosed struct {
	io.ReadCloser
	closed atomic.Bool
}

func (b *onceClosed) Close() error {
	if b.closed.Swap(true) {
		return nil // it may still go on, and nobody is to wait for it
	}
	return b.ReadCloser.Close()
}
