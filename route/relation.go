package route

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
)

// A Relation tells how the requests that one pattern matches relate to those of
// another.
type Relation uint8

// MoreGeneral and MoreSpecific are bits, and Overlaps is both: the relation of two
// patterns is the union of those of their hosts, methods and paths, unless one of
// them is Disjoint.
const (
	Equivalent   Relation = 0                          // they are the same
	MoreGeneral  Relation = 1                          // they are all of the other's, and more
	MoreSpecific Relation = 2                          // they are some of the other's, and no more
	Overlaps     Relation = MoreGeneral | MoreSpecific // some are the other's, and both have more
	Disjoint     Relation = 4                          // none are the other's
)

func union(rs ...Relation) Relation {
	var u Relation
	for _, r := range rs {
		u |= r
	}
	return min(u, Disjoint)
}

// String returns the relation in words.
func (r Relation) String() string {
	switch r {
	case Equivalent:
		return "equivalent"
	case MoreGeneral:
		return "more general"
	case MoreSpecific:
		return "more specific"
	case Overlaps:
		return "overlaps"
	default:
		return "disjoint"
	}
}

// Relation tells how the requests that p matches relate to those that q matches.
// It is a matter of sets: by the order of patterns, one of two that overlap is
// nevertheless the more specific (see [Pattern.Compare]).
func (p Pattern) Relation(q Pattern) Relation {
	return union(
		relateNames(p.name, q.name),
		relatePorts(p.port, q.port),
		relateMethods(p.method, q.method),
		relatePaths(p.segments, q.segments),
	)
}

func relateNames(p, q string) Relation {
	switch {
	case p == q:
		return Equivalent
	case p == "", p[0] == '*' && strings.HasSuffix(q, p[1:]):
		return MoreGeneral
	case q == "", q[0] == '*' && strings.HasSuffix(p, q[1:]):
		return MoreSpecific
	}
	return Disjoint
}

func relatePorts(p, q string) Relation {
	switch {
	case p == q:
		return Equivalent
	case p == "":
		return MoreGeneral
	case q == "":
		return MoreSpecific
	}
	return Disjoint
}

func relateMethods(p, q string) Relation {
	switch {
	case p == q:
		return Equivalent
	case p == "", p == "GET" && q == "HEAD":
		return MoreGeneral
	case q == "", q == "GET" && p == "HEAD":
		return MoreSpecific
	}
	return Disjoint
}

func relatePaths(p, q []segment) Relation {
	r := Equivalent
	for i := range min(len(p), len(q)) {
		switch a, b := p[i], q[i]; {
		case a.kind == rest && b.kind == rest:
			return r
		case a.kind == rest:
			return r | MoreGeneral
		case b.kind == rest:
			return r | MoreSpecific
		case a.compare(b) == 0:
		case a.kind == wild && b.text != "":
			r |= MoreGeneral
		case b.kind == wild && a.text != "":
			r |= MoreSpecific
		default:
			return Disjoint
		}
	}
	if len(p) != len(q) {
		return Disjoint
	}
	return r
}

// Crosses reports whether the paths of p and q cross: each matches some that the
// other matches and some that it does not. It is false for patterns of different
// hosts, which are in order whatever their paths, and for methods that never meet.
func (p Pattern) Crosses(q Pattern) bool {
	return p.name == q.name && p.port == q.port &&
		relateMethods(p.method, q.method) != Disjoint &&
		relatePaths(p.segments, q.segments) == Overlaps
}

// A Request is what patterns match: the method, the host with its port, and the
// escaped path.
type Request struct{ Method, Host, Path string }

// String returns the request in the form of a pattern.
func (r Request) String() string { return r.Method + " " + r.Host + r.Path }

// Common returns a request that p and q both match, and whether there is one. Its
// host is empty if neither pattern has one.
func (p Pattern) Common(q Pattern) (_ Request, ok bool) {
	if p.Relation(q) == Disjoint {
		return Request{}, false
	}
	host := Pattern{name: p.name, port: max(p.port, q.port)}
	if relateNames(p.name, q.name) == MoreGeneral {
		host.name = q.name
	}
	var path strings.Builder
	for i := range max(len(p.segments), len(q.segments)) {
		var narrower segment
		if i < len(p.segments) {
			narrower = p.segments[i]
		}
		if i < len(q.segments) && q.segments[i].kind > narrower.kind {
			narrower = q.segments[i]
		}
		path.WriteString("/" + url.PathEscape(narrower.text)) // a wildcard matches its own name
	}
	return Request{
		Method: cmp.Or(max(p.method, q.method), "GET"), // the greater of "GET" and "HEAD", or of "" and any, is both
		Host:   strings.Replace(host.Host(), "*", "any", 1),
		Path:   path.String(),
	}, true
}

// Compare orders patterns from general to specific, in the order of a Table's
// lines. It returns 0 if and only if p and q are equivalent.
func (p Pattern) Compare(q Pattern) int {
	return cmp.Or(
		compareHosts(p, q),
		compareSegments(p.segments, q.segments),
		strings.Compare(p.method, q.method), // "", "GET" and "HEAD" are in order as they stand
	)
}

func compareHosts(p, q Pattern) int {
	return cmp.Or(
		cmp.Compare(hostRank(p.name), hostRank(q.name)),
		cmp.Compare(len(p.name), len(q.name)),
		strings.Compare(p.name, q.name),
		strings.Compare(p.port, q.port),
	)
}

func hostRank(name string) int {
	switch {
	case name == "":
		return 0
	case name[0] == '*':
		return 1
	}
	return 2
}

func compareSegments(p, q []segment) int { return slices.CompareFunc(p, q, segment.compare) }

func (s segment) compare(o segment) int {
	if s.kind != literal || o.kind != literal {
		return cmp.Compare(s.kind, o.kind)
	}
	return strings.Compare(s.text, o.text)
}
