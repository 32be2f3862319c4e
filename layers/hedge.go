package layers

import (
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/weir-go/weir/layers/internal/hint"
	"github.com/weir-go/weir/policy"
)

// Hedge sends a request again while the first send is still under way, Delay
// after that passed every gate, or at once when a send failed in a way that is
// worth a retry: see [policy.Hedge], whose zero fields have their defaults here.
// What is worth one, the [Retry] around it says, or its defaults if there is
// none. No send begins earlier than the answer to another asks for.
//
// The first good answer wins; the others are cancelled, and their bodies closed.
// Each send passes the gates further in, and is paid for out of the retry budget
// of the origin; one that a gate refuses is not sent, and changes nothing.
//
// A request that is not safe to repeat, or whose body cannot be had again from
// GetBody, is not hedged.
//
// In a chain made by hand, no layer of the user's belongs right around Hedge: put it
// around the whole call, or inside with [Inner]. Past such a layer, a first send that
// the caller's body holds up is not let go when a hedge was answered: the call then
// stays open until that Read returns, or fails.
func Hedge(env *Env, h policy.Hedge) Layer {
	h = policy.Defaults().With(policy.Settings{Hedge: h}).Hedge
	return env.layer(rankHedge, "", func(env *Env, next sender) sender {
		return &hedge{env: env, next: next, set: h}
	})
}

type hedge struct {
	env  *Env
	next sender
	set  policy.Hedge
}

func (l *hedge) send(a *attempt, req *http.Request) (*http.Response, error) {
	body := replayOf(req, 0)
	if a.askable == nil { // there is no retry layer to pay in
		a.pay(l.env.extraOf(req), policy.Defaults().Retry.Budget)
	}
	if !a.call.isSafe() || !body.possible() || l.set.Delay <= 0 || l.set.Max <= 0 {
		return l.next.send(a, req)
	}
	r := &race{l: l, a: a, req: req, body: body, told: make(chan struct{}, 1)}
	return r.run()
}

// race is the sends of one attempt that compete.
type race struct {
	l    *hedge
	a    *attempt // the first
	req  *http.Request
	body replay
	told chan struct{} // something happened

	mu       sync.Mutex
	timer    *clock.Timer // nil: nothing was sent yet
	sent     int          // beyond the first
	live     []*attempt   // under way
	until    instant      // what answered wants no send before this
	over     bool         // no further one may begin
	winner   *attempt
	panicked any            // in a send that was not on the caller's goroutine
	resp     *http.Response // the winner's
}

// ErrOutrun is how a send ends when another of the same call was faster: see
// [Hedge]. Observers see it, and inner layers of the user's, but no caller.
var ErrOutrun = errors.New("another send of the call was faster")

var errGone = errors.New("the goroutine of the send was ended")

func (r *race) run() (*http.Response, error) {
	r.live = []*attempt{r.a}
	r.a.call.mu.Lock()
	r.a.mark().race = r
	r.a.call.mu.Unlock()
	defer r.end()
	passes := r.a.passes.Load()
	resp, err := r.l.next.send(r.a, r.req)
	refused := err != nil && r.a.passes.Load() == passes
	won, next := r.finish(r.a, resp, err)
	if won {
		return resp, err
	}
	defer func() {
		if next != nil {
			next.settle(outcome{err: ErrOutrun, abandoned: true})
		}
	}()
	for kept := resp == nil; ; {
		r.mu.Lock()
		winner, answer, panicked := r.winner, r.resp, r.panicked
		idle := len(r.live) == 0
		r.mu.Unlock()
		switch {
		case panicked != nil || winner != nil:
			if resp != nil {
				_ = resp.Body.Close()
			}
			if refused { // else who sees the error closes the body
				r.l.env.CloseBody(r.req)
			}
			if panicked != nil {
				panic(panicked)
			}
			r.mu.Lock()
			r.resp = nil // delivered
			r.mu.Unlock()
			r.a.win(winner)
			return answer, nil
		case idle:
			return r.failed(resp, err)
		case next != nil && (kept || !r.a.holdsSlot()):
			go r.launch(next)
			next = nil
		case !kept:
			// What the failed answer holds, such as a slot, is free for another
			// send, and it can still be the outcome.
			kept = true
			r.a.hold(resp)
		default:
			r.a.call.wait(r.a.base, r.a.call.untilEnd(), r.told)
			if own := r.a.givenUp(); own != nil {
				return nil, own // what failed before is in memory, or has no body
			}
			if r.a.late() != nil {
				return r.failed(resp, err)
			}
		}
	}
}

