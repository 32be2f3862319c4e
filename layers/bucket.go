package layers

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/weir-go/weir/policy"
)

// bucket is a rate budget for one key. x/time/rate counts the tokens; in front
// of it stands a queue, whose head alone has booked: a waiter that leaves costs
// those behind it nothing, and the length of the queue predicts each turn.
//
// Only the engine's methods that take a time are used, under the mutex, with
// the time read inside it: a stale time would take the engine back. During a
// pause, the engine stands at the end of it.
type bucket struct {
	env *Env
	id  uint64 // the order in which several are locked

	mu     sync.Mutex
	engine *rate.Limiter
	pooled bool                   // it is the overflow state of a set
	again  func(anew bool) Bucket // in its place, since it made room for others; nil: it has not
	credit float64                // tokens beyond the engine's: those given back
	paused instant                // no turn before this
	queue  queue[*turn]
	queued int // what those in the queue cost that have not booked
}

func (e *Env) newBucket(r policy.Rate) *bucket {
	return &bucket{env: e, id: e.ticket(), engine: rate.NewLimiter(rate.Limit(r.PerSecond), r.Burst)}
}

// turn is a place in the queue of a bucket. Its mutex guards it.
type turn struct {
	waiter[*turn]

	b     *bucket
	n     int
	limit instant // a turn at this or later is of no use
	keeps bool    // its place, until Take

	booked  *rate.Reservation // the head's: its tokens are spent
	at      instant           // when they are there
	granted bool              // and nobody has taken it yet
	refused time.Duration     // the wait that is too long; 0: not refused
}

// level returns how many tokens there are at a time, below zero what is owed.
// Credit does not swell the burst.
func (b *bucket) level(at time.Time) float64 {
	tokens, burst := b.engine.TokensAt(at), float64(b.engine.Burst())
	if room := max(0, burst-tokens); b.credit >= room {
		b.credit = room
		return max(tokens, burst) // which the sum may miss by a rounding
	}
	return tokens + b.credit
}

// start returns the earliest instant of a turn.
func (b *bucket) start(now instant) instant { return max(now, b.paused) }

// wait returns how long n tokens have to be waited for.
func (b *bucket) wait(now instant, n int) time.Duration {
	start := b.start(now)
	return b.until(now, start, float64(n)-b.level(b.env.time(start)))
}

// until returns how long it takes until a lack of tokens at start is made up.
func (b *bucket) until(now, start instant, lack float64) time.Duration {
	wait := start - now
	if lack > 0 {
		wait = after(wait, seconds(lack/float64(b.engine.Limit())))
	}
	return wait
}

func seconds(s float64) time.Duration {
	if d := math.Round(s * float64(time.Second)); d < float64(never) {
		return time.Duration(d)
	}
	return never
}

// spend takes n tokens if they are there.
func (b *bucket) spend(now instant, n int) bool {
	switch at := b.env.time(now); {
	case b.queue.head != nil || now < b.paused:
		return false
	case b.credit == 0:
		return b.engine.AllowN(at, n)
	default:
		return b.level(at) >= float64(n) && b.engine.ReserveN(at, n).OK()
	}
}

// Take implements Bucket.
func (b *bucket) Take(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spend(b.env.now(), n)
}

// Predict implements Bucket.
func (b *bucket) Predict(n int) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wait(b.env.now(), b.queued+n)
}

// Join implements Bucket. The turn is granted at once if there is nothing to
// wait for, and refused at once if it would come at limit or later.
func (b *bucket) Join(n int, limit time.Time, ticket uint64, keeps bool) Turn {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.env.now()
	t := &turn{b: b, n: n, limit: never, keeps: keeps}
	t.waiter = newWaiter(t, ticket)
	if !limit.IsZero() {
		t.limit = b.env.instant(limit)
	}
	ahead := b.queued
	if !b.queue.newest(ticket) {
		b.unbook(now)
		ahead = 0
		for w := b.queue.head; w != nil && w.ticket < ticket; w = w.next {
			ahead += w.self.n
		}
	}
	if wait := b.wait(now, ahead+n); n > b.engine.Burst() {
		t.refused = never
	} else if after(now, wait) >= t.limit {
		t.refused = max(wait, 1)
	} else {
		b.queue.add(&t.waiter)
		b.queued += n
	}
	b.promote(now)
	return t
}

// promote books for the head, and lets go all that need not wait.
func (b *bucket) promote(now instant) {
	for w := b.queue.head; w != nil && w.self.booked == nil; w = b.queue.head {
		t := w.self
		wait := b.wait(now, t.n)
		if after(now, wait) >= t.limit {
			b.refuse(t, wait)
			continue
		}
		t.booked, t.at = b.engine.ReserveN(b.env.time(b.start(now)), t.n), now+wait
		b.queued -= t.n
		t.wake()
		if wait > 0 || t.keeps {
			return
		}
		b.grant(t)
	}
}

// unbook takes back what the head has booked, as if it never had. What is due
// to one that does not keep its place was spent when it was.
func (b *bucket) unbook(now instant) {
	if b.queue.head == nil || b.queue.head.self.booked == nil {
		return
	}
	t := b.queue.head.self
	if now >= t.at && !t.keeps {
		b.grant(t)
		return
	}
	if at := b.env.time(b.start(now)); t.booked.DelayFrom(at) > 0 {
		t.booked.CancelAt(at) // in full, as the newest
	} else { // the engine takes it for spent
		b.credit += float64(t.n)
	}
	t.booked = nil
	b.queued += t.n
}

