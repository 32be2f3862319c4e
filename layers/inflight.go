package layers

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/policy"
)

// InFlight bounds how many sends of a key are under way at once, their bodies
// included: see [policy.InFlight], whose zero fields have their defaults here.
// id is the identity of the state that it shares, zero if the stack has only
// one. A send for which there is no slot is refused at once, unsent, or waits
// for one in the order of arrival if MaxWait allows it.
func InFlight(env *Env, id policy.StateID, f policy.InFlight) Layer {
	f = policy.Defaults().With(policy.Settings{InFlight: f}).InFlight
	env = env.ready()
	states := statesOf(env, id, slotSets)
	states.set(policy.Settings{InFlight: f})()
	return env.layer(rankInFlight, "", func(env *Env, next sender) sender {
		return &inFlight{env: env, next: next, states: states, key: keyOf(f.Key), maxWait: f.MaxWait}
	})
}

var slotSets = kind[Slots]{
	numbers: func(s policy.Settings) any { return s.InFlight.Max },
	make: func(e *Env, id policy.StateID, key stateKey, s policy.Settings) Slots {
		if e.Store != nil {
			if f := e.Store.Slots(id, key.String(), s.InFlight); f != nil {
				return f
			}
		}
		return &slots{max: s.InFlight.Max}
	},
	apply: func(f Slots, s policy.Settings) func() {
		if local, ok := f.(*slots); ok {
			local.Set(s.InFlight)
			return nothing
		}
		return func() { f.Set(s.InFlight) } // which may take its time
	},
	pool: func(f Slots) bool {
		_, ok := f.(*slots)
		return ok
	},
}

type inFlight struct {
	env     *Env
	next    sender
	states  *keyed[Slots]
	key     policy.KeyFunc
	maxWait time.Duration
}

// slots are the slots of one key, and those who wait for one.
type slots struct {
	mu    sync.Mutex
	max   int
	used  int
	queue queue[*place]

	// The attempts that hold a slot, in no order. Since few calls are left
	// unread by a caller that goes away, its end is looked for only once there
	// is no slot for somebody, and until half of them are free.
	holders []*attempt
	pressed atomic.Bool
}

// Rests implements Handle.
func (s *slots) Rests() (idle, free bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	free = s.used == 0 && s.queue.head == nil
	return free, free
}

// Set implements Slots.
func (s *slots) Set(f policy.InFlight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.max = f.Max
	s.wake()
}

// wake tells the first in the queue that there is a slot. The mutex must be
// held.
func (s *slots) wake() {
	if s.queue.head != nil && s.used < s.max {
		s.queue.head.wake()
	}
}

// Take implements Slots.
func (s *slots) Take() bool { return s.take(nil) }

// take takes a slot for a, if it is one of ours.
func (s *slots) take(a *attempt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used >= s.max || s.queue.head != nil {
		return false
	}
	s.used++
	if a != nil {
		s.note(a)
	}
	return true
}

// Release implements Slots.
func (s *slots) Release() { s.release(nil) }

func (s *slots) release(a *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	if a != nil {
		s.forget(a)
	}
	if s.used <= s.max/2 && s.queue.head == nil {
		s.pressed.Store(false)
	}
	s.wake()
}

// note notes that a holds one of the slots. The mutex must be held.
func (s *slots) note(a *attempt) {
	a.slot.at = int32(len(s.holders))
	s.holders = append(s.holders, a)
}

// forget takes back what note noted. The mutex must be held.
func (s *slots) forget(a *attempt) {
	last := len(s.holders) - 1
	moved := s.holders[last]
	s.holders[a.slot.at], moved.slot.at = moved, a.slot.at
	s.holders[last] = nil
	s.holders = s.holders[:last]
}

// press returns the attempts that hold a slot, the first time that there is
// none for somebody.
func (s *slots) press() []*attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pressed.Swap(true) {
		return nil
	}
	return slices.Clone(s.holders)
}

// Join implements Slots.
func (s *slots) Join(ticket uint64) Place {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &place{s: s}
	p.waiter = newWaiter(p, ticket)
	s.queue.add(&p.waiter)
	s.wake()
	return p
}

// Status is for Env.Slots.
func (s *slots) Status() SlotsStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SlotsStatus{Max: s.max, Used: s.used, Waiting: s.queue.len()}
}

// place is a place in the queue of slots.
type place struct {
	waiter[*place]

	s *slots
}

func (p *place) free() bool { return p.s.used < p.s.max && p.s.queue.head == &p.waiter }

// Free implements Place.
func (p *place) Free() bool {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	return p.free()
}

// Take implements Place.
func (p *place) Take() bool {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if !p.free() {
		return false
	}
	p.s.queue.remove(&p.waiter)
	p.s.used++
	p.s.wake()
	return true
}

// Leave implements Place.
func (p *place) Leave() {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.s.queue.remove(&p.waiter)
	p.s.wake()
}

// slot is the slot of an attempt. The mutex of its call guards it.
type slot struct {
	s      Slots
	at     int32       // in slots.holders
	users  int32       // sends that the slot is for: its holder, and those that share it
	held   bool        // it or, if the attempt has a lender, a share in the lender's
	unhook func() bool // from the end of the caller's context
}

// take takes a slot, if there is one.
func (p *slot) take(a *attempt) bool {
	local, ok := p.s.(*slots)
	if !ok {
		return p.s.Take()
	}
	if local.take(a) {
		return true
	}
	for _, holder := range local.press() { // somebody's caller may have left without a word
		holder.endsWithCaller()
	}
	return local.take(a)
}