// failed is the outcome when no send has won: the answer of the first, or its
// error, unless the deadline has passed since.
func (r *race) failed(resp *http.Response, err error) (*http.Response, error) {
	if e, ours := err.(*Error); ours && !e.final() { //nolint:errorlint // Anything else is the caller's.
		if late := r.a.late(); late != nil {
			return nil, late
		}
	}
	return resp, err
}

// late returns the error of the call's deadline, if that has passed.
func (a *attempt) late() *Error {
	c := a.call
	now := c.env.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if now < c.end {
		return nil
	}
	e := c.overdue(now)
	e.Sent = a.sent
	return e
}

// untilEnd is the time until the call's own deadline.
func (c *Call) untilEnd() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end - c.env.now()
}

// start starts the delay, once the first send is under way: not while it waits
// for a gate, or for a layer of the user's that makes a token.
func (r *race) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer == nil && !r.over {
		r.wake(r.l.set.Delay)
	}
}

// wake launches a further send after d, if there may be one then. The mutex must
// be held.
func (r *race) wake(d time.Duration) {
	if r.timer != nil {
		r.timer.Reset(d)
		return
	}
	r.timer = r.l.env.Clock.AfterFunc(d, func() {
		r.mu.Lock()
		b := r.claim()
		r.mu.Unlock()
		r.launch(b)
	})
}

// again reports that the outcome of b is a failure that another send may mend:
// as the retry layer sees it, if there is one.
func (l *hedge) again(b *attempt, resp *http.Response, err error) bool {
	e, ours := err.(*Error) //nolint:errorlint // Anything else is the caller's.
	switch {
	case err != nil && (!ours || !b.left() || e.final()):
		return false
	case b.retry != nil:
		again, _ := b.retry.failed(b, resp, e, false)
		return again
	case err != nil:
		return !e.hopeless()
	}
	return slices.Contains(retried, resp.StatusCode)
}

// claim returns a further send to launch, if there may be one now. The mutex
// must be held.
func (r *race) claim() *attempt {
	if r.decided() || r.sent >= r.l.set.Max {
		return nil
	}
	if wait := r.until - r.l.env.now(); wait > 0 {
		r.wake(wait)
		return nil
	}
	r.a.call.mu.Lock()
	budget := r.a.call.extra
	r.a.call.mu.Unlock()
	if budget != nil && !budget.has() {
		return nil
	}
	r.sent++
	b := r.a.sibling(r.a.base, false)
	b.hedge, b.extra, b.askable, b.retry = true, true, r.a.askable, r.a.retry
	r.live = append(r.live, b)
	r.wake(r.l.set.Delay)
	return b
}

// launch sees a send to its headers, and goes on to the next at once if it
// failed. Its goroutine is not the caller's: a panic is handed over to that,
// where it can be recovered.
func (r *race) launch(b *attempt) {
	var resp *http.Response
	var err error
	returned := false
	defer func() {
		if returned {
			return
		}
		if p := recover(); p != nil {
			r.panics(p)
		}
		if resp != nil {
			_ = resp.Body.Close()
		}
		r.lose(b)
	}()
	for b != nil {
		resp, err = r.send(b)
		_, b = r.finish(b, resp, err)
	}
	returned = true
}

// panics ends the race by a panic, unless it is decided.
func (r *race) panics(p any) {
	r.mu.Lock()
	counts := !r.decided()
	if counts {
		r.panicked = p
	}
	r.mu.Unlock()
	if counts {
		r.a.drop()
	}
}

