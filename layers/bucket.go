package layers

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/weir-go/weir/policy"
)

// bucket is a rate budget for one key. x/time/rate counts the tokens; in front
// of it stands a queue, whose head alone holds a reservation: a waiter that
// leaves costs those behind it nothing, and the length of the queue predicts
// each turn.
//
// Only the engine's methods that take a time are used, under the mutex, with
// the time read inside it: a stale time would take the engine back.
type bucket struct {
	env *Env

	mu     sync.Mutex
	engine *rate.Limiter
	credit int     // turns given back
	paused instant // no turn before this
	head   *turn
	tail   *turn
	queued int // what the queue behind the head's reservation costs
}

func (e *Env) newBucket(r policy.Rate) *bucket {
	return &bucket{env: e, engine: rate.NewLimiter(rate.Limit(r.PerSecond), r.Burst)}
}

// turn is a place in the queue of a bucket. Its mutex guards it.
type turn struct {
	b          *bucket
	n          int
	limit      instant // a turn at this or later is of no use
	signal     chan struct{}
	prev, next *turn

	booked  *rate.Reservation // the head's
	credit  int               // taken besides
	at      instant           // when booked is due
	granted bool
	refused time.Duration // the wait that is too long; 0: not refused
}

// Set implements Bucket.
func (b *bucket) Set(r policy.Rate) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.env.now()
	b.unbook(now)
	at := b.env.time(max(now, b.paused))
	b.engine.SetLimitAt(at, rate.Limit(r.PerSecond))
	b.engine.SetBurstAt(at, r.Burst)
	b.promote(now)
}

// Rests implements Handle.
func (b *bucket) Rests() (idle, free bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.env.now()
	free = b.head == nil && now >= b.paused
	return free && b.engine.TokensAt(b.env.time(now)) >= float64(b.engine.Burst()), free
}

// usable bounds the credit: what has been given back must not swell the burst.
func (b *bucket) usable(at time.Time) int {
	room := b.engine.Burst() - int(max(0, b.engine.TokensAt(at)))
	b.credit = min(b.credit, max(0, room))
	return b.credit
}

// Predict implements Bucket.
func (b *bucket) Predict(n int) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.predict(b.env.now(), n)
}

// predict returns how long n turns behind the whole queue would have to wait.
func (b *bucket) predict(now instant, n int) time.Duration {
	start := max(now, b.paused)
	at := b.env.time(start)
	lack := float64(b.queued+n-b.usable(at)) - b.engine.TokensAt(at)
	wait := start - now
	if lack > 0 {
		wait = after(wait, seconds(lack/float64(b.engine.Limit())))
	}
	return wait
}

func seconds(s float64) time.Duration {
	if d := s * float64(time.Second); d < float64(never) {
		return time.Duration(d)
	}
	return never
}

// Join implements Bucket. The turn is granted at once if there is nothing to
// wait for, and refused at once if it would come at limit or later.
func (b *bucket) Join(n int, limit time.Time, first bool) Turn {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.env.now()
	t := &turn{b: b, n: n, limit: never, signal: make(chan struct{}, 1)}
	if !limit.IsZero() {
		t.limit = b.env.instant(limit)
	}
	if first {
		b.unbook(now)
		b.link(t, nil)
		b.queued += n
		b.promote(now)
		return t
	}
	if wait := b.predict(now, n); after(now, wait) >= t.limit {
		t.refused = max(wait, 1)
		return t
	}
	b.link(t, b.tail)
	b.queued += n
	if b.head == t {
		b.promote(now)
	}
	return t
}

// Take implements Bucket.
func (b *bucket) Take(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.env.now()
	if b.head != nil || now < b.paused {
		return false
	}
	at := b.env.time(now)
	credit := min(n, b.usable(at))
	if !b.engine.AllowN(at, n-credit) {
		return false
	}
	b.credit -= credit
	return true
}

