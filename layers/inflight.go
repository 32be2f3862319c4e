package layers

import (
	"context"
	"errors"
	"net/http"
	"sync"
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
	return env.layer(rankInFlight, "", func(env *Env, next sender) sender {
		states := statesOf(env, id, slotSets)
		states.set(policy.Settings{InFlight: f})
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
	apply: func(f Slots, s policy.Settings) { f.Set(s.InFlight) },
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
func (s *slots) Take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used >= s.max || s.queue.head != nil {
		return false
	}
	s.used++
	return true
}

// Release implements Slots.
func (s *slots) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	s.wake()
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
	held   bool
	unhook func() bool // from the end of the caller's context
}

func (l *inFlight) send(a *attempt, req *http.Request) (*http.Response, error) {
	p := &a.slot
	p.s = l.states.of(l.key, req)
	if !p.s.Take() {
		if err := l.wait(a, p.s); err != nil {
			return nil, err
		}
	}
	a.call.mu.Lock()
	p.held = true
	a.call.mu.Unlock()
	defer func() {
		if !a.left() { // refused further in, or a panic
			p.ended(a, outcome{})
		}
	}()
	resp, err := l.next.send(a, req)
	if err == nil {
		a.endsWithCaller(p)
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
	a.emit(Event{Kind: KindWait, Phase: PhaseInFlight, Wait: min(limit, a.call.deadline()) - now})
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
		if had && !a.turns.tryAgain() {
			p.Leave() // a free slot is for who can use it
			if err := a.turns.take(a, limit); err != nil {
				return err
			}
			p = s.Join(a.order())
		}
		if p.Take() {
			return nil
		}
	}
}

// ended gives the slot back, once.
func (p *slot) ended(a *attempt, _ outcome) {
	a.call.mu.Lock()
	held, unhook := p.held, p.unhook
	p.held = false
	a.call.mu.Unlock()
	if unhook != nil {
		unhook()
	}
	if held {
		p.s.Release()
	}
}

// endsWithCaller makes the end of the caller's context the attempt's: a slot is
// given back even if nobody reads or closes the body.
func (a *attempt) endsWithCaller(p *slot) {
	c := a.call
	if a.base.Done() == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.settled {
		return
	}
	p.unhook = context.AfterFunc(a.base, func() {
		c.mu.Lock()
		idle := !a.reading && a.depth == 0
		o := outcome{status: int(a.status), abandoned: true}
		c.mu.Unlock()
		if idle {
			a.settle(o)
		}
	})
}
