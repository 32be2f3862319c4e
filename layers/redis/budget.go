package redis

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

const (
	// What a process leases ahead comes in this time at the full rate.
	leaseAhead = 50 * time.Millisecond
	// A turn that was waited for may come this much later than it could, or the
	// time of one turn if that is longer, before it is taken to be lost.
	lateness = 5 * time.Millisecond
)

// bucket is a rate budget in Redis. The slots that it has reserved belong to
// the first in its queue; those that nobody waits for are a lease, and go back
// when they are not used.
type bucket struct {
	s    *Store
	name string

	mu      sync.Mutex
	rate    policy.Rate
	slots   slots   // that are reserved or leased
	taken   slots   // lately, for refunds, in this order
	back    slots   // to be given back
	waiting []*turn // in the order of their tickets
	asked   int     // slots, in the exchange under way
	since   instant // when the first slot was wanted that has not come; 0: none
	paused  instant // no turn before this
	tell    bool    // of the pause
	telling bool
	heard   instant // of the last pause that was published
	cold    bool    // there has been a fallback
	chill   bool    // and it was said in the exchange under way

	// As of the last answer.
	known   bool
	at      instant // of the answer
	server  float64 // the server's clock in the answer; 0: there was none
	era     string
	next    instant // when the next slot would be due
	rivals  int     // processes that wait, this one included
	version float64 // of the state
	floor   instant // the end of the line

	// Calls of the last times of leaseAhead.
	recent, earlier int
	counted, last   instant
	tidying         bool

	local  layers.Bucket // while Redis is down
	burst  int           // of local
	locals []*turn       // that may wait there
}

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
}

func newBucket(s *Store, name string, r policy.Rate) *bucket {
	return &bucket{s: s, name: name, rate: r, rivals: 1, era: "0"}
}

// period is the time of one turn, in microseconds.
func (b *bucket) period() float64 { return 1e6 / b.rate.PerSecond }

func (b *bucket) turns(n int) time.Duration { return micros(float64(n) * b.period()) }

// ahead is how many turns may be leased ahead.
func (b *bucket) ahead() int { return int(b.rate.PerSecond * leaseAhead.Seconds()) }

// dirty has the bucket take part in the next exchange.
func (b *bucket) dirty() {
	s := b.s
	s.mu.Lock()
	s.dirty[b] = struct{}{}
	s.mu.Unlock()
	s.wake()
}

// ask says what the next exchange is to do.
func (b *bucket) ask(probe bool) budgetRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.s.now()
	r := budgetRequest{
		Period: b.period(), Burst: b.rate.Burst, Version: b.version, Floor: max(0, float64((b.floor - now).Microseconds())),
		Cold: b.cold, Era: b.era, Back: [][4]any{},
	}
	if b.server > 0 {
		r.Expect = b.server + float64((now - b.at).Microseconds())
	}
	for _, o := range b.back {
		r.Back = append(r.Back, [4]any{o.v, o.n, o.name, o.scale.period})
	}
	b.back = nil
	b.chill = b.cold
	r.Pause = max(0, float64((b.paused - now).Microseconds()))
	b.telling, r.Tell, b.tell = b.tell, b.tell, false
	if !probe {
		b.asked = b.lack()
		r.Want = b.asked
	}
	return r
}

// lack is how many slots those in the queue lack: the first one's, and some
// ahead, once half of these are used.
func (b *bucket) lack() int {
	most, need := 1+b.ahead(), 0
	for _, t := range b.waiting {
		if need > 0 && need+t.n > most {
			break
		}
		need += t.n
	}
	have := b.slots.turns() + b.asked
	if need == 0 || have >= b.waiting[0].n && have > need/2 {
		return 0
	}
	return max(0, need-have)
}

// want asks for slots if there is a lack of them.
func (b *bucket) want(now instant) {
	if b.asked == 0 && b.lack() > 0 {
		if b.since == 0 {
			b.since = now
		}
		b.dirty()
	}
}

