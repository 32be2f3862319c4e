package layers

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/weir-go/weir/layers/internal/hint"
	"github.com/weir-go/weir/policy"
)

// Retry sends a call again when that is safe and worth it: see
// [policy.Retry], whose zero fields have their defaults here. What is not sent
// again comes back as it is: the last response with a nil error, its body
// readable, or the last error. [Call.Reason] and Error.Reason say why.
//
// A request is safe to send again if its method is, if it has an
// Idempotency-Key header, if Idempotent is on, or if nothing of it was sent.
// Its body must be absent, have GetBody, or fit Buffer. The caller's
// cancellation, the deadline and refusals of other layers are never retried.
//
// Check and Backoff are given what go-retryablehttp's own policies expect:
// errors as *url.Error, responses without their Retry-After, which is handled
// here.
func Retry(env *Env, r policy.Retry) Layer {
	r = policy.Defaults().With(policy.Settings{Retry: r}).Retry
	r.MinAttempt = max(r.MinAttempt, 1) // a send at the deadline itself is worth nothing
	return env.layer(rankRetry, "", func(env *Env, next sender) sender {
		return &retry{env: env, next: next, set: r}
	})
}

type retry struct {
	env  *Env
	next sender
	set  policy.Retry
}

// retried are the statuses that are worth another send at once.
var retried = []int{
	http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
	http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

func (l *retry) send(a *attempt, req *http.Request) (*http.Response, error) {
	c := a.call
	body := &a.replay
	*body = replayOf(req, l.set.Buffer)
	if body.rec != nil {
		defer body.release(l.env)
		req = req.WithContext(req.Context())
		req.Body, _ = body.rec.reader()
	}
	if l.set.Idempotent == policy.On && !policy.Repeatable(req) {
		c.mu.Lock()
		c.safe = true
		c.mu.Unlock()
	}
	a.retry, a.askable = l, body
	var budget *extraBudget
	if l.set.Budget > 0 {
		budget = l.env.extraOf(req)
	}
	a.pay(budget, l.set.Budget)
	resp, err := l.next.send(a, req)
	a = outcomeOf(a)
	if err == nil && resp.StatusCode < http.StatusBadRequest && l.set.Check == nil && !a.asked && a.streamFailure() == nil {
		return resp, nil
	}
	early := false // a 425 was seen
	for n := 0; ; n++ {
		wait, reason, failed := l.judge(a, body, n, resp, err, early)
		if wait >= 0 && budget != nil && !budget.has() {
			wait, reason = -1, ReasonBudget
		}
		if failed != nil {
			_ = resp.Body.Close()
			return nil, &Error{Layer: rankRetry.String(), Err: failed, Sent: Answered, Reason: reason}
		}
		if wait < 0 {
			if reason != "" {
				c.mu.Lock()
				c.setReason(reason)
				c.mu.Unlock()
			}
			return resp, err
		}
		if resp != nil {
			early = early || resp.StatusCode == http.StatusTooEarly
			a.hold(resp)
		}
		next, reason, sent := l.resend(a, wait, req, body)
		if !sent {
			c.restore(a, reason)
			return resp, err
		}
		a, resp, err = next.attempt, next.resp, next.err
	}
}

// sent is what a further attempt came to.
type resent struct {
	attempt *attempt
	resp    *http.Response
	err     error
}

// resend makes a further attempt after a wait. sent is false if a gate refused
// it, or if nothing is left to make it with: the outcome before it then stands.
func (l *retry) resend(a *attempt, wait time.Duration, req *http.Request, body *replay) (next resent, reason string, sent bool) {
	c := a.call
	if a.barred(wait) { // by this very failure, perhaps
		return next, ReasonCircuit, false
	}
	// Reading what the response had to say may have taken the time.
	if wait > 0 && c.left()-l.least(a) >= wait {
		a.emit(Event{Kind: KindWait, Phase: PhaseBackoff, Wait: wait})
		began := c.env.now()
		c.wait(a.base, wait, nil)
		a.waited(PhaseBackoff, began)
		wait = 0
	}
	if own := a.givenUp(); own != nil {
		return resent{attempt: a, err: own}, "", true
	}
	if c.left()-l.least(a) < wait {
		return next, ReasonDeadline, false
	}
	fresh, err := body.next()
	if err != nil {
		return next, ReasonNotReplayable, false
	}
	b := a.successor()
	b.retry, b.askable, b.extra = l, body, true
	again := b.carry(req)
	again.Body = fresh
	if a.asked {
		c.mu.Lock()
		c.asked = true
		c.mu.Unlock()
	} else {
		c.account().resends.Add(1)
	}
	resp, err := l.next.send(b, again)
	if err != nil && !b.left() { // a gate refused it
		l.env.CloseBody(again)
		b.settle(outcome{err: err, abandoned: true})
		if !a.asked {
			c.account().resends.Add(-1)
		}
		if e, ok := err.(*Error); ok { //nolint:errorlint // Anything else is the caller's.
			return next, e.Reason, false
		}
	}
	return resent{outcomeOf(b), resp, err}, "", true
}

// judge decides whether an outcome is followed by another attempt. wait is how
// long to wait for it, negative for no: reason then says why not. failed is an
// error of the user's Check that takes the place of the response.
func (l *retry) judge(a *attempt, body *replay, n int, resp *http.Response, err error, early bool) (wait time.Duration, reason string, failed error) {
	const no = -1
	c := a.call
	if a.givenUp() != nil {
		return no, "", nil
	}
	e, ours := err.(*Error) //nolint:errorlint // Only the outermost is ours.
	switch {
	case ours && e.final():
		return no, e.Reason, nil
	case err != nil && !ours: // somebody gave up
		return no, "", nil
	}
	if !a.asked {
		again, failed := l.failed(a, resp, e, early)
		switch {
		case failed != nil:
			return no, ReasonNotRetryable, failed
		case !again && err != nil:
			return no, ReasonNotRetryable, nil
		case !again:
			return no, "", nil
		case !a.unsent(e) && !c.isSafe():
			return no, ReasonNotSafe, nil
		}
	}
	if !body.possible() {
		return no, ReasonNotReplayable, nil
	}
	if !a.asked && int(c.account().resends.Load()) >= l.set.MaxAttempts-1 {
		return no, ReasonAttempts, nil
	}
	wait, reason = l.wait(a, n, resp)
	return wait, reason, nil
}

// wait returns how long to wait before attempt n+2 of this hop: the backoff,
// unless a layer of the user's asked for it, and never less than the server asks
// for.
func (l *retry) wait(a *attempt, n int, resp *http.Response) (wait time.Duration, reason string) {
	var asks time.Duration
	if resp != nil && hint.Asks(resp.Header) {
		asks, _ = hint.RetryAfter(resp.StatusCode, resp.Header, l.env.Clock.Now())
	}
	asks = max(asks, a.pause())
	wait = asks
	if !a.asked {
		wait = max(wait, l.backoff(n, resp))
	}
	switch {
	case a.call.left()-l.least(a) < wait:
		return -1, ReasonDeadline
	case l.set.MaxHint > 0 && asks > l.set.MaxHint:
		return -1, ReasonHint
	}
	return wait, ""
}

// least is the time left that another attempt is worth: for a stream, its wait
// for first content.
func (l *retry) least(a *attempt) time.Duration {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	return max(l.set.MinAttempt, a.least)
}

// backoff is full jitter over the exponential curve, or the user's.
func (l *retry) backoff(n int, resp *http.Response) time.Duration {
	if l.set.BaseDelay < 0 { // Off
		return 0
	}
	if l.set.Backoff == nil {
		top := retryablehttp.DefaultBackoff(l.set.BaseDelay, l.set.MaxDelay, n, nil)
		return time.Duration(l.env.Rand() * float64(top))
	}
	var wait time.Duration
	peek(resp, func(resp *http.Response) {
		wait = l.set.Backoff(l.set.BaseDelay, l.set.MaxDelay, n, withoutHint(resp))
	})
	return max(0, wait)
}

// peek lets a function of the user's look at a response, and at the beginning of
// its body, which is put back: the response may still be the outcome of the call.
func peek(resp *http.Response, look func(*http.Response)) {
	if resp == nil {
		look(nil)
		return
	}
	p := &peeked{body: resp.Body}
	shown := *resp
	shown.Body = withStats(io.NopCloser(p), p.body)
	look(&shown)
	if p.seen.Len() > 0 {
		resp.Body = withStats(struct {
			io.Reader
			io.Closer
		}{io.MultiReader(&p.seen, p.body), p.body}, p.body)
	}
}

// peeked is the beginning of a body, which is kept. It ends in
// io.ErrUnexpectedEOF if the body is longer than what is kept of one.
type peeked struct {
	body io.ReadCloser
	seen bytes.Buffer
}

// Read implements io.Reader.
func (p *peeked) Read(b []byte) (int, error) {
	room := heldBytes + 1 - p.seen.Len() // one more tells a body that is too long
	if room == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := p.body.Read(b[:min(len(b), room)])
	p.seen.Write(b[:n])
	return n, err
}

// withoutHint returns resp as a Backoff may see it: Retry-After is not its to
// read, since it would be waited for beyond the limits.
func withoutHint(resp *http.Response) *http.Response {
	if resp == nil || resp.Header["Retry-After"] == nil {
		return resp
	}
	r := *resp
	r.Header = resp.Header.Clone()
	r.Header.Del("Retry-After")
	return &r
}

// failed reports whether an outcome is a failure that another attempt may
// mend. e is nil for a response.
func (l *retry) failed(a *attempt, resp *http.Response, e *Error, early bool) (again bool, failed error) {
	var err error
	if e != nil {
		err = e.asURLError()
	} else if f := a.streamFailure(); f != nil {
		err = &url.Error{Err: f}
	}
	switch {
	case l.set.Check != nil:
		peek(resp, func(resp *http.Response) { again, failed = l.set.Check(a.base, resp, err) })
		if again || resp == nil {
			failed = nil // the outcome stands, and is told when it is the last
		}
		return again, failed
	case err != nil:
		return e == nil || !e.hopeless(), nil
	case resp.StatusCode == http.StatusTooEarly && early: // RFC 8470 section 5.2
		return false, nil
	}
	return slices.Contains(l.set.Statuses, resp.StatusCode), nil
}

// asURLError is the form in which go-retryablehttp's policies know an error.
func (e *Error) asURLError() error {
	if e.Err != nil && !e.timeout {
		return &url.Error{Err: e.Err} // as the base made it
	}
	return &url.Error{Err: e}
}

// immense matches what net/http says of an answer with more headers than it takes.
var immense = regexp.MustCompile(`response headers exceeded \d+ bytes|too many 1xx|response header list larger than`)

// hopeless reports a failure that will come again: a URL or a certificate that is
// wrong, or headers without end.
func (e *Error) hopeless() bool {
	if e.Err != nil && immense.MatchString(e.Err.Error()) {
		return true
	}
	again, _ := retryablehttp.DefaultRetryPolicy(context.Background(), nil, e.asURLError())
	return !again
}

// final reports an error after which no further send can help.
func (e *Error) final() bool { return e.local || e.Phase == PhaseDeadline }

// unsent reports that e, nil for a response, is proof that nothing was sent.
func (a *attempt) unsent(e *Error) bool {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	return e != nil && e.Sent == Unsent && !a.received
}

func (c *Call) isSafe() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.safe
}

