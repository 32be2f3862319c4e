package page_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
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
	http.Handler
}

func newSite(t *testing.T, c *clocktest.Clock, p policy.Policy, o page.Options, steps ...clocktest.Step) *site {
	t.Helper()
	s := &site{t: t, c: c, watch: page.NewWatch(), up: clocktest.NewUpstream(t, c, steps...)}
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
			"http://api.example api.example/ open 10s more 0 0",
			"http://api.example api.example/ 0 of 4 2/s 0",
			"http://api.example api.example/ 0 of 3 0",
			"http://api.example 3")
		s.want("/weir/calls", "Under way No call is under way", "api 2s 2 200", "api 1s 1 200", "api 500ms 1 500", "connection reset by peer")
		s.want("/weir/policy", "The policy's own Deadline 10s", "api.example/ api", "Rate.PerSecond 2", "GET api.example/reports/{id} reports Deadline 1m0s")
		explained := "/weir/policy?method=GET&url=" + url.QueryEscape("http://user:s3cret@api.example/reports/7?key=s3cret")
		s.want(explained, "GET http://api.example/reports/7: route reports", "Deadline 1m0s route", "match deadline retry rate", "At its longest", "Advice")
		s.want("/weir/policy?url=nonsense", "That is no method and URL of a request")
		s.want("/weir/distributions", "Not derived", "it takes 299 to know")

		done := make(chan struct{})
		go func() {
			defer close(done)
			s.call("GET", "http://api.example/reports/7", 5*time.Second)
		}()
		c.Add(3 * time.Second)
		s.want("/weir/calls", "wait rate 500ms", "send 1 2.5s", "phase read 2.5s", "reports, since")
		<-done
		for _, path := range []string{"/weir/", "/weir/calls", "/weir/calls?route=api&outcome=failed", "/weir/calls/1", "/weir/policy", explained, "/weir/distributions"} {
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

// TestSlow: a call counts as slow if it takes about as long as the last that did,
// and what is slow is forgotten with time.
func TestSlow(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		took := func(d time.Duration) clocktest.Step { return clocktest.Reply(200).After(d) }
		s := newSite(t, c, policy.Policy{}, page.Options{}, took(2*time.Second), took(time.Second),
			took(time.Millisecond).Times(1000), took(time.Second))
		slow := func() int { return strings.Count(s.get("/weir/calls"), `<a href="calls/`) }
		for _, want := range []int{1, 1} {
			if s.call("GET", "http://api.example/", 0); slow() != want {
				t.Errorf("%d calls count as slow after %v, want %d", slow(), c.Elapsed(), want)
			}
		}
		for range 1000 {
			s.call("GET", "http://api.example/", 0)
		}
		if s.call("GET", "http://api.example/", 0); slow() != 2 {
			t.Errorf("%d calls count as slow in the end, want 2", slow())
		}
	})
}

// TestWaterfall: the waterfall of a call is its trace.
func TestWaterfall(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		s := newSite(t, c, rules, page.Options{}, clocktest.Reply(503).After(time.Second).Header("Retry-After", "3"), clocktest.Reply(500).After(2*time.Second))
		s.call("GET", "http://api.example/", 0)
		body := s.get("/weir/calls/1")
		var got []string
		for _, m := range regexp.MustCompile(`(?s)<th scope="row">([^<]*)</th>.*?<rect class="(\w+)" x="([\d.]+)" y="1" width="([\d.]+)".*?</svg></td>\s*<td>([^<]*)</td>`).FindAllStringSubmatch(body, -1) {
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
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/weir/calls/99", nil))
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
		for _, path := range []string{"/weir/", "/weir/calls", "/weir/calls/1", "/weir/policy", "/weir/policy?method=GET&url=" + url.QueryEscape("http://x/"+evil), "/weir/calls?route=" + url.QueryEscape(evil)} {
			body := s.get(path)
			if n := strings.Count(body, "<script"); n != 1 || strings.Contains(body, "onload='") {
				t.Errorf("%s: %d scripts, want our own alone", path, n)
			}
		}
	})
}

func (s *site) post(form url.Values, origin string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "http://ops.example/weir/breakers", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", origin)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// TestControl: a circuit is forced only where that is allowed, and only by a form
// of the page.
func TestControl(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			s := newSite(t, c, rules, page.Options{AllowControl: allowed}, clocktest.Reply(200).Forever())
			s.call("GET", "http://api.example/", 0)
			form := url.Values{"name": {"breaker api.example/ http://api.example"}, "to": {"open"}}
			if got := strings.Contains(s.get("/weir/"), `value="breaker api.example/ http://api.example"`); got != allowed {
				t.Errorf("allowed is %v, and the form is there: %v", allowed, got)
			}
			if w := s.post(form, "http://evil.example"); w.Code != http.StatusForbidden {
				t.Errorf("another site: status %d", w.Code)
			}
			state := s.tr.Breakers()[0].State
			if state() != layers.StateClosed {
				t.Fatal("another site has opened the circuit")
			}
			w := s.post(form, "http://ops.example")
			if !allowed {
				if w.Code != http.StatusForbidden || state() != layers.StateClosed {
					t.Errorf("status %d, the circuit is %v", w.Code, state())
				}
				return
			}
			if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "./" || state() != layers.StateOpen {
				t.Errorf("status %d, the circuit is %v", w.Code, state())
			}
			s.want("/weir/", "open, forced")
			for _, to := range []string{"closed", "x", "auto"} {
				form.Set("to", to)
				if s.post(form, "http://ops.example"); state() != layers.StateClosed {
					t.Errorf("%s: the circuit is %v", to, state())
				}
			}
			form.Set("name", "another")
			if w := s.post(form, "http://ops.example"); w.Code != http.StatusNotFound {
				t.Errorf("a circuit that is not there: status %d", w.Code)
			}
		})
	}
}