// answer takes what an exchange brought.
func (b *bucket) answer(r *reply, q budgetRequest) {
	version, floor, era, left, next, rivals := r.number(), r.number(), r.word(), r.number(), r.number(), r.number()
	got := r.slots(q)
	if r.err != nil {
		b.unanswered()
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.s.now()
	if r.began <= b.heard && era != b.era && !later(era, b.era, 0) {
		era, got = b.era, nil // it is from before the pause that was published meanwhile
	}
	b.toEra(era)
	if left > 0 {
		b.paused = max(b.paused, after(r.ended, micros(left)))
	}
	b.version, b.floor = version, after(r.ended, micros(floor))
	b.known, b.at, b.server, b.next, b.rivals = true, r.ended, r.server, r.ended+micros(next), int(rivals)
	if b.chill {
		b.cold, b.chill = false, false
	}
	b.asked, b.since, b.telling = 0, 0, false
	b.slots = b.slots.add(got)
	if q.Period != b.period() {
		b.shed()
	}
	b.sweep(now)
}

// unanswered is told of an exchange that failed.
func (b *bucket) unanswered() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked, b.chill = 0, false
	b.tell, b.telling = b.tell || b.telling, false
}

// toEra forgets the slots of an earlier era: a pause took their place.
func (b *bucket) toEra(era string) {
	if era != b.era {
		b.era = era
		b.slots, b.taken, b.back = nil, nil, nil
	}
}

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

// late is how late n turns that are waited for may be used: not at all, if the
// burst leaves them the time.
func (b *bucket) late(n int, keeps bool) time.Duration {
	late := lateness + b.turns(1)
	if keeps { // for up to two turns
		late += b.turns(2)
	}
	return max(0, late-b.turns(max(0, b.rate.Burst-n)))
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

// release gives back what nobody needs: what is not due at once, and what is
// after a while.
func (b *bucket) release(now instant) {
	need := 0
	for _, t := range b.waiting {
		need += t.n
	}
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

// Take implements layers.Bucket.
func (b *bucket) Take(n int) bool {
	return b.s.takeAll(b.s.ctx, []layers.Claim{{Bucket: b, N: n}})
}

// TakeAll implements layers.Joint.
func (b *bucket) TakeAll(ctx context.Context, claims []layers.Claim) bool {
	return b.s.takeAll(ctx, claims)
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
		return b.share().Predict(n)
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

// Pause implements layers.Bucket.
func (b *bucket) Pause(end time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if until := end.Sub(b.s.epoch); until > b.paused && until > b.s.now() {
		b.pause(until)
		b.tell = true
		b.dirty()
	}
}

// remind tells Redis, which has lost it, of the line of turns that are to come.
func (b *bucket) remind() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.floor > b.s.now() {
		b.dirty()
	}
}

// hearPause is told of a pause that another process was asked for.
func (b *bucket) hearPause(era string, left time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if newer(era, b.era) {
		b.heard = b.s.now()
		b.toEra(era)
		b.pause(max(b.paused, after(b.s.now(), left)))
	}
}

func (b *bucket) pause(until instant) {
	b.paused = until
	b.slots, b.taken = nil, nil
	b.known, b.next = true, max(b.next, until)
	if b.local != nil {
		b.local.Pause(b.s.epoch.Add(until))
	}
	b.sweep(b.s.now())
}

// Set implements layers.Bucket.
func (b *bucket) Set(r policy.Rate) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.PerSecond == b.rate.PerSecond && r.Burst == b.rate.Burst {
		return
	}
	if r.PerSecond != b.rate.PerSecond {
		b.shed()
	}
	b.rate = r
	b.known = false
	if b.local != nil {
		b.burst = min(b.burst, r.Burst)
		b.setShare()
	}
	b.sweep(b.s.now())
}

// Rests implements layers.Handle.
func (b *bucket) Rests() (idle, free bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	idle = len(b.waiting) == 0 && len(b.locals) == 0 && b.s.now() >= b.paused
	return idle, idle
}

// Status is for layers.Env.Budgets.
func (b *bucket) Status() layers.BudgetStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.s.now()
	s := layers.BudgetStatus{
		PerSecond: b.rate.PerSecond, Burst: b.rate.Burst, Level: float64(b.rate.Burst), Waiting: len(b.waiting) + len(b.locals),
	}
	if b.known {
		level := float64((now-b.next).Microseconds())/b.period() + 1 + float64(b.slots.turns())
		s.Level = min(s.Level, level)
	}
	if now < b.paused {
		s.Paused = b.s.epoch.Add(b.paused)
	}
	return s
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
		return t.inner.Due()
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
