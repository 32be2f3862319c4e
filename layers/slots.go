package layers

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/policy"
)

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
