package policy

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/route"
)

// A Table is a policy that has been found sound, ready for requests to be
// looked up in. It is safe for concurrent use.
type Table struct {
	own    Settings // of the policy
	base   *merged  // the defaults and the policy's own settings
	routes []*level // in the order of their precedence
	tree   *route.Table[int]
	lines  atomic.Pointer[map[string]*Line]
	adding sync.Mutex

	// What Compile checked: the combinations of routes that a request can
	// match, and the numbers of the state that calls share.
	checked [][]int
	states  map[stateNumber]any
}

// Compile checks a policy and makes a table of it. Its error joins a
// [*ConfigError] for every fault.
//
// These are refused, on the policy itself, on every route together with those
// that match whenever it does, and on every two routes that a request can match:
//
//   - a value out of the range that its field's comment gives
//   - a timeout, MaxWait or FirstContent longer than the deadline that it runs
//     under, a MinAttempt not below it, and hedges of which the last would be
//     due after it: if the value is set where the deadline is, or on a more
//     specific level. An inherited value is cut to a shorter deadline.
//   - MaxDelay below BaseDelay, OpenMax below Open, and PingedGap, ThinkingGap
//     or ToolGap below Gap
//   - a breaker with both Failures and Ratio
//   - a section that is enabled without its main number
//   - a pattern that is malformed, or there twice; a name that is there twice; a
//     method such as "get", which is not GET
//   - two routes of one host whose paths cross, so that neither is more
//     specific, with a field in common
//   - different numbers for one state: a route that inherits a main number and
//     sets another of the section's numbers
//
// What only three routes or more can bring about, [Line.Resolve] refuses when
// such a line first occurs.
func Compile(p Policy) (*Table, error) {
	var found faults
	own := newLevel("policy", p.Settings)
	own.vet(&found)
	t := &Table{
		own:    p.Settings,
		base:   new(merged).over(newLevel("default", Defaults()), own),
		routes: compileRoutes(p.Routes, &found),
		states: map[stateNumber]any{},
	}
	t.lines.Store(&map[string]*Line{})
	t.relate(&found)
	t.checkLines(&found)
	if found != nil {
		return nil, found.join()
	}
	entries := make([]route.Entry[int], len(t.routes))
	for i, r := range t.routes {
		entries[i] = route.Entry[int]{Pattern: r.pattern, Value: i}
	}
	var err error
	t.tree, err = route.NewTable(entries...)
	return t, err
}

// methods are those that everybody writes in capitals, so that a route for
// another spelling would match nothing.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
	http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace,
}

// compileRoutes parses the patterns, drops the routes whose is malformed, and
// lines up the others by precedence.
func compileRoutes(routes []Route, found *faults) (levels []*level) {
	// The order that they are written in does not matter, not even for errors.
	routes = slices.SortedFunc(slices.Values(routes), func(a, b Route) int {
		return cmp.Or(strings.Compare(a.Pattern, b.Pattern), strings.Compare(a.Name, b.Name))
	})
	names := map[string]int{}
	for _, name := range reserved {
		names[name]++
	}
	for _, r := range routes {
		l := newLevel("route", r.Settings)
		l.written = r
		l.name = cmp.Or(r.Name, r.Pattern, "(no pattern)")
		names[l.name]++
		var (
			err    error
			syntax *route.SyntaxError
		)
		l.pattern, err = route.Parse(r.Pattern)
		l.vet(found)
		if errors.As(err, &syntax) {
			found.add(&ConfigError{
				Route: l.name, Field: "Pattern", Value: strconv.Quote(r.Pattern),
				Reason: fmt.Sprintf("malformed at offset %d: %s", syntax.Offset, syntax.Reason),
			})
			continue
		}
		if m := l.pattern.Method(); m != "" && slices.Contains(methods, strings.ToUpper(m)) && m != strings.ToUpper(m) {
			found.add(&ConfigError{
				Route: l.name, Field: "Pattern", Value: r.Pattern,
				Reason: fmt.Sprintf("a method is compared by case, and this one is %s; write that", strings.ToUpper(m)),
			})
		}
		levels = append(levels, l)
	}
	for _, r := range routes {
		if r.Name != "" && names[r.Name] > 1 {
			found.add(&ConfigError{
				Route: r.Pattern, Field: "Name", Value: strconv.Quote(r.Name),
				Reason: "the name is taken; give each route one of its own, and none of " + strings.Join(reserved, ", "),
			})
		}
	}
	slices.SortStableFunc(levels, func(a, b *level) int { return a.pattern.Compare(b.pattern) })
	return levels
}

