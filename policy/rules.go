package policy

import (
	"fmt"
	"slices"
	"time"
)

// vet refuses the values of a level that are wrong wherever they apply, and
// drops them, so that one fault is not reported again as another.
func (l *level) vet(found *faults) {
	l.set = slices.DeleteFunc(l.set, func(s setting) bool {
		e := &ConfigError{Route: l.name, Field: s.String(), Value: s.show(s.value), Limit: s.limit}
		switch {
		case s.named && s.budget == "":
			e.Field, e.Value, e.Limit, e.Reason = "Budgets", `""`, "", "a budget needs a name; the one without is Rate"
		case l.overlay() && s.shared():
			e.Limit = "Enabled, MaxWait and Cost"
			e.Reason = "it belongs to state that all calls share; set it on a route or on the policy"
		case s.ok == nil, s.off && isOff(s.value), s.ok(s.value):
			return false
		default:
			e.Reason = "it is out of range; choose a value within it"
		}
		found.add(e)
		return true
	})
}

// Settings of which the first may not exceed the second.
var ordered = [][2]ref{
	{at("Retry.BaseDelay"), at("Retry.MaxDelay")},
	{at("Breaker.Open"), at("Breaker.OpenMax")},
	{at("Stream.Gap"), at("Stream.PingedGap")},
	{at("Stream.Gap"), at("Stream.ThinkingGap")},
	{at("Stream.Gap"), at("Stream.ToolGap")},
}

// Main numbers without a default.
var required = []*field{hedgeDelay.field, perSecond.field, slots.field}

var (
	deadline   = at("Deadline")
	minAttempt = at("Retry.MinAttempt")
	hedgeDelay = at("Hedge.Delay")
	hedgeMax   = at("Hedge.Max")
	failures   = at("Breaker.Failures")
	ratio      = at("Breaker.Ratio")
	perSecond  = at("Rate.PerSecond")
	slots      = at("InFlight.Max")
)

// check refuses settings that contradict each other.
func (m *merged) check(found *faults) {
	// The deadline refuses only what is set where it is set itself, or below:
	// a shorter deadline cuts what it inherits.
	within := func(r ref) bool {
		return m.Deadline > 0 && r.enabled(&m.Settings) && m.from[r] >= m.from[deadline]
	}
	const remedy = "shorten it, or set a longer Deadline beside it"
	for r, v := range m.all() {
		if r.bounded && within(r) && v.Int() > int64(m.Deadline) {
			found.add(m.fault(r, deadline, "it outlasts the deadline that it runs under; "+remedy))
		}
		if slices.Contains(required, r.field) && v.IsZero() && r.enabled(&m.Settings) {
			e := m.fault(r.beside("Enabled"), r, "")
			e.Field, e.Value, e.Limit = r.String(), "unset", r.limit
			e.Reason = "the section is enabled, and this number has no default; set it"
			found.add(e)
		}
	}
	if within(minAttempt) && m.Retry.MinAttempt >= m.Deadline {
		found.add(m.fault(minAttempt, deadline, "no attempt could follow the first in time; "+remedy))
	}
	if last := time.Duration(m.Hedge.Max) * m.Hedge.Delay; last >= m.Deadline && (within(hedgeDelay) || within(hedgeMax)) {
		r := hedgeDelay
		if m.from[hedgeMax] > m.from[r] {
			r = hedgeMax
		}
		e := m.fault(r, deadline, fmt.Sprintf(
			"the last of %d hedges after %v each would be due at %v, not before the deadline; "+remedy, m.Hedge.Max, m.Hedge.Delay, last))
		found.add(e)
	}
	for _, o := range ordered {
		low, high := o[0].in(&m.Settings).Int(), o[1].in(&m.Settings).Int()
		switch {
		case low <= high || high == Off || !o[0].enabled(&m.Settings):
		case m.from[o[1]] > m.from[o[0]]:
			found.add(m.fault(o[1], o[0], fmt.Sprintf("it is below %s; raise it, or lower that too", o[0])))
		default:
			found.add(m.fault(o[0], o[1], fmt.Sprintf("it is above %s; lower it, or raise that too", o[1])))
		}
	}
	if m.Breaker.Enabled == On && m.Breaker.Failures != 0 && m.Breaker.Ratio != 0 {
		found.add(m.fault(ratio, failures, "Failures is set beside it; choose one of the two"))
	}
}

// fault makes the error of a setting that another one limits. It is a fault of
// the more specific of the two levels that set them.
func (m *merged) fault(r, by ref, reason string) *ConfigError {
	e := &ConfigError{
		Route:  m.levels[max(m.from[r], m.from[by])].name,
		Field:  r.String(),
		Value:  r.show(r.in(&m.Settings)),
		Limit:  by.show(by.in(&m.Settings)),
		Reason: reason,
	}
	if m.from[r] != m.from[by] {
		e.Limit += fmt.Sprintf(" from %s", m.levels[m.from[by]])
	}
	return e
}
