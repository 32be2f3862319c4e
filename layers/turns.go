package layers

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/weir-go/weir/layers/internal/hint"
)

// turns is what an attempt holds of the rate budgets.
type turns struct {
	claims []claim
	one    [1]claim
	ticket uint64 // its place in every queue; 0: it has not waited
	held   bool
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
