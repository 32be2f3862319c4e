package policy

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/stream"
)

// A field is one leaf of [Settings]. The list of fields, read off the type
// once, is what merging, validation, JSON and Explain all walk, so that a field
// that is added to Settings is added to each of them.
type field struct {
	section string // its section's name in Go; "" for Deadline
	name    string // its own name in Go
	index   []int  // where it stands in Settings
	rule
}

// A rule says which values a field takes on its own.
type rule struct {
	off     bool   // Off is a value of the field
	main    bool   // it is its section's main number, or one of the two
	bounded bool   // it may not exceed the deadline
	limit   string // the values that it takes, in words
	ok      func(reflect.Value) bool
}

// No timeout of a year is meant, and sums of a few years cannot overflow.
const maxDuration = 365 * 24 * time.Hour

// The rules that a field's type alone does not imply.
var rules = map[string]rule{
	"Deadline": {off: true},
	"DeadlineHeader": {limit: `the name of a header of its own, or "off"`, ok: func(v reflect.Value) bool {
		return headerName.MatchString(v.String()) && !slices.Contains(headersTaken, http.CanonicalHeaderKey(v.String()))
	}},
	"Timeouts.Pool":     {off: true, bounded: true},
	"Timeouts.Connect":  {off: true, bounded: true},
	"Timeouts.Write":    {off: true, bounded: true},
	"Timeouts.Read":     {off: true, bounded: true},
	"Timeouts.Attempt":  {off: true, bounded: true},
	"Retry.MaxAttempts": asMain(whole(1, 10)),
	"Retry.BaseDelay":   {off: true},
	"Retry.MinAttempt":  {off: true},
	"Retry.MaxHint":     {off: true},
	"Retry.Buffer":      {off: true},
	"Retry.Budget":      {off: true, limit: "above 0, at most 1", ok: share},
	"Retry.Statuses": {limit: "400 to 599", ok: func(v reflect.Value) bool {
		return !slices.ContainsFunc(v.Interface().([]int), func(s int) bool { return s < 400 || s > 599 })
	}},
	"Hedge.Delay":         asMain(span(time.Millisecond)),
	"Hedge.Max":           whole(1, 4),
	"Breaker.Failures":    asMain(rule{}),
	"Breaker.Ratio":       asMain(rule{limit: "above 0, at most 1", ok: share}),
	"Breaker.MinRequests": whole(2, math.MaxInt32),
	"Breaker.OpenJitter":  {off: true, limit: "above 0, at most 1", ok: share},
	"Rate.PerSecond": asMain(rule{limit: "one a year to 1e9 a second", ok: func(v reflect.Value) bool {
		return v.Float() >= 1/maxDuration.Seconds() && v.Float() <= 1e9
	}}),
	"Rate.MaxWait":        {off: true, bounded: true},
	"InFlight.Max":        asMain(rule{}),
	"InFlight.MaxWait":    {off: true, bounded: true},
	"Stream.FirstContent": {off: true, bounded: true},
	"Stream.Gap":          {off: true},
	"Stream.PingedGap":    {off: true},
	"Stream.ThinkingGap":  {off: true},
	"Stream.ToolGap":      {off: true},
	"Stream.Linger":       {off: true},
	"Stream.MinRate":      {off: true},
	"Stream.Dialect": {limit: strings.Join(stream.Dialects(), ", "), ok: func(v reflect.Value) bool {
		return slices.Contains(stream.Dialects(), v.String())
	}},
}

// headersTaken are those that net/http writes itself, and would not send, and
// those that are secrets.
var headersTaken = []string{"Host", "Content-Length", "Transfer-Encoding", "Trailer", "Te", "Connection", "Upgrade", "User-Agent", "Authorization", "Proxy-Authorization", "Cookie"}

// headerName is a token of RFC 9110.
var headerName = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")

// The values that a field takes if its rule does not say.
var kinds = map[reflect.Type]rule{
	reflect.TypeFor[time.Duration](): span(1),
	reflect.TypeFor[int]():           whole(1, math.MaxInt32),
	reflect.TypeFor[int64]():         whole(1, 1<<40),
	reflect.TypeFor[Toggle](): {limit: "On or Off", ok: func(v reflect.Value) bool {
		return v.Int() == On || v.Int() == Off
	}},
}

func asMain(r rule) rule {
	r.main = true
	return r
}

func whole(low, high int64) rule {
	return rule{
		limit: fmt.Sprintf("%d to %d", low, high),
		ok:    func(v reflect.Value) bool { return v.Int() >= low && v.Int() <= high },
	}
}

func span(low time.Duration) rule {
	r := whole(int64(low), int64(maxDuration))
	r.limit = fmt.Sprintf("%v to a year", low)
	return r
}

