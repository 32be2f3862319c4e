package policy

import (
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/weir-go/weir/route"
)

// With returns the settings with those of over laid on top: field by field, a
// field that is zero in over keeps the receiver's value. It makes a preset plus
// a change:
//
//	policy.Interactive().With(policy.Settings{Deadline: 5 * time.Second})
//
// The outcome has its switches written out, and shares no memory with either.
func (s Settings) With(over Settings) Settings {
	var m merged
	m.lay(&level{set: flatten(s)})
	m.lay(&level{set: flatten(over)})
	return m.Settings
}

// Written yields the settings that are set in s, not those that it inherits: the
// path of each in Go, such as Timeouts.Read, and its value as an [Explanation]
// shows it. A main number has set its section's switch.
func (s Settings) Written() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, w := range flatten(s) {
			if !yield(w.String(), w.show(w.value)) {
				return
			}
		}
	}
}

// A level is one place that settings are written in.
type level struct {
	kind    string // one of reserved, or "route"
	name    string // in errors and explanations
	pattern route.Pattern
	set     []setting
	written Route // if it is one
}

// The kinds of levels beside routes, which serve as their names.
var reserved = []string{"default", "policy", "view", "call"}

func newLevel(kind string, s Settings) *level {
	return &level{kind: kind, name: kind, set: flatten(s)}
}

// overlay reports whether the level may not touch the numbers of shared state.
func (l *level) overlay() bool { return l.kind == "view" || l.kind == "call" }

// namesHost reports that the level is a route with a host, as far as is known:
// of a malformed pattern it is not.
func (l *level) namesHost() bool {
	return l.kind == "route" && (l.pattern.Host() != "" || l.pattern.Path() == "")
}

// String says where a value comes from.
func (l *level) String() string {
	if l.kind == "route" {
		return fmt.Sprintf("route %q", l.name)
	}
	return l.kind
}

// A setting is a value as written.
type setting struct {
	ref
	value reflect.Value
}

// flatten lists what s sets, with its switches written out.
func flatten(s Settings) (set []setting) {
	s = s.switched()
	for r, v := range s.all() {
		if v.IsZero() {
			continue
		}
		if v.Kind() == reflect.Slice {
			v = reflect.ValueOf(slices.Clone(v.Interface().([]int)))
		}
		set = append(set, setting{r, v})
	}
	return set
}

// switched turns main numbers into the switches that they imply.
func (s Settings) switched() Settings {
	imply(&s.Retry.Enabled, &s.Retry.MaxAttempts)
	imply(&s.Hedge.Enabled, &s.Hedge.Delay)
	if s.Breaker.Failures > 0 && s.Breaker.Ratio == Off {
		s.Breaker.Ratio = 0 // only says which of the two it is
	}
	imply(&s.Breaker.Enabled, &s.Breaker.Ratio)
	imply(&s.Breaker.Enabled, &s.Breaker.Failures)
	imply(&s.Rate.Enabled, &s.Rate.PerSecond)
	imply(&s.InFlight.Enabled, &s.InFlight.Max)
	s.Budgets = maps.Clone(s.Budgets)
	for name, rate := range s.Budgets {
		imply(&rate.Enabled, &rate.PerSecond)
		s.Budgets[name] = rate
	}
	return s
}

// imply sets a section's switch from its main number, unless it is set beside
// it. A main number that is Off is spent on that, so that the section keeps its
// number for when it is turned on again.
func imply[N int | float64 | time.Duration](enabled *Toggle, main *N) {
	if *main == 0 {
		return
	}
	state := Toggle(On)
	if *main == Off {
		state, *main = Off, 0
	}
	if *enabled == 0 {
		*enabled = state
	}
}

// merged is the settings of levels laid over one another.
type merged struct {
	Settings
	levels []*level
	from   map[ref]int // the level that each setting has its value from
}

// lay puts a level on top.
func (m *merged) lay(l *level) {
	if m.from == nil {
		m.from = map[ref]int{}
	}
	// Of the breaker's two main numbers a level that sets one means only that.
	if slices.ContainsFunc(l.set, func(s setting) bool { return s.ref == failures || s.ref == ratio }) {
		m.Breaker.Failures, m.Breaker.Ratio = 0, 0
		delete(m.from, failures)
		delete(m.from, ratio)
	}
	for _, s := range l.set {
		s.put(&m.Settings, s.value)
		m.from[s.ref] = len(m.levels)
	}
	m.levels = append(m.levels, l)
}

// lift takes the limit off the gaps of a kind that are inherited where Gap has
// none. It is for settings that nothing is laid on any more: below, where Gap has
// a limit again, they have theirs.
func (m *merged) lift() {
	for _, o := range ordered {
		if o[0] == gap && m.Stream.Gap == Off && m.from[o[1]] < m.from[gap] {
			o[1].put(&m.Settings, gap.in(&m.Settings))
			m.from[o[1]] = m.from[gap]
		}
	}
}

// over returns m with further levels on top, and leaves m as it is.
func (m *merged) over(levels ...*level) *merged {
	n := *m
	n.Budgets = maps.Clone(m.Budgets)
	n.levels = slices.Clip(m.levels)
	n.from = maps.Clone(m.from)
	for _, l := range levels {
		n.lay(l)
	}
	for name, rate := range n.Budgets {
		n.Budgets[name] = Settings{Rate: defaultRate}.With(Settings{Rate: rate}).Rate
	}
	return &n
}
