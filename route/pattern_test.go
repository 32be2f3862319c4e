package route

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func lit(text string) segment     { return segment{literal, text} }
func one(name string) segment     { return segment{wild, name} }
func tail(name string) segment    { return segment{rest, name} }
func segs(s ...segment) []segment { return s }

func parse(t testing.TB, s string) Pattern {
	t.Helper()
	p, err := Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestParse(t *testing.T) {
	for _, test := range []struct {
		in, method, host, path string
		segments               []segment
	}{
		{"/", "", "", "/", segs(tail(""))},
		{"/a", "", "", "/a", segs(lit("a"))},
		{"/a/", "", "", "/a/", segs(lit("a"), tail(""))},
		{"/a/{$}", "", "", "/a/{$}", segs(lit("a"), lit(""))},
		{"/{$}", "", "", "/{$}", segs(lit(""))},
		{"/{a}/b/{c...}", "", "", "/{a}/b/{c...}", segs(one("a"), lit("b"), tail("c"))},
		{"/{type}/{_1é}", "", "", "/{type}/{_1é}", segs(one("type"), one("_1é"))},
		{"/{x}/", "", "", "/{x}/", segs(one("x"), tail(""))},
		{"/{x}/x", "", "", "/{x}/x", segs(one("x"), lit("x"))},

		// Every slash separates, and nothing is cleaned.
		{"//", "", "", "//", segs(lit(""), tail(""))},
		{"/a//./../b", "", "", "/a//./../b", segs(lit("a"), lit(""), lit("."), lit(".."), lit("b"))},
		{"GET //a", "GET", "", "//a", segs(lit(""), lit("a"))},

		// Escapes are read segment by segment.
		{"/%61%2f/%7Bx}/a+b", "", "", "/%61%2f/%7Bx}/a+b", segs(lit("a/"), lit("{x}"), lit("a+b"))},
		{"/%/%4/%zz%41/100%", "", "", "/%/%4/%zz%41/100%", segs(lit("%"), lit("%4"), lit("%zz%41"), lit("100%"))},
		{"/%+1/%-1/%_1", "", "", "/%+1/%-1/%_1", segs(lit("%+1"), lit("%-1"), lit("%_1"))},

		// Methods.
		{"GET /", "GET", "", "/", segs(tail(""))},
		{"get /", "get", "", "/", segs(tail(""))},
		{"M-SEARCH \t /a b", "M-SEARCH", "", "/a b", segs(lit("a b"))},
		{"POST Example.COM/{x}", "POST", "example.com", "/{x}", segs(one("x"))},

		// Hosts.
		{"Example.com./", "", "example.com", "/", segs(tail(""))},
		{"*.Example.com./", "", "*.example.com", "/", segs(tail(""))},
		{"*.com/", "", "*.com", "/", segs(tail(""))},
		{"my_host-1/", "", "my_host-1", "/", segs(tail(""))},
		{"BÜCHER.example/", "", "bÜcher.example", "/", segs(tail(""))},
		{"example.com:443/", "", "example.com", "/", segs(tail(""))},
		{"example.com.:80/", "", "example.com", "/", segs(tail(""))},
		{"example.com.:8080/", "", "example.com:8080", "/", segs(tail(""))},
		{"*.example.com:65535/", "", "*.example.com:65535", "/", segs(tail(""))},
		{"[2001:DB8::1]/", "", "[2001:db8::1]", "/", segs(tail(""))},
		{"[::1]:443/", "", "[::1]", "/", segs(tail(""))},
		{"[fe80::1%eth0]:81/", "", "[fe80::1%eth0]:81", "/", segs(tail(""))},
		{"[fe80::1%251]/", "", "[fe80::1%251]", "/", segs(tail(""))}, // a number, perhaps
		{"127.0.0.1:11434/", "", "127.0.0.1:11434", "/", segs(tail(""))},
	} {
		p, err := Parse(test.in)
		if err != nil {
			t.Errorf("%q: %v", test.in, err)
			continue
		}
		if p.Method() != test.method || p.Host() != test.host || p.Path() != test.path {
			t.Errorf("%q: got method %q, host %q, path %q; want %q, %q, %q",
				test.in, p.Method(), p.Host(), p.Path(), test.method, test.host, test.path)
		}
		if !reflect.DeepEqual(p.segments, test.segments) {
			t.Errorf("%q: got segments %v, want %v", test.in, p.segments, test.segments)
		}
		checkRoundTrip(t, p)
	}
}

func checkRoundTrip(t testing.TB, p Pattern) {
	t.Helper()
	if q, err := Parse(p.String()); err != nil || !reflect.DeepEqual(p, q) {
		t.Errorf("%#v was written as %q and read back as %#v, %v", p, p, q, err)
	}
}

func TestParseErrors(t *testing.T) {
	for _, test := range []struct {
		in     string
		offset int
		reason string
	}{
		{"", 0, "no path; end in /"},
		{"example.com", 0, "no path"},
		{"GET", 0, "no path"},
		{"GET example.com", 4, "no path"},
		{"GET ", 4, "no path"},

		{" /", 0, `"" before the blank is no method`},
		{"A=B /", 0, `"A=B" before the blank is no method`},
		{"É /", 0, "no method"},
		{"ł /", 0, "no method"}, // its lowest byte is a letter's
		{"/a b", 0, "%20 for one in a path"},
		{"* /", 0, `"*" before the blank is no method`},
		{"GET|POST /", 0, `"GET|POST" before the blank is no method`},
		{"example.com /a", 0, "no blank after a host"},

		{"http://example.com/", 0, "a pattern has no scheme; remove http://"},
		{"GET https://example.com/", 4, "a pattern has no scheme; remove https://"},
		{"example.com:/", 0, "a port is missing; remove the colon"},
		{"example.com:/a//b", 0, "a port is missing"},
		{"example.com:0/", 0, "1 to 65535"},
		{"example.com:0443/", 0, "1 to 65535"},
		{"example.com:65536/", 0, "1 to 65535"},
		{"example.com:+80/", 0, "1 to 65535"},
		{"example.com:http/", 0, "1 to 65535"},
		{":8080/", 0, "a port has no host before it; name the host too, or neither"},
		{"./", 0, "empty label"},
		{"a..b/", 0, "empty label"},
		{".example.com/", 0, "empty label"},
		{"*./", 0, "empty label"},
		{"*/", 0, "to match every host, write none"},
		{"*.*.example.com/", 0, "* is a label of its own"},
		{"api.*.com/", 0, "* is a label of its own"},
		{"*a.com/", 0, "* is a label of its own"},
		{"{sub}.example.com/", 0, "begin a path with /"},
		{"{a}/b", 0, "begin a path with /"},
		{"me@example.com/", 0, "'@' cannot stand in a host"},
		{"GET a b/", 4, "' ' cannot stand in a host"},
		{"::1/", 0, "write an IPv6 address in brackets"},
		{"[::1/", 0, "no IPv6 address"},
		{"[1:2:3:4:5:6:7:8:9/", 0, "no IPv6 address"},
		{"[fe80::1%]x/", 0, "no IPv6 address"},
		{"[[::1]]/", 0, "no IPv6 address"},
		{"[::1]x/", 0, "no IPv6 address"},
		{"[127.0.0.1]/", 0, "no IPv6 address"},
		{"*.[::1]/", 0, "'[' cannot stand in a host"},
		{"[fe80::1%25eth0]:81/", 0, "%25 is the escape of URLs; write [fe80::1%eth0]"},

		{"/a?b=c", 1, "write ? as %3F"},
		{"/x/a#b", 3, "write # as %23"},
		{"/{x}?b={c}", 1, "write ? as %3F"},
		{"/a/*", 3, "* is no wildcard in a path; end in / for all that lies below, write {name} for a segment, and %2A for the character"},
		{"/**", 1, "* is no wildcard"},
		{"/*.json", 1, "* is no wildcard"},
		{"/{x}*/a", 1, "* is no wildcard"},
		{"a.com/users/:id", 12, ":id is no wildcard; write {id}, or %3Aid for the text"},
		{"/:/a", 1, ": is no wildcard; write {name}, or %3A for the text"},
		{"/users/<int:id>", 7, "<int:id> is no wildcard; write {name}, or %3C for the < of a text"},
		{"/[id]/a", 1, "[id] is no wildcard; write {name}, or %5B for the [ of a text"},
		{"GET /a ", 5, `"a " has a blank at its end; remove it, or write it as %20`},
		{"GET /a/ ", 7, `" " has a blank at its end`},
		{"GET /a/{x} ", 7, `"{x} " has a blank at its end`},
		{"/a/b\n", 3, `'\n' cannot stand in a path; remove it, or write it as %0A`},
		{"/\x7f/b", 1, "cannot stand in a path; remove it, or write it as %7F"},
		{"/{w}x", 1, `"{w}x" is no wildcard`},
		{"/x{w}", 1, "write a literal { as %7B"},
		{"/{wx", 1, "no wildcard"},
		{"/{", 1, "no wildcard"},
		{"/a/{/}/c", 3, "no wildcard"},
		{"/{}", 1, `"" is no name`},
		{"/{...}", 1, `"" is no name`},
		{"/{1a}", 1, `"1a" is no name`},
		{"/{%61}", 1, `"%61" is no name`},
		{"/{a$}", 1, `"a$" is no name`},
		{"/{$...}", 1, `"$" is no name`},
		{"POST a.com/x/{}/y", 13, `"" is no name`},
		{"/{$}/", 1, "remove what follows"},
		{"/abc/{$}/x", 5, "remove what follows"},
		{"/{a...}/", 1, "remove what follows"},
		{"/a/{x}/b/{x...}", 9, `a second wildcard is named "x"`},
	} {
		p, err := Parse(test.in)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("%q: got %q, %v, want a *SyntaxError", test.in, p, err)
			continue
		}
		if syntax.Pattern != test.in || syntax.Offset != test.offset || !strings.Contains(err.Error(), test.reason) {
			t.Errorf("%q: got %v, want offset %d and %q", test.in, err, test.offset, test.reason)
		}
		if !reflect.DeepEqual(p, Pattern{}) {
			t.Errorf("%q: got %#v beside the error", test.in, p)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Fuzz(func(t *testing.T, s string) {
		p, err := Parse(s)
		if err != nil {
			var e *SyntaxError
			if !errors.As(err, &e) || e.Pattern != s || e.Offset < 0 || e.Offset > len(s) || e.Reason == "" {
				t.Errorf("%q: %#v", s, err)
			}
			return
		}
		checkRoundTrip(t, p)
		if r := p.Relation(p); r != Equivalent {
			t.Errorf("%q is %s to itself", p, r)
		}
		if c, ok := p.Common(p); !ok {
			t.Errorf("%q has no request in common with itself", p)
		} else if !newOracle(p).matches(c.Method, c.Host, c.Path) {
			t.Errorf("%q does not match %q", p, c)
		}
	})
}