// TestLive: a viewer sees a circuit open and close without asking.
func TestLive(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		s := newSite(t, c, rules, page.Options{},
			clocktest.Reply(500).Times(2), clocktest.Reply(200).Forever())
		ctx, cancel := context.WithCancel(t.Context())
		r, w := io.Pipe()
		var viewer sync.WaitGroup
		viewer.Go(func() {
			s.ServeHTTP(stream{w, http.Header{}}, httptest.NewRequestWithContext(ctx, http.MethodGet, "/weir/live/state", nil))
			w.Close()
		})
		events := bufio.NewReader(r)
		next := func() string {
			var text strings.Builder
			for {
				line, err := events.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				if line == "\n" {
					return squeeze(text.String())
				}
				text.WriteString(strings.TrimPrefix(line, "data: "))
			}
		}
		has := func(want string) {
			t.Helper()
			if got := next(); !strings.Contains(got, want) {
				t.Errorf("at %v there is no %q: %s", c.Elapsed(), want, got)
			}
		}
		has("No circuit is in use")
		s.call("POST", "http://api.example/", 0)
		has("http://api.example api.example/ closed 1")
		s.call("POST", "http://api.example/", 0)
		has("http://api.example api.example/ open")
		c.Add(500 * time.Millisecond) // between two events
		for c.Elapsed() < 11*time.Second {
			next()
		}
		s.call("POST", "http://api.example/", 0)
		next() // may be from before
		has("http://api.example api.example/ closed")
		cancel()
		_, _ = io.Copy(io.Discard, r)
		viewer.Wait()
	})
}

// stream is a writer of a response that is read as it comes.
type stream struct {
	io.Writer
	header http.Header
}

func (s stream) Header() http.Header { return s.header }
func (s stream) WriteHeader(int)     {}
func (s stream) Flush()              {}

// stuck is the connection of a viewer that reads nothing: a write ends only with
// its deadline.
type stuck struct {
	stream
	late chan struct{}
}

func (s stuck) Write([]byte) (int, error) {
	<-s.late
	return 0, os.ErrDeadlineExceeded
}

func (s stuck) SetWriteDeadline(t time.Time) error {
	if t.Before(time.Now()) {
		close(s.late)
	}
	return nil
}

// TestStuckViewers: viewers that do not read are let go, and make room.
func TestStuckViewers(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		s := newSite(t, c, rules, page.Options{}, clocktest.Reply(200).Forever())
		var viewers sync.WaitGroup
		ask := func() *http.Request {
			return httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/weir/live/state", nil)
		}
		for range 32 {
			viewers.Go(func() { s.ServeHTTP(stuck{stream{io.Discard, http.Header{}}, make(chan struct{})}, ask()) })
		}
		c.Add(time.Second)
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, ask()); w.Code != http.StatusServiceUnavailable {
			t.Errorf("a viewer too many: status %d", w.Code)
		}
		before := c.Elapsed()
		s.call("GET", "http://api.example/", 0)
		if took := c.Elapsed() - before; took > 0 {
			t.Errorf("they delay a call by %v", took)
		}
		viewers.Wait()
		if c.Elapsed() != 5*time.Second {
			t.Errorf("they were let go after %v", c.Elapsed())
		}
	})
}

// TestMemory: whatever happens, a watch keeps no more than it may.
func TestMemory(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		p := policy.Policy{Settings: policy.Settings{Breaker: policy.Breaker{Failures: 1000, Key: func(r *http.Request) string { return r.URL.Path }}, Retry: policy.Retry{Enabled: policy.Off}}}
		s := newSite(t, c, p, page.Options{}, clocktest.Reply(500).After(time.Second).Forever())
		for i := range 1000 {
			s.call("GET", fmt.Sprintf("http://api.example/%d", i), 0)
		}
		if n := strings.Count(s.get("/weir/calls"), `<a href="calls/`); n != 100 {
			t.Errorf("%d calls are listed, want 100", n)
		}
		if n := strings.Count(s.get("/weir/"), "<svg"); n > 64 {
			t.Errorf("%d lines are drawn, want 64 at most", n)
		}
		s.want("/weir/calls/1000", "A call of no route")
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/weir/calls/700", nil)); w.Code != http.StatusNotFound {
			t.Errorf("the 300th last call is still kept: status %d", w.Code)
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
