package layers

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weir-go/weir/layers/internal/hint"
	"github.com/weir-go/weir/policy"
)

// Budget is a rate budget of a stack: its settings, and the identity of the
// state that it shares, zero if the stack has only one.
type Budget struct {
	policy.Rate
	ID policy.StateID
}

// RateBudget lets a send go when it has a turn in every budget. It waits for
// its turns in the order of arrival, and is refused at once, unsent, if they
// would come at the deadline or later, or after MaxWait. A server that asks for
// a pause, by the Retry-After of a 429 or 503 or by saying that its limit is
// used up, gets one from every budget of the send.
func RateBudget(env *Env, budgets ...Budget) Layer {
	return env.layer(rankRate, "", func(env *Env, next sender) sender {
		l := &rateBudget{env: env, next: next}
		for _, b := range budgets {
			b.Rate = policy.Defaults().With(policy.Settings{Rate: b.Rate}).Rate
			l.budgets = append(l.budgets, env.budget(b))
		}
		return l
	})
}

type rateBudget struct {
	env     *Env
	next    sender
	budgets []budget
}

// budget is one budget as a layer uses it.
type budget struct {
	states  *keyed[Bucket]
	key     policy.KeyFunc
	cost    func(*http.Request) int
	burst   int
	maxWait time.Duration
}

// budget returns a budget whose state is that of its identity, with the
// numbers of b from now on.
func (e *Env) budget(b Budget) budget {
	type numbers struct {
		perSecond float64
		burst     int
	}
	states := statesOf[Bucket](e, b.ID)
	states.set(numbers{b.PerSecond, b.Burst}, func(k stateKey) Bucket {
		if e.Store != nil {
			if s := e.Store.Bucket(b.ID, k.String(), b.Rate); s != nil {
				return s
			}
		}
		return e.newBucket(b.Rate)
	}, func(s Bucket) { s.Set(b.Rate) })
	return budget{states: states, key: keyOf(b.Key), cost: b.Cost, burst: b.Burst, maxWait: b.MaxWait}
}

// claim is what a send takes from one bucket.
type claim struct {
	b Bucket
	n int
}

// takeAll takes every claim, or none.
func takeAll(claims []claim) bool {
	for i, c := range claims {
		if !c.b.Take(c.n) {
			refundAll(claims[:i])
			return false
		}
	}
	return true
}

func refundAll(claims []claim) {
	for _, c := range claims {
		c.b.Refund(c.n)
	}
}

// slowest returns the index of the claim that has to wait longest, and how
// long.
func slowest(claims []claim) (slow int, wait time.Duration) {
	for i, c := range claims {
		if w := c.b.Predict(c.n); w > wait {
			slow, wait = i, w
		}
	}
	return slow, wait
}

// turns is what an attempt holds of the rate budgets.
type turns struct {
	l      *rateBudget
	claims []claim
	one    [1]claim
	held   bool
}

func (l *rateBudget) send(a *attempt, req *http.Request) (*http.Response, error) {
	t := &a.turns
	if err := t.claim(l, req); err != nil {
		return nil, a.refuse(err)
	}
	if err := t.take(a, false); err != nil {
		return nil, err
	}
	resp, err := l.next.send(a, req)
	if err != nil {
		if !a.wasSent() {
			t.refund()
		}
		return nil, err
	}
	l.listen(t, resp)
	return resp, nil
}

// claim notes what req takes of each budget.
func (t *turns) claim(l *rateBudget, req *http.Request) *Error {
	t.l, t.held = l, false
	t.claims = t.one[:0]
	for _, b := range l.budgets {
		n := 1
		if b.cost != nil {
			n = b.cost(req)
		}
		switch {
		case n < 0 || n > b.burst:
			return &Error{
				Layer: rankRate.String(), Phase: PhaseRate, Reason: ReasonCost,
				Err: fmt.Errorf("the request costs %d of a budget whose burst is %d: raise Rate.Burst or lower its cost", n, b.burst),
			}
		case n > 0:
			t.claims = append(t.claims, claim{b.states.of(b.key, req), n})
		}
	}
	return nil
}

var errTurn = errors.New("the rate budget has no turn in time")

