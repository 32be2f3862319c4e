package redis

import (
	"slices"
	"time"
)

// leaseAhead is the time in which what a process leases ahead comes at the full rate.
const leaseAhead = 50 * time.Millisecond

// ahead is how many turns may be leased ahead.
func (b *bucket) ahead() int { return int(b.rate.PerSecond * leaseAhead.Seconds()) }

// hand takes the slots that a send asked for: n of them are used, and the rest
// is a lease.
func (b *bucket) hand(got slots, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	used, rest := got.cut(n)
	b.note(used)
	b.slots = b.slots.add(rest)
	b.serve(b.s.now())
}

// shed gives back what is of another rate.
func (b *bucket) shed() {
	b.giveBack(b.slots)
	b.slots = nil
}

// note remembers what was taken.
func (b *bucket) note(got slots) {
	const most = 64
	b.taken = append(b.taken, got...)
	for len(b.taken) > most && b.taken.turns()-b.taken[0].n >= b.rate.Burst {
		b.taken = slices.Delete(b.taken, 0, 1)
	}
}

// forget gives up what is reserved, and not for others: they have it.
func (b *bucket) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slots, b.back = nil, nil
	b.serve(b.s.now())
}

// purge forgets the slots whose time is over, or that others have by now. One that
// somebody waits for may be a little late.
func (b *bucket) purge(now instant) {
	if b.s.lapsed(now) {
		b.slots = nil
		return
	}
	late := time.Duration(0)
	if len(b.waiting) > 0 {
		t := b.waiting[0]
		late = b.late(t.n, t.keeps)
	}
	_, b.slots = b.slots.cut(b.slots.before(func(o slot, i int) bool { return after(o.until(i), late) < now }))
}

// there reports that n slots are due. They are used together, and so they must
// not lie too far apart.
func (b *bucket) there(now instant, n int) bool {
	b.purge(now)
	for n > 1 && b.slots.turns() >= n && b.slots.due(n-1) > after(b.slots.until(0), b.late(n, false)) {
		b.giveBack(b.slots[:1])
		b.slots = b.slots[1:]
	}
	return now >= b.paused && b.slots.turns() >= n && b.slots.due(n-1) <= now
}

func (b *bucket) giveBack(list slots) { b.back = append(b.back, list...) }

func (b *bucket) take(n int) {
	var got slots
	got, b.slots = b.slots.cut(n)
	b.note(got)
}

// release gives back what nobody needs: what is not due at once, and what is
// after a while.
func (b *bucket) release(now instant) {
	need := b.queued()
	if keep := max(need, b.slots.before(func(o slot, i int) bool { return o.due(i) <= now })); keep < b.slots.turns() {
		var rest slots
		b.slots, rest = b.slots.cut(keep)
		b.giveBack(rest)
	}
	if len(b.back) > 0 {
		b.dirty()
	}
	if b.slots.turns() > need && !b.tidying {
		b.tidying = true
		b.s.clock.AfterFunc(leaseAhead, b.tidy)
	}
}

// tidy gives back a lease that has not been used for a while.
func (b *bucket) tidy() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tidying = false
	now := b.s.now()
	b.purge(now)
	if len(b.waiting) == 0 && now-b.last >= leaseAhead {
		b.giveBack(b.slots)
		b.slots = nil
	}
	b.release(now)
}

// count counts the calls, for what is leased.
func (b *bucket) count(now instant, n int) {
	if passed := now - b.counted; passed >= leaseAhead {
		b.earlier = b.recent
		if passed >= 2*leaseAhead {
			b.earlier = 0
		}
		b.recent, b.counted = 0, now
	}
	b.recent += n
	b.last = now
}

// further is how many slots beyond those that are needed at once are leased,
// and for how long.
func (b *bucket) further() (n int, micros float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	hold := min(leaseAhead, b.turns(b.rate.Burst-1)/2)
	return min(b.ahead(), max(b.earlier, b.recent)-1), float64(hold.Microseconds())
}

// takeHere takes what is leased. known is false if Redis has to be asked.
func (b *bucket) takeHere(n int) (yes, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.s.now()
	b.count(now, n)
	switch {
	case b.s.down.Load():
		return false, false
	case len(b.waiting) == 0 && b.there(now, n):
		b.take(n)
		return true, true
	}
	return false, b.lost(now, n)
}

// hopeless reports that there is no turn as far as is known.
func (b *bucket) hopeless() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.s.down.Load() && b.lost(b.s.now(), 1)
}

// lost reports that n turns are not there. What is known of others is soon old:
// they may have given something back.
func (b *bucket) lost(now instant, n int) bool {
	fresh := b.known && !b.cold && len(b.back) == 0 && now-b.at < leaseAhead
	return n > b.rate.Burst || len(b.waiting) > 0 || now < b.paused || fresh && b.next+b.turns(n-1) > now
}

// Refund implements layers.Bucket.
func (b *bucket) Refund(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.local != nil {
		b.local.Refund(n)
		return
	}
	b.refund(n)
}

// refund keeps of the turns that were taken last what can still be used, and
// gives back the rest: of it, only the end of the line is of use to anyone.
func (b *bucket) refund(n int) {
	now := b.s.now()
	var got slots
	b.taken, got = b.taken.cut(max(0, b.taken.turns()-n))
	for _, o := range got {
		over, good := slots{o}.cut(slots{o}.before(func(o slot, i int) bool { return o.until(i) < now }))
		b.giveBack(over)
		b.slots = b.slots.add(good)
	}
	b.known = b.known && len(b.back) == 0 // there may be more than was said
	b.serve(now)
}
