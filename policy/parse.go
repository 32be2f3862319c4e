package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A ParseError is one fault of a policy in JSON.
type ParseError struct {
	Line, Column int    // of the first character in question, from 1
	Path         string // such as routes[2].timeouts.read; empty for the whole
	Reason       string
}

// Error names the place and says what is wrong there.
func (e *ParseError) Error() string {
	path := ""
	if e.Path != "" {
		path = e.Path + ": "
	}
	return fmt.Sprintf("line %d, column %d: %s%s", e.Line, e.Column, path, e.Reason)
}

// Parse reads a policy in JSON:
//
//	{
//	  "deadline": "20s",
//	  "rate": {"per_second": 50, "key": "origin"},
//	  "budgets": {"tokens": {"per_second": 1500, "burst": 30000}},
//	  "routes": [
//	    {"pattern": "GET /reports/", "name": "reports", "deadline": "5m", "timeouts": {"read": "off"}}
//	  ]
//	}
//
// The keys are the names of the fields in snake case. Durations are strings such
// as "1m30s", switches are true and false, a key function is "origin" or
// "route", and "off" is what [Off] is in Go, where it means something. What is
// left out inherits, so that a zero, which says nothing else, is refused; so are
// unknown keys, duplicates and data after the policy. Functions cannot be
// written, and presets have no name here: json.Marshal of a Policy writes one
// out, as a file to start from.
//
// Its error joins a [*ParseError] for every fault that was found: all of them,
// up to a hundred, in JSON that is well formed, and otherwise those up to where
// it is not. A policy that Parse accepts is for [Compile] to judge.
func Parse(data []byte) (Policy, error) {
	p := parser{data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	p.dec.UseNumber()
	for i := 0; i < len(data) && !p.done; {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			p.fail(i, "", "not UTF-8")
			p.done = true
		}
		i += n
	}
	policy := p.policy()
	if p.errs != nil {
		return Policy{}, errors.Join(p.errs...)
	}
	return policy, nil
}

// UnmarshalJSON is [Parse]. Settings by themselves, such as those of a view, are read as
// a Policy without routes.
func (p *Policy) UnmarshalJSON(data []byte) error {
	parsed, err := Parse(data)
	if err == nil {
		*p = parsed
	}
	return err
}

const (
	maxFaults = 100
	maxDepth  = 64 // of what is skipped; a policy nests four deep
)

// members lists the keys of each object that holds fields, by the key of its
// section; those of the settings themselves are under "".
var members = func() map[string]map[string]*field {
	m := map[string]map[string]*field{"": {}}
	for i := range fields {
		f := &fields[i]
		section := snake(f.section)
		if m[section] == nil {
			m[section] = map[string]*field{}
		}
		m[section][snake(f.name)] = f
	}
	return m
}()

// parser walks the tokens of encoding/json, which knows neither the lines nor
// the path of what it decodes, and reports no duplicates.
type parser struct {
	data []byte
	dec  *json.Decoder
	errs []error
	done bool // after an error that nothing can be read beyond
}

// start returns where the next token begins.
func (p *parser) start() int {
	at := int(p.dec.InputOffset())
	return at + len(p.data[at:]) - len(bytes.TrimLeft(p.data[at:], " \t\r\n,:"))
}

func (p *parser) fail(at int, path, format string, args ...any) {
	if p.done {
		return
	}
	before := p.data[:at]
	line := bytes.LastIndexByte(before, '\n') + 1
	p.errs = append(p.errs, &ParseError{
		Line:   1 + bytes.Count(before, []byte("\n")),
		Column: 1 + utf8.RuneCount(before[line:]),
		Path:   path,
		Reason: fmt.Sprintf(format, args...),
	})
	if len(p.errs) == maxFaults {
		p.done = true
	}
}

// next returns the next token and where it begins: nil if there is none.
func (p *parser) next(path string) (json.Token, int) {
	at := p.start()
	if p.done {
		return nil, at
	}
	tok, err := p.dec.Token()
	if err == nil {
		return tok, at
	}
	var syntax *json.SyntaxError
	reason := "the JSON ends too early"
	switch rest := p.data[at:]; {
	case bytes.HasPrefix(rest, []byte("/")), bytes.HasPrefix(rest, []byte("#")):
		reason = "JSON has no comments"
	case bytes.HasPrefix(rest, []byte("\ufeff")):
		reason = "a byte order mark; save the file as UTF-8 without one"
	case bytes.HasSuffix(bytes.TrimRight(p.data[:at], " \t\r\n"), []byte(",")) && bytes.ContainsAny(rest[:min(1, len(rest))], "]}"):
		reason = "a comma before the end, where JSON has none"
	case errors.As(err, &syntax) && len(rest) > 0:
		reason = "not JSON: " + syntax.Error()
	}
	p.fail(at, path, "%s", reason)
	p.done = true
	return nil, at
}

