package route

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// TestUnlikeServeMux shows each of the differences that the package comment lists.
func TestUnlikeServeMux(t *testing.T) {
	for _, test := range []struct {
		patterns           []string
		method, host, path string
		want, mux          string // the pattern chosen; mux "refused" if a pattern is, or "redirected"
	}{
		{[]string{"Example.com/"}, "GET", "example.COM", "/", "example.com/", ""},
		{[]string{"example.com/"}, "GET", "example.com.", "/", "example.com/", ""},
		{[]string{"*.example.com/"}, "GET", "api.example.com", "/", "*.example.com/", ""},
		{[]string{"example.com:8443/"}, "GET", "example.com:8443", "/", "example.com:8443/", ""},
		{[]string{"[::1]/"}, "GET", "[::1]:81", "/", "[::1]/", ""},
		{[]string{"GET /", "/a"}, "GET", "", "/a", "/a", "refused"},
		{[]string{"/a/{x}", "/{y}/b"}, "GET", "", "/a/b", "/a/{x}", "refused"},
		{[]string{"/a/"}, "GET", "", "/a", "", "redirected"},
		{[]string{"/"}, "GET", "", "//", "/", "redirected"},
		{[]string{"/", "//"}, "GET", "", "//", "//", "redirected"},
		{[]string{"/{x}/c"}, "GET", "", "/../c", "/{x}/c", "redirected"},
		{[]string{"GET //"}, "GET", "", "//", "GET //", "refused"},
		{[]string{"//b"}, "GET", "", "/a/b", "", "//b"},
		{[]string{"/{x}"}, "GET", "", "/%2F", "/{x}", ""},
		{[]string{"/{$}"}, "GET", "", "/%2F", "", "/{$}"},
		{[]string{"/{x}/a"}, "CONNECT", "", "//a", "", "/{x}/a"},
		{[]string{"GET /"}, "", "", "/", "GET /", ""},
		{[]string{"/a/"}, "CONNECT", "", "/a", "", "redirected"},
	} {
		got := ""
		if line := newTable(t, parseAll(t, test.patterns...)).Line(nil, test.method, test.host, test.path); len(line) > 0 {
			got = line[len(line)-1]
		}
		mux, refused := newMux(test.patterns)
		chosen := "refused"
		if refused == nil {
			chosen = mux.choose(t, test.method, test.host, test.path)
		}
		if got != test.want || chosen != test.mux {
			t.Errorf("%q, %s %s%s: got %q, want %q; ServeMux %q, want %q",
				test.patterns, test.method, test.host, test.path, got, test.want, chosen, test.mux)
		}
	}
	for _, s := range []string{
		" /", "/a?b", "/a#b", "/a/*", "/:a", "/<a>", "/[a]", "GET /a ", "/a\n", "* /", "GET|POST /", "example.com /a", "http://example.com/", "me@example.com/",
	} {
		if p, err := Parse(s); err == nil {
			t.Errorf("%q was taken as %q", s, p)
		}
		if _, refused := newMux([]string{s}); refused != nil {
			t.Errorf("ServeMux refuses %q too: %v", s, refused)
		}
	}
}

type mux struct{ http.ServeMux }

func newMux(patterns []string) (m *mux, refused any) {
	m = new(mux)
	for _, s := range patterns {
		if refused := m.add(s); refused != nil {
			return nil, refused
		}
	}
	return m, nil
}

func (m *mux) add(pattern string) (refused any) {
	defer func() { refused = recover() }()
	m.Handle(pattern, http.NotFoundHandler())
	return nil
}

// choose returns the pattern chosen, "" for none, or "redirected".
func (m *mux) choose(t testing.TB, method, host, path string) string {
	t.Helper()
	unescaped, err := url.PathUnescape(path)
	if err != nil {
		t.Fatal(err)
	}
	u := &url.URL{Host: host, Path: unescaped, RawPath: path}
	r := &http.Request{Method: method, Host: host, URL: u}
	h, pattern := m.Handler(r)
	answer := httptest.NewRecorder()
	if h.ServeHTTP(answer, r); answer.Code/100 == 3 {
		return "redirected"
	}
	return pattern
}

// checkLikeServeMux compares the choice of a table with that of ServeMux, but for the
// differences that TestUnlikeServeMux shows.
func checkLikeServeMux(t *testing.T, patterns []Pattern, method, host, path string) {
	t.Helper()
	u := url.URL{Path: unescape(path), RawPath: path}
	if method == "" || method == "CONNECT" || u.EscapedPath() != path || path == "" || path[0] != '/' ||
		strings.ContainsAny(host, ":ABCDEFGHIJKLMNOPQRSTUVWXYZ") || strings.HasSuffix(host, ".") || hasSlashSegment(path) {
		return
	}
	m, _ := newMux(nil)
	var common []Pattern
	for _, p := range patterns {
		if !strings.ContainsAny(p.Host(), "*:") && !strings.Contains(p.Path(), "//") && !hasSlashSegment(p.Path()) && m.add(p.String()) == nil {
			common = append(common, p)
		}
	}
	chosen, want := m.choose(t, method, host, path), ""
	if line := newTable(t, common).Line(nil, method, host, path); len(line) > 0 {
		want = line[len(line)-1]
	}
	if chosen != "redirected" && chosen != want {
		t.Errorf("%q\n%q %q %q:\nserve mux %q\ntable     %q", common, method, host, path, chosen, want)
	}
}

func hasSlashSegment(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "/"), func(s string) bool { return unescape(s) == "/" })
}