func (b *bucket) grant(t *turn) {
	b.queue.remove(&t.waiter)
	t.granted = true
	t.wake()
}

func (b *bucket) refuse(t *turn, wait time.Duration) {
	b.queue.remove(&t.waiter)
	b.queued -= t.n
	t.refused = max(wait, 1)
	t.wake()
}

// due reports that t is the head and that its tokens are there.
func (t *turn) due(now instant) bool { return t.booked != nil && now >= t.at }

// Due implements Turn. It lets the waiter go if its time has come.
func (t *turn) Due() (over bool, refused time.Duration, again time.Time) {
	b := t.b
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.env.now()
	switch {
	case t.granted || t.refused > 0:
		return true, t.refused, again
	case t.booked == nil:
		return false, 0, again
	case !t.due(now):
		return false, 0, b.env.time(t.at)
	case !t.keeps:
		b.grant(t)
		b.promote(now)
	}
	return true, 0, again
}

// Take implements Turn. After a turn that has kept its place there is no more
// than if its tokens had come only now.
func (t *turn) Take() bool {
	b := t.b
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.env.now()
	switch {
	case t.granted:
		t.granted = false
	case t.keeps && t.due(now):
		b.lower(b.env.time(now), float64(b.engine.Burst()-t.n))
		b.queue.remove(&t.waiter)
		t.booked = nil
		b.promote(now)
	default:
		return false
	}
	return true
}

// Leave implements Turn.
func (t *turn) Leave() {
	b := t.b
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.env.now()
	if t.booked != nil {
		b.unbook(now) // which grants what is due
	}
	switch {
	case t.granted:
		t.granted = false
		b.refund(now, t.n)
	case t.queued:
		b.queue.remove(&t.waiter)
		b.queued -= t.n
		b.promote(now)
	}
}

// Refund implements Bucket.
func (b *bucket) Refund(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refund(b.env.now(), n)
}

func (b *bucket) refund(now instant, n int) {
	b.unbook(now)
	b.credit += float64(n)
	b.ration(now)
	b.promote(now)
}

// ration leaves no more at the end of a pause than the one turn that comes with
// it: those that wait resume one by one rather than with a burst.
func (b *bucket) ration(now instant) {
	if now < b.paused {
		b.lower(b.env.time(b.paused), 1)
	}
}

// lower leaves no more tokens than most at a time.
func (b *bucket) lower(at time.Time, most float64) {
	excess := b.level(at) - most
	if excess <= 0 {
		return
	}
	if whole := math.Ceil(excess - b.credit); whole > 0 {
		b.engine.ReserveN(at, int(whole))
		b.credit += whole
	}
	b.credit -= excess
}

// Pause implements Bucket. Those whose turn would come too late are refused
// now. What one server asks for holds up nobody else's keys.
func (b *bucket) Pause(end time.Time) {
	if again := b.pause(end); again != nil {
		again(true).Pause(end)
	}
}

func (b *bucket) pause(end time.Time) (again func(anew bool) Bucket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, until := b.env.now(), b.env.instant(end)
	if until <= b.paused || until <= now || b.pooled {
		return b.again
	}
	b.unbook(now)
	b.paused = until
	b.ration(now)
	b.sweep(now)
	return b.again
}

// madeRoom implements leaver.
func (b *bucket) madeRoom(again func(anew bool) Bucket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.again = again
}

// pool makes it the overflow state of a set.
func (b *bucket) pool() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pooled = true
}

// Set implements Bucket.
func (b *bucket) Set(r policy.Rate) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.env.now()
	b.unbook(now)
	at := b.env.time(b.start(now))
	b.engine.SetLimitAt(at, rate.Limit(r.PerSecond))
	b.engine.SetBurstAt(at, r.Burst)
	b.sweep(now)
}

// sweep refuses those in the queue that can no longer make it, and books for
// the head.
func (b *bucket) sweep(now instant) {
	start := b.start(now)
	lack := -b.level(b.env.time(start))
	for w := b.queue.head; w != nil; {
		t := w.self
		w = w.next
		switch wait := b.until(now, start, lack+float64(t.n)); {
		case t.n > b.engine.Burst(): // which is smaller now
			b.refuse(t, never)
		case after(now, wait) >= t.limit:
			b.refuse(t, wait)
		default:
			lack += float64(t.n)
		}
	}
	b.promote(now)
}

// Rests implements Handle.
func (b *bucket) Rests() (idle, free bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.env.now()
	free = b.queue.head == nil && now >= b.paused
	return free && b.level(b.env.time(now)) >= float64(b.engine.Burst()), free
}

// Status is for Env.Budgets.
func (b *bucket) Status() BudgetStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.env.now()
	s := BudgetStatus{
		PerSecond: float64(b.engine.Limit()), Burst: b.engine.Burst(),
		Level: b.level(b.env.time(b.start(now))), Waiting: b.queue.len(),
	}
	if now < b.paused {
		s.Paused = b.env.time(b.paused)
	}
	return s
}
