package policy

import (
	"fmt"
	"strings"

	"github.com/weir-go/weir/route"
)

// Hosts is a set of hosts, named as in the patterns of routes: api.example.com at
// any port, localhost:8080 at one, and *.example.com, which is what ends in
// .example.com. The zero value is empty. It is immutable.
type Hosts struct{ table *route.Table[bool] }

// ParseHosts returns the set of hosts that the names stand for. The error names the
// first that is malformed.
func ParseHosts(names ...string) (Hosts, error) {
	var entries []route.Entry[bool]
	known := map[string]bool{}
	for _, name := range names {
		p, err := route.Parse(name + "/")
		switch {
		case err != nil:
			return Hosts{}, fmt.Errorf("host %q: %w", name, err)
		case p.Host() == "" || p.Method() != "" || p.Path() != "/":
			return Hosts{}, fmt.Errorf("%q is no host", strings.ToValidUTF8(name, "?"))
		case !known[p.Host()]:
			known[p.Host()] = true
			entries = append(entries, route.Entry[bool]{Pattern: p, Value: true})
		}
	}
	table, err := route.NewTable(entries...)
	return Hosts{table}, err
}

// Has reports whether a host, which may have a port, is in the set.
func (h Hosts) Has(host string) bool {
	return h.table != nil && len(h.table.Line(nil, "", host, "/")) > 0
}
