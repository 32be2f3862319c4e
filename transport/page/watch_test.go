package page_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
	"github.com/weir-go/weir/transport/page"
)

// TestKept: of each route as many calls are kept as may be, whatever other
// routes do, and links tell one program's calls from another's.
func TestKept(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		p := policy.Policy{Settings: policy.Settings{Retry: policy.Retry{Enabled: policy.Off}}}
		for i := range 100 {
			p.Routes = append(p.Routes, policy.Route{Pattern: fmt.Sprintf("/%d", i)})
		}
		s := newSite(t, c, p, page.Options{}, clocktest.Reply(500).Forever())
		s.call("GET", "http://api.example/7", 0)
		for i := range 1000 {
			s.call("GET", fmt.Sprintf("http://api.example/%d", i%100), 0)
			s.call("GET", "http://api.example/other", 0)
		}
		s.want(s.link(1), "A call of /7")
		s.want(s.link(2001), "A call of no route")
		s.want("/weir/calls?route=/8", "/8 0s 1 500")
		s.want("/weir/calls?route=(none)", "no route 0s 1 500")
		s.want("/weir/calls", "more are not shown")
		for _, link := range []string{s.link(3), s.link(99999), strings.Replace(s.link(1), s.name, "another", 1), "/weir/calls/1", "/weir/calls/-"} {
			w := httptest.NewRecorder()
			if s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, link, nil)); w.Code != http.StatusNotFound {
				t.Errorf("%s: status %d", link, w.Code)
			}
		}
	})
}

// TestMany: of many circuits those are shown that need attention, and it is said
// how many others there are.
func TestMany(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		p := policy.Policy{Settings: policy.Settings{
			Breaker: policy.Breaker{Failures: 1, Key: func(r *http.Request) string { return r.URL.Path }}, Retry: policy.Retry{Enabled: policy.Off},
		}}
		s := newSite(t, c, p, page.Options{ShowKeys: true}, clocktest.Reply(200).Times(500), clocktest.Reply(500), clocktest.Reply(200).After(10*time.Millisecond).Forever())
		for i := range 1000 {
			s.call("GET", fmt.Sprintf("http://api.example/%d", i), 0)
			if i%50 == 0 {
				s.get("/weir/")
			}
		}
		s.want("/weir/", "/500 open 1 failures in a row", "900 more are not shown")
		if n := strings.Count(s.get("/weir/"), "<svg"); n < 90 || n > 110 {
			t.Errorf("%d lines are drawn, want one for each of about 100", n)
		}
	})
}

// TestLines: a line shows the last four minutes as they were, and a gap where
// nobody looked and no call was made.
func TestLines(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		s := newSite(t, c, rules, page.Options{}, clocktest.Reply(200).Forever())
		line := func() string {
			t.Helper()
			m := regexp.MustCompile(`(?s)Rate budgets.*?<path d="([^"]*)"`).FindStringSubmatch(s.get("/weir/"))
			if m == nil {
				return ""
			}
			return m[1]
		}
		step := func(n int) {
			for range n {
				s.call("GET", "http://api.example/", 0)
				c.Add(2 * time.Second)
			}
		}
		step(10)
		if got := strings.Count(line(), "M"); got != 1 {
			t.Errorf("the line has %d parts, want 1: %s", got, line())
		}
		c.Add(time.Minute)
		step(10)
		if got := strings.Count(line(), "M"); got != 2 {
			t.Errorf("after a pause the line has %d parts, want 2: %s", got, line())
		}
		c.Add(5 * time.Minute)
		if got := line(); strings.Count(got, "H") != 1 {
			t.Errorf("of what was long ago something is left: %s", got)
		}
	})
}

// TestWatchTwice: one Watch may be shown by several pages, of one transport or
// of more.
func TestWatchTwice(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		s := newSite(t, c, rules, page.Options{}, clocktest.Reply(500).Forever())
		other := newSite(t, c, rules, page.Options{}, clocktest.Reply(200))
		second := page.Handler(s.tr, page.Options{Watch: s.watch})
		page.Handler(other.tr, page.Options{Watch: s.watch})
		s.call("POST", "http://api.example/", 0)
		c.Add(3 * time.Second)
		s.call("POST", "http://api.example/", 0)
		w := httptest.NewRecorder()
		second.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/calls", nil))
		if n := strings.Count(w.Body.String(), "<tr data-key="); n != 2 {
			t.Errorf("%d calls are shown, want 2", n)
		}
		if n := strings.Count(s.get("/weir/"), "<svg"); n != 4 {
			t.Errorf("%d lines are drawn, want 4", n)
		}
	})
}

// TestNotMounted: until there is a page a Watch is told of nothing, and calls
// that began before are passed over.
func TestNotMounted(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		watch, told := page.NewWatch(), 0
		tr, err := transport.New(transport.Config{
			Base: clocktest.NewUpstream(t, c, clocktest.Reply(500).After(3*time.Second).Forever()), Clock: c,
			Observer: layers.Observers(watch, idle{layers.ObserverFunc(func(context.Context, layers.Event) { told++ }), watch}),
		})
		if err != nil {
			t.Fatal(err)
		}
		s := &site{t: t, c: c, tr: tr}
		s.call("POST", "http://api.example/", 0)
		if told > 0 || len(watch.Live()) > 0 {
			t.Errorf("it is told of %d events", told)
		}
		var h http.Handler
		c.AfterFunc(time.Second, func() { h = page.Handler(tr, page.Options{Watch: watch}) })
		s.call("POST", "http://api.example/", 0)
		s.call("POST", "http://api.example/", 0)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/calls", nil))
		if n := strings.Count(w.Body.String(), "<tr data-key="); n != 1 || told == 0 || len(watch.Live()) > 0 {
			t.Errorf("%d calls are shown, want that which began after the page was there", n)
		}
	})
}