// more reports whether the object or array goes on.
func (p *parser) more() bool { return !p.done && p.dec.More() }

// skip reads what is left of a value that begins with a token.
func (p *parser) skip(tok json.Token, path string) {
	for depth := 0; !p.done; {
		switch tok {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return
		}
		var at int
		tok, at = p.next(path)
		if depth > maxDepth {
			p.fail(at, path, "nested too deep")
			p.done = true
		}
	}
}

// wrong reports a value that begins with a token as one of the wrong kind.
func (p *parser) wrong(tok json.Token, at int, path, want string) {
	if tok == nil && p.done {
		return
	}
	p.fail(at, path, "%s; want %s", describe(tok), want)
	p.skip(tok, path)
}

func describe(tok json.Token) string {
	switch tok := tok.(type) {
	case nil:
		return "null"
	case json.Delim:
		if tok == '[' {
			return "an array"
		}
		return "an object"
	case string:
		return strconv.Quote(shorten(tok))
	default:
		return shorten(fmt.Sprint(tok))
	}
}

// shorten keeps what someone wrote from filling the page.
func shorten(s string) string {
	if utf8.RuneCountInString(s) > 40 {
		return string([]rune(s)[:40]) + "…"
	}
	return s
}

// object reads an object and has each member read by a function. Only known
// keys are members, unless that is nil. It reports whether there is an object.
func (p *parser) object(path string, known []string, member func(key, path string)) bool {
	tok, at := p.next(path)
	if tok != json.Delim('{') {
		want := "an object"
		if on, ok := tok.(bool); ok && slices.Contains(known, "enabled") {
			want = fmt.Sprintf(`{"enabled": %v}`, on)
		}
		p.wrong(tok, at, path, want)
		return false
	}
	seen := map[string]bool{}
	for p.more() {
		tok, at := p.next(path)
		key, ok := tok.(string)
		if !ok {
			return false
		}
		sub := join(path, key)
		switch {
		case seen[key]:
			p.fail(at, sub, "the key is there twice")
		case known != nil && !slices.Contains(known, key):
			p.fail(at, sub, "unknown key%s", suggest(key, known))
		default:
			seen[key] = true
			member(key, sub)
			continue
		}
		tok, _ = p.next(sub)
		p.skip(tok, sub)
	}
	p.next(path)
	return true
}

