package layers

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
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
	id  uint64 // the order in which several are locked

	mu     sync.Mutex
	engine *rate.Limiter
	credit int     // turns given back
	paused instant // no turn before this
	head   *turn
	tail   *turn
	queued int // what the queue behind the head's reservation costs
}

var buckets atomic.Uint64

func (e *Env) newBucket(perSecond float64, burst int) *bucket {
	return &bucket{env: e, id: buckets.Add(1), engine: rate.NewLimiter(rate.Limit(perSecond), burst)}
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

// set applies numbers to a bucket in use.
func (b *bucket) set(perSecond float64, burst int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	limit := rate.Limit(perSecond)
	if b.engine.Limit() == limit && b.engine.Burst() == burst {
		return
	}
	now := b.env.now()
	b.unbook(now)
	at := b.env.time(max(now, b.paused))
	b.engine.SetLimitAt(at, limit)
	b.engine.SetBurstAt(at, burst)
	b.promote(now)
}

// rests implements state.
func (b *bucket) rests(now instant) (idle, free bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	free = b.head == nil && now >= b.paused
	return free && b.engine.TokensAt(b.env.time(now)) >= float64(b.engine.Burst()), free
}

// usable bounds the credit: what has been given back must not swell the burst.
func (b *bucket) usable(at time.Time) int {
	room := b.engine.Burst() - int(max(0, b.engine.TokensAt(at)))
	b.credit = min(b.credit, max(0, room))
	return b.credit
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

// join puts a waiter for n turns into the queue, at its end or at its head. It
// is granted at once if there is nothing to wait for, and refused at once if
// its turn would come at limit or later.
func (b *bucket) join(n int, limit instant, first bool) *turn {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.env.now()
	t := &turn{b: b, n: n, limit: limit, signal: make(chan struct{}, 1)}
	if first {
		b.unbook(now)
		b.link(t, nil)
		b.queued += n
		b.promote(now)
		return t
	}
	if wait := b.predict(now, n); after(now, wait) >= limit {
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

// take takes n turns if nobody waits for any and they are there.
func (b *bucket) take(now instant, n int) bool {
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
	if t == nil || t.booked == nil {
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

// leave takes a waiter out of the queue, or gives its turns back.
func (t *turn) leave() {
	b := t.b
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case t.granted:
		t.granted = false
		b.giveBack(t.n)
	case t.refused == 0:
		now := b.env.now()
		if due := b.head == t && t.booked != nil && now >= t.at; due {
			b.unlink(t)
			b.giveBack(t.n) // the engine takes a reservation that is due for spent
			return
		}
		if b.head == t {
			b.unbook(now)
		}
		b.unlink(t)
		b.queued -= t.n
		b.promote(now)
	}
}

// refund gives n turns back that nothing was sent for.
func (b *bucket) refund(n int) {
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

// due lets the waiter go if its time has come. It returns when to ask again;
// never, if only a signal can tell.
func (t *turn) due() (at instant, over bool) {
	b := t.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.granted || t.refused > 0 {
		return 0, true
	}
	if b.head != t || t.booked == nil {
		return never, false
	}
	now := b.env.now()
	if now < t.at {
		return t.at, false
	}
	b.unlink(t)
	t.granted = true
	b.promote(now)
	return 0, true
}

// pause lets no turn come before until. A shorter pause than the present one
// changes nothing. Those whose turn would come too late are refused now, and
// the rest resume one by one rather than with a burst.
func (b *bucket) pause(until instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.env.now()
	if until <= b.paused || until <= now {
		return
	}
	b.unbook(now)
	b.paused, b.credit = until, 0
	limit, burst := b.engine.Limit(), b.engine.Burst()
	b.engine = rate.NewLimiter(limit, burst)
	b.engine.AllowN(b.env.time(until), burst-1)
	ahead := -1 // the first turn comes with the end of the pause
	for t := b.head; t != nil; {
		next := t.next
		wait := until - now
		if lack := ahead + t.n; lack > 0 {
			wait = after(wait, seconds(float64(lack)/float64(limit)))
		}
		if after(now, wait) >= t.limit {
			b.refuse(t, wait)
		} else {
			ahead += t.n
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

// claim is what a send takes from one bucket.
type claim struct {
	b *bucket
	n int
}

// takeAll takes every claim, or none. The claims are in the order of their
// buckets' ids.
func takeAll(claims []claim) bool {
	if len(claims) == 1 {
		b := claims[0].b
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.take(b.env.now(), claims[0].n)
	}
	for _, c := range claims {
		c.b.mu.Lock()
		defer c.b.mu.Unlock()
	}
	for i, c := range claims {
		if !c.b.take(c.b.env.now(), c.n) {
			for _, taken := range claims[:i] {
				taken.b.giveBack(taken.n)
			}
			return false
		}
	}
	return true
}

// slowest returns the claim that has to wait longest, and how long.
func slowest(claims []claim) (slow claim, wait time.Duration) {
	slow = claims[0]
	for _, c := range claims {
		c.b.mu.Lock()
		if w := c.b.predict(c.b.env.now(), c.n); w > wait {
			slow, wait = c, w
		}
		c.b.mu.Unlock()
	}
	return slow, wait
}

// ordered returns claims in the order in which they are locked.
func ordered(claims []claim) []claim {
	slices.SortFunc(claims, func(a, b claim) int { return cmp.Compare(a.b.id, b.b.id) })
	return claims
}
