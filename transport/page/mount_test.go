package page_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"testing"

	"github.com/weir-go/weir/transport"
	"github.com/weir-go/weir/transport/derive"
	"github.com/weir-go/weir/transport/page"
)

// TestMounts: wherever the page is mounted, each of its links leads to a part of it.
func TestMounts(t *testing.T) {
	watch := page.NewWatch()
	tr, err := transport.New(transport.Config{Base: memory, Observer: watch})
	if err != nil {
		t.Fatal(err)
	}
	h := page.Handler(tr, page.Options{Watch: watch, Recorder: new(derive.Recorder), AllowControl: true})
	mux := func(pattern string, h http.Handler) http.Handler {
		m := http.NewServeMux()
		m.Handle(pattern, h)
		return m
	}
	// stripping is a reverse proxy, which makes a request of its own.
	stripping := func(prefix string, h http.Handler) http.Handler {
		return http.StripPrefix(prefix, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.RequestURI = r.URL.RequestURI()
			h.ServeHTTP(w, r)
		}))
	}
	for name, test := range map[string]struct {
		http.Handler

		at    string
		leads int // to there, from there without the slash
	}{
		"at the root":           {h, "/", 0},
		"under a prefix":        {mux("/weir/", http.StripPrefix("/weir", h)), "/weir/", http.StatusTemporaryRedirect},
		"its slash stripped":    {mux("/weir/", http.StripPrefix("/weir/", h)), "/weir/", http.StatusTemporaryRedirect},
		"a method":              {mux("GET /weir/", http.StripPrefix("/weir/", h)), "/weir/", http.StatusTemporaryRedirect},
		"a host":                {mux("ops.example/a/weir/", http.StripPrefix("/a/weir", h)), "/a/weir/", http.StatusTemporaryRedirect},
		"a wildcard":            {mux("/of/{id}/", http.StripPrefix("/of/a%20b", h)), "/of/a%2520b/", http.StatusTemporaryRedirect},
		"no mux":                {http.StripPrefix("/weir", h), "/weir/", http.StatusSeeOther},
		"behind a proxy":        {stripping("/ops", mux("/weir/", http.StripPrefix("/weir/", h))), "/ops/weir/", 0},
		"behind, without a mux": {stripping("/ops", http.StripPrefix("/weir", h)), "/ops/weir/", http.StatusSeeOther},
		"all is the proxy's":    {stripping("/ops/weir", h), "/ops/weir/", 0},
	} {
		t.Run(name, func(t *testing.T) {
			gone, cancel := context.WithCancel(t.Context()) // what is live ends with its first change
			cancel()
			ask := func(method, to string) *httptest.ResponseRecorder {
				w := httptest.NewRecorder()
				test.ServeHTTP(w, httptest.NewRequestWithContext(gone, method, to, nil))
				return w
			}
			resolve := func(at, to string) string {
				base, err := url.Parse(at)
				if err != nil {
					t.Fatal(err)
				}
				u, err := base.Parse(to)
				if err != nil {
					t.Fatal(err)
				}
				u.Fragment = ""
				return u.String()
			}
			root := "http://ops.example" + test.at
			seen := map[string]bool{root: true}
			for list := []string{root}; len(list) > 0; list = list[1:] {
				w := ask(http.MethodGet, list[0])
				if w.Code != http.StatusOK {
					t.Errorf("%s: status %d", list[0], w.Code)
				}
				for _, link := range regexp.MustCompile(` (?:href|src|data-live|action)="([^"]*)"`).FindAllStringSubmatch(w.Body.String(), -1) {
					if to := resolve(list[0], link[1]); !seen[to] {
						seen[to] = true
						list = append(list, to)
					}
				}
			}
			if len(seen) < 8 {
				t.Errorf("it has only %v", seen)
			}
			if test.leads > 0 {
				from := root[:len(root)-1]
				if w := ask(http.MethodGet, from); w.Code != test.leads || resolve(from, w.Header().Get("Location")) != root {
					t.Errorf("%s leads to %q, status %d", from, w.Header().Get("Location"), w.Code)
				}
			}
			for _, other := range []string{"nothing", "assets", "live", "calls/"} {
				if w := ask(http.MethodGet, root+other); w.Code != http.StatusNotFound {
					t.Errorf("%s: status %d", root+other, w.Code)
				}
			}
		})
	}
}
