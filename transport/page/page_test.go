package page_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
	"github.com/weir-go/weir/transport/derive"
	"github.com/weir-go/weir/transport/page"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a transport, and its page below /weir/.
type site struct {
	t     *testing.T
	c     *clocktest.Clock
	up    *clocktest.Upstream
	tr    *transport.Transport
	watch *page.Watch
	name  string // of its calls
	http.Handler
}

// link is the path of the nth call.
func (s *site) link(n int) string { return fmt.Sprintf("/weir/calls/%s-%d", s.name, n) }

func newSite(t *testing.T, c *clocktest.Clock, p policy.Policy, o page.Options, steps ...clocktest.Step) *site {
	t.Helper()
	s := &site{t: t, c: c, watch: page.NewWatch(), name: strconv.FormatInt(c.Now().UnixMilli(), 36), up: clocktest.NewUpstream(t, c, steps...)}
	cfg := transport.Config{Base: s.up, Policy: p, Clock: c, Observer: s.watch, Rand: func() float64 { return 0 }}
	if o.Recorder != nil {
		cfg.Observer = layers.Observers(s.watch, o.Recorder)
	}
	var err error
	if s.tr, err = transport.New(cfg); err != nil {
		t.Fatal(err)
	}
	o.Watch = s.watch
	mux := http.NewServeMux()
	mux.Handle("/weir/", http.StripPrefix("/weir", page.Handler(s.tr, o)))
	s.Handler = mux
	return s
}

// call makes a call, reads what comes of it, and gives it up after patience.
func (s *site) call(method, u string, patience time.Duration) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	if patience > 0 {
		s.c.AfterFunc(patience, cancel)
	}
	req, err := http.NewRequestWithContext(ctx, method, u, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "s3cret")
	resp, err := s.tr.RoundTrip(req)
	if err == nil {
		_, _ = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
}

// get returns a part of the page.
func (s *site) get(path string) string {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://ops.example"+path, nil))
	if w.Code != http.StatusOK {
		s.t.Errorf("%s: status %d", path, w.Code)
	}
	if csp := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
		s.t.Errorf("%s: Content-Security-Policy is %q", path, csp)
	}
	return w.Body.String()
}

// leads returns where a part of the page leads to.
func (s *site) leads(path string) string {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://ops.example"+path, nil))
	if w.Code != http.StatusSeeOther || w.Body.Len() > 0 {
		s.t.Errorf("%s: status %d", path, w.Code)
	}
	return w.Header().Get("Location")
}

func (s *site) want(path string, texts ...string) {
	s.t.Helper()
	body := squeeze(s.get(path))
	for _, text := range texts {
		if !strings.Contains(body, text) {
			s.t.Errorf("%s has no %q:\n%s", path, text, body)
		}
	}
}

// squeeze takes out tags and space.
func squeeze(html string) string {
	return strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(html, " ")), " ")
}

var rules = policy.Policy{
	Settings: policy.Settings{Deadline: 10 * time.Second},
	Routes: []policy.Route{
		{Pattern: "api.example/", Name: "api", Settings: policy.Settings{
			Breaker: policy.Breaker{Failures: 2, OpenJitter: policy.Off}, Rate: policy.Rate{PerSecond: 2, Burst: 4},
			InFlight: policy.InFlight{Max: 3}, Retry: policy.Retry{MaxAttempts: 2},
		}},
		{Pattern: "GET api.example/reports/{id}", Name: "reports", Settings: policy.Settings{Deadline: time.Minute, Breaker: policy.Breaker{Enabled: policy.Off}}},
	},
}

