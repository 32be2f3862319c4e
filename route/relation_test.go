package route

import (
	"cmp"
	"slices"
	"testing"
)

func inverse(r Relation) Relation {
	switch r {
	case MoreGeneral:
		return MoreSpecific
	case MoreSpecific:
		return MoreGeneral
	}
	return r
}

func TestRelation(t *testing.T) {
	for _, test := range []struct {
		p, q string
		want Relation
	}{
		// Paths.
		{"/a", "/a", Equivalent},
		{"/a", "/%61", Equivalent},
		{"/a/{x}", "/a/{y}", Equivalent},
		{"/a/", "/a/{x...}", Equivalent},
		{"/a", "/b", Disjoint},
		{"/a", "/a/", Disjoint},
		{"/a", "/A", Disjoint},
		{"/a/{x}", "/a/{$}", Disjoint},
		{"/{x}/b", "//b", Disjoint},
		{"/a%2Fb", "/a/b", Disjoint},
		{"/%2F", "/{$}", Disjoint},
		{"/{x}", "/a", MoreGeneral},
		{"/{x}", "/%2F", MoreGeneral},
		{"/", "/{x}", MoreGeneral},
		{"/", "/{$}", MoreGeneral},
		{"/", "//", MoreGeneral},
		{"/a/", "/a/{x}/b", MoreGeneral},
		{"/{x}/", "/a/", MoreGeneral},
		{"/a/{x}", "/{y}/b", Overlaps},
		{"/{x}/{$}", "/a/", Overlaps},
		{"/a/{x}/b/", "/{x}/c/", Overlaps},
		{"/a/{x}/b", "/{x}/c/d", Disjoint},

		// Methods.
		{"GET /", "GET /", Equivalent},
		{"GET /", "POST /", Disjoint},
		{"GET /", "get /", Disjoint},
		{"/", "GET /", MoreGeneral},
		{"GET /", "HEAD /", MoreGeneral},

		// Hosts.
		{"a.com/", "A.com./", Equivalent},
		{"a.com/", "a.com:80/", Equivalent},
		{"a.com:443/", "a.com:80/", Equivalent},
		{"a.com/", "b.com/", Disjoint},
		{"*.a.com/", "a.com/", Disjoint},
		{"*.a.com/", "ba.com/", Disjoint},
		{"a.com:81/", "a.com:82/", Disjoint},
		{"/", "*.com/", MoreGeneral},
		{"*.com/", "*.a.com/", MoreGeneral},
		{"*.a.com/", "b.c.a.com/", MoreGeneral},
		{"a.com/", "a.com:81/", MoreGeneral},
		{"*.com:81/", "a.com/", Overlaps},

		// What is wider in one way and narrower in another overlaps.
		{"GET /", "/a", Overlaps},
		{"a.com/", "/a", Overlaps},
		{"a.com/", "GET /", Overlaps},
		{"GET /a", "POST /", Disjoint},
		{"a.com/b", "/a", Disjoint},
	} {
		p, q := parse(t, test.p), parse(t, test.q)
		if got := p.Relation(q); got != test.want {
			t.Errorf("%s to %s: got %s, want %s", p, q, got, test.want)
		}
		if got := q.Relation(p); got != inverse(test.want) {
			t.Errorf("%s to %s: got %s, want %s", q, p, got, inverse(test.want))
		}
	}
}

func TestCompare(t *testing.T) {
	// In order. The blocks are by host, then by path, then by method.
	order := []string{
		"/",
		"GET /",
		"HEAD /",
		"POST /",
		"/{x}/",
		"/{x}/b",
		"/a/",
		"/a/{x}",
		"/a/b",
		"POST /a/b",

		"*.com/a",
		"*.a.com/",
		"GET *.a.com/",
		"*.a.com/a",
		"*.a.com:81/",
		"a.com/",
		"GET a.com/a",
		"a.com:81/",
		"x.a.com/",
	}
	for i, s := range order {
		for j, u := range order {
			p, q := parse(t, s), parse(t, u)
			if got := p.Compare(q); got != cmp.Compare(i, j) {
				t.Errorf("%s to %s: got %d, want %d", p, q, got, cmp.Compare(i, j))
			}
		}
	}
}