// take takes a turn in each budget, all or none, and waits for them holding
// none. first puts it before all others that wait.
func (t *turns) take(a *attempt, first bool) error {
	waited := false
	for !takeAll(t.claims) {
		slow, wait := slowest(t.claims)
		limit, reason := t.limit(a.call)
		if !first && after(t.l.env.now(), wait) >= limit {
			return a.refuse(t.tooLate(a.call, wait, limit, reason))
		}
		a.emit(Event{Kind: KindWait, Phase: PhaseRate, Wait: wait})
		var latest time.Time
		if limit != never {
			latest = t.l.env.time(limit)
		}
		turn := t.claims[slow].b.Join(t.claims[slow].n, latest, first)
		refused, err := a.await(turn)
		switch {
		case err != nil:
			return err
		case refused > 0:
			return a.refuse(t.tooLate(a.call, refused, limit, reason))
		}
		waited, first = true, true // from now on, it has waited its turn
		t.claims[0], t.claims[slow] = t.claims[slow], t.claims[0]
		if takeAll(t.claims[1:]) {
			break
		}
		turn.Leave() // the others have run dry meanwhile
	}
	t.held = true
	if waited {
		if err := a.recheck(); err != nil {
			t.refund()
			return err
		}
	}
	return nil
}

// limit returns before which instant a turn must come, and why.
func (t *turns) limit(c *Call) (limit instant, reason string) {
	limit, reason = c.deadline(), ReasonDeadline
	for _, b := range t.l.budgets {
		var l instant
		switch {
		case b.maxWait < 0: // Off: no wait
			l = t.l.env.now() + 1
		case b.maxWait > 0:
			l = after(t.l.env.now(), b.maxWait) + 1 // a turn after it comes too late
		default:
			continue
		}
		if l < limit {
			limit, reason = l, ReasonMaxWait
		}
	}
	return limit, reason
}

func (t *turns) tooLate(c *Call, wait time.Duration, limit instant, reason string) *Error {
	return &Error{
		Layer: rankRate.String(), Phase: PhaseRate, Limit: max(0, limit-t.l.env.now()), RetryAfter: wait,
		Reason: reason, Err: errTurn, timeout: reason == ReasonDeadline, Elapsed: t.l.env.now() - c.start,
	}
}

func (t *turns) refund() {
	if !t.held {
		return
	}
	t.held = false
	refundAll(t.claims)
}

// await waits until a turn is granted, or refused because it would have to be
// waited for so long. It fails if the attempt ends before.
func (a *attempt) await(t Turn) (refused time.Duration, err error) {
	for {
		over, refused, again := t.Due()
		if over && a.Err() == nil {
			return refused, nil
		}
		at := never
		if !again.IsZero() {
			at = a.call.env.instant(again)
		}
		if err := a.waitUntil(at, t.Signal()); err != nil {
			t.Leave()
			return 0, err
		}
	}
}

// waitUntil waits for an instant or a signal. It fails if the attempt ends
// before.
func (a *attempt) waitUntil(at instant, signal <-chan struct{}) error {
	c := a.call
	c.wait(a, at-c.env.now(), signal)
	if a.Err() != nil || c.callerEnded() != nil {
		return a.failure(a.Err(), rankRate, false)
	}
	return nil
}

// listen pauses the budgets as the server asks.
func (l *rateBudget) listen(t *turns, resp *http.Response) {
	if len(t.claims) == 0 {
		return
	}
	now := l.env.Clock.Now()
	var wait time.Duration
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		wait, _ = hint.Wait(resp.StatusCode, resp.Header, now)
	default:
		wait, _ = hint.Quota(resp.Header, now)
	}
	if wait <= 0 {
		return
	}
	until := l.env.time(after(l.env.now(), wait))
	for _, c := range t.claims {
		c.b.Pause(until)
	}
}

// wasSent reports that the attempt has reached the base.
func (a *attempt) wasSent() bool {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	return a.counted
}

// left reports that the attempt has gone beyond our layers.
func (a *attempt) left() bool {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	return a.passes > 0
}

// refuse marks an error as a refusal of ours, and tells the observer.
func (a *attempt) refuse(e *Error) *Error {
	e.local = true
	a.emit(Event{Kind: KindRefused, Phase: e.Phase, Wait: e.RetryAfter, Err: e})
	return e
}

// recheck asks again, after a wait, what the layers further out had admitted.
func (a *attempt) recheck() error {
	if own := a.call.callerEnded(); own != nil {
		return own
	}
	if err := a.call.passed(); err != nil {
		return err
	}
	if by := a.pass.by; by != nil && by.Stale(&a.pass) {
		if wait, admitted := a.circuit.Admit(a, a.hedge, &a.pass); !admitted {
			return a.refuse(circuitOpen(wait))
		}
	}
	return nil
}
