package redis

import (
	"context"
	"sync"
	"time"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
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
	dear   int           // what a send took there that costs more than its share of the burst
	locals []*turn       // that may wait there
}

func newBucket(s *Store, name string, r policy.Rate) *bucket {
	return &bucket{s: s, name: name, rate: r, rivals: 1, era: "0"}
}

// period is the time of one turn, in microseconds.
func (b *bucket) period() float64 { return 1e6 / b.rate.PerSecond }

func (b *bucket) turns(n int) time.Duration { return micros(float64(n) * b.period()) }

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

// Take implements layers.Bucket.
func (b *bucket) Take(n int) bool {
	return b.s.takeAll(b.s.ctx, []layers.Claim{{Bucket: b, N: n}})
}

// TakeAll implements layers.Joint.
func (b *bucket) TakeAll(ctx context.Context, claims []layers.Claim) bool {
	return b.s.takeAll(ctx, claims)
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
		b.dear = min(b.dear, r.Burst)
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