func TestCrosses(t *testing.T) {
	for _, test := range []struct {
		p, q   string
		common string // "" if they do not cross
	}{
		{"/a/{x}", "/{y}/b", "GET /a/b"},
		{"POST /a/{x}/", "/{y}/b/", "POST /a/b/"},
		{"GET /a/{x}", "HEAD /{y}/b", "HEAD /a/b"},
		{"*.example.com:81/a/{x}/c", "*.example.com:81/{y}/b%2F/{z}", "GET any.example.com:81/a/b%2F/c"},
		{"example.com/{x}/{$}", "example.com/a/", "GET example.com/a/"},
		{"/{x}/b/{y}/", "/a/{x}/{name}/d/{rest...}", "GET /a/b/y/d/"},

		{"GET /a/{x}", "POST /{y}/b", ""}, // no method in common
		{"GET /", "/a", ""},               // only the methods are wider
		{"a.com/a/{x}", "/{y}/b", ""},     // the host decides
		{"a.com/a/{x}", "a.com:81/{y}/b", ""},
		{"*.com/a/{x}", "*.a.com/{y}/b", ""},
		{"/a/{x}", "/b/{y}", ""},
		{"/a/{x}", "/a/b", ""},
		{"/a/{x}", "/a/{y}", ""},
	} {
		p, q := parse(t, test.p), parse(t, test.q)
		if got := p.Crosses(q); got != (test.common != "") || got != q.Crosses(p) {
			t.Errorf("%s and %s: got %t and %t", p, q, got, q.Crosses(p))
		}
		if got, _ := p.Common(q); test.common != "" && got.String() != test.common {
			t.Errorf("%s and %s: got %q, want %q", p, q, got, test.common)
		}
	}
}

// TestRelationsExhaustively compares relations, order and common requests with the
// sets of requests that the oracle says the patterns match.
func TestRelationsExhaustively(t *testing.T) {
	written := slices.Concat(patternPaths, words(words(patternMethods, patternHosts...), "/", "/a/{x}", "/{x}/b"))
	var os oracles
	var sets [][]uint64
	for _, s := range slices.Compact(slices.Sorted(slices.Values(written))) {
		o := newOracle(parse(t, s))
		var set []uint64
		n := 0
		for _, method := range requestMethods {
			for _, host := range requestHosts {
				matches := o.matchesMethod(method) && o.matchesHost(host)
				for _, path := range requestPaths {
					if n%64 == 0 {
						set = append(set, 0)
					}
					if matches && o.matchesPath(path) {
						set[n/64] |= 1 << (n % 64)
					}
					n++
				}
			}
		}
		os, sets = append(os, o), append(sets, set)
	}
	for i, o := range os {
		for j, u := range os {
			var both, only, others bool
			for k, w := range sets[i] {
				both = both || w&sets[j][k] != 0
				only = only || w&^sets[j][k] != 0
				others = others || sets[j][k]&^w != 0
			}
			want := Disjoint
			switch {
			case both && only && others:
				want = Overlaps
			case both && only:
				want = MoreGeneral
			case both && others:
				want = MoreSpecific
			case both:
				want = Equivalent
			}
			p, q := o.pattern, u.pattern
			if got := p.Relation(q); got != want {
				t.Fatalf("%s to %s: got %s, want %s", p, q, got, want)
			}
			if got := p.Compare(q); got != o.compare(u) || (got == 0) != (want == Equivalent) ||
				got > 0 && want == MoreGeneral || got < 0 && want == MoreSpecific {
				t.Fatalf("%s to %s, %s: order %d, want %d", p, q, want, got, o.compare(u))
			}
			c, ok := p.Common(q)
			if ok != both || ok && !(o.matches(c.Method, c.Host, c.Path) && u.matches(c.Method, c.Host, c.Path)) {
				t.Fatalf("%s and %s: in common %v, %t, want %t", p, q, c, ok, both)
			}
		}
	}
}
