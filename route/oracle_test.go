package route

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
)

// An oracle is a pattern as the package comment describes it, without regard to
// speed and without a line of the code under test but the accessors.
type oracle struct {
	pattern    Pattern
	name, port string
	path       []piece
}

// A piece is a segment: '.' is a rest, '?' is a wildcard, '=' is a literal. They
// are sorted from general to specific by their bytes.
type piece struct {
	form byte
	text string
}

func newOracle(p Pattern) oracle {
	host := url.URL{Host: p.Host()}
	o := oracle{pattern: p, port: host.Port()}
	o.name = strings.TrimSuffix(p.Host(), ":"+o.port)
	texts := strings.Split(p.Path(), "/")[1:]
	for i, s := range texts {
		switch {
		case s == "" && i == len(texts)-1, strings.HasSuffix(s, "...}") && s[0] == '{':
			o.path = append(o.path, piece{form: '.'})
		case s == "{$}":
			o.path = append(o.path, piece{form: '='})
		case strings.HasPrefix(s, "{"):
			o.path = append(o.path, piece{form: '?'})
		default:
			o.path = append(o.path, piece{'=', unescape(s)})
		}
	}
	return o
}

func unescape(segment string) string {
	if u, err := url.PathUnescape(segment); err == nil {
		return u
	}
	return segment
}

func (o oracle) matches(method, host, path string) bool {
	return o.matchesMethod(method) && o.matchesHost(host) && o.matchesPath(path)
}

func (o oracle) matchesMethod(method string) bool {
	method = cmp.Or(method, "GET")
	switch o.pattern.Method() {
	case "", method:
		return true
	case "GET":
		return method == "HEAD"
	}
	return false
}

func (o oracle) matchesHost(host string) bool {
	name, port := host, ""
	if i := strings.LastIndex(host, ":"); i >= 0 && !strings.Contains(host[i:], "]") {
		name, port = host[:i], host[i+1:]
	}
	if o.port != "" && o.port != port {
		return false
	}
	if o.name != "" && strings.Contains(name[strings.LastIndex(name, "]")+1:], ":") { // it is no host
		return false
	}
	upper := []byte(name)
	for i, c := range upper {
		if strings.IndexByte("ABCDEFGHIJKLMNOPQRSTUVWXYZ", c) >= 0 {
			upper[i] = c | 0x20
		}
	}
	name = strings.TrimSuffix(string(upper), ".")
	if suffix, ok := strings.CutPrefix(o.name, "*"); ok {
		return strings.HasSuffix(name, suffix)
	}
	return o.name == "" || o.name == name
}

func (o oracle) matchesPath(path string) bool {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, p := range o.path {
		if i == len(segments) {
			return false
		}
		switch got := unescape(segments[i]); p.form {
		case '.':
			return true
		case '?':
			if got == "" {
				return false
			}
		case '=':
			if got != p.text {
				return false
			}
		}
	}
	return len(segments) == len(o.path)
}

// compare orders oracles from general to specific, by the package comment.
func (o oracle) compare(p oracle) int {
	rank := func(name string) int {
		switch {
		case name == "":
			return 0
		case name[0] == '*':
			return 1
		}
		return 2
	}
	return cmp.Or(
		cmp.Compare(rank(o.name), rank(p.name)),
		cmp.Compare(len(o.name), len(p.name)),
		cmp.Compare(o.name, p.name),
		cmp.Compare(o.port, p.port),
		slices.CompareFunc(o.path, p.path, func(a, b piece) int {
			return cmp.Or(cmp.Compare(strings.IndexByte(".?=", a.form), strings.IndexByte(".?=", b.form)), cmp.Compare(a.text, b.text))
		}),
		cmp.Compare(o.pattern.Method(), p.pattern.Method()),
	)
}

// oracles are sorted from general to specific.
type oracles []oracle

func newOracles(patterns []Pattern) oracles {
	var os oracles
	for _, p := range patterns {
		os = append(os, newOracle(p))
	}
	slices.SortFunc(os, oracle.compare)
	return os
}

// line returns the patterns that match.
func (os oracles) line(method, host, path string) []string {
	var line []string
	for _, o := range os {
		if o.matches(method, host, path) {
			line = append(line, o.pattern.String())
		}
	}
	return line
}

// The alphabets are small, but what is special about a segment, a host or a method
// occurs in them, and so does one of each that no pattern names.
var (
	patternMethods = []string{"", "GET ", "HEAD ", "POST "}
	patternHosts   = []string{"", "*.b", "*.b:81", "*.a.b", "a.b", "a.b:81"}
	patternPaths   = words(words(words([]string{""}, "", "/a", "/b", "/{x}", "/"), "", "/a", "/b", "/{y}", "/"), "/a", "/b", "/{z}", "/{$}", "/{z...}")

	requestMethods = []string{"GET", "HEAD", "POST", "PUT"}
	requestHosts   = []string{"", "c", "a.b", "a.b:81", "a.b:82", "x.b", "x.b:81", "x.a.b", "x.a.b:81"}
	requestPaths   = words(words(words([]string{"/a", "/b", "/c", "/"}, "", "/a", "/b", "/c", "/"), "", "/a", "/b", "/c", "/"), "", "/c", "/")
)

// words appends each end to each begin, without repetition.
func words(begins []string, ends ...string) []string {
	var out []string
	for _, b := range begins {
		for _, e := range ends {
			out = append(out, b+e)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