// idle is an observer that is idle when a Watch is.
type idle struct {
	layers.Observer
	watch *page.Watch
}

func (i idle) Idle() bool { return i.watch.Idle() }

// huge is an error that holds on to much, and says much.
type huge struct{ held []byte }

func (h huge) Error() string { return strings.Repeat("much ", len(h.held)/5) }

// TestHugeErrors: what an error holds is not kept, and what it says is cut.
func TestHugeErrors(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		p := policy.Policy{Settings: policy.Settings{Retry: policy.Retry{Enabled: policy.Off}}}
		errs := make([]clocktest.Step, 10)
		for i := range errs {
			errs[i] = clocktest.Fail(huge{make([]byte, 1<<16)}).After(2 * time.Second)
		}
		s := newSite(t, c, p, page.Options{}, errs...)
		clear(errs)
		for range errs {
			s.call("GET", "http://api.example/", 0)
		}
		if n := len(s.get("/weir/calls")); n > 20_000 {
			t.Errorf("the page has %d bytes", n)
		}
	})
}

// TestSteps: the waterfall of a stream has its first content and its gaps.
func TestSteps(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		event := "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n"
		s := newSite(t, c, policy.Policy{Settings: policy.Settings{Stream: policy.Stream{Enabled: policy.On}}}, page.Options{},
			clocktest.Reply(200).After(time.Second).Header("Content-Type", "text/event-stream").
				Chunks(clocktest.Drip(event+event+event+"data: [DONE]\n\n", len(event), 3*time.Second)...))
		s.call("POST", "http://api.example/", 0)
		s.want(s.link(1), "first content 4s", "gap 4s 3s gap 7s 3s")
	})
}

// TestInvisible: characters that cannot be seen, or turn a text around, are
// written out, also where they would end a line of a server-sent event.
func TestInvisible(t *testing.T) {
	const evil = "a\rb\r\rdata: c\u202edlrow\u2066\u200b\x1b[31m\x00\xff\u2028"
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		key := func(*http.Request) string { return evil }
		p := policy.Policy{Routes: []policy.Route{{Pattern: "/", Name: strings.Repeat("name ", 1<<18), Settings: policy.Settings{
			Breaker: policy.Breaker{Failures: 1, Key: key}, Retry: policy.Retry{Enabled: policy.Off},
			Budgets: map[string]policy.Rate{evil: {PerSecond: 5, Key: key}},
		}}}}
		s := newSite(t, c, p, page.Options{AllowControl: true, ShowKeys: true}, clocktest.Fail(errors.New(evil)).Forever())
		s.call("POST", "http://api.example/", 0)
		for _, path := range []string{"/weir/", "/weir/calls", s.link(1), "/weir/policy"} {
			body := s.get(path)
			if i := strings.IndexAny(body, "\r\u202e\u2066\u200b\x1b\x00\u2028"); i >= 0 {
				t.Errorf("%s has %q", path, body[max(0, i-40):i+20])
			}
			if n := len(body); path != "/weir/calls" && n > 50_000 {
				t.Errorf("%s has %d bytes", path, n)
			}
		}
		s.want("/weir/", `a\u000db\u000d\u000ddata: c\u202edlrow\u2066\u200b\u001b[31m`)
		r, w := io.Pipe()
		go s.ServeHTTP(stream{w, http.Header{}}, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/weir/live/state", nil))
		first := make([]byte, 1<<20)
		n, _ := r.Read(first)
		r.Close()
		for line := range strings.Lines(strings.TrimSuffix(string(first[:n]), "\n\n")) {
			if !strings.HasPrefix(line, "data: ") {
				t.Errorf("a line of the event is %q", line)
			}
		}
	})
}

// unset is an error whose text needs more than a nil pointer has.
type unset struct{ text string }

func (u *unset) Error() string { return u.text }

// TestErrorThatPanics: the texts of errors are made on a goroutine of the page's,
// where a panic would end the program.
func TestErrorThatPanics(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		s := newSite(t, c, policy.Policy{}, page.Options{}, clocktest.Reply(200).Silent().Forever())
		for range 2 { // the second is beats later
			ctx, cancel := context.WithCancelCause(t.Context())
			c.AfterFunc(5*time.Second, func() { cancel((*unset)(nil)) })
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example/", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := s.tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		s.want("/weir/calls", "without a text")
	})
}

// TestCanceledByAnother: a call that its caller did not give up has failed, as the
// log says too.
func TestCanceledByAnother(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		watch := page.NewWatch()
		base := layers.RoundTripperFunc(func(*http.Request) (*http.Response, error) {
			return nil, fmt.Errorf("no token: %w", context.Canceled)
		})
		tr, err := transport.New(transport.Config{
			Base: base, Clock: c, Observer: watch, Policy: policy.Policy{Settings: policy.Settings{Retry: policy.Retry{Enabled: policy.Off}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		s := &site{t: t, c: c, tr: tr, Handler: page.Handler(tr, page.Options{Watch: watch})}
		s.call(http.MethodGet, "http://api.example/", 0)
		s.want("/calls?outcome=failed", "0s 1 no token: context canceled")
	})
}
