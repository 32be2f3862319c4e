package policy

import (
	"fmt"
	"slices"
	"time"
)

// vet refuses the values of a level that are wrong wherever they apply, and
// drops them, so that one fault is not reported again as another: a section
// without its main number is not enabled either.
func (l *level) vet(found *faults) {
	var dropped []ref
	l.set = slices.DeleteFunc(l.set, func(s setting) bool {
		e := &ConfigError{Route: l.name, Field: s.String(), Value: s.show(s.value), Limit: s.limit}
		switch {
		case s.named && s.budget == "":
			e.Field, e.Value, e.Limit, e.Reason = "Budgets", `""`, "", "a budget needs a name; the one without is Rate"
		case s.field == deadlineHeader.field && !l.namesHost():
			e.Limit = ""
			e.Reason = "it tells a server how long its caller waits, so only a route with a host takes it; set it on the routes of hosts that are to know"
		case l.overlay() && s.shared():
			e.Limit = ""
			e.Reason = "it belongs to state that all calls share, of which a view or a call sets only Enabled, MaxWait and Cost; set it on a route or on the policy"
		case s.ok == nil, s.off && isOff(s.value), s.ok(s.value):
			return false
		default:
			e.Reason = "it is out of range; choose a value within it"
		}
		found.add(e)
		if s.main {
			dropped = append(dropped, s.beside("Enabled"))
		}
		return true
	})
	l.set = slices.DeleteFunc(l.set, func(s setting) bool { return slices.Contains(dropped, s.ref) })
}

// Settings of which the first may not exceed the second.
var ordered = [][2]ref{
	{at("Retry.BaseDelay"), at("Retry.MaxDelay")},
	{at("Breaker.Open"), at("Breaker.OpenMax")},
	{gap, at("Stream.PingedGap")},
	{gap, at("Stream.ThinkingGap")},
	{gap, at("Stream.ToolGap")},
}

// Main numbers without a default.
var required = []*field{hedgeDelay.field, perSecond.field, slots.field}

var (
	deadline = at("Deadline")

	deadlineHeader = at("DeadlineHeader")

	attemptLimit = at("Timeouts.Attempt")

	minAttempt  = at("Retry.MinAttempt")
	retryBuffer = at("Retry.Buffer")
	hedgeDelay  = at("Hedge.Delay")
	hedgeMax    = at("Hedge.Max")
	failures    = at("Breaker.Failures")
	ratio       = at("Breaker.Ratio")
	perSecond   = at("Rate.PerSecond")
	slots       = at("InFlight.Max")

	firstContent = at("Stream.FirstContent")
	gap          = at("Stream.Gap")
)

// check refuses settings that contradict each other.
func (m *merged) check(found *faults) {
	// The deadline refuses only what is set where it is set itself, or on a more
	// specific level: a shorter deadline cuts what it inherits, and the defaults
	// are always inherited.
	within := func(r ref) bool {
		return m.Deadline > 0 && r.enabled(&m.Settings) && m.from[r] >= max(m.from[deadline], 1)
	}
	const longer = "; shorten it, or set a longer Deadline beside it"
	for r, v := range m.all() {
		if r.bounded && within(r) && v.Int() > int64(m.Deadline) {
			found.add(m.fault(r, deadline, "it outlasts ", longer))
		}
		if slices.Contains(required, r.field) && v.IsZero() && r.enabled(&m.Settings) {
			found.add(&ConfigError{
				Route: m.levels[m.from[r.beside("Enabled")]].name, Field: r.String(), Value: "unset", Limit: r.limit,
				Reason: "the section is enabled, and its main number has no default; set it",
			})
		}
	}
	if within(minAttempt) && m.Retry.MinAttempt >= m.Deadline {
		found.add(m.fault(minAttempt, deadline, "no attempt could follow the first, as it is not below ", longer))
	}
	if last := time.Duration(m.Hedge.Max) * m.Hedge.Delay; last >= m.Deadline && (within(hedgeDelay) || within(hedgeMax)) {
		r := hedgeDelay
		if m.from[hedgeMax] > m.from[r] {
			r = hedgeMax
		}
		found.add(m.fault(r, deadline, fmt.Sprintf("hedge %d would be due after %v, not before ", m.Hedge.Max, last),
			"; lower Hedge.Delay or Hedge.Max, or set a longer Deadline beside them"))
	}
	for _, o := range ordered {
		low, high := o[0].in(&m.Settings).Int(), o[1].in(&m.Settings).Int()
		switch {
		case low <= high || high == Off || !o[0].enabled(&m.Settings):
		case m.from[o[1]] > m.from[o[0]]:
			found.add(m.fault(o[1], o[0], "it is below ", "; raise it, or lower that too"))
		default:
			found.add(m.fault(o[0], o[1], "it is above ", "; lower it, or raise that too"))
		}
	}
	if m.Breaker.Enabled == On && m.Breaker.Failures != 0 && m.Breaker.Ratio != 0 {
		e := m.fault(ratio, failures, "a breaker goes by one of the two, and there is ", " too; choose one")
		e.beside = true
		found.add(e)
	}
}

// fault makes the error of a setting that another one limits, which the reason
// names between why and what to do. It is a fault of the more specific of the
// two levels.
func (m *merged) fault(r, by ref, why, remedy string) *ConfigError {
	return &ConfigError{
		Route:  m.levels[max(m.from[r], m.from[by])].name,
		Field:  r.String(),
		Value:  r.show(r.in(&m.Settings)),
		Limit:  by.show(by.in(&m.Settings)),
		Reason: fmt.Sprintf("%s%s (%s)%s", why, by, m.source(by), remedy),
	}
}
