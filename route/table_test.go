package route

import (
	"errors"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// newTable holds the patterns themselves as values.
func newTable(t testing.TB, patterns []Pattern) *Table[string] {
	t.Helper()
	var entries []Entry[string]
	for _, p := range patterns {
		entries = append(entries, Entry[string]{p, p.String()})
	}
	table, err := NewTable(entries...)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range patterns {
		if entries[i].Value != p.String() {
			t.Fatal("the entries were moved")
		}
	}
	return table
}

func parseAll(t testing.TB, written ...string) []Pattern {
	t.Helper()
	var patterns []Pattern
	for _, s := range written {
		patterns = append(patterns, parse(t, s))
	}
	return patterns
}

// distinct leaves out patterns that are malformed or equivalent to earlier ones.
func distinct(written []string) []Pattern {
	var patterns []Pattern
	for _, s := range written {
		p, err := Parse(s)
		if err == nil && !slices.ContainsFunc(patterns, func(q Pattern) bool { return p.Relation(q) == Equivalent }) {
			patterns = append(patterns, p)
		}
	}
	return patterns
}

func TestLine(t *testing.T) {
	table := newTable(t, parseAll(t,
		"/",
		"GET /",
		"/policy",
		"/policy/{$}",
		"/a/{x}",
		"/{y}/b",
		"GET /a/b",
		"/files/{path...}",
		"GET /lit%2Feral/a b/{$}",
		"//",
		"*.example.com/",
		"*.api.example.com/",
		"*.example.com:8443/",
		"api.example.com/",
		"GET api.example.com/v1/{id}",
		"HEAD api.example.com/v1/{id}",
		"api.example.com:8443/",
		"[2001:db8::1]/v1",
	))
	for _, test := range []struct {
		method, host, path string
		want               []string
	}{
		// Methods.
		{"POST", "", "/x", []string{"/"}},
		{"GET", "", "/x", []string{"/", "GET /"}},
		{"", "", "/x", []string{"/", "GET /"}},
		{"HEAD", "", "/x", []string{"/", "GET /"}},
		{"get", "", "/x", []string{"/"}},

		// Paths.
		{"PUT", "", "", []string{"/"}},
		{"PUT", "", "*", []string{"/"}},
		{"PUT", "", "policy", []string{"/", "/policy"}},
		{"PUT", "", "/policy", []string{"/", "/policy"}},
		{"PUT", "", "/policy-author", []string{"/"}},
		{"PUT", "", "/polic", []string{"/"}},
		{"PUT", "", "/policy/", []string{"/", "/policy/{$}"}},
		{"PUT", "", "/policy//", []string{"/"}},
		{"PUT", "", "/policy/x", []string{"/"}},
		{"PUT", "", "/p%6flicy", []string{"/", "/policy"}},
		{"PUT", "", "/policy%2F", []string{"/"}},
		{"GET", "", "/a/b", []string{"/", "GET /", "/{y}/b", "/a/{x}", "GET /a/b"}},
		{"PUT", "", "/a/%2F", []string{"/", "/a/{x}"}},
		{"PUT", "", "/a/", []string{"/"}},
		{"PUT", "", "/a//b", []string{"/"}},
		{"PUT", "", "/a/../a/b", []string{"/"}},
		{"PUT", "", "/./b", []string{"/", "/{y}/b"}},
		{"PUT", "", "//b", []string{"/", "//"}},
		{"PUT", "", "//", []string{"/", "//"}},
		{"PUT", "", "/files", []string{"/"}},
		{"PUT", "", "/files/", []string{"/", "/files/{path...}"}},
		{"PUT", "", "/files/a//b/", []string{"/", "/files/{path...}"}},
		{"GET", "", "/lit%2feral/a%20b/", []string{"/", "GET /", "GET /lit%2Feral/a b/{$}"}},
		{"GET", "", "/lit%2Feral/a b/", []string{"/", "GET /", "GET /lit%2Feral/a b/{$}"}},
		{"PUT", "", "/lit/eral/a%20b/", []string{"/"}},
		{"PUT", "", "/lit%2Feral/a+b/", []string{"/"}},
		{"PUT", "", "/lit%2Feral/a%2/", []string{"/"}},

		// Hosts.
		{"PUT", "example.com", "/x", []string{"/"}},
		{"PUT", "myexample.com", "/x", []string{"/"}},
		{"PUT", "a.b.example.com", "/x", []string{"/", "*.example.com/"}},
		{"PUT", "a.b.example.com:1", "/x", []string{"/", "*.example.com/"}},
		{"PUT", "A.EXAMPLE.COM.:8443", "/x", []string{"/", "*.example.com/", "*.example.com:8443/"}},
		{"PUT", "api.example.com", "/x", []string{"/", "*.example.com/", "api.example.com/"}},
		{"PUT", "Api.Example.Com.:443", "/x", []string{"/", "*.example.com/", "api.example.com/"}},
		{"PUT", "api.example.com:80", "/x", []string{"/", "*.example.com/", "api.example.com/"}},
		{"PUT", "api.example.com:8443", "/x", []string{"/", "*.example.com/", "*.example.com:8443/", "api.example.com/", "api.example.com:8443/"}},
		{"PUT", "api.example.com:9", "/x", []string{"/", "*.example.com/", "api.example.com/"}},
		{"PUT", "v2.api.example.com", "/x", []string{"/", "*.example.com/", "*.api.example.com/"}},
		{"HEAD", "api.example.com", "/v1/7", []string{"/", "GET /", "*.example.com/", "api.example.com/", "GET api.example.com/v1/{id}", "HEAD api.example.com/v1/{id}"}},
		{"PUT", "[2001:DB8::1]:443", "/v1", []string{"/", "[2001:db8::1]/v1"}},
		{"PUT", "[2001:db8::1]:81", "/v1", []string{"/", "[2001:db8::1]/v1"}},
		{"PUT", "[2001:db8::2]", "/v1", []string{"/"}},
	} {
		if got := table.Line(nil, test.method, test.host, test.path); !slices.Equal(got, test.want) {
			t.Errorf("%s %s%s:\ngot  %q\nwant %q", test.method, test.host, test.path, got, test.want)
		}
	}
	if got := table.Line([]string{"before"}, "PUT", "", "/"); !slices.Equal(got, []string{"before", "/"}) {
		t.Errorf("appended to one: %q", got)
	}
	var zero Table[string]
	if got := zero.Line(nil, "GET", "a.com:81", "/"); got != nil {
		t.Errorf("the zero table gave %q", got)
	}
}

func TestLineURL(t *testing.T) {
	table := newTable(t, parseAll(t, "/", "h/{x}", "h/100%25", "h/a%2Fb", "h/a/b", "GET h/a b", "h/%2561"))
	for _, test := range []struct {
		url  url.URL
		want string // the last of the line
	}{
		{url.URL{Host: "h", Path: ""}, "/"},
		{url.URL{Host: "h", Path: "a b"}, "GET h/a b"},
		{url.URL{Host: "h", Path: "/100%"}, "h/100%25"},
		{url.URL{Host: "h", Path: "/%61"}, "h/%2561"},
		{url.URL{Host: "h", Path: "/a/b"}, "h/a/b"},
		{url.URL{Host: "h", Path: "/a/b", RawPath: "/a%2Fb"}, "h/a%2Fb"},
		{url.URL{Host: "h", Path: "/a/b", RawPath: "/wrong"}, "h/a/b"}, // as EscapedPath has it

		// What is sent as it is written.
		{url.URL{Host: "h", Opaque: "/a%2Fb"}, "h/a%2Fb"},
		{url.URL{Host: "h", Opaque: "//other/a/b", Path: "/c"}, "h/a/b"},
		{url.URL{Host: "h", Opaque: "//other"}, "/"},
		{url.URL{Host: "h", Opaque: "http://me@other:81/a/b"}, "h/a/b"},
		{url.URL{Host: "h", Opaque: "/a/b?x=//y"}, "h/a/b"},
		{url.URL{Host: "h", Opaque: "/x//a/b"}, "/"},
	} {
		got := table.LineURL(nil, "GET", &test.url)
		if len(got) == 0 || got[len(got)-1] != test.want {
			t.Errorf("%#v: got %q, want %q last", test.url, got, test.want)
		}
		if want := table.Line(nil, "GET", test.url.Host, Path(&test.url)); !slices.Equal(got, want) {
			t.Errorf("%#v: got %q, unlike Line's %q", test.url, got, want)
		}
	}
}

func TestDuplicates(t *testing.T) {
	table, err := NewTable(
		Entry[int]{parse(t, "/a/{x}"), 1},
		Entry[int]{parse(t, "GET a.com/"), 2},
		Entry[int]{parse(t, "/a/b"), 3},
		Entry[int]{parse(t, "/a/{y}"), 4},
		Entry[int]{parse(t, "GET A.com:443/{all...}"), 5},
	)
	var first *DuplicateError
	if table != nil || !errors.As(err, &first) || first.First.String() != "/a/{x}" || first.Second.String() != "/a/{y}" {
		t.Fatalf("got %v, %v", table, err)
	}
	want := `pattern "/a/{y}" matches the same requests as "/a/{x}"; remove one
pattern "GET a.com/{all...}" matches the same requests as "GET a.com/"; remove one`
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}

// TestLineExhaustively compares one table of many patterns with the oracle, for every
// request of the alphabets.
func TestLineExhaustively(t *testing.T) {
	written := slices.Concat(patternPaths, words(words(patternMethods, patternHosts...), "/", "/{$}", "/a", "/a/{x}", "/{x}/b", "/{x}/"))
	patterns := distinct(written)
	table, os := newTable(t, patterns), newOracles(patterns)
	var buf [64]string
	for _, method := range requestMethods {
		for _, host := range requestHosts {
			for _, path := range requestPaths {
				if got, want := table.Line(buf[:0], method, host, path), os.line(method, host, path); !slices.Equal(got, want) {
					t.Fatalf("%s %s%s:\ngot  %q\nwant %q", method, host, path, got, want)
				}
			}
		}
	}
}

// TestLineOfFew does so for tables of few patterns, whose trees have other shapes, in
// two orders of insertion, and with requests that are spelled in other ways.
func TestLineOfFew(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(from []string) string { return from[random.IntN(len(from))] }
	for range 1000 {
		var written []string
		for range 1 + random.IntN(12) {
			written = append(written, pick(patternMethods)+pick(patternHosts)+pick(patternPaths))
		}
		patterns := distinct(written)
		os := newOracles(patterns)
		random.Shuffle(len(patterns), func(i, j int) { patterns[i], patterns[j] = patterns[j], patterns[i] })
		one := newTable(t, patterns)
		slices.Reverse(patterns)
		other := newTable(t, patterns)
		for range 50 {
			method, host, path := pick(requestMethods), pick(requestHosts), pick(requestPaths)
			want := os.line(method, host, path)
			for _, table := range []*Table[string]{one, other} {
				if got := table.Line(nil, method, host, path); !slices.Equal(got, want) {
					t.Fatalf("%q\n%s %s%s:\ngot  %q\nwant %q", patterns, method, host, path, got, want)
				}
			}
			checkLikeServeMux(t, patterns, method, host, path)
			if !strings.Contains(host, ":") {
				host += pick([]string{"", ".", ":80", ".:443", ":"})
			}
			host = strings.ToUpper(host)
			path = strings.NewReplacer("a", "%61", "c", pick([]string{"%2F", "%zz", "ü", "%"})).Replace(path)
			if got := one.Line(nil, method, host, path); !slices.Equal(got, want) {
				t.Fatalf("%q\n%s %s%s:\ngot  %q\nwant %q", patterns, method, host, path, got, want)
			}
		}
	}
}

func TestLineAllocatesNothing(t *testing.T) {
	patterns := parseAll(t, "/", "GET /a/{x}", "/a%20b/{x}/{y...}", "*.example.com:8443/", "api.example.com/a/b", "/{x}/b%2Fc/d")
	table := newTable(t, patterns)
	for _, host := range []string{"", "api.example.com", "API.Example.COM.:8443", "[2001:DB8::1]:443", strings.Repeat("sub.", 60) + "example.com"} {
		for _, path := range []string{"", "/a/b", "/a%20b/c/d", "/a%20b/b%2Fc/d", "/%zz/b%2F" + strings.Repeat("c", 90) + strings.Repeat("/long%20segment", 20)} {
			if n := testing.AllocsPerRun(100, func() {
				var buf [8]string
				if len(table.Line(buf[:0], "HEAD", host, path)) == 0 ||
					len(table.LineURL(buf[:0], "", &url.URL{Host: host, Path: path})) == 0 {
					t.Error("no match")
				}
			}); n != 0 {
				t.Errorf("%s%s: %v allocations", host, path, n)
			}
		}
	}
}

func TestConcurrentLines(t *testing.T) {
	table := newTable(t, parseAll(t, "/", "GET *.example.com/{x}", "api.example.com/a"))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				if got := table.Line(nil, "GET", "API.example.com", "/%61"); len(got) != 3 {
					t.Errorf("got %q", got)
					return
				}
			}
		})
	}
	wg.Wait()
}

func FuzzLine(f *testing.F) {
	f.Fuzz(func(t *testing.T, written, method, host, path string) {
		patterns := distinct(strings.SplitN(written, "\n", 20))
		got, want := newTable(t, patterns).Line(nil, method, host, path), newOracles(patterns).line(method, host, path)
		if !slices.Equal(got, want) {
			t.Errorf("%q\n%q %q %q:\ngot  %q\nwant %q", patterns, method, host, path, got, want)
		}
		slices.Reverse(patterns)
		if again := newTable(t, patterns).Line(nil, method, host, path); !slices.Equal(got, again) {
			t.Errorf("%q\n%q %q %q:\ngot %q,\nbackwards %q", patterns, method, host, path, got, again)
		}
		if unescaped, err := url.PathUnescape(path); err == nil {
			u := &url.URL{Host: host, Path: unescaped, RawPath: path}
			if byURL := newTable(t, patterns).LineURL(nil, method, u); u.EscapedPath() == path && !slices.Equal(got, byURL) {
				t.Errorf("%q\n%q %q:\ngot %q,\nby URL %q", patterns, method, u, got, byURL)
			}
		}
		checkLikeServeMux(t, patterns, method, host, path)
	})
}