// promote books for the head, and lets go all that need not wait.
func (b *bucket) promote(now instant) {
	for t := b.head; t != nil && t.booked == nil; t = b.head {
		start := max(now, b.paused)
		if start >= t.limit {
			b.refuse(t, start-now)
			continue
		}
		at := b.env.time(start)
		t.credit = min(t.n, b.usable(at))
		t.booked = b.engine.ReserveN(at, t.n-t.credit)
		b.credit -= t.credit
		b.queued -= t.n
		t.at = after(start, t.booked.DelayFrom(at))
		switch {
		case t.at >= t.limit:
			b.unbook(now)
			b.refuse(t, t.at-now)
		case t.at > now:
			t.wake()
			return
		default:
			b.unlink(t)
			t.granted = true
			t.wake()
		}
	}
}

// unbook takes back what the head has booked, as if it never had: it is the
// newest reservation, which the engine restores in full.
func (b *bucket) unbook(now instant) {
	t := b.head
	switch {
	case t == nil || t.booked == nil:
		return
	case now >= t.at: // the engine takes what is due for spent
		b.unlink(t)
		t.granted = true
		t.wake()
		return
	}
	t.booked.CancelAt(b.env.time(max(now, b.paused)))
	b.credit += t.credit
	b.queued += t.n
	t.booked, t.credit = nil, 0
}

func (b *bucket) refuse(t *turn, wait time.Duration) {
	b.unlink(t)
	b.queued -= t.n
	t.refused = max(wait, 1)
	t.wake()
}

// Leave implements Turn.
func (t *turn) Leave() {
	b := t.b
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.env.now()
	if b.head == t {
		b.unbook(now) // which grants what is due
	}
	switch {
	case t.granted:
		t.granted = false
		b.giveBack(t.n)
	case t.refused == 0:
		b.unlink(t)
		b.queued -= t.n
		b.promote(now)
	}
}

// Refund implements Bucket.
func (b *bucket) Refund(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.giveBack(n)
}

func (b *bucket) giveBack(n int) {
	now := b.env.now()
	b.unbook(now)
	b.credit = min(b.credit+n, b.engine.Burst())
	b.promote(now)
}

// Due implements Turn. It lets the waiter go if its time has come.
func (t *turn) Due() (over bool, refused time.Duration, again time.Time) {
	b := t.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.granted || t.refused > 0 {
		return true, t.refused, again
	}
	if b.head != t || t.booked == nil {
		return false, 0, again
	}
	now := b.env.now()
	if now < t.at {
		return false, 0, b.env.time(t.at)
	}
	b.unlink(t)
	t.granted = true
	b.promote(now)
	return true, 0, again
}

// Signal implements Turn.
func (t *turn) Signal() <-chan struct{} { return t.signal }

// Pause implements Bucket. Those whose turn would come too late are refused now, and
// the rest resume one by one rather than with a burst.
func (b *bucket) Pause(end time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, until := b.env.now(), b.env.instant(end)
	if until <= b.paused || until <= now {
		return
	}
	b.unbook(now)
	// What there would be without the pause, but no more than the turn that
	// comes with its end.
	limit, burst := b.engine.Limit(), b.engine.Burst()
	level := min(1, max(0, b.engine.TokensAt(end)))
	b.paused, b.credit = until, 0
	b.engine = rate.NewLimiter(limit, burst)
	b.engine.AllowN(end.Add(-seconds(level/float64(limit))), burst)
	ahead := -level
	for t := b.head; t != nil; {
		next := t.next
		wait := until - now
		if lack := ahead + float64(t.n); lack > 0 {
			wait = after(wait, seconds(lack/float64(limit)))
		}
		if after(now, wait) >= t.limit {
			b.refuse(t, wait)
		} else {
			ahead += float64(t.n)
		}
		t = next
	}
	b.promote(now)
}

func (t *turn) wake() {
	select {
	case t.signal <- struct{}{}:
	default:
	}
}

// link puts t behind prev, nil for the head.
func (b *bucket) link(t, prev *turn) {
	t.prev = prev
	if prev == nil {
		t.next, b.head = b.head, t
	} else {
		t.next, prev.next = prev.next, t
	}
	if t.next == nil {
		b.tail = t
	} else {
		t.next.prev = t
	}
}

func (b *bucket) unlink(t *turn) {
	if t.prev == nil {
		b.head = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		b.tail = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
}
