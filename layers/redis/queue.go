package redis

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-go/weir/layers"
)

// A turn that was waited for may come this much later than it could, or the time
// of one turn if that is longer, before it is taken to be lost.
const lateness = 5 * time.Millisecond

// turn is a place in the queue of a bucket, whose mutex guards it.
type turn struct {
	b       *bucket
	n       int
	limit   instant
	joined  instant
	ticket  uint64
	keeps   bool
	signal  chan struct{}
	told    instant // when it asks again; -1: it has not been told
	granted bool
	refused time.Duration
	inner   layers.Turn // in b.local
	over    bool        // the wait for inner, as who waits has heard
}

// late is how late n turns that are waited for may be used: not at all, if the
// burst leaves them the time.
func (b *bucket) late(n int, keeps bool) time.Duration {
	late := lateness + b.turns(1)
	if keeps { // for up to two turns
		late += b.turns(2)
	}
	return max(0, late-b.turns(max(0, b.rate.Burst-n)))
}

// serve lets those go whose turn has come, and asks for what is lacking.
func (b *bucket) serve(now instant) {
	if b.s.down.Load() {
		return
	}
	for len(b.waiting) > 0 {
		t := b.waiting[0]
		if b.there(now, t.n) && !t.keeps {
			b.take(t.n)
			t.granted = true
			b.waiting = b.waiting[1:]
			t.wake()
			continue
		}
		break
	}
	b.want(now)
	b.release(now)
	if len(b.waiting) > 0 {
		if t := b.waiting[0]; b.when(now, t) != t.told {
			t.wake()
		}
	}
}

// when returns when the first in the queue is to ask again: 0 if its turn is
// there; or else when it is due, or when an answer is late.
func (b *bucket) when(now instant, t *turn) instant {
	switch {
	case b.there(now, t.n):
		return 0
	case b.slots.turns() >= t.n:
		return max(b.slots.due(t.n-1), b.paused)
	case b.since > 0:
		return b.since + b.s.opts.Timeout
	}
	return never
}

// comes predicts when the m-th turn from now comes. Those beyond the slots that
// are there are shared with the processes that wait too.
func (b *bucket) comes(now instant, m int) instant {
	have := b.slots.turns()
	if m <= have {
		return max(b.slots.due(m-1), b.paused)
	}
	at := now
	if b.known {
		at = b.next
	}
	if have > 0 {
		at = max(at, b.slots.due(have-1))
	}
	at = max(at, b.paused)
	return after(at, b.turns((m-have-1)*max(1, b.rivals)))
}

// queued is how many turns those in the queue wait for.
func (b *bucket) queued() (n int) {
	for _, t := range b.waiting {
		n += t.n
	}
	return n
}

// Predict implements layers.Bucket.
func (b *bucket) Predict(n int) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.s.now()
	if b.s.down.Load() {
		switch b.s.opts.Fallback {
		case Open:
			return 0
		case Closed:
			return b.s.retry()
		}
		return max(b.share().Predict(n), b.s.held(now)-now)
	}
	return max(0, b.comes(now, b.queued()+n)-now)
}

// Join implements layers.Bucket. What is there by the time of the answer has
// not been waited for.
func (b *bucket) Join(n int, limit time.Time, ticket uint64, keeps bool) layers.Turn {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.s.now()
	t := &turn{b: b, n: n, limit: never, joined: now, ticket: ticket, keeps: keeps, told: -1, signal: make(chan struct{}, 1)}
	if !limit.IsZero() {
		t.limit = limit.Sub(b.s.epoch)
	}
	if b.s.down.Load() {
		b.joinLocally(t)
		return t
	}
	if len(b.waiting) == 0 {
		b.purge(now) // as long as nobody waits
	}
	b.line(t)
	b.sweep(now)
	return t
}

// line puts a turn in its place.
func (b *bucket) line(t *turn) {
	i, _ := slices.BinarySearchFunc(b.waiting, t.ticket+1, func(o *turn, ticket uint64) int { return cmp.Compare(o.ticket, ticket) })
	b.waiting = slices.Insert(b.waiting, i, t)
}

// sweep refuses those that cannot make it, and serves the others.
func (b *bucket) sweep(now instant) {
	m := 0
	b.waiting = slices.DeleteFunc(b.waiting, func(t *turn) bool {
		at := b.comes(now, m+t.n)
		comes := at
		if at <= now {
			comes = t.joined
		}
		switch {
		case t.n > b.rate.Burst:
			t.refused = never
		case comes >= t.limit:
			t.refused = max(1, at-now)
		default:
			m += t.n
			return false
		}
		t.wake()
		return true
	})
	b.serve(now)
}

func (t *turn) wake() {
	select {
	case t.signal <- struct{}{}:
	default:
	}
}

// Due implements layers.Turn.
func (t *turn) Due() (over bool, refused time.Duration, again time.Time) {
	b := t.b
	b.mu.Lock()
	now := b.s.now()
	b.serve(now)
	late := false
	switch {
	case t.inner != nil:
		defer b.mu.Unlock()
		return t.dueLocally(now)
	case t.granted || t.refused > 0:
		over, refused = true, t.refused
	case len(b.waiting) > 0 && b.waiting[0] == t:
		t.told = b.when(now, t)
		switch over = t.told == 0; {
		case over || t.told == never:
		default:
			again = b.s.epoch.Add(t.told)
			late = t.told <= now && b.slots.turns() < t.n
		}
	default: // a signal will come
	}
	b.mu.Unlock()
	if !late {
		return over, refused, again
	}
	b.s.fail(errSlow)
	return t.Due()
}

// Signal implements layers.Turn.
func (t *turn) Signal() <-chan struct{} {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	if t.inner != nil {
		return t.inner.Signal()
	}
	return t.signal
}

// Take implements layers.Turn.
func (t *turn) Take() bool {
	b := t.b
	b.mu.Lock()
	defer b.mu.Unlock()
	switch now := b.s.now(); {
	case t.inner != nil:
		if !t.inner.Take() {
			return false
		}
		b.leaveLocal(t)
	case t.granted:
		t.granted = false
	case t.keeps && len(b.waiting) > 0 && b.waiting[0] == t && b.there(now, t.n):
		b.take(t.n)
		b.waiting = b.waiting[1:]
		b.serve(now)
	default:
		return false
	}
	return true
}

// Leave implements layers.Turn.
func (t *turn) Leave() {
	b := t.b
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case t.inner != nil:
		t.inner.Leave()
		b.leaveLocal(t)
	case t.granted:
		t.granted = false
		b.refund(t.n)
	default:
		b.waiting = slices.DeleteFunc(b.waiting, func(o *turn) bool { return o == t })
		b.serve(b.s.now())
	}
}
