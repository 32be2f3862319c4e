package page

import (
	"cmp"
	"slices"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// numbered is shared state with a number that is drawn as a line.
type numbered interface {
	id() policy.StateID
	key() string
	level() float64
	top() float64 // of the line
	// need orders a list: what needs attention most comes first.
	need() float64
}

func nameOf(t *transport.Transport, n numbered) lineName {
	id := n.id()
	return lineName{t, id.Section, id.Budget, id.Pattern, n.key()}
}

type budget struct{ layers.BudgetStatus }

func (b budget) id() policy.StateID { return b.ID }
func (b budget) key() string        { return b.Key }
func (b budget) level() float64     { return b.Level }
func (b budget) top() float64       { return float64(b.Burst) }
func (b budget) need() float64 {
	if !b.Paused.IsZero() {
		return float64(b.Waiting) + 2
	}
	return float64(b.Waiting) + 1 - b.Level/max(1, float64(b.Burst))
}

type circuit struct{ layers.BreakerStatus }

func (c circuit) id() policy.StateID { return c.ID }
func (c circuit) key() string        { return c.Key }
func (c circuit) level() float64     { return float64(c.State - layers.StateClosed) }
func (c circuit) top() float64       { return float64(layers.StateOpen - layers.StateClosed) }
func (c circuit) need() float64      { return float64(c.State)*1e6 + min(float64(c.Failures), 1e5) }

type slots struct{ layers.SlotsStatus }

func (s slots) id() policy.StateID { return s.ID }
func (s slots) key() string        { return s.Key }
func (s slots) level() float64     { return float64(s.Used) }
func (s slots) top() float64       { return float64(s.Max) }
func (s slots) need() float64      { return float64(s.Waiting) + float64(s.Used)/max(1, float64(s.Max)) }

type retries struct{ layers.RetryBudgetStatus }

func (r retries) id() policy.StateID { return policy.StateID{Section: "Retry"} }
func (r retries) key() string        { return r.Origin }
func (r retries) level() float64     { return r.Level }
func (r retries) top() float64       { return 3 }
func (r retries) need() float64      { return -r.Level }

// state is what calls share, as it stands.
type state struct {
	Circuits part[circuit]
	Budgets  part[budget]
	Slots    part[slots]
	Retries  part[retries]
}

// part is one kind of shared state. There may be 10,000 of it.
type part[N numbered] struct {
	Shown []N
	More  int
}

func stateOf(t *transport.Transport) state {
	return state{
		Circuits: ordered(t.Breakers(), func(b *layers.Breaker) circuit { return circuit{b.Status()} }),
		Budgets:  ordered(t.Budgets(), func(s layers.BudgetStatus) budget { return budget{s} }),
		Slots:    ordered(t.Slots(), func(s layers.SlotsStatus) slots { return slots{s} }),
		Retries:  ordered(t.RetryBudgets(), func(s layers.RetryBudgetStatus) retries { return retries{s} }),
	}
}

// ordered takes those that need attention most, if there are more than are
// shown, and sorts them by name, so that they keep their places.
func ordered[S any, N numbered](list []S, as func(S) N) part[N] {
	out := make([]N, len(list))
	for i, s := range list {
		out[i] = as(s)
	}
	if len(out) > mostLines {
		slices.SortFunc(out, func(a, b N) int { return cmp.Compare(b.need(), a.need()) })
		out = out[:mostLines]
	}
	slices.SortFunc(out, func(a, b N) int {
		return cmp.Or(cmp.Compare(a.id().Pattern, b.id().Pattern), cmp.Compare(a.id().Budget, b.id().Budget), cmp.Compare(a.key(), b.key()))
	})
	return part[N]{out, len(list) - len(out)}
}
