package layers

import (
	"context"
	"errors"
	"net/http"
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

type inFlight struct {
	env     *Env
	next    sender
	states  *keyed[Slots]
	key     policy.KeyFunc
	maxWait time.Duration
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
	passes := a.passes.Load()
	defer func() {
		if a.passes.Load() == passes { // refused further in, or a panic
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
	unhook := context.AfterFunc(a.base, a.leftUnread) // asks a context of the user's
	a.call.mu.Lock()
	p := &a.slot
	hooked := p.held && p.unhook == nil
	if hooked {
		p.unhook = unhook
	}
	a.call.mu.Unlock()
	if !hooked {
		unhook()
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
