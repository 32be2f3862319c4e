package transport

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

var errNoURL = errors.New("the request has no URL")

// chains are the chains compiled for one table, by line. The table bounds how
// many lines it keeps, and with them the chains.
type chains struct {
	table *policy.Table
	lines sync.Map              // of *policy.Line to *chain
	last  atomic.Pointer[chain] // found: most calls of a client go where the one before went
}

// chain serves the requests of a line.
type chain struct {
	http.RoundTripper
	line *policy.Line
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
	} else if last := own.last.Load(); last != nil && last.line == line {
		return last.RoundTripper, nil
	}
	if found, ok := lines.Load(line); ok {
		c := found.(*chain) // Nothing else is stored.
		if override == nil {
			own.last.Store(c)
		}
		return c.RoundTripper, nil
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
	var list []layers.Layer
	sends := false
	for _, p := range t.parts(resolved) {
		list = append(list, p.make())
		sends = p.name != "match" && p.name != "outer"
	}
	t.compiling.Unlock()
	if !sends { // all is off, and what a call sends has to be known for a send
		list = append(list, layers.Inner(t.env))
	}
	c := &chain{layers.Chain(t.base, list...), line}
	if line.Kept {
		lines.Store(line, c)
	}
	return c.RoundTripper, nil
}

func (t *Transport) chainsOf(table *policy.Table) *chains {
	c := t.chains.Load()
	if c == nil || c.table != table {
		c = &chains{table: table}
		t.chains.Store(c)
	}
	return c
}

// part is a layer of a chain. It is made only for a chain that serves, since
// some set the numbers of the state that they share.
type part struct {
	name string
	make func() layers.Layer
}

// parts returns the layers of a chain, outermost first. One that is off is not
// among them.
func (t *Transport) parts(r *policy.Resolved) []part {
	var parts []part
	add := func(name string, on bool, layer func() layers.Layer) {
		if on {
			parts = append(parts, part{name, layer})
		}
	}
	add("match", true, func() layers.Layer { return layers.Open(t.env, r.Route) })
	add("outer", len(t.outer) > 0, func() layers.Layer {
		return func(next http.RoundTripper) http.RoundTripper { return layers.Chain(next, t.outer...) }
	})
	add("deadline", r.Deadline > 0, func() layers.Layer { return layers.Deadline(t.env, r.Deadline) })
	add("retry", r.Retry.Enabled == policy.On, func() layers.Layer { return layers.Retry(t.env, r.Retry) })
	add("hedge", r.Hedge.Enabled == policy.On && r.Stream.Enabled != policy.On, func() layers.Layer { return layers.Hedge(t.env, r.Hedge) })
	add("breaker", r.Breaker.Enabled == policy.On, func() layers.Layer {
		return layers.CircuitBreaker(t.env, r.BreakerState, r.Breaker)
	})
	budgets := budgetsOf(r)
	add("rate", len(budgets) > 0, func() layers.Layer { return layers.RateBudget(t.env, budgets...) })
	add("in-flight", r.InFlight.Enabled == policy.On, func() layers.Layer {
		return layers.InFlight(t.env, r.InFlightState, r.InFlight)
	})
	add("inner", len(t.inner) > 0, func() layers.Layer { return layers.Inner(t.env, t.inner...) })
	add("deadline header", r.DeadlineHeader != "", func() layers.Layer { return layers.DeadlineHeader(t.env, r.DeadlineHeader) })
	add("stream", r.Stream.Enabled == policy.On, func() layers.Layer { return layers.StreamGuard(t.env, r.Stream) })
	add("timeouts", timed(r.Timeouts), func() layers.Layer { return layers.Timeouts(t.env, r.Timeouts) })
	return parts
}

func timed(t policy.Timeouts) bool {
	return t.Pool > 0 || t.Connect > 0 || t.Write > 0 || t.Read > 0 || t.Attempt > 0
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