// wanted reports that somebody may wait for the slot.
func (p *slot) wanted() bool {
	local, ok := p.s.(*slots)
	return !ok || local.pressed.Load()
}

func (l *inFlight) send(a *attempt, req *http.Request) (*http.Response, error) {
	p := &a.slot
	if p.s != nil { // a layer of the user's sends again
		p.ended(a, outcome{})
	}
	p.s = l.states.of(l.key, req)
	if !p.take(a) && !a.shareSlot() {
		if err := l.wait(a, p.s); err != nil {
			return nil, err
		}
		if local, ok := p.s.(*slots); ok {
			local.mu.Lock()
			local.note(a)
			local.mu.Unlock()
		}
	}
	a.call.mu.Lock()
	p.held, p.users = true, 1
	a.call.mu.Unlock()
	defer func() {
		if !a.left() { // refused further in, or a panic
			p.ended(a, outcome{})
		}
	}()
	resp, err := l.next.send(a, req)
	if err == nil && p.wanted() {
		a.endsWithCaller()
	}
	return resp, err
}

var errNoSlot = errors.New("too many sends are in flight")

// wait waits for a slot. The turn of a rate budget is given back meanwhile. Once
// there is a slot, the turn is taken anew, or waited for where the call's ticket
// stands in that queue: either wait holds nothing, and MaxWait bounds both.
func (l *inFlight) wait(a *attempt, s Slots) error {
	now := l.env.now()
	refused := func(reason string) error {
		return a.refuse(&Error{
			Layer: rankInFlight.String(), Phase: PhaseInFlight, Limit: max(0, l.maxWait), Elapsed: l.env.now() - a.call.start,
			Reason: reason, Err: errNoSlot,
		})
	}
	if l.maxWait <= 0 {
		return refused(ReasonInFlight)
	}
	// The deadline, if it comes before, ends the attempt and with it the wait.
	limit := after(now, l.maxWait)
	began := never // when the wait for a slot did; never: something else is waited for
	begin := func() {
		began = l.env.now()
		a.emit(Event{Kind: KindWait, Phase: PhaseInFlight, Wait: min(limit, a.call.deadline()) - began})
	}
	over := func() {
		if began != never {
			a.waited(PhaseInFlight, began)
		}
		began = never
	}
	begin()
	defer over()
	p := s.Join(a.order())
	defer func() { p.Leave() }() // which does nothing once it is taken
	for had := a.turns.held; ; {
		a.turns.refund()
		for !p.Free() {
			if l.env.now() >= limit {
				return refused(ReasonMaxWait)
			}
			if err := a.waitUntil(limit, p.Signal()); err != nil {
				return err
			}
		}
		if err := a.recheck(); err != nil {
			return err
		}
		if had && !a.turns.tryAgain(a) {
			p.Leave() // a free slot is for who can use it
			over()
			if err := a.turns.take(a, limit); err != nil {
				return err
			}
			p = s.Join(a.order())
		}
		if p.Take() {
			return nil
		}
		if began == never {
			begin()
		}
	}
}

// holdsSlot reports that another send may have to wait for the slot of a.
func (a *attempt) holdsSlot() bool {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	return a.slot.held
}

// shareSlot lets a use the slot of an attempt that a layer of the user's makes
// it for, a token's maker say, and that needs it only afterwards: waiting for
// another would be waiting for itself.
func (a *attempt) shareSlot() bool {
	for o := a.around(); o != nil; o = o.around() {
		if o.lendSlot(a.slot.s) {
			a.call.mu.Lock()
			a.mark().lender = o
			a.call.mu.Unlock()
			return true
		}
	}
	return false
}

func (a *attempt) lendSlot(of Slots) bool {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	p := &a.slot
	lends := p.held && p.users == 1 && p.s == of && !a.counted && a.seldom().lender == nil
	if lends {
		p.users++
	}
	return lends
}

// ended gives the slot back, once.
func (p *slot) ended(a *attempt, _ outcome) {
	a.call.mu.Lock()
	held, unhook, holder := p.held, p.unhook, a.seldom().lender
	p.held, p.unhook = false, nil
	a.call.mu.Unlock()
	if unhook != nil {
		unhook()
	}
	switch {
	case !held:
	case holder != nil:
		holder.slot.leave(holder)
	default:
		p.leave(a)
	}
}

// leave gives the slot that a holds back once nobody uses it any more.
func (p *slot) leave(a *attempt) {
	a.call.mu.Lock()
	p.users--
	used := p.users > 0
	a.call.mu.Unlock()
	if used {
		return
	}
	if local, ok := p.s.(*slots); ok {
		local.release(a)
	} else {
		p.s.Release()
	}
}

// endsWithCaller makes the end of the caller's context the attempt's: a slot is
// given back even if nobody reads or closes the body.
func (a *attempt) endsWithCaller() {
	switch {
	case a.base.Done() == nil:
		return
	case a.base.Err() != nil:
		a.leftUnread()
		return
	}
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	if p := &a.slot; p.held && p.unhook == nil {
		p.unhook = context.AfterFunc(a.base, a.leftUnread)
	}
}

// leftUnread ends an attempt whose caller has given it up, and is not in the
// middle of anything that would tell.
func (a *attempt) leftUnread() {
	c := a.call
	c.mu.Lock()
	idle := a.counted && !a.reading && a.depth == 0
	o := outcome{status: int(a.status), abandoned: true}
	c.mu.Unlock()
	if idle {
		a.settle(o)
	}
}
