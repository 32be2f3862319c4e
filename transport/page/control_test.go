package page_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport/page"
)

// post asks for a change, from host, with headers beside.
func (s *site) post(host string, form url.Values, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "http://"+host+"/weir/breakers", strings.NewReader(form.Encode()))
	maps.Copy(r.Header, header)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// circuit returns the name of the only circuit in the form that forces it.
func (s *site) circuit() string {
	s.t.Helper()
	m := regexp.MustCompile(`name="name" value="(\w+)"`).FindStringSubmatch(s.get("/weir/"))
	if m == nil {
		return ""
	}
	return m[1]
}

// TestControl: a circuit is forced only where that is allowed.
func TestControl(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			s := newSite(t, c, rules, page.Options{AllowControl: allowed}, clocktest.Reply(200).Forever())
			s.call("GET", "http://api.example/", 0)
			name := s.circuit()
			if (name != "") != allowed {
				t.Errorf("allowed is %v, and the form is there: %v", allowed, name != "")
			}
			form := url.Values{"name": {name}, "to": {"open"}}
			state := s.tr.Breakers()[0].State
			w := s.post("127.0.0.1:80", form, nil)
			if !allowed {
				if w.Code != http.StatusForbidden || state() != layers.StateClosed {
					t.Errorf("status %d, the circuit is %v", w.Code, state())
				}
				return
			}
			if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "./" || state() != layers.StateOpen {
				t.Errorf("status %d, the circuit is %v", w.Code, state())
			}
			s.want("/weir/", "open forced")
			for _, to := range []string{"closed", "x", "auto"} {
				form.Set("to", to)
				if s.post("127.0.0.1:80", form, nil); state() != layers.StateClosed {
					t.Errorf("%s: the circuit is %v", to, state())
				}
			}
			form.Set("name", "another")
			if w := s.post("127.0.0.1:80", form, nil); w.Code != http.StatusNotFound {
				t.Errorf("a circuit that is not there: status %d", w.Code)
			}
		})
	}
}

// TestOrigin: only the page itself changes anything, wherever it is mounted.
func TestOrigin(t *testing.T) {
	head := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	named := []string{"ops.example", "10.0.0.1:8080"}
	for name, tc := range map[string]struct {
		hosts  []string
		host   string
		header http.Header
		want   int
	}{
		"the page":                          {nil, "127.0.0.1:8080", head("Origin", "http://127.0.0.1:8080", "Sec-Fetch-Site", "same-origin"), 303},
		"the page, on IPv6":                 {nil, "[::1]:8080", head("Origin", "http://[::1]:8080"), 303},
		"the page, on localhost":            {nil, "localhost:8080", head("Origin", "http://localhost:8080"), 303},
		"no browser":                        {nil, "127.0.0.1", nil, 303},
		"another site":                      {nil, "127.0.0.1:8080", head("Origin", "http://evil.example"), 403},
		"another port":                      {nil, "127.0.0.1:8080", head("Origin", "http://127.0.0.1:9090"), 403},
		"a sandbox":                         {nil, "127.0.0.1:8080", head("Origin", "null"), 403},
		"another site, by the browser":      {nil, "127.0.0.1:8080", head("Sec-Fetch-Site", "cross-site"), 403},
		"a neighbour, by the browser":       {nil, "127.0.0.1:8080", head("Origin", "http://127.0.0.1:8080", "Sec-Fetch-Site", "same-site"), 403},
		"a name that leads here":            {nil, "evil.example:8080", head("Origin", "http://evil.example:8080", "Sec-Fetch-Site", "same-origin"), 403},
		"a name that looks like localhost":  {nil, "localhost.evil.example", head("Origin", "http://localhost.evil.example"), 403},
		"the name":                          {named, "ops.example", head("Origin", "https://ops.example", "Sec-Fetch-Site", "same-origin"), 303},
		"the name, in capitals":             {named, "OPS.example", head("Sec-Fetch-Site", "same-origin"), 303},
		"the name, behind a proxy":          {named, "10.0.0.1:8080", head("Origin", "https://ops.example"), 303},
		"another site, behind a proxy":      {named, "10.0.0.1:8080", head("Origin", "https://evil.example"), 403},
		"a name that leads here, not named": {named, "evil.example", head("Origin", "http://evil.example"), 421},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				s := newSite(t, c, rules, page.Options{AllowControl: true, Hosts: tc.hosts}, clocktest.Reply(200).Forever())
				s.call("GET", "http://api.example/", 0)
				w := s.post(tc.host, url.Values{"name": {s.circuit()}, "to": {"open"}}, tc.header)
				open := s.tr.Breakers()[0].State() == layers.StateOpen
				if w.Code != tc.want || open != (tc.want == 303) {
					t.Errorf("status %d, want %d; the circuit is open: %v", w.Code, tc.want, open)
				}
			})
		})
	}
}

