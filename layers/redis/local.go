package redis

import (
	"slices"
	"time"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

// retry is when Redis is asked again.
func (s *Store) retry() time.Duration { return max(s.opts.Timeout, 100*time.Millisecond) }

// hold has no share give a turn from an instant on, until another. The first who wait
// for one, and were told to wait for the end of that, are woken if it is another.
func (s *Store) hold(from, until instant) {
	held := s.held(s.now()) > 0
	s.ends.Store(int64(from))
	s.late.Store(int64(until))
	if held {
		s.reshare()
	}
}

// held returns until when no share gives a turn, since the fallback may be over for
// others; 0: it does.
func (s *Store) held(now instant) (until instant) {
	if until = instant(s.late.Load()); now >= instant(s.ends.Load()) && now < until {
		return until
	}
	return 0
}

// share returns the bucket that stands in for Redis. It begins empty: what
// Redis had to give may have been used.
func (b *bucket) share() layers.Bucket {
	if b.local == nil {
		b.dear = 0
		b.local = b.s.env.LocalBucket(policy.Rate{PerSecond: b.rate.PerSecond, Burst: 1})
		b.setShare()
		b.local.Take(1)
		if b.s.now() < b.paused {
			b.local.Pause(b.s.epoch.Add(b.paused))
		}
	}
	return b.local
}

func (b *bucket) setShare() {
	alive := max(1, int(b.s.alive.Load()))
	b.burst = max(1, b.dear, b.rate.Burst/alive)
	b.local.Set(policy.Rate{PerSecond: b.rate.PerSecond / float64(alive), Burst: b.burst})
}

// reshare is told that there are more processes, or fewer.
func (b *bucket) reshare() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.local != nil {
		b.setShare()
	}
}

// shareOf returns it with room for a turn that costs n, which the share of the
// burst may not have.
func (b *bucket) shareOf(n int) layers.Bucket {
	local := b.share()
	if n > b.burst && n <= b.rate.Burst {
		b.dear = n
		b.setShare()
	}
	return local
}

func (b *bucket) takeLocally(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.s.opts.Fallback {
	case Open:
		return true
	case Closed:
		return false
	}
	return b.s.held(b.s.now()) == 0 && b.shareOf(n).Take(n)
}

func (b *bucket) joinLocally(t *turn) {
	switch b.s.opts.Fallback {
	case Open:
		t.granted = true
	case Closed:
		t.refused = b.s.retry()
	default:
		limit := time.Time{}
		if t.limit != never {
			limit = b.s.epoch.Add(t.limit)
		}
		t.inner = b.shareOf(t.n).Join(t.n, limit, t.ticket, t.keeps)
		b.locals = append(b.locals, t)
	}
	t.wake()
}

// dueLocally is Due of a turn that waits for one of the share.
func (t *turn) dueLocally(now instant) (over bool, refused time.Duration, again time.Time) {
	if until := t.b.s.held(now); until > 0 {
		return false, 0, t.b.s.epoch.Add(until)
	}
	over, refused, again = t.inner.Due()
	if t.over = over; refused > 0 {
		t.b.leaveLocal(t)
	}
	return over, refused, again
}

func (b *bucket) leaveLocal(t *turn) {
	b.locals = slices.DeleteFunc(b.locals, func(o *turn) bool { return o == t })
}

// moved implements handle: those who wait do so where turns are to be had.
func (b *bucket) moved(bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.s.down.Load() {
		b.slots, b.taken, b.back, b.asked, b.since = nil, nil, nil, 0, 0
		for _, t := range b.waiting {
			b.joinLocally(t)
		}
		b.waiting = nil
		return
	}
	locals := b.locals
	b.locals = nil
	if b.local != nil { // refuses all who wait, and so wakes them
		b.local.Set(policy.Rate{PerSecond: b.rate.PerSecond})
	}
	for _, t := range locals {
		if t.over && !t.keeps {
			b.locals = append(b.locals, t) // it is for the caller to take
			continue
		}
		t.inner.Leave()
		t.inner, t.told = nil, -1
		b.line(t)
		t.wake()
	}
	b.local, b.known = nil, false
	b.cold = true // the shares were used until now
	b.sweep(b.s.now())
}

// resync implements handle: Redis may have lost the line. Pauses are also told with each
// answer.
func (b *bucket) resync() { b.remind() }
