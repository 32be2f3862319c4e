// Package browser tests the page of package page in a real browser. It needs
// Chromium, and is skipped without it.
package browser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
	"github.com/weir-go/weir/transport/derive"
	"github.com/weir-go/weir/transport/page"
)

//ci:race

const evil = `<script>document.title="pwned"</script><img src=x onerror=alert(1)>`

// site is a transport with traffic, and its page.
type site struct {
	url   string
	api   string
	t     *transport.Transport
	down  atomic.Bool
	mu    sync.Mutex
	trace layers.Trace // of the latest call of /retried
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{}
	var sends atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/retried" && sends.Add(1)%2 == 1:
			if sends.Load() == 1 { // the first call is the slowest, however busy the machine
				time.Sleep(900 * time.Millisecond)
			}
			time.Sleep(100 * time.Millisecond)
			w.Header().Set("Retry-After-Ms", "300")
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/flaky" && s.down.Load():
			w.WriteHeader(http.StatusInternalServerError)
		default:
			time.Sleep(50 * time.Millisecond)
			fmt.Fprint(w, "fine")
		}
	}))
	t.Cleanup(api.Close)
	s.api = api.URL
	watch, recorder := page.NewWatch(), new(derive.Recorder)
	tracer := layers.NewTracer(func(_ context.Context, trace layers.Trace) {
		if trace.Route == "retried" {
			s.mu.Lock()
			s.trace = trace
			s.mu.Unlock()
		}
	})
	var err error
	s.t, err = transport.New(transport.Config{
		Observer: layers.Observers(watch, recorder, tracer),
		Inner: []layers.Layer{func(next http.RoundTripper) http.RoundTripper {
			return layers.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
				if r.URL.Path == "/evil" {
					return nil, errors.New(evil)
				}
				return next.RoundTrip(r)
			})
		}},
		Policy: policy.Policy{
			Settings: policy.Settings{Deadline: 5 * time.Second},
			Routes: []policy.Route{
				{Pattern: "/retried", Name: "retried", Settings: policy.Settings{Rate: policy.Rate{PerSecond: 50, Burst: 5}, InFlight: policy.InFlight{Max: 4}}},
				{Pattern: "/flaky", Name: "flaky", Settings: policy.Settings{
					Retry: policy.Retry{Enabled: policy.Off}, Breaker: policy.Breaker{Failures: 2, Open: time.Second, OpenMax: time.Second, OpenJitter: policy.Off},
				}},
				{Pattern: "/evil", Name: evil, Settings: policy.Settings{Retry: policy.Retry{Enabled: policy.Off}}},
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.t.CloseIdleConnections)
	mux := http.NewServeMux()
	mux.Handle("/weir/", http.StripPrefix("/weir", page.Handler(s.t, page.Options{Watch: watch, Recorder: recorder, AllowControl: true})))
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	s.url = server.URL + "/weir/"
	return s
}

func (s *site) call(t *testing.T, path string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.api+path+"?key=s3cret", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.t.RoundTrip(req)
	if err == nil {
		_, _ = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
	}
}