// TestViews: each view says what there is to say.
func TestViews(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		s := newSite(t, c, rules, page.Options{Recorder: new(derive.Recorder)},
			clocktest.Reply(200).After(time.Second).Body("fine"),
			clocktest.Reply(503).Header("Retry-After", "2"), clocktest.Reply(200).Body("fine"),
			clocktest.Reply(500), clocktest.Fail(clocktest.ErrReset),
			clocktest.NoReply())
		s.want("/weir/", "No circuit is in use", "No budget is in use", "No in-flight limit is in use")
		s.call("GET", "http://api.example/a?key=s3cret", 0)
		s.call("GET", "http://api.example/b", 0)
		s.call("POST", "http://api.example/c", 0)
		s.call("POST", "http://api.example/d", 0)
		s.want("/weir/",
			"http://api.example api.example/ open 2 failures in a row 10s more 0 0",
			"http://api.example api.example/ 0 of 4 2/s 0",
			"http://api.example api.example/ 0 of 3 0",
			"http://api.example 3")
		s.want("/weir/calls", "Under way No call is under way", "api 2s 2 200", "api 1s 1 200", "api 500ms 1 500", "connection reset by peer")
		s.want("/weir/policy", "The policy's own Deadline 10s", "api.example/ api", "Rate.PerSecond 2", "GET api.example/reports/{id} reports Deadline 1m0s")
		explained := "/weir/" + s.leads("/weir/policy?method=GET&url="+url.QueryEscape("http://user:s3cret@api.example/reports/7?key=s3cret#s3cret"))
		s.want(explained, "GET http://api.example/reports/7: route reports", "general to specific api.example/ GET api.example/reports/{id}", "Deadline 1m0s route", "match deadline retry rate", "At its longest", "Advice")
		s.want("/weir/policy?url=/s3cret?key=s3cret", "That is no method and URL of a request")
		s.want("/weir/distributions", "Not derived", "it takes 299 to know")

		done := make(chan struct{})
		go func() {
			defer close(done)
			s.call("GET", "http://api.example/reports/7", 5*time.Second)
		}()
		c.Add(3 * time.Second)
		s.want("/weir/calls", "reports, since 00:00:04.000", "wait rate 0s 500ms", "send 1 500ms 2.5s", "phase read 500ms 2.5s", "The deadline is at 1m0s.")
		s.want(s.link(5), "A call of reports", "Took 3s, and goes on", "send 1 500ms 2.5s")
		<-done
		for _, path := range []string{"/weir/", "/weir/calls", "/weir/calls?route=api&outcome=failed", s.link(1), s.link(5), "/weir/policy", "/weir/policy?url=/s3cret?key=s3cret", explained, "/weir/distributions"} {
			if strings.Contains(s.get(path), "s3cret") {
				t.Errorf("%s shows a secret", path)
			}
		}
	})
}

// TestFilter: calls can be found by route and outcome, and passed on by a link.
func TestFilter(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		s := newSite(t, c, rules, page.Options{}, clocktest.Reply(404).After(time.Second), clocktest.Reply(200).After(2*time.Second), clocktest.NoReply().Forever())
		s.call("GET", "http://api.example/reports/1", 0)
		s.call("GET", "http://api.example/x", 0)
		s.call("GET", "http://api.example/x", 3*time.Second)
		has := func(query, want string) {
			t.Helper()
			body := squeeze(s.get("/weir/calls" + query))
			body = body[strings.Index(body, "Failed"):]
			for _, text := range []string{"reports 1s 1 404", "api 2s 1 200", "api 3s 1 context canceled"} {
				if strings.Contains(body, text) != strings.Contains(want, text[:len(text)-1]) {
					t.Errorf("%s: %q is there: %v", query, text, strings.Contains(body, text))
				}
			}
		}
		has("", "reports 1s 1 404, api 2s 1 200, api 3s 1 context canceled")
		has("?route=reports", "reports 1s 1 404")
		has("?outcome=answered", "api 2s 1 200")
		has("?route=api&outcome=status", "")
		has("?outcome=given+up", "api 3s 1 context canceled")
	})
}

// TestFilterOutcomes: a caller that wants no more of an answer than its status did not
// give it up, and a deadline of its own is a failure.
func TestFilterOutcomes(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		s := newSite(t, c, policy.Policy{Settings: policy.Settings{Retry: policy.Retry{Enabled: policy.Off}}}, page.Options{},
			clocktest.Reply(503).After(time.Second).Body("unread"), clocktest.Reply(200).After(2*time.Second).Body("unread"), clocktest.NoReply())
		for range 3 {
			ctx, cancel := c.WithTimeout(t.Context(), 3*time.Second)
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example/", nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := s.tr.RoundTrip(req); err == nil {
				resp.Body.Close()
			}
			cancel()
		}
		for outcome, want := range map[string]string{
			"status": "no route 1s 1 503", "given+up": "no route 2s 1 200", "failed": "no route 3s 1 context deadline exceeded",
		} {
			body := squeeze(s.get("/weir/calls?outcome=" + outcome))
			if strings.Count(body, "no route") != 1 || !strings.Contains(body, want) {
				t.Errorf("%s: no %q alone in %s", outcome, want, body)
			}
		}
	})
}

// TestSlow: of each route, and of each minute, the three slowest calls count as
// slow, however slow those of another route or minute are.
func TestSlow(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		took := func(d time.Duration) clocktest.Step { return clocktest.Reply(200).After(d) }
		s := newSite(t, c, policy.Policy{Routes: []policy.Route{{Pattern: "/export", Name: "export"}}}, page.Options{},
			took(25*time.Second), took(3*time.Second), took(time.Second), took(6*time.Second), took(4*time.Second), took(5*time.Second),
			took(29*time.Second), took(10*time.Millisecond).Times(100), took(20*time.Millisecond))
		slow := func(want ...string) {
			t.Helper()
			body := squeeze(s.get("/weir/calls"))
			var got []string
			for _, m := range regexp.MustCompile(`[\d.:]+ (no route|export) ([\d.ms]+) 1 200`).FindAllStringSubmatch(body, -1) {
				got = append(got, m[2])
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("slow after %v is %v, want %v", c.Elapsed(), got, want)
			}
		}
		s.call("GET", "http://api.example/export", 0)
		for range 5 {
			s.call("GET", "http://api.example/", 0)
		}
		slow("5s", "4s", "6s", "25s")
		s.call("GET", "http://api.example/export", 0)
		c.Add(time.Minute)
		for range 101 {
			s.call("GET", "http://api.example/", 0)
		}
		slow("20ms", "10ms", "10ms", "29s", "5s", "4s", "6s", "25s")
	})
}

