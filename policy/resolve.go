package policy

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
)

// Resolved is the settings that apply to a call, and where they come from.
type Resolved struct {
	// Settings has no field left to inherit: every switch is On or Off, and
	// every number is set, or Off. Zero means something only where a field has
	// no default: Rate.MaxWait (the time left), a nil function, an empty
	// Dialect (detected), and the main numbers of sections that are off.
	Settings

	// Route is the name of the most specific route, and Pattern its pattern.
	// Both are empty where no route matches.
	Route, Pattern string

	// The identities of the state that the call shares with others.
	BreakerState, RateState, InFlightState StateID
	BudgetStates                           map[string]StateID

	merged *merged
}

// StateID tells the state of one section from that of others: two calls with
// the same StateID, and the same key, share it. What a state's numbers are is
// no part of it, so that an update can change them.
type StateID struct {
	Section string // Breaker, Rate or InFlight
	Budget  string // the name of the budget; empty for Rate itself
	Pattern string // the route that owns the state; empty for the policy
}

// Resolve returns what applies to the requests of a line under the settings of
// a view and the override of a call, which may be nil. Its error joins a
// [*ConfigError] for every fault; without a view and an override it fails only
// on a line of three routes or more, which Compile cannot foresee.
func (l *Line) Resolve(view Settings, call *Override) (*Resolved, error) {
	m, found := l.table.resolve(l.routes, view, call)
	if found != nil {
		return nil, found.join()
	}
	return m.resolved(l), nil
}

// resolved makes the form of m that layers and transports use.
func (m *merged) resolved(l *Line) *Resolved {
	r := &Resolved{
		Settings:      m.Settings,
		BreakerState:  m.state(failures),
		RateState:     m.state(perSecond),
		InFlightState: m.state(slots),
		BudgetStates:  map[string]StateID{},
		merged:        m,
	}
	if n := len(l.routes); n > 0 {
		r.Route, r.Pattern = l.routes[n-1].name, l.routes[n-1].pattern.String()
	}
	if r.DeadlineHeader == "off" {
		r.DeadlineHeader = ""
	}
	byRoute := func(*http.Request) string { return r.Pattern }
	bind := func(key *KeyFunc) {
		if key.same(ByRoute) {
			*key = byRoute
		}
	}
	bind(&r.Breaker.Key)
	bind(&r.Rate.Key)
	bind(&r.InFlight.Key)
	r.Budgets = map[string]Rate{}
	for name, rate := range m.Budgets {
		bind(&rate.Key)
		r.Budgets[name] = rate
		r.BudgetStates[name] = m.state(ref{perSecond.field, true, name})
	}
	return r
}

// Source says where a setting, named by its path in Go such as Timeouts.Read,
// has its value from: default, policy, route and its quoted name, view, or call.
func (r *Resolved) Source(path string) string {
	for s := range r.merged.all() {
		if s.String() == path {
			return r.merged.source(s)
		}
	}
	return ""
}

func (t *Table) resolve(routes []*level, view Settings, call *Override) (*merged, faults) {
	var found faults
	levels := slices.Clip(routes)
	if v := newLevel("view", view); v.set != nil {
		v.vet(&found)
		levels = append(levels, v)
	}
	if call != nil {
		c := newLevel("call", call.settings)
		c.vet(&found)
		levels = append(levels, c)
	}
	m := t.base.over(levels...)
	m.lift()
	m.check(&found)
	t.agree(m, &found)
	return m, found
}

// The numbers of each section whose state is shared.
var numbers = func() map[string][]*field {
	m := map[string][]*field{}
	for i := range fields {
		if f := &fields[i]; f.shared() && f.name != "Key" {
			m[f.section] = append(m[f.section], f)
		}
	}
	return m
}()

// of returns the setting of the same section, or budget, that f is.
func (r ref) of(f *field) ref {
	r.field = f
	return r
}

// mains yields the main numbers of the sections that share state.
func (m *merged) mains(yield func(ref) bool) {
	if !yield(failures) || !yield(perSecond) || !yield(slots) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(m.Budgets)) {
		if !yield(ref{perSecond.field, true, name}) {
			return
		}
	}
}

// state identifies the state of a section by the level that set its main
// number. Where none did, so that it is the breaker's default, that is the most
// specific one that sets any of the section's numbers.
func (m *merged) state(main ref) StateID {
	i := m.from[main]
	if main == failures {
		i = max(i, m.from[ratio])
	}
	if i == 0 {
		for _, f := range numbers[main.section] {
			i = max(i, m.from[main.of(f)])
		}
	}
	id := StateID{Section: main.section, Budget: main.budget}
	if l := m.levels[i]; l.kind == "route" {
		id.Pattern = l.pattern.String()
	}
	return id
}

// A stateNumber is one number of a state.
type stateNumber struct {
	StateID
	*field
}

// record notes the numbers of the states of a line, unless they are known, of
// the sections that are on or of those that are off.
func (t *Table) record(m *merged, on bool) {
	for main := range m.mains {
		if main.enabled(&m.Settings) != on {
			continue
		}
		id := m.state(main)
		for _, f := range numbers[main.section] {
			if n := (stateNumber{id, f}); t.states[n] == nil {
				t.states[n] = main.of(f).in(&m.Settings).Interface()
			}
		}
	}
}

// Numbers returns the numbers of a state, each in its section: of a named
// budget, in Rate. ok is false if no route has such a state.
func (t *Table) Numbers(id StateID) (s Settings, ok bool) {
	for _, f := range numbers[id.Section] {
		if v, found := t.states[stateNumber{id, f}]; found {
			ref{field: f}.in(&s).Set(reflect.ValueOf(v))
		}
	}
	return s, s.Rate.PerSecond > 0 || s.InFlight.Max > 0 || s.Breaker.Failures > 0 || s.Breaker.Ratio > 0
}

// agree refuses a line that gives a state other numbers than those on record.
func (t *Table) agree(m *merged, found *faults) {
	for main := range m.mains {
		if !main.enabled(&m.Settings) {
			continue
		}
		id := m.state(main)
		for _, f := range numbers[main.section] {
			r := main.of(f)
			v, want := r.in(&m.Settings), t.states[stateNumber{id, f}]
			if want == nil || want == v.Interface() {
				continue
			}
			owner := "the policy"
			if id.Pattern != "" {
				owner = fmt.Sprintf("%q", id.Pattern)
			}
			found.add(&ConfigError{
				Route: m.levels[m.from[r]].name, Field: r.String(), Value: r.show(v), Limit: r.show(reflect.ValueOf(want)), beside: true,
				Reason: fmt.Sprintf("it would change state that other calls share, which belongs to %s of %s; set the two on the same route", main, owner),
			})
		}
	}
}