// browse starts a browser. Its pictures go to the folder that
// WEIR_SCREENSHOTS names, or to one of the test's.
func browse(t *testing.T) (ctx context.Context, shoot func(name string)) {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium: install it to run the tests in a browser")
	}
	// What it leaves behind, as it is killed, is there. The name of t.TempDir may be
	// too long for the socket in it.
	home, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1100, 900),
		chromedp.NoInheritEnv, chromedp.Env("PATH="+os.Getenv("PATH"), "HOME="+home, "TMPDIR="+home),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, stop := chromedp.NewContext(ctx)
	t.Cleanup(stop)
	dir := os.Getenv("WEIR_SCREENSHOTS")
	if dir == "" {
		dir = t.ArtifactDir()
	}
	return ctx, func(name string) {
		t.Helper()
		png := run(t, ctx, chromedp.FullScreenshot(100))
		if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// text is what a reader sees of a view.
func text(t *testing.T, ctx context.Context) string {
	t.Helper()
	return strings.Join(strings.Fields(run(t, ctx, chromedp.Text(chromedp.CSS("main")))), " ")
}

// click clicks in one go: the view may be replaced at any time.
func click(t *testing.T, ctx context.Context, css string) {
	t.Helper()
	run(t, ctx, chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.querySelector(%q).click()", css)))
	time.Sleep(200 * time.Millisecond) // until the page is there anew
}

// run does something in the browser, and gives up after a minute.
func run[T any](t *testing.T, ctx context.Context, a chromedp.Action[T]) T {
	t.Helper()
	late := time.AfterFunc(time.Minute, func() { panic("the browser does not answer") })
	defer late.Stop()
	v, err := chromedp.Run(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func open(t *testing.T, ctx context.Context, url string) {
	t.Helper()
	run(t, ctx, chromedp.Navigate(url))
}

// sees waits until a view says something, by itself.
func sees(t *testing.T, ctx context.Context, want string) {
	t.Helper()
	last := ""
	for range 100 {
		// It may be on its way to another page.
		main, err := chromedp.Run(ctx, chromedp.Text(chromedp.CSS("main")))
		if last = strings.Join(strings.Fields(main), " "); err == nil && strings.Contains(last, want) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("there is no %q: %s", want, last)
}

// TestViews opens each view, and compares a waterfall with the trace of the same
// call.
func TestViews(t *testing.T) {
	s := newSite(t)
	ctx, shoot := browse(t)
	s.call(t, "/retried")
	for view, want := range map[string]string{
		"": "Rate budgets", "calls": "retried", "policy": "From general to specific", "distributions": "Not derived",
		"policy?method=GET&url=http://api.example/retried": "match deadline retry rate in-flight inner timeouts",
	} {
		open(t, ctx, s.url+view)
		sees(t, ctx, want)
		shoot("view-" + regexp.MustCompile(`\W+`).ReplaceAllString("x"+view, "-"))
	}
	open(t, ctx, s.url+"calls")
	click(t, ctx, "tbody a")
	sees(t, ctx, "A call of retried")
	shoot("waterfall")
	rows := run(t, ctx, chromedp.Evaluate[[][]string](`Array.from(document.querySelectorAll(".fall tbody tr")).map(r =>
		[r.querySelector("th").textContent, r.querySelector("rect").getAttribute("x"), r.querySelector("rect").getAttribute("width")])`))
	s.mu.Lock()
	trace := s.trace
	s.mu.Unlock()
	parts := trace.Parts()
	if len(rows) != len(parts) || len(rows) < 5 {
		t.Fatalf("the waterfall has %d bars, and the call %d parts", len(rows), len(parts))
	}
	for i, span := range parts {
		var x, w float64
		fmt.Sscan(rows[i][1], &x)
		fmt.Sscan(rows[i][2], &w)
		length := float64(trace.End.Sub(trace.Start))
		wantX := 100 * float64(span.Start.Sub(trace.Start)) / length
		wantW := max(0.4, 100*float64(span.End.Sub(span.Start))/length)
		if x-wantX > 0.01 || wantX-x > 0.01 || w-wantW > 0.01 || wantW-w > 0.01 {
			t.Errorf("bar %d, %s, is at %.2f for %.2f, want %.2f for %.2f", i, rows[i][0], x, w, wantX, wantW)
		}
	}
}

// TestLive sees a circuit open and close without a reload, and forces it.
func TestLive(t *testing.T) {
	s := newSite(t)
	ctx, shoot := browse(t)
	open(t, ctx, s.url)
	sees(t, ctx, "No circuit is in use")
	s.call(t, "/flaky")
	sees(t, ctx, "/flaky closed")
	s.down.Store(true)
	for range 3 {
		s.call(t, "/flaky")
	}
	sees(t, ctx, "/flaky open")
	shoot("open")
	s.down.Store(false)
	time.Sleep(1100 * time.Millisecond) // until a probe may pass
	s.call(t, "/flaky")
	sees(t, ctx, "/flaky closed")
	click(t, ctx, `button[value="open"]`)
	sees(t, ctx, "open forced")
	shoot("forced")
	click(t, ctx, `button[value="auto"]`)
	sees(t, ctx, "/flaky closed")
}

// TestHostile shows names and errors with markup as text.
func TestHostile(t *testing.T) {
	s := newSite(t)
	ctx, shoot := browse(t)
	s.call(t, "/evil")
	for _, view := range []string{"policy", "calls", "its waterfall"} {
		if view == "its waterfall" {
			click(t, ctx, "tbody a")
		} else {
			open(t, ctx, s.url+view)
		}
		sees(t, ctx, `<script>document.title=`)
		title := run(t, ctx, chromedp.Title())
		foreign := run(t, ctx, chromedp.Evaluate[int](`document.querySelectorAll("main script, main img[src=x]").length`))
		if title == "pwned" || foreign > 0 {
			t.Errorf("%s runs what it should show: title %q, %d foreign elements", view, title, foreign)
		}
		if strings.Contains(text(t, ctx), "s3cret") {
			t.Errorf("%s shows a secret", view)
		}
	}
	shoot("hostile")
}