func (r *race) send(b *attempt) (resp *http.Response, err error) {
	req := b.carry(r.req)
	req.Body = nil
	err = errGone
	defer func() {
		if err != nil && !b.left() {
			r.l.env.CloseBody(req)
			b.settle(outcome{err: err, abandoned: true})
		}
	}()
	body, failure := r.body.next()
	if failure != nil {
		return nil, failure
	}
	req.Body = body
	return r.l.next.send(b, req)
}

// finish takes the outcome of one send, and reports whether it is the winner.
// If it failed, and another is worth it, next is what to launch.
func (r *race) finish(b *attempt, resp *http.Response, err error) (won bool, next *attempt) {
	again := r.open() && r.l.again(b, resp, err)
	if again && resp != nil && b != r.a {
		b.hold(resp) // for the sake of its connection
	}
	r.mu.Lock()
	r.remove(b)
	won = err == nil && !again && !r.decided()
	var losers []*attempt
	switch {
	case won:
		r.winner, r.resp = b, resp
		losers, r.live = r.live, nil
		if b != r.a {
			losers = append(losers, r.a) // whose failed answer may be being read
		}
	case again:
		if resp != nil {
			r.heed(resp)
		}
		next = r.claim()
	}
	r.mu.Unlock()
	for _, l := range losers {
		l.drop()
	}
	if !won && resp != nil && b != r.a {
		_ = resp.Body.Close()
	}
	r.notice()
	return won, next
}

// open reports that the race goes on.
func (r *race) open() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.decided()
}

// decided reports that no outcome changes that of the race. The mutex must be
// held.
func (r *race) decided() bool { return r.over || r.winner != nil || r.panicked != nil }

// lose takes a send out that came to nothing.
func (r *race) lose(b *attempt) {
	r.mu.Lock()
	r.remove(b)
	r.mu.Unlock()
	b.drop()
	r.notice()
}

// remove notes that b is not under way any more. The mutex must be held.
func (r *race) remove(b *attempt) {
	r.live = slices.DeleteFunc(r.live, func(o *attempt) bool { return o == b })
}

// heed notes when the server wants to be asked again. The mutex must be held.
func (r *race) heed(resp *http.Response) {
	env := r.l.env
	if wait, asks := hint.RetryAfter(resp.StatusCode, resp.Header, env.Clock.Now()); asks {
		r.until = max(r.until, after(env.now(), wait))
	}
}

// pause is how much longer the servers that answered the sends beside a want no
// other.
func (a *attempt) pause() time.Duration {
	a.call.mu.Lock()
	r := a.seldom().race
	a.call.mu.Unlock()
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, r.until-r.l.env.now())
}

// notice tells the first send's goroutine that something happened.
func (r *race) notice() {
	select {
	case r.told <- struct{}{}:
	default:
	}
}

// end lets no further send begin, and ends those that are under way.
func (r *race) end() {
	r.mu.Lock()
	r.over = true
	losers := r.live
	r.live = nil
	if r.timer != nil {
		r.timer.Stop()
	}
	unread := r.resp
	if r.winner == r.a {
		unread = nil
	}
	r.mu.Unlock()
	if unread != nil { // the caller left as it came
		_ = unread.Body.Close()
	}
	for _, l := range losers {
		l.drop()
	}
}

// drop ends a send that another has outrun. It says nothing of the server.
func (a *attempt) drop() {
	a.call.mu.Lock()
	a.dropped = true
	a.call.mu.Unlock()
	a.cancel(ErrOutrun)
}

// win makes the outcome of b that of a.
func (a *attempt) win(b *attempt) {
	a.call.mu.Lock()
	a.mark().won, a.call.last = b, b
	a.call.mu.Unlock()
}

// outcomeOf returns the attempt whose outcome came back for a. Nobody can ask for
// one more send any longer: a layer of the user's that was left behind, say.
func outcomeOf(a *attempt) *attempt {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	if won := a.seldom().won; won != nil {
		a = won
	}
	a.askable = nil
	return a
}
