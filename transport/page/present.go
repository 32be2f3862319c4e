package page

import (
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/route"
	"github.com/weir-go/weir/transport/derive"
)

// present returns the settings in force for the calls of a route, as far as the
// policy alone tells.
func present(p policy.Policy) func(derive.Group) policy.Settings {
	of := map[string]policy.Settings{}
	table, err := policy.Compile(p)
	if err != nil { // it is in force
		return nil
	}
	note := func(label, method, host, path string) {
		r, err := table.Line(method, host, path).Resolve(policy.Settings{}, nil)
		if err == nil && r.Route == label {
			of[label] = r.Settings
		}
	}
	note("", "", "", "/")
	for _, r := range p.Routes {
		pattern, err := route.Parse(r.Pattern)
		if err != nil {
			continue
		}
		if q, ok := pattern.Common(pattern); ok { // a request that it matches
			note(label(r), q.Method, q.Host, q.Path)
		}
	}
	return func(g derive.Group) policy.Settings { return of[g.Route] }
}