// TestDistributions: the limits in force stand beside those derived.
func TestDistributions(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		s := newSite(t, c, rules, page.Options{Recorder: new(derive.Recorder)}, clocktest.Reply(200).After(100*time.Millisecond).Forever())
		for range 400 {
			s.call("GET", "http://api.example/reports/7", 0)
		}
		s.want("/weir/distributions", "reports Timeouts.Read 30s", "reports Deadline 1m0s")
		if svg := s.get("/weir/distributions.svg"); !strings.Contains(svg, "in force 30s") {
			t.Errorf("the limit in force is not drawn: %s", regexp.MustCompile("in force[^<]*").FindString(svg))
		}
	})
}

// TestRefused: what an open circuit refuses leaves room for what failed.
func TestRefused(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		s := newSite(t, c, rules, page.Options{}, clocktest.Reply(500).Times(2))
		for range 100 {
			s.call("POST", "http://api.example/", 0)
		}
		s.want("/weir/calls", "the circuit is open")
		if n := strings.Count(squeeze(s.get("/weir/calls")), " 1 500"); n != 2 {
			t.Errorf("%d of 2 failures are shown", n)
		}
	})
}

// TestWaterfall: the waterfall of a call is its trace.
func TestWaterfall(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		s := newSite(t, c, rules, page.Options{}, clocktest.Reply(503).After(time.Second).Header("Retry-After", "3"), clocktest.Reply(500).After(2*time.Second))
		s.call("GET", "http://api.example/", 0)
		body := s.get(s.link(1))
		var got []string
		for _, m := range regexp.MustCompile(`(?s)<th scope="row">([^<]*)</th><td>[^<]*</td>.*?<rect class="(\w+)" x="([\d.]+)" y="1" width="([\d.]+)".*?</svg></td>\s*<td>([^<]*)</td>`).FindAllStringSubmatch(body, -1) {
			got = append(got, strings.Join(m[1:], " "))
		}
		want := []string{ // of the 10 s to the deadline
			"send 1, 503 send 0.00 10.00 1s", "phase pool phase 0.00 0.40 ", "phase write phase 0.00 0.40 ", "phase read phase 0.00 10.00 1s",
			"wait backoff wait 10.00 30.00 3s",
			"send 2, 500 send 40.00 20.00 2s", "phase pool phase 40.00 0.40 ", "phase write phase 40.00 0.40 ", "phase read phase 40.00 20.00 2s",
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the waterfall is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if !strings.Contains(body, `class="deadline" x1="100.00"`) {
			t.Error("the deadline is not drawn")
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, s.link(99), nil))
		if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "No such call") {
			t.Errorf("a call that is not kept: status %d", w.Code)
		}
	})
}

// TestHostileNames: whatever a name or an error says, it is shown as text.
func TestHostileNames(t *testing.T) {
	const evil = `<script>alert(1)</script>"onload='x'`
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		p := policy.Policy{Routes: []policy.Route{{Pattern: "/", Name: evil, Settings: policy.Settings{
			Breaker: policy.Breaker{Failures: 1, Key: func(*http.Request) string { return evil }},
			Rate:    policy.Rate{PerSecond: 1, Burst: 9, Key: func(*http.Request) string { return evil }},
		}}}}
		s := newSite(t, c, p, page.Options{AllowControl: true}, clocktest.Fail(errors.New(evil)).Forever())
		s.call("POST", "http://api.example/%3Cscript%3E?"+url.QueryEscape(evil), 0)
		for _, path := range []string{"/weir/", "/weir/calls", s.link(1), "/weir/policy", "/weir/policy?method=GET&url=" + url.QueryEscape("http://x/"+evil), "/weir/calls?route=" + url.QueryEscape(evil)} {
			body := s.get(path)
			if n := strings.Count(body, "<script"); n != 1 || strings.Contains(body, "onload='") {
				t.Errorf("%s: %d scripts, want our own alone", path, n)
			}
		}
	})
}

// TestAssets: all that the page needs is part of it.
func TestAssets(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		s := newSite(t, c, rules, page.Options{})
		for _, path := range []string{"/weir/assets/page.css", "/weir/assets/page.js"} {
			if body := s.get(path); regexp.MustCompile(`https?://|@import|url\(`).MatchString(body) {
				t.Errorf("%s needs something from elsewhere", path)
			}
		}
		if body := s.get("/weir/"); regexp.MustCompile(`(?i) style=| on\w+="|<style|<script>`).MatchString(body) {
			t.Error("the page has styles or scripts inline")
		}
	})
}
