package route

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// A Table holds a value for each of a set of patterns, and finds those of all the
// patterns that match a request. It is immutable. The zero Table is empty.
//
// It is a tree for each host that a pattern names. A request goes through the tree
// of its host and of each wildcard that matches it.
type Table[V any] struct {
	hostless *node[V]              // of the patterns without a host
	hosted   map[string]*node[V]   // by host and port; the key of *.example.com is .example.com
	known    map[string][]*node[V] // what trees answers for each key of hosted
	longest  int                   // of the keys of wildcards, in bytes: no longer end of a host need be looked up
}

// An Entry is a pattern and its value in a Table.
type Entry[V any] struct {
	Pattern Pattern
	Value   V
}

// A DuplicateError names two patterns that match the same requests.
type DuplicateError struct{ First, Second Pattern }

// Error names both patterns.
func (e *DuplicateError) Error() string {
	return fmt.Sprintf("pattern %q matches the same requests as %q; remove one", e.Second, e.First)
}

// NewTable returns a table of the entries, in whatever order they are given. If
// patterns are equivalent, the error joins a *DuplicateError for each but the first.
func NewTable[V any](entries ...Entry[V]) (*Table[V], error) {
	entries = slices.Clone(entries)
	slices.SortStableFunc(entries, func(a, b Entry[V]) int { return a.Pattern.Compare(b.Pattern) })
	var errs []error
	leaves := make([]leaf[V], len(entries))
	for i, e := range entries {
		if i > 0 && entries[i-1].Pattern.Compare(e.Pattern) == 0 {
			errs = append(errs, &DuplicateError{entries[i-1].Pattern, e.Pattern})
		}
		leaves[i] = leaf[V]{e.Pattern.method, e.Value}
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	t := &Table[V]{hosted: map[string]*node[V]{}, known: map[string][]*node[V]{}}
	for _, es := range groups(entries, compareHosts) {
		tree := newNode(es, leaves[:len(es)], 0)
		leaves = leaves[len(es):]
		if host := es[0].Pattern.Host(); host == "" {
			t.hostless = tree
		} else {
			t.hosted[strings.TrimPrefix(host, "*")] = tree
		}
	}
	for host := range t.hosted {
		if host[0] == '.' {
			t.longest = max(t.longest, len(host))
		}
	}
	for host := range t.hosted {
		t.known[host] = t.trees(nil, host)
	}
	return t, nil
}

// Line appends to dst the values of all patterns that match the request, from
// general to specific. The host may have a port. It allocates nothing if dst has
// room, unless host or a segment with escapes is of unusual length.
func (t *Table[V]) Line(dst []V, method, host, escapedPath string) []V {
	return t.line(dst, method, host, escapedPath, strings.Contains(escapedPath, "%"))
}

// LineURL is [Table.Line] with the host and the [Path] of u. It is faster, since a path
// is not escaped to be compared, and allocates only where u.RawPath is set.
func (t *Table[V]) LineURL(dst []V, method string, u *url.URL) []V {
	if u.RawPath != "" || u.Opaque != "" {
		return t.Line(dst, method, u.Host, Path(u))
	}
	return t.line(dst, method, u.Host, u.Path, false)
}

// Path returns the path that a request to u is sent with, escaped: that of u.Opaque, if
// it is set, which is sent as it is written.
func Path(u *url.URL) string {
	if u.Opaque == "" {
		return u.EscapedPath()
	}
	path, _, _ := strings.Cut(u.Opaque, "?")
	if before, rest, found := strings.Cut(path, "//"); found && !strings.Contains(before, "/") { // a host, and perhaps a scheme
		_, path, _ = strings.Cut(rest, "/")
		path = "/" + path
	}
	return path
}

func (t *Table[V]) line(dst []V, method, host, path string, escaped bool) []V {
	if method == "" {
		method = "GET"
	}
	if path == "" || path[0] != '/' {
		path = "/" + path
	}
	trees, ok := t.known[host]
	if !ok {
		var buf [8]*node[V]
		trees = t.trees(buf[:0], host)
	}
	for _, n := range trees {
		dst = n.line(dst, method, path, escaped)
	}
	return dst
}

// trees appends the trees that a request to host goes through, from general to
// specific.
func (t *Table[V]) trees(dst []*node[V], host string) []*node[V] {
	if t.hostless != nil {
		dst = append(dst, t.hostless)
	}
	if len(t.hosted) == 0 {
		return dst
	}
	name, port := splitHost(host)
	if _, _, more := cutPort(name); more { // it is no host, and must not look like one with a port
		return dst
	}
	var buf [256]byte // the longest domain name is of 253 bytes
	key := appendLower(buf[:0], name)
	if port != "" {
		key = append(append(key, ':'), port...)
	}
	for i := len(name) - 1; i >= 0; i-- {
		if i > 0 && (key[i] != '.' || len(name)-i > t.longest) {
			continue
		}
		if n, ok := t.hosted[string(key[i:len(name)])]; ok {
			dst = append(dst, n)
		}
		if port == "" {
			continue
		}
		if n, ok := t.hosted[string(key[i:])]; ok {
			dst = append(dst, n)
		}
	}
	return dst
}

// A node is a step of a tree: the segments that all patterns from here on share,
// and where they part after them.
type node[V any] struct {
	prefix   []segment
	leaves   []leaf[V] // of the patterns that end after the prefix, then of those with only a rest left
	ends     int       // the number of the former
	wild     *node[V]
	literals index[V]
}

// A leaf is a pattern that matches if its method does.
type leaf[V any] struct {
	method string
	value  V
}

// newNode returns the tree of entries, which are sorted and have the segments before
// depth in common.
func newNode[V any](entries []Entry[V], leaves []leaf[V], depth int) *node[V] {
	// What the first and the last have in common, those between them have too.
	first, last := entries[0].Pattern.segments[depth:], entries[len(entries)-1].Pattern.segments[depth:]
	shared := 0
	for shared < min(len(first), len(last)) && first[shared].kind != rest && first[shared].compare(last[shared]) == 0 {
		shared++
	}
	depth += shared

	n := &node[V]{prefix: first[:shared]}
	var branches []branch[V]
	done := 0
	for _, es := range groupsAt(depth, entries) {
		below := leaves[done : done+len(es)]
		done += len(es)
		switch next := es[0].Pattern.at(depth); {
		case len(next) == 0:
			n.leaves, n.ends = below, done
		case next[0].kind == rest:
			n.leaves = leaves[:done]
		case next[0].kind == wild:
			n.wild = newNode(es, below, depth+1)
		default:
			branches = append(branches, branch[V]{next[0].text, newNode(es, below, depth+1)})
		}
	}
	n.literals = newIndex(branches)
	return n
}

// line appends the values below n that match path, what is left of the request's: it
// is empty, or begins with the slash before the next segment.
func (n *node[V]) line(dst []V, method, path string, escaped bool) []V {
	var seg string
	for {
		for i := range n.prefix {
			if path == "" {
				return dst
			}
			seg, path = cut(path)
			s := &n.prefix[i]
			if s.kind == wild && seg == "" || s.kind == literal && !equal(seg, s.text, escaped) {
				return dst
			}
		}
		if path == "" {
			return appendMatching(dst, n.leaves[:n.ends], method)
		}
		dst = appendMatching(dst, n.leaves[n.ends:], method)
		seg, path = cut(path)
		next := n.find(seg, escaped)
		if n.wild != nil && seg != "" {
			if next == nil {
				next = n.wild
			} else {
				dst = n.wild.line(dst, method, path, escaped)
			}
		}
		if next == nil {
			return dst
		}
		n = next
	}
}

func appendMatching[V any](dst []V, leaves []leaf[V], method string) []V {
	for i := range leaves {
		l := &leaves[i]
		if l.method == "" || l.method == method || l.method == "GET" && method == "HEAD" {
			dst = append(dst, l.value)
		}
	}
	return dst
}

// cut cuts the first segment, and the slash before it, off a path. Segments are
// short: a loop is faster here than [strings.Cut].
func cut(path string) (seg, after string) {
	i := 1
	for i < len(path) && path[i] != '/' {
		i++
	}
	return path[1:i], path[i:]
}

// find returns the branch for a segment of a request. As in equal, the copy without
// escapes stays on the stack.
func (n *node[V]) find(seg string, escaped bool) *node[V] {
	if !escaped {
		return n.literals.find(seg)
	}
	var buf [128]byte
	return n.literals.find(string(appendUnescaped(buf[:0], seg)))
}

func equal(seg, text string, escaped bool) bool {
	if !escaped {
		return seg == text
	}
	var buf [128]byte
	return string(appendUnescaped(buf[:0], seg)) == text
}