// restore makes the outcome of a, before a further attempt that was not sent,
// the call's.
func (c *Call) restore(a *attempt, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = a
	c.setReason(reason)
}

// left is the time until the deadline.
func (c *Call) left() time.Duration { return c.deadline() - c.env.now() }

// pay makes the first send of a pay its share into the retry budget that
// further sends are taken out of; nil: there is none.
func (a *attempt) pay(into *extraBudget, share float64) {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	a.pays = into != nil
	a.call.extra, a.call.ratio = into, share
}

// RetryOnce lets a layer of the user's that stands inside Retry ask for one
// more send, after it mended what made the server refuse this one: a token
// renewed after a 401, say. It reports whether there will be one; the layer
// then returns the response that it has. The send goes through every gate, without
// a backoff, whatever the method, if the body can be replayed. It does not count
// against MaxAttempts, and a call has one at most. A Retry-After of the response is
// kept to: if MaxHint or the deadline leaves no room for that, the response is the
// outcome. ctx is that of the request.
func RetryOnce(ctx context.Context, reason string) bool {
	a := attemptFrom(ctx)
	if a == nil || reason == "" {
		return false
	}
	c := a.call
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.askable == nil || !a.askable.possible() || c.asked {
		return false
	}
	if c.extra != nil && !c.extra.has() {
		c.setReason(ReasonBudget)
		return false
	}
	a.asked = true
	return true
}

// The most that is kept of a response that another attempt takes the place of,
// and the longest that is waited for it.
const (
	heldBytes = 64 << 10
	heldTime  = time.Second
)
