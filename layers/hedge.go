package layers

import (
	"errors"
	"net/http"
	"slices"
	"sync"

	"github.com/benbjohnson/clock"

	"github.com/weir-go/weir/layers/internal/hint"
	"github.com/weir-go/weir/policy"
)

// Hedge sends a request again while the first send is still under way, Delay
// after that passed every gate, or at once when it failed in a way that is worth
// a retry: see [policy.Hedge], whose zero fields have their defaults here. The first good
// answer wins; the others are cancelled, and their bodies closed. Each send
// passes the gates further in, and is paid for out of the retry budget of the
// origin; one that a gate refuses is not sent, and changes nothing.
//
// A request that is not safe to repeat, or whose body cannot be had again from
// GetBody, is not hedged.
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
	timer    *clock.Timer // nil: the first has not passed every gate
	sent     int          // beyond the first
	live     []*attempt   // under way
	over     bool         // no further one may begin
	winner   *attempt
	panicked any            // in a send that was not on the caller's goroutine
	resp     *http.Response // the winner's
}

var errOutrun = errors.New("another send of the call was faster")

func (r *race) run() (*http.Response, error) {
	r.live = []*attempt{r.a}
	r.a.call.mu.Lock()
	r.a.mark().race = r
	r.a.call.mu.Unlock()
	defer r.end()
	resp, err := r.l.next.send(r.a, r.req)
	if r.finish(r.a, resp, err) {
		return resp, err
	}
	more, kept := r.l.mends(r.a, resp, err), false
	// keep reads the failed answer into memory: what it holds, such as a slot,
	// is free for another send, and it can still be the outcome.
	keep := func() {
		if resp != nil && !kept {
			kept = true
			r.a.hold(resp)
		}
	}
	for {
		r.mu.Lock()
		winner, won, panicked := r.winner, r.resp, r.panicked
		idle := len(r.live) == 0
		r.mu.Unlock()
		switch {
		case panicked != nil:
			panic(panicked)
		case winner != nil:
			if resp != nil {
				_ = resp.Body.Close()
			}
			r.mu.Lock()
			r.resp = nil // delivered
			r.mu.Unlock()
			r.a.win(winner)
			return won, nil
		case idle:
			var next *attempt
			if more {
				next = r.claim()
			}
			if next == nil {
				return resp, err
			}
			keep()
			r.launch(next)
			continue
		case !kept && resp != nil:
			keep()
			continue
		}
		select {
		case <-r.told:
			continue
		case <-r.a.base.Done():
		case <-r.a.call.aborted():
		}
		if own := r.a.givenUp(); own != nil {
			if resp != nil {
				_ = resp.Body.Close()
			}
			return nil, own
		}
		return resp, err
	}
}

// start starts the delay, once the first send has passed every gate.
func (r *race) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer == nil && !r.over {
		r.timer = r.l.env.Clock.AfterFunc(r.l.set.Delay, r.launchApart)
	}
}

// mends reports that another send, at once, may mend the failure of a. What a
// server asks to wait for is the retry layer's to wait.
func (l *hedge) mends(a *attempt, resp *http.Response, err error) bool {
	if err == nil {
		_, asks := hint.RetryAfter(resp.StatusCode, resp.Header, l.env.Clock.Now())
		return !asks
	}
	e, ours := err.(*Error) //nolint:errorlint // Anything else is the caller's.
	return ours && a.left() && !e.final() && !e.hopeless()
}

// launchApart launches on the goroutine of the timer. A panic there is handed
// to the caller's, where it can be recovered.
func (r *race) launchApart() {
	returned := false
	defer func() {
		if returned {
			return
		}
		r.mu.Lock()
		r.panicked = recover()
		r.mu.Unlock()
		r.a.drop()
		r.notice()
	}()
	if b := r.claim(); b != nil {
		r.launch(b)
	}
	returned = true
}

// claim returns a further send to launch, if there may be one.
func (r *race) claim() *attempt {
	budget := r.a.call.extra
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || r.winner != nil || r.sent >= r.l.set.Max || budget != nil && !budget.withdraw() {
		return nil
	}
	r.sent++
	b := r.a.sibling(r.a.base)
	b.hedge, b.askable = true, r.a.askable
	r.live = append(r.live, b)
	r.timer.Reset(r.l.set.Delay)
	return b
}

// launch begins a send, sees it to its headers, and goes on to the next at once
// if it failed.
func (r *race) launch(b *attempt) {
	for ; b != nil; b = r.claim() {
		resp, err := r.send(b)
		if r.finish(b, resp, err) || !r.l.mends(b, resp, err) {
			return
		}
	}
}

func (r *race) send(b *attempt) (*http.Response, error) {
	body, err := r.body.next()
	if err != nil {
		return nil, err
	}
	req := b.carry(r.req)
	req.Body = body
	resp, err := r.l.next.send(b, req)
	if err != nil && !b.left() {
		closeBody(req)
		b.settle(outcome{err: err, abandoned: true})
		if budget := r.a.call.extra; budget != nil {
			budget.deposit(1)
		}
	}
	return resp, err
}

// finish takes the outcome of one send, and reports whether it is the winner.
func (r *race) finish(b *attempt, resp *http.Response, err error) bool {
	good := err == nil && !slices.Contains(retried, resp.StatusCode)
	r.mu.Lock()
	r.live = slices.DeleteFunc(r.live, func(o *attempt) bool { return o == b })
	won := good && r.winner == nil && !r.over
	var losers []*attempt
	if won {
		r.winner, r.resp = b, resp
		losers, r.live = r.live, nil
		if b != r.a {
			losers = append(losers, r.a) // whose failed answer may be being read
		}
	}
	r.mu.Unlock()
	for _, l := range losers {
		l.drop()
	}
	if !won && resp != nil && b != r.a {
		_ = resp.Body.Close()
	}
	r.notice()
	return won
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
	a.cancel(errOutrun)
}

// win makes the outcome of b that of a.
func (a *attempt) win(b *attempt) {
	a.call.mu.Lock()
	a.mark().won, a.call.last = b, b
	a.call.mu.Unlock()
}

// outcomeOf returns the attempt whose outcome came back for a.
func outcomeOf(a *attempt) *attempt {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	if won := a.seldom().won; won != nil {
		return won
	}
	return a
}
