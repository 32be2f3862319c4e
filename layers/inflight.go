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
		states := statesOf[*slots](env, id)
		states.set(f.Max, func(stateKey) *slots { return &slots{max: f.Max} }, func(s *slots) { s.resize(f.Max) })
		return &inFlight{env: env, next: next, states: states, key: keyOf(f.Key), maxWait: f.MaxWait}
	})
}

type inFlight struct {
	env     *Env
	next    sender
	states  *keyed[*slots]
	key     policy.KeyFunc
	maxWait time.Duration
}

// slots are the slots of one key, and those who wait for one.
type slots struct {
	mu    sync.Mutex
	max   int
	used  int
	queue []*slot
}

// slot is an attempt's place: in the queue, then among those under way.
type slot struct {
	s      *slots
	signal chan struct{}
	held   bool
	unhook func() bool // from the end of the caller's context
}

// rests implements state.
func (s *slots) rests(instant) (idle, free bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	free = s.used == 0 && len(s.queue) == 0
	return free, free
}

func (s *slots) resize(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.max = n
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

// try takes a slot for p, if there is one and nobody waits before it.
func (s *slots) try(p *slot) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	waits := len(s.queue) > 0
	if s.used >= s.max || waits && s.queue[0] != p {
		return false
	}
	if waits {
		s.queue = s.queue[1:]
	}
	s.used++
	p.held = true
	s.wake()
	return true
}

// free reports that p is the first in the queue and that there is a slot.
func (s *slots) free(p *slot) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used < s.max && len(s.queue) > 0 && s.queue[0] == p
}

// leave gives back a slot, or a place in the queue.
func (p *slot) leave() {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.held {
		p.held = false
		s.used--
	} else {
		for i, q := range s.queue {
			if q == p {
				s.queue = append(s.queue[:i], s.queue[i+1:]...)
				break
			}
		}
	}
	s.wake()
}

func (l *inFlight) send(a *attempt, req *http.Request) (*http.Response, error) {
	p := &a.slot
	p.s = l.states.of(l.key, req)
	if !p.s.try(p) {
		if err := l.wait(a, p); err != nil {
			p.leave()
			return nil, err
		}
	}
	a.onEnd(p)
	defer func() {
		if !a.left() { // refused further in, or a panic
			p.release()
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
func (l *inFlight) wait(a *attempt, p *slot) error {
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
	p.signal = make(chan struct{}, 1)
	p.s.mu.Lock()
	p.s.queue = append(p.s.queue, p)
	p.s.wake()
	p.s.mu.Unlock()
	a.emit(Event{Kind: KindWait, Phase: PhaseInFlight, Wait: min(limit, a.call.deadline()) - now})
	held := a.turns.held
	for {
		a.turns.refund()
		for !p.s.free(p) {
			if l.env.now() >= limit {
				return refused(ReasonMaxWait)
			}
			if err := a.waitUntil(limit, p.signal); err != nil {
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
		if p.s.try(p) {
			return nil
		}
	}
}

// release gives the slot back, once.
func (p *slot) release() {
	p.s.mu.Lock()
	held := p.held
	p.s.mu.Unlock()
	if held {
		p.leave()
	}
}

// ended implements ender.
func (p *slot) ended(a *attempt, _ outcome) {
	a.call.mu.Lock()
	unhook := p.unhook
	a.call.mu.Unlock()
	if unhook != nil {
		unhook()
	}
	p.release()
}

// endsWithCaller makes the end of the caller's context the attempt's: a slot is
// given back even if nobody reads or closes the body.
func (a *attempt) endsWithCaller(p *slot) {
	c := a.call
	if c.parent.Done() == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.settled {
		return
	}
	p.unhook = context.AfterFunc(c.parent, func() {
		c.mu.Lock()
		idle := !a.reading && a.depth == 0
		o := outcome{status: a.status, abandoned: true}
		c.mu.Unlock()
		if idle {
			a.settle(o)
		}
	})
}
