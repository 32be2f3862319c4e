package layers

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/weir-go/weir/policy"
)

// Budget is a rate budget of a stack: its settings, and the identity of the
// state that it shares, zero if the stack has only one.
type Budget struct {
	policy.Rate
	ID policy.StateID
}

// MaxPause is the longest that one answer of a server pauses a rate budget. After
// it the next send asks the server again, which may say so again: nothing but time
// lifts a pause, and a reset that is years away is more likely a mistake.
const MaxPause = time.Hour

// RateBudget lets a send go when it has a turn in every budget. It waits for
// its turns in the order of arrival, and is refused at once, unsent, if they
// would come at the deadline or later, or after MaxWait. A server that asks for
// a pause, by the Retry-After of a 429 or 503 or by saying that its limit is
// used up, gets one from every budget of the send, of at most [MaxPause].
func RateBudget(env *Env, budgets ...Budget) Layer {
	env = env.ready()
	list := make([]*budget, len(budgets))
	for i, b := range budgets {
		b.Rate = policy.Defaults().With(policy.Settings{Rate: b.Rate}).Rate
		list[i] = env.budget(b)
	}
	return env.layer(rankRate, "", func(env *Env, next sender) sender {
		return &rateBudget{env: env, next: next, budgets: list}
	})
}

type rateBudget struct {
	env     *Env
	next    sender
	budgets []*budget
}

// budget is one budget as a layer uses it.
type budget struct {
	states  *keyed[Bucket]
	key     policy.KeyFunc
	cost    func(*http.Request) int
	burst   int
	maxWait time.Duration
	pace    time.Duration // what one token takes to come
}

// budget returns a budget whose state is that of its identity, with the
// numbers of b from now on.
func (e *Env) budget(b Budget) *budget {
	states := statesOf(e, b.ID, buckets)
	states.set(policy.Settings{Rate: b.Rate})()
	return &budget{
		states: states, key: keyOf(b.Key), cost: b.Cost, burst: b.Burst, maxWait: b.MaxWait, pace: seconds(1 / b.PerSecond),
	}
}

var buckets = kind[Bucket]{
	numbers: func(s policy.Settings) any {
		return struct {
			perSecond float64
			burst     int
		}{s.Rate.PerSecond, s.Rate.Burst}
	},
	make: func(e *Env, id policy.StateID, key stateKey, s policy.Settings) Bucket {
		if e.Store != nil {
			if b := e.Store.Bucket(id, key.String(), s.Rate); b != nil {
				return b
			}
		}
		return e.newBucket(s.Rate)
	},
	apply: func(b Bucket, s policy.Settings) func() {
		if local, ok := b.(*bucket); ok {
			local.Set(s.Rate)
			return nothing
		}
		return func() { b.Set(s.Rate) } // which may take its time
	},
	pool: func(b Bucket) bool {
		local, ok := b.(*bucket)
		if ok {
			local.pool()
		}
		return ok
	},
}

// claim is what a send takes from one bucket.
type claim struct {
	b  Bucket
	n  int
	of *budget
}

// turn is how long the turn takes to come, if nothing is left and nobody waits.
func (c claim) turn() time.Duration {
	if c.of.pace > never/4/time.Duration(c.n) {
		return never / 4
	}
	return time.Duration(c.n) * c.of.pace
}

// takeAll takes every claim, or none. Those on buckets of this process come
// first.
func takeAll(ctx context.Context, claims []claim) bool {
	n := len(claims)
	for n > 0 && !local(claims[n-1].b) {
		n--
	}
	if n == 1 && claims[0].n > 0 && !claims[0].b.Take(claims[0].n) || n > 1 && !takeTogether(claims[:n]) {
		return false
	}
	if !takeShared(ctx, claims[n:]) {
		refundAll(claims[:n])
		return false
	}
	return true
}

func local(b Bucket) bool {
	_, local := b.(*bucket)
	return local
}

// takeShared does so in buckets of a store.
func takeShared(ctx context.Context, claims []claim) bool {
	if len(claims) == 0 {
		return true
	}
	if j, ok := claims[0].b.(Joint); ok {
		all := make([]Claim, 0, len(claims))
		for _, c := range claims {
			if c.n > 0 {
				all = append(all, Claim{c.b, c.n})
			}
		}
		return len(all) == 0 || j.TakeAll(ctx, all)
	}
	for i, c := range claims {
		if c.n > 0 && !c.b.Take(c.n) {
			refundAll(claims[:i])
			return false
		}
	}
	return true
}

// takeTogether takes from several buckets of this process, which nobody else sees in
// between.
func takeTogether(claims []claim) bool {
	for i, c := range claims { // in one order everywhere
		if b := c.b.(*bucket); i == 0 || b != claims[i-1].b { // All are, as they are ordered.
			b.mu.Lock()
			defer b.mu.Unlock()
		}
	}
	for i, c := range claims {
		b := c.b.(*bucket)
		if c.n > 0 && !b.spend(b.env.now(), c.n) {
			for _, taken := range claims[:i] {
				taken.b.(*bucket).credit += float64(taken.n)
			}
			return false
		}
	}
	return true
}

func (l *rateBudget) send(a *attempt, req *http.Request) (*http.Response, error) {
	t := &a.turns
	if err := t.claim(l, req); err != nil {
		return nil, a.refuse(err)
	}
	if err := t.take(a, 0); err != nil {
		return nil, err
	}
	if a.left() { // a layer of the user's sends again
		a.call.mu.Lock()
		a.went = goneNot
		a.call.mu.Unlock()
	}
	defer func() {
		if !a.hasGone() { // refused further in, or a panic
			t.refund()
		}
	}()
	return l.next.send(a, req)
}

func tooDear(n int, burst string) *Error {
	err := fmt.Errorf("the request costs %d of a budget whose burst is %s: raise Rate.Burst or lower its cost", n, burst)
	if n < 0 {
		err = fmt.Errorf("the request costs %d of a budget: Rate.Cost has to return 0 or more", n)
	}
	return &Error{Layer: rankRate.String(), Phase: PhaseRate, Reason: ReasonCost, Err: err}
}

// lockOrder is the same everywhere. What another store shares is not locked,
// and comes last: what it has to be asked for may fail, and take its time.
func lockOrder(b Bucket) uint64 {
	if local, ok := b.(*bucket); ok {
		return local.id
	}
	return math.MaxUint64
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

// hasGone reports that the attempt has passed every gate since its latest turn.
func (a *attempt) hasGone() bool {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	return a.went > goneNot
}

// left reports that the attempt has gone beyond our layers.
func (a *attempt) left() bool { return a.passes.Load() > 0 }

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
	if a.pass.Stale() {
		if wait, admitted := a.circuit.Admit(a, a.hedge, &a.pass); !admitted {
			return a.shutOut(wait)
		}
	}
	return nil
}
