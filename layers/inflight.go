package layers

import (
	"context"
	"errors"
	"net/http"
	"slices"
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
		states := statesOf[Slots](env, id)
		states.set(f.Max, func(k stateKey) Slots {
			if env.Store != nil {
				if s := env.Store.Slots(id, k.String(), f); s != nil {
					return s
				}
			}
			return &slots{max: f.Max}
		}, func(s Slots) { s.Set(f) })
		return &inFlight{env: env, next: next, states: states, key: keyOf(f.Key), maxWait: f.MaxWait}
	})
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
	queue []*place
}

// Rests implements Handle.
func (s *slots) Rests() (idle, free bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	free = s.used == 0 && len(s.queue) == 0
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
	if len(s.queue) > 0 && s.used < s.max {
		select {
		case s.queue[0].signal <- struct{}{}:
		default:
		}
	}
}

// Take implements Slots.
func (s *slots) Take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used >= s.max || len(s.queue) > 0 {
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
func (s *slots) Join() Place {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &place{s: s, signal: make(chan struct{}, 1)}
	s.queue = append(s.queue, p)
	s.wake()
	return p
}

// place is a place in the queue of slots.
type place struct {
	s      *slots
	signal chan struct{}
}

func (p *place) free() bool { return p.s.used < p.s.max && len(p.s.queue) > 0 && p.s.queue[0] == p }

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
	p.s.queue = p.s.queue[1:]
	p.s.used++
	p.s.wake()
	return true
}

// Signal implements Place.
func (p *place) Signal() <-chan struct{} { return p.signal }

// Leave implements Place.
func (p *place) Leave() {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.s.queue = slices.DeleteFunc(p.s.queue, func(q *place) bool { return q == p })
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

// wait waits for a slot. The turn of a rate budget is given back meanwhile, and
// taken anew, before all who wait for one, once there is a slot.
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
	p := s.Join()
	taken := false
	defer func() {
		if !taken {
			p.Leave()
		}
	}()
	held := a.turns.held
	for {
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
		if held {
			if err := a.turns.take(a, true); err != nil {
				return err
			}
		}
		if taken = p.Take(); taken {
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