// relate refuses routes that contradict each other by their patterns, and lists
// the combinations of routes that a request can match: each route with all that
// match whenever it does, and each two that overlap with all of theirs. Those
// of three and more are left for when they first occur.
func (t *Table) relate(found *faults) {
	patterns := make([]route.Pattern, len(t.routes))
	above := make([][]int, len(t.routes)) // and the route itself
	for i, r := range t.routes {
		patterns[i], above[i] = r.pattern, []int{i}
	}
	var overlaps [][2]int
	for i, j := range route.Overlapping(patterns) {
		q, r := t.routes[i], t.routes[j]
		switch patterns[i].Relation(patterns[j]) {
		case route.Equivalent:
			found.add(&ConfigError{
				Route: r.name, Field: "Pattern", Value: r.written.Pattern, Limit: q.written.Pattern, beside: true,
				Reason: "both match the same requests; merge the two routes",
			})
		case route.MoreGeneral:
			above[j] = append(above[j], i)
		case route.MoreSpecific:
			above[i] = append(above[i], j)
		default:
			if patterns[i].Crosses(patterns[j]) {
				crossing(r, q, found)
			}
			overlaps = append(overlaps, [2]int{i, j})
		}
	}
	for i := range above {
		slices.Sort(above[i])
	}
	t.checked = append([][]int{nil}, above...)
	for _, o := range overlaps {
		line := slices.Concat(above[o[0]], above[o[1]])
		slices.Sort(line)
		t.checked = append(t.checked, slices.Compact(line))
	}
	slices.SortFunc(t.checked, func(a, b []int) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return slices.Compare(a, b)
	})
	t.checked = slices.CompactFunc(t.checked, slices.Equal)
}

// crossing refuses two routes of a host whose paths cross, so that neither is
// the more specific, if both say something about the same setting.
func crossing(r, q *level, found *faults) {
	var common []string
	for _, s := range r.set {
		if slices.ContainsFunc(q.set, func(o setting) bool { return o.ref == s.ref }) {
			common = append(common, s.String())
		}
	}
	if common == nil {
		return
	}
	both, _ := r.pattern.Common(q.pattern)
	found.add(&ConfigError{
		Route: r.name, Field: "Pattern", Value: r.pattern.String(), Limit: q.pattern.String(), beside: true,
		Reason: fmt.Sprintf("%s matches both, neither is more specific, and both set %s; change a pattern, or set it on one of them",
			both, strings.Join(common, ", ")),
	})
}

// Policy returns the policy that the table was made of, its routes in the order
// of their precedence, from general to specific.
func (t *Table) Policy() Policy {
	p := Policy{Settings: t.own}
	for _, r := range t.routes {
		p.Routes = append(p.Routes, r.written)
	}
	return p
}

func (t *Table) levels(ids []int) []*level {
	levels := make([]*level, len(ids))
	for i, id := range ids {
		levels[i] = t.routes[id]
	}
	return levels
}

// checkLines goes from short to long, so that a state's numbers are first met
// on the route that owns it, and first where it is in use.
func (t *Table) checkLines(found *faults) {
	lines := make([]*merged, len(t.checked))
	for i, ids := range t.checked {
		lines[i] = t.base.over(t.levels(ids)...)
		lines[i].check(found)
		t.record(lines[i], true)
		t.agree(lines[i], found)
	}
	// What is off may be turned on by a view.
	for _, m := range lines {
		t.record(m, false)
	}
}

// Check refuses a view that would be refused for every request.
func (t *Table) Check(view Settings) error {
	var found faults
	for _, ids := range t.checked {
		_, f := t.resolve(t.levels(ids), view, nil)
		if f == nil {
			return nil
		}
		for _, e := range f {
			found.add(e)
		}
	}
	return found.join()
}

// maxLines bounds what a table and a transport keep for the combinations of
// routes that occur: patterns that cross have exponentially many.
const maxLines = 4096

// A Line is the routes that a request matches. Requests with one Line have the
// same settings.
type Line struct {
	// Kept reports that the table returns this very Line for every request that
	// matches its routes. It is false once the table has seen 4,096: what is
	// made for such a Line serves one request.
	Kept bool

	table  *Table
	routes []*level // from general to specific
}

// Line returns the line of a request. It allocates only for a line that the
// table has not kept.
func (t *Table) Line(method, host, escapedPath string) *Line {
	var ids [16]int
	return t.line(t.tree.Line(ids[:0], method, host, escapedPath))
}

// LineURL is [Table.Line] with the host and the path of u, as [route.Path] has it, and
// faster.
func (t *Table) LineURL(method string, u *url.URL) *Line {
	var ids [16]int
	return t.line(t.tree.LineURL(ids[:0], method, u))
}

// line returns the line of the routes that a request matches.
func (t *Table) line(line []int) *Line {
	var key [64]byte
	k := key[:0]
	for _, id := range line {
		k = binary.AppendUvarint(k, uint64(id))
	}
	if l := (*t.lines.Load())[string(k)]; l != nil {
		return l
	}
	return t.add(string(k), t.levels(line))
}

func (t *Table) add(key string, routes []*level) *Line {
	t.adding.Lock()
	defer t.adding.Unlock()
	old := *t.lines.Load()
	if l := old[key]; l != nil {
		return l
	}
	l := &Line{Kept: len(old) < maxLines, table: t, routes: routes}
	if l.Kept {
		lines := maps.Clone(old)
		lines[key] = l
		t.lines.Store(&lines)
	}
	return l
}