func join(path, key string) string {
	key = shorten(key)
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r != '_' && r != '-' && !isAlphanumeric(r) }) {
		return path + "[" + strconv.Quote(key) + "]"
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func isAlphanumeric(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}

// array reads an array and has each element read by a function.
func (p *parser) array(path string, element func(path string)) {
	tok, at := p.next(path)
	if tok != json.Delim('[') {
		p.wrong(tok, at, path, "an array")
		return
	}
	for i := 0; p.more(); i++ {
		element(fmt.Sprintf("%s[%d]", path, i))
	}
	p.next(path)
}

// settingsKeys are those of an object that has settings in it.
var settingsKeys = func() []string {
	keys := []string{"budgets"}
	for section := range members {
		if section != "" {
			keys = append(keys, section)
		}
	}
	return slices.Sorted(slices.Values(slices.AppendSeq(keys, maps.Keys(members[""]))))
}()

func (p *parser) policy() (policy Policy) {
	p.object("", append([]string{"routes"}, settingsKeys...), func(key, path string) {
		if key != "routes" {
			p.setting(&policy.Settings, key, path)
			return
		}
		p.array(path, func(path string) {
			policy.Routes = append(policy.Routes, p.route(path))
		})
	})
	if p.done {
		return policy
	}
	if rest := bytes.TrimLeft(p.data[p.dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
		p.fail(len(p.data)-len(rest), "", "data after the end of the policy")
	}
	return policy
}

func (p *parser) route(path string) (r Route) {
	at := p.start()
	hasPattern := false
	ok := p.object(path, append([]string{"pattern", "name"}, settingsKeys...), func(key, path string) {
		switch key {
		case "pattern":
			hasPattern = true
			p.text(&r.Pattern, path)
		case "name":
			p.text(&r.Name, path)
		default:
			p.setting(&r.Settings, key, path)
		}
	})
	if ok && !hasPattern {
		p.fail(at, path, `no "pattern"; a route needs one`)
	}
	return r
}

func (p *parser) text(s *string, path string) {
	tok, at := p.next(path)
	if text, ok := tok.(string); ok && text != "" {
		*s = text
		return
	}
	p.wrong(tok, at, path, "a text")
}

// setting reads a member of an object that has settings in it.
func (p *parser) setting(s *Settings, key, path string) {
	section := func(key, path string, in ref) {
		p.object(path, slices.Sorted(maps.Keys(members[key])), func(leaf, path string) {
			in.field = members[key][leaf]
			p.leaf(s, in, path)
		})
	}
	switch {
	case key == "budgets":
		p.object(path, nil, func(name, path string) {
			section("rate", path, ref{named: true, budget: name})
		})
	case members[""][key] != nil:
		p.leaf(s, ref{field: members[""][key]}, path)
	default:
		section(key, path, ref{})
	}
}

// leaf reads the value of a field.
func (p *parser) leaf(s *Settings, r ref, path string) {
	value := r.in(s)
	switch value.Interface().(type) {
	case []int:
		list := []int{}
		p.array(path, func(path string) {
			var n int
			p.scalar(reflect.ValueOf(&n).Elem(), false, path)
			list = append(list, n)
		})
		r.put(s, reflect.ValueOf(list))
	default:
		v := reflect.New(value.Type()).Elem()
		p.scalar(v, r.off || r.main, path)
		r.put(s, v)
	}
}

func (p *parser) scalar(v reflect.Value, off bool, path string) {
	tok, at := p.next(path)
	text, isText := tok.(string)
	number, isNumber := tok.(json.Number)
	or := ""
	if off {
		or = ` or "off"`
	}
	var want string
	switch x := v.Addr().Interface().(type) {
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if *x = d; err == nil && d > 0 {
			return
		}
		want = `a duration above zero such as "1m30s"` + or
	case *int, *int64:
		n, err := strconv.ParseInt(string(number), 10, v.Type().Bits())
		if v.SetInt(n); isNumber && err == nil && n > 0 {
			return
		}
		want = "a whole number above zero" + or
		if isNumber && errors.Is(err, strconv.ErrRange) && n > 0 {
			want = "a smaller number" + or
		}
	case *float64:
		f, err := strconv.ParseFloat(string(number), 64)
		if *x = f; isNumber && err == nil && f > 0 {
			return
		}
		want = "a number above zero" + or
		if isNumber && err != nil && f > 0 {
			want = "a smaller number" + or
		}
	case *Toggle:
		switch tok {
		case true:
			*x = On
			return
		case false:
			*x = Off
			return
		}
		want = "true or false"
	case *string:
		if *x = text; text != "" {
			return
		}
		want = "a text"
	case *KeyFunc:
		switch text {
		case "origin":
			*x = ByOrigin
			return
		case "route":
			*x = ByRoute
			return
		}
		want = `"origin" or "route"; any other key function is set in Go`
	default:
		p.fail(at, path, "a function cannot be written in JSON; set it in Go")
		p.skip(tok, path)
		return
	}
	if isText && text == "off" && off {
		v.Set(reflect.ValueOf(Off).Convert(v.Type()))
		return
	}
	p.wrong(tok, at, path, want)
}

// suggest finds the key that was meant, here or in another place, or else lists
// those that there are.
func suggest(key string, known []string) string {
	plain := strings.ToLower(strings.ReplaceAll(key, "-", "_"))
	best, least, limit := "", math.MaxInt, max(1, len(key)/3)
	for _, k := range known {
		if len(plain) > 2*len(k) {
			continue
		}
		d := distance(plain, k)
		if len(plain) > 3 && strings.Contains(k, plain) || bytes.Equal(letters(plain), letters(k)) {
			d = 1
		}
		if d < least {
			best, least = k, d
		}
	}
	if home := homes(plain); home != "" && least > 1 {
		return "; it belongs in " + home
	}
	if least > limit {
		return "; known here: " + strings.Join(slices.Sorted(slices.Values(known)), ", ")
	}
	return fmt.Sprintf("; do you mean %q?", best)
}

// letters returns those of s in their order, so that swapped ones are no others.
func letters(s string) []byte {
	b := []byte(s)
	slices.Sort(b)
	return b
}

// homes names the sections that have a key, however its words are joined.
func homes(key string) string {
	key = strings.ReplaceAll(key, "_", "")
	var list []string
	for section, keys := range members {
		for k := range keys {
			if strings.ReplaceAll(k, "_", "") != key {
				continue
			}
			if section == "" {
				return "the policy or the route itself"
			}
			list = append(list, strconv.Quote(section))
		}
	}
	slices.Sort(list)
	return strings.Join(list, " or ")
}

// distance counts the letters to insert, delete or replace (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
