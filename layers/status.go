package layers

import (
	"time"

	"github.com/weir-go/weir/policy"
)

// BudgetStatus is a rate budget of one key as it stands.
type BudgetStatus struct {
	ID        policy.StateID
	Key       string
	PerSecond float64
	Burst     int
	Level     float64   // turns that are there; below zero, those that are owed
	Waiting   int       // sends in the queue
	Paused    time.Time // no turn comes before; zero: it is not paused
}

// BreakerStatus is a circuit as it stands.
type BreakerStatus struct {
	ID       policy.StateID
	Key      string
	State    State
	Forced   bool      // by ForceOpen or ForceClosed
	Why      string    // it opened last, such as "5 failures in a row"; empty: it never did
	Until    time.Time // when a probe may pass; zero: it is not open by itself
	Failures int       // in a row
	Probes   int       // under way
}

// SlotsStatus is an in-flight limit of one key as it stands.
type SlotsStatus struct {
	ID      policy.StateID
	Key     string
	Max     int
	Used    int
	Waiting int
}

// RetryBudgetStatus is the budget of an origin for sends beyond the first of a
// call, as it stands.
type RetryBudgetStatus struct {
	Origin string
	Level  float64 // sends that it is good for
}

// Budgets returns the rate budgets that are in use. A [Bucket] of a Store is
// among them if it has a method Status() BudgetStatus; its ID and Key are filled
// in.
func (e *Env) Budgets() []BudgetStatus {
	return statusOf(e, func(id policy.StateID, key stateKey, b Bucket) (s BudgetStatus, ok bool) {
		if t, has := b.(interface{ Status() BudgetStatus }); has {
			s, ok = t.Status(), true
		}
		s.ID, s.Key = id, key.String()
		return s, ok
	})
}

// Slots returns the in-flight limits that are in use. Slots of a Store are among
// them if they have a method Status() SlotsStatus; their ID and Key are filled in.
func (e *Env) Slots() []SlotsStatus {
	return statusOf(e, func(id policy.StateID, key stateKey, f Slots) (s SlotsStatus, ok bool) {
		if t, has := f.(interface{ Status() SlotsStatus }); has {
			s, ok = t.Status(), true
		}
		s.ID, s.Key = id, key.String()
		return s, ok
	})
}

// RetryBudgets returns the retry budgets that are in use.
func (e *Env) RetryBudgets() []RetryBudgetStatus {
	var list []RetryBudgetStatus
	for _, k := range e.extra.kept() {
		list = append(list, RetryBudgetStatus{k.key.String(), k.state.Level()})
	}
	return list
}

// Breakers returns the circuits that are in use. A [Circuit] of a Store is among
// them if it is [Shown].
func (e *Env) Breakers() []*Breaker {
	return statusOf(e, func(id policy.StateID, key stateKey, c Circuit) (*Breaker, bool) {
		if own, ok := c.(*circuit); ok && own.seen.key == key {
			return own.seen, true
		}
		shown, ok := c.(Shown)
		return &Breaker{shown, id, key}, ok
	})
}

// statusOf asks each state of a kind.
func statusOf[T Handle, S any](e *Env, ask func(policy.StateID, stateKey, T) (S, bool)) []S {
	e.states.mu.Lock()
	var sets []*keyed[T]
	for _, set := range e.states.sets {
		if s, ok := set.(*keyed[T]); ok {
			sets = append(sets, s)
		}
	}
	e.states.mu.Unlock()
	var list []S
	for _, set := range sets {
		for _, k := range set.kept() {
			if s, ok := ask(set.id, k.key, k.state); ok {
				list = append(list, s)
			}
		}
	}
	return list
}
