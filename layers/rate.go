package layers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
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

// turns is what an attempt holds of the rate budgets.
type turns struct {
	claims []claim
	one    [1]claim
	ticket uint64 // its place in every queue; 0: it has not waited
	held   bool
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

// claim notes what req takes of each budget.
func (t *turns) claim(l *rateBudget, req *http.Request) *Error {
	t.held = false
	t.claims = t.one[:0]
	for _, b := range l.budgets {
		n := 1
		if b.cost != nil {
			n = b.cost(req)
		}
		if n < 0 || n > b.burst {
			return tooDear(n, strconv.Itoa(b.burst))
		}
		t.claims = append(t.claims, claim{b.states.of(b.key, req), n, b})
	}
	if len(t.claims) > 1 { // the order in which takeAll locks
		slices.SortStableFunc(t.claims, func(a, b claim) int { return cmp.Compare(lockOrder(a.b), lockOrder(b.b)) })
	}
	return nil
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

var errTurn = errors.New("the rate budget has no turn in time")

// take takes a turn in each budget, all or none, and waits for them holding
// none. A limit other than 0, the instant of the latest turn, is that of a call
// that had its turn, and returned it to wait for something else.
func (t *turns) take(a *attempt, limit instant) error {
	if !takeAll(a, t.claims) {
		if err := t.queue(a, limit); err != nil {
			return err
		}
		if err := a.recheck(); err != nil {
			refundAll(t.claims)
			return err
		}
	}
	t.held = true
	return nil
}

// tryAgain takes the turns that were returned, if they are there.
func (t *turns) tryAgain(ctx context.Context) bool {
	t.held = takeAll(ctx, t.claims)
	return t.held
}

func (t *turns) refund() {
	if t.held {
		t.held = false
		refundAll(t.claims)
	}
}

func refundAll(claims []claim) {
	for _, c := range claims {
		if c.n > 0 {
			c.b.Refund(c.n)
		}
	}
}

// order draws the ticket of an attempt that has to wait. A call that is made on
// the context of another, to get a token for it, goes before all that may need
// the same.
func (a *attempt) order() uint64 {
	switch e := a.call.env; {
	case a.turns.ticket > 0:
	case a.around() != nil:
		a.turns.ticket = e.early.Add(1)
	default:
		a.turns.ticket = e.ticket()
	}
	return a.turns.ticket
}

// queue waits until there is a turn in each budget, and takes them at one
// instant. It stands in the queue of the slowest. Once it is its turn there, it
// keeps its place while it goes to the front of the other queues, where its
// ticket is old by now; calls that need only one of the budgets can thus not
// starve it. A place is kept no longer than two turns of either budget take, so
// that one which is slow, or paused, holds up nobody who does not need it.
func (t *turns) queue(a *attempt, limit instant) error {
	q := newQueuing(t, a, limit)
	next, wait, late := q.slowest()
	if limit == 0 && late {
		return q.tooLate(next, wait)
	}
	a.emit(Event{Kind: KindWait, Phase: PhaseRate, Wait: wait})
	defer a.waited(PhaseRate, q.now())
	defer q.leave(-1)
	for next >= 0 {
		first := next
		q.leave(first)
		if _, err := q.await(first, never); err != nil {
			return err
		}
		next = -1
		for i := range q.places {
			if i == first || t.claims[i].n == 0 {
				continue
			}
			there, err := q.await(i, 2*min(t.claims[first].turn(), t.claims[i].turn()))
			if err != nil {
				return err
			}
			if !there {
				next = i
				break
			}
		}
		if next < 0 {
			next = q.take()
		}
	}
	return nil
}

// queuing is an attempt that stands in queues.
type queuing struct {
	*turns
	a      *attempt
	places []queued
}

// queued is what it has to do with one budget.
type queued struct {
	turn    Turn          // nil: it is not in the queue
	limit   instant       // a turn at this or later comes too late
	reason  string        // why
	longest time.Duration // that MaxWait allows, if that is why
}

func newQueuing(t *turns, a *attempt, limit instant) *queuing {
	q := &queuing{turns: t, a: a, places: make([]queued, len(t.claims))}
	end, now := a.call.deadline(), q.now()
	for i := range q.places {
		p := &q.places[i]
		p.limit, p.reason = end, ReasonDeadline
		longest := never
		switch wait := t.claims[i].of.maxWait; {
		case limit > 0:
			longest = limit
		case wait < 0: // Off: no wait
			longest = now
		case wait > 0:
			longest = after(now, wait)
		}
		if longest < end {
			p.limit, p.reason, p.longest = after(longest, 1), ReasonMaxWait, longest-now
		}
	}
	return q
}

func (q *queuing) now() instant { return q.a.call.env.now() }

// slowest returns which turn has to be waited for longest, and how long. If some
// would come too late, it is the slowest of those.
func (q *queuing) slowest() (slow int, wait time.Duration, late bool) {
	now := q.now()
	for i, c := range q.claims {
		if c.n == 0 {
			continue
		}
		w := c.b.Predict(c.n)
		tooLate := w > 0 && after(now, w) >= q.places[i].limit
		if q.claims[slow].n == 0 || tooLate && !late || tooLate == late && w > wait {
			slow, wait, late = i, w, tooLate
		}
	}
	return slow, wait, late
}

// await waits until a turn is there, but does not begin a wait longer than
// patience.
func (q *queuing) await(i int, patience time.Duration) (there bool, err error) {
	p, c := &q.places[i], q.claims[i]
	env := q.a.call.env
	if p.turn == nil {
		limit, latest := p.limit, time.Time{}
		if p.reason == ReasonMaxWait {
			limit = max(limit, q.now()+1) // what is there need not be waited for
		}
		if limit != never {
			latest = env.time(limit)
		}
		p.turn = c.b.Join(c.n, latest, q.a.order(), len(q.claims) > 1)
	}
	for {
		over, refused, again := p.turn.Due()
		switch {
		case refused > 0:
			p.turn = nil
			return false, q.tooLate(i, refused)
		case over && q.a.Err() == nil:
			return true, nil
		}
		at := never
		if !again.IsZero() {
			at = env.instant(again)
		}
		if patience < never && at-q.now() > patience {
			return false, nil
		}
		if err := q.a.waitUntil(at, p.turn.Signal()); err != nil {
			return false, err
		}
	}
}

// take takes all turns, or returns which one is no longer there.
func (q *queuing) take() (missing int) {
	for i := range q.places {
		p := &q.places[i]
		if p.turn == nil {
			continue
		}
		if !p.turn.Take() {
			refundAll(q.claims[:i])
			return i
		}
		p.turn = nil
	}
	return -1
}

// leave leaves every queue but one.
func (q *queuing) leave(but int) {
	for i := range q.places {
		if p := &q.places[i]; i != but && p.turn != nil {
			p.turn.Leave()
			p.turn = nil
		}
	}
}

func (q *queuing) tooLate(i int, wait time.Duration) error {
	if wait == never { // an update made it so
		return q.a.refuse(tooDear(q.claims[i].n, "smaller now"))
	}
	p, now := q.places[i], q.now()
	limit := p.longest
	if p.reason == ReasonDeadline {
		limit = max(0, p.limit-now)
	}
	return q.a.refuse(&Error{
		Layer: rankRate.String(), Phase: PhaseRate, Limit: limit, RetryAfter: wait,
		Reason: p.reason, Err: errTurn, timeout: p.reason == ReasonDeadline, Elapsed: now - q.a.call.start,
	})
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
func (t *turns) listen(e *Env, resp *http.Response) {
	if len(t.claims) == 0 || !hint.Present(resp.Header) {
		return
	}
	now := e.Clock.Now()
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
	until := e.time(after(e.now(), min(wait, MaxPause)))
	for _, c := range t.claims {
		c.b.Pause(until)
	}
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