// TestPaths: the page is where it is mounted, and leads nowhere else.
func TestPaths(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		s := newSite(t, c, rules, page.Options{})
		bare := http.StripPrefix("/tools/weir", page.Handler(s.tr, page.Options{}))
		for _, tc := range []struct {
			h                    http.Handler
			method, target, want string
		}{
			{s, "GET", "/weir/", "200"},
			{s, "HEAD", "/weir/", "200"},
			{s, "HEAD", "/weir/live/state", "405"},
			{s, "POST", "/weir/", "405"},
			{s, "DELETE", "/weir/calls", "405"},
			{s, "GET", "/weir/breakers", "405"},
			{s, "PUT", "/weir/breakers", "405"},
			{s, "GET", "/weir/live/", "404"},
			{s, "GET", "/weir/live/policy", "404"},
			{s, "GET", "/weir/assets/", "404"},
			{s, "GET", "/weir/nothing", "404"},
			{s, "GET", "/weir/calls/", "404"},
			{s, "GET", "/weir/calls/%2e%2e%2fpolicy", "404"},
			{s, "GET", "/weir/calls/" + strings.Repeat("9", 5000), "404"},
			{bare, "GET", "/tools/weir//evil.example/", "404"},
			{bare, "GET", "/tools/weir/calls/../policy", "404"},
			{bare, "GET", "/tools/weir/./", "404"},
			{bare, "GET", "/tools/weir", "303 ./weir/"},
			{bare, "GET", "/tools/weir/policy?url=http://u:p@h/", "303 policy?method=GET&url=http%3A%2F%2Fh%2F"},
		} {
			w := httptest.NewRecorder()
			tc.h.ServeHTTP(w, httptest.NewRequest(tc.method, tc.target, nil))
			got := strings.TrimSpace(strconv.Itoa(w.Code) + " " + w.Header().Get("Location"))
			if got != tc.want {
				t.Errorf("%s %s: %s, want %s", tc.method, tc.target[:min(60, len(tc.target))], got, tc.want)
			}
		}
	})
}

// TestKeys: a key that a function made of a request is not shown, unless that is
// asked for.
func TestKeys(t *testing.T) {
	const token = "s3cret"
	of := func(r *http.Request) string { return r.Header.Get("Authorization") }
	for _, show := range []bool{false, true} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			p := policy.Policy{Settings: policy.Settings{
				Breaker: policy.Breaker{Failures: 5, Key: of}, Rate: policy.Rate{PerSecond: 9, Key: of}, InFlight: policy.InFlight{Max: 2, Key: of},
				Budgets: map[string]policy.Rate{"by route": {PerSecond: 9, Key: policy.ByRoute}, "by origin": {PerSecond: 9}},
			}}
			s := newSite(t, c, p, page.Options{AllowControl: true, ShowKeys: show}, clocktest.Reply(200).Forever())
			s.call("GET", "http://api.example/", 0)
			if got := strings.Contains(s.get("/weir/"), token); got != show {
				t.Errorf("the key is shown: %v, want %v", got, show)
			}
			s.want("/weir/", "http://api.example by origin")
			if !show {
				s.want("/weir/", "key ")
			}
			if s.post("127.0.0.1", url.Values{"name": {s.circuit()}, "to": {"open"}}, nil); s.tr.Breakers()[0].State() != layers.StateOpen {
				t.Error("the circuit is not to be forced")
			}
		})
	}
}
