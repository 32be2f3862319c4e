package transport

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

var errNoURL = errors.New("the request has no URL")

// chains are the chains compiled for one table, by line. The table bounds how
// many lines it keeps, and with them the chains.
type chains struct {
	table *policy.Table
	lines sync.Map // of *policy.Line to http.RoundTripper
}

// chain returns the chain that serves req.
func (t *Transport) chain(req *http.Request) (http.RoundTripper, error) {
	table := t.table.Load()
	line, err := match(table, req)
	if err != nil {
		return nil, err
	}
	own := t.chainsOf(table)
	lines := &own.lines
	override := policy.OverrideFrom(req.Context())
	if override != nil {
		lines = override.Chains(own)
	}
	if chain, ok := lines.Load(line); ok {
		return chain.(http.RoundTripper), nil //nolint:forcetypeassert // Nothing else is stored.
	}
	resolved, err := line.Resolve(t.view, override)
	if err != nil {
		return nil, err
	}
	// A chain sets the numbers of the state that it shares. One of an old
	// table must not do so after one of the new.
	t.compiling.Lock()
	if t.table.Load() != table {
		t.compiling.Unlock()
		return t.chain(req)
	}
	chain := layers.Chain(t.base, layersOf(t.parts(resolved))...)
	t.compiling.Unlock()
	if line.Kept {
		lines.Store(line, chain)
	}
	return chain, nil
}

func (t *Transport) chainsOf(table *policy.Table) *chains {
	c := t.chains.Load()
	if c == nil || c.table != table {
		c = &chains{table: table}
		t.chains.Store(c)
	}
	return c
}

// part is a layer of a chain and its name.
type part struct {
	name  string
	layer layers.Layer
}

// parts returns the layers of a chain, outermost first. One that is off is not
// among them.
func (t *Transport) parts(r *policy.Resolved) []part {
	parts := []part{{"match", layers.Open(t.env, r.Route)}}
	add := func(name string, on bool, layer layers.Layer) {
		if on {
			parts = append(parts, part{name, layer})
		}
	}
	for i, layer := range t.outer {
		add(fmt.Sprintf("outer[%d]", i), layer != nil, layer)
	}
	add("deadline", r.Deadline > 0, layers.Deadline(t.env, r.Deadline))
	add("retry", r.Retry.Enabled == policy.On, layers.Retry(t.env, r.Retry))
	add("hedge", r.Hedge.Enabled == policy.On, layers.Hedge(t.env, r.Hedge))
	if r.Breaker.Enabled == policy.On { // its layer sets the numbers of shared state
		add("breaker", true, layers.CircuitBreaker(t.env, r.BreakerState, r.Breaker))
	}
	if budgets := budgetsOf(r); len(budgets) > 0 {
		add("rate", true, layers.RateBudget(t.env, budgets...))
	}
	if r.InFlight.Enabled == policy.On {
		add("in-flight", true, layers.InFlight(t.env, r.InFlightState, r.InFlight))
	}
	add("inner", len(t.inner) > 0, layers.Inner(t.env, t.inner...))
	o := r.Timeouts
	add("timeouts", o.Pool > 0 || o.Connect > 0 || o.Write > 0 || o.Read > 0 || o.Attempt > 0, layers.Timeouts(t.env, o))
	return parts
}

// budgetsOf returns the budgets that a send takes a turn in.
func budgetsOf(r *policy.Resolved) []layers.Budget {
	var list []layers.Budget
	if r.Rate.Enabled == policy.On {
		list = append(list, layers.Budget{Rate: r.Rate, ID: r.RateState})
	}
	for _, name := range slices.Sorted(maps.Keys(r.Budgets)) {
		if b := r.Budgets[name]; b.Enabled == policy.On {
			list = append(list, layers.Budget{Rate: b, ID: r.BudgetStates[name]})
		}
	}
	return list
}

func layersOf(parts []part) []layers.Layer {
	list := make([]layers.Layer, len(parts))
	for i, p := range parts {
		list[i] = p.layer
	}
	return list
}
