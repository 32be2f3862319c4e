package derive

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/route"
)

// Apply returns the policy with the derived settings of each route in the place
// of its own, so that all buckets of it can live with them: the largest of
// each. A setting that some bucket has too few samples for is left as it is. Calls
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
	if s, ok := merged[""]; ok {
		conform(&s, policy.Defaults().With(to.Settings))
		to.Settings = to.With(s)
	}
	to.Routes = slices.Clone(to.Routes)
	for _, i := range generalFirst(to.Routes) {
		r := &to.Routes[i]
		if s, ok := merged[nameOf(*r)]; ok {
			conform(&s, beneath(to, *r).With(r.Settings))
			r.Settings = r.With(s)
		}
	}
	return to, nil
}

func nameOf(r policy.Route) string { return cmp.Or(r.Name, r.Pattern) }

// merged returns, by route, the largest settings of its groups.
func (p *Plan) merged() map[string]policy.Settings {
	merged := map[string]policy.Settings{}
	for g, own := range p.settings {
		all := merged[g.Route]
		for _, field := range fields {
			if !p.lacking[[2]string{g.Route, field}] {
				v := fieldIn(&all, field)
				*v = max(*v, *fieldIn(&own, field))
			}
		}
		merged[g.Route] = all
	}
	return merged
}

// generalFirst returns the indices of routes, the general ones before those that
// inherit from them. What is no pattern, a Compile will refuse.
func generalFirst(routes []policy.Route) []int {
	order := make([]int, len(routes))
	patterns := make([]route.Pattern, len(routes))
	for i, r := range routes {
		order[i] = i
		patterns[i], _ = route.Parse(r.Pattern)
	}
	slices.SortStableFunc(order, func(i, j int) int { return patterns[i].Compare(patterns[j]) })
	return order
}

// beneath returns the settings that every request of a route inherits.
func beneath(p policy.Policy, r policy.Route) policy.Settings {
	s := policy.Defaults().With(p.Settings)
	own, err := route.Parse(r.Pattern)
	if err != nil {
		return s
	}
	for _, i := range generalFirst(p.Routes) {
		if q, err := route.Parse(p.Routes[i].Pattern); err == nil && own.Relation(q) == route.MoreSpecific {
			s = s.With(p.Routes[i].Settings)
		}
	}
	return s
}
