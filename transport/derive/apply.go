package derive

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/route"
)

// Apply returns the policy with the derived settings of each route in the place
// of its own, so that all buckets of it can live with them: the largest of
// each. A setting that some bucket has too few samples for is left as it is, also
// where the route has inherited it from one that has another now; a route without
// samples inherits that. What would be refused beside the settings that are not
// derived is raised, such as a Deadline to the Timeouts.Attempt of its route. Calls
// that no route matches are the policy's own. It fails if a group's route is
// not in the policy. Whether the outcome is sound is for policy.Compile to say.
func (p *Plan) Apply(to policy.Policy) (policy.Policy, error) {
	merged := p.merged()
	for name := range merged {
		known := slices.ContainsFunc(to.Routes, func(r policy.Route) bool { return nameOf(r) == name })
		if !known && name != "" && name != Other { // several routes, beyond what a Recorder keeps apart
			return to, fmt.Errorf("derive: the policy has no route %q", name)
		}
	}
	was := to
	if s, ok := merged[""]; ok {
		in := policy.Defaults().With(to.Settings)
		conform(&s, in, p.over(""), longestWait(to.With(s), in, in.Deadline))
		to.Settings = to.With(s)
	}
	to.Routes = slices.Clone(to.Routes)
	order, patterns := generalFirst(to.Routes)
	for n, i := range order {
		r := &to.Routes[i]
		name := nameOf(*r)
		s := merged[name]
		before, now := policy.Defaults().With(was.Settings), policy.Defaults().With(to.Settings)
		for _, g := range order[:n] {
			if patterns[i].Relation(patterns[g]) == route.MoreSpecific {
				before, now = before.With(was.Routes[g].Settings), now.With(to.Routes[g].Settings)
			}
		}
		p.keep(&s, r, before, now, spans)
		conform(&s, now.With(r.Settings), p.over(name), longestWait(r.With(s), now.With(r.Settings), before.With(r.Settings).Deadline))
		p.keep(&s, r, before, now, phases)
		if slices.ContainsFunc(fields, func(f string) bool { return *fieldIn(&s, f) != 0 }) {
			r.Settings = r.With(s)
		}
	}
	return to, nil
}

// longestWait returns the least deadline for the settings of one level: no longer
// than the one before, which left the time for those that are switched on. in are
// all settings.
func longestWait(level, in policy.Settings, before time.Duration) time.Duration {
	d := max(level.Timeouts.Pool, level.Timeouts.Connect, level.Timeouts.Write, level.Timeouts.Read, level.Timeouts.Attempt,
		level.Stream.FirstContent, level.Rate.MaxWait, level.InFlight.MaxWait)
	for _, b := range level.Budgets {
		d = max(d, b.MaxWait)
	}
	if level.Retry.MinAttempt > 0 { // it has to be shorter
		d = max(d, level.Retry.MinAttempt+time.Millisecond)
	}
	if level.Hedge.Delay > 0 || level.Hedge.Max > 0 { // the last has to be due before
		d = max(d, in.Hedge.Delay*time.Duration(in.Hedge.Max)+time.Millisecond)
	}
	if before > 0 {
		d = min(d, before)
	}
	return d
}

// The fields that a deadline cuts, and the others.
var (
	phases = []string{"Timeouts.Connect", "Timeouts.Read", "Stream.FirstContent"}
	spans  = []string{"Deadline", "Stream.Gap", "Stream.PingedGap", "Stream.ThinkingGap", "Stream.ToolGap"}
)

// keep adds to what is derived for a route what it inherited before and does not
// inherit now, of the fields that it has too few samples for.
func (p *Plan) keep(s *policy.Settings, r *policy.Route, before, now policy.Settings, fields []string) {
	deadline := now.With(r.Settings).With(*s).Deadline
	for _, field := range fields {
		v := *fieldIn(&before, field)
		if !p.lacking[[2]string{nameOf(*r), field}] || *fieldIn(&r.Settings, field) != 0 || v == *fieldIn(&now, field) {
			continue
		}
		if deadline > 0 && slices.Contains(phases, field) {
			v = min(v, deadline)
		}
		*fieldIn(s, field) = v
	}
}

// over returns the largest of each setting in the overrides of a route's groups.
func (p *Plan) over(route string) (s policy.Settings) {
	for g, own := range p.settings {
		if g.Route == route {
			s = largest(s, own)
		}
	}
	return s
}

// largest returns s with the larger of each field.
func largest(s, other policy.Settings) policy.Settings {
	for _, field := range fields {
		v := fieldIn(&s, field)
		*v = max(*v, *fieldIn(&other, field))
	}
	return s
}

func nameOf(r policy.Route) string { return cmp.Or(r.Name, r.Pattern) }

// merged returns, by route, the largest settings of its groups, but for those
// that one has too few samples for.
func (p *Plan) merged() map[string]policy.Settings {
	merged := map[string]policy.Settings{}
	for g, own := range p.settings {
		merged[g.Route] = largest(merged[g.Route], own)
	}
	for few := range p.lacking {
		if s, ok := merged[few[0]]; ok {
			*fieldIn(&s, few[1]) = 0
			merged[few[0]] = s
		}
	}
	return merged
}

// generalFirst returns the indices of routes, the general ones before those that
// inherit from them, and the patterns by index. What is no pattern, a Compile will
// refuse.
func generalFirst(routes []policy.Route) (order []int, patterns []route.Pattern) {
	patterns = make([]route.Pattern, len(routes))
	for i, r := range routes {
		var err error
		if patterns[i], err = route.Parse(r.Pattern); err == nil {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return patterns[i].Compare(patterns[j]) })
	return order, patterns
}