// share is written so that it refuses NaN.
func share(v reflect.Value) bool { return v.Float() > 0 && v.Float() <= 1 }

// fields lists the leaves of Settings in the order of the type. The fields of a
// named budget are those of Rate; see [ref].
var fields = func() (list []field) {
	for section := range reflect.TypeFor[Settings]().Fields() {
		switch section.Type.Kind() {
		case reflect.Map: // Budgets
		case reflect.Struct:
			for leaf := range section.Type.Fields() {
				list = append(list, newField(section.Name, leaf, section.Index[0], leaf.Index[0]))
			}
		default:
			list = append(list, newField("", section, section.Index...))
		}
	}
	return list
}()

func newField(section string, leaf reflect.StructField, index ...int) field {
	f := field{section: section, name: leaf.Name, index: index}
	f.rule = rules[f.path()]
	if kind := kinds[leaf.Type]; f.ok == nil {
		f.limit, f.ok = kind.limit, kind.ok
	}
	if f.off || f.main {
		f.limit += ", or Off"
	}
	return f
}

func (f *field) path() string {
	if f.section == "" {
		return f.name
	}
	return f.section + "." + f.name
}

// shared reports whether the field is a number of state that calls share.
func (f *field) shared() bool {
	switch f.section {
	case "Breaker", "Rate", "InFlight":
		return f.name != "Enabled" && f.name != "MaxWait" && f.name != "Cost"
	}
	return false
}

// A ref is one setting of a Settings: a field, and if it is one of a named
// budget, that one's name.
type ref struct {
	*field
	named  bool
	budget string
}

var byPath = func() map[string]*field {
	m := map[string]*field{}
	for i := range fields {
		m[fields[i].path()] = &fields[i]
	}
	return m
}()

// at returns the setting with a path, which must exist.
func at(path string) ref { return ref{field: byPath[path]} }

// beside returns another setting of the section.
func (r ref) beside(name string) ref {
	r.field = byPath[r.section+"."+name]
	return r
}

// String returns the setting's path in Go.
func (r ref) String() string {
	if r.named {
		return fmt.Sprintf("Budgets[%q].%s", r.budget, r.name)
	}
	return r.path()
}

// in returns the value of the setting.
func (r ref) in(s *Settings) reflect.Value {
	if r.named {
		return reflect.ValueOf(s.Budgets[r.budget]).Field(r.index[1])
	}
	return reflect.ValueOf(s).Elem().FieldByIndex(r.index)
}

// put changes the setting.
func (r ref) put(s *Settings, v reflect.Value) {
	if !r.named {
		r.in(s).Set(v)
		return
	}
	rate := s.Budgets[r.budget]
	reflect.ValueOf(&rate).Elem().Field(r.index[1]).Set(v)
	if s.Budgets == nil {
		s.Budgets = map[string]Rate{}
	}
	s.Budgets[r.budget] = rate
}

// enabled reports whether the setting's section is on.
func (r ref) enabled(s *Settings) bool {
	switch r.section {
	case "", "Timeouts":
		return true
	}
	return r.beside("Enabled").in(s).Int() == On
}

// all yields every setting in order, those of named budgets last.
func (s *Settings) all() iter.Seq2[ref, reflect.Value] {
	return func(yield func(ref, reflect.Value) bool) {
		for i := range fields {
			r := ref{field: &fields[i]}
			if !yield(r, r.in(s)) {
				return
			}
		}
		for _, name := range slices.Sorted(maps.Keys(s.Budgets)) {
			for i := range fields {
				if r := (ref{&fields[i], true, name}); r.section == "Rate" && !yield(r, r.in(s)) {
					return
				}
			}
		}
	}
}

// show writes a value as it stands in errors and explanations.
func (r ref) show(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case KeyFunc:
		switch {
		case x.same(ByOrigin):
			return "origin"
		case x.same(ByRoute):
			return "route"
		}
	case Toggle:
		switch x {
		case On:
			return "on"
		case Off:
			return "off"
		}
	case string:
		return strconv.Quote(x)
	case []int:
		return strings.Trim(fmt.Sprint(x), "[]")
	}
	switch {
	case v.Kind() == reflect.Func:
		return aFunction
	case isOff(v):
		return "off"
	}
	return fmt.Sprint(v)
}

// aFunction is how a function is shown that has no name here.
const aFunction = "a function"

// isOff reports whether v is a number, and that number is Off.
func isOff(v reflect.Value) bool {
	return v.CanInt() && v.Int() == Off || v.CanFloat() && v.Float() == Off
}

// snake turns the name of a field into its key in JSON.
func snake(name string) string {
	var b strings.Builder
	for i, c := range name {
		if i > 0 && c <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(c)
	}
	return strings.ToLower(b.String())
}
