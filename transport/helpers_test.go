package transport_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const url = "http://api.example/v1"

// racing says that the race detector watches, which costs time and memory.
var racing bool

// noJitter makes every backoff the top of its curve.
func noJitter() float64 { return 1 }

func newTransport(t *testing.T, c clock.Clock, base http.RoundTripper, p policy.Policy, change ...func(*transport.Config)) *transport.Transport {
	t.Helper()
	cfg := transport.Config{Base: base, Clock: c, Policy: p, Rand: noJitter}
	for _, f := range change {
		f(&cfg)
	}
	tr, err := transport.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// settings makes a policy of one level.
func settings(s policy.Settings) policy.Policy { return policy.Policy{Settings: s} }

func request(t *testing.T, ctx context.Context, method, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// result is what a caller has of a call.
type result struct {
	resp *http.Response
	body string
	err  error // of RoundTrip, or of the body
	took time.Duration
}

func (r result) call(t *testing.T) *layers.Call {
	t.Helper()
	return callOf(t, r.resp)
}

func callOf(t *testing.T, resp *http.Response) *layers.Call {
	t.Helper()
	c, ok := layers.CallFrom(resp.Request.Context())
	if !ok {
		t.Fatal("the response's request has no call")
	}
	return c
}

// do sends a request, and reads the body to its end.
func do(c *clocktest.Clock, rt http.RoundTripper, req *http.Request) result {
	start := c.Elapsed()
	resp, err := rt.RoundTrip(req)
	r := result{resp: resp, err: err}
	if err == nil {
		var b []byte
		b, r.err = io.ReadAll(resp.Body)
		r.body = string(b)
		resp.Body.Close()
	}
	r.took = c.Elapsed() - start
	return r
}

func get(t *testing.T, c *clocktest.Clock, rt http.RoundTripper) result {
	t.Helper()
	return do(c, rt, request(t, t.Context(), "GET", url, nil))
}

// times lists when an upstream was asked, since the test began.
func times(c *clocktest.Clock, u *clocktest.Upstream) []time.Duration {
	var list []time.Duration
	for _, r := range u.Requests() {
		list = append(list, r.At.Sub(c.Now())+c.Elapsed())
	}
	return list
}

func wantTook(t *testing.T, r result, want time.Duration) {
	t.Helper()
	if r.took != want {
		t.Errorf("the call took %v, want %v", r.took, want)
	}
}

func wantStatus(t *testing.T, r result, status int) {
	t.Helper()
	if r.resp == nil || r.resp.StatusCode != status || r.err != nil {
		t.Fatalf("got %+v with error %v, want status %d", r.resp, r.err, status)
	}
}

// wantError returns the *layers.Error that err is.
func wantError(t *testing.T, err error) *layers.Error {
	t.Helper()
	e := new(layers.Error)
	if !errors.As(err, &e) {
		t.Fatalf("got error %v (%T), want a *layers.Error", err, err)
	}
	return e
}

func wantTimeout(t *testing.T, err error, phase layers.Phase) *layers.Error {
	t.Helper()
	e := wantError(t, err)
	if e.Phase != phase || !e.Timeout() {
		t.Errorf("got %v in phase %q, timeout %v; want a timeout in phase %q", e, e.Phase, e.Timeout(), phase)
	}
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		t.Errorf("%v: must be context.DeadlineExceeded and not context.Canceled", err)
	}
	if n := net.Error(nil); !errors.As(err, &n) || !n.Timeout() {
		t.Errorf("%v: must be a net.Error that is a timeout", err)
	}
	return e
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func equalTimes(t *testing.T, got []time.Duration, want ...time.Duration) {
	t.Helper()
	ok := len(got) == len(want)
	for i := 0; ok && i < len(got); i++ {
		ok = got[i] == want[i]
	}
	if !ok {
		t.Errorf("sent at %v, want %v", got, want)
	}
}

func has(t *testing.T, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("%q does not have %q", text, want)
	}
}

// inner, outer and observer change a Config.
func inner(list ...layers.Layer) func(*transport.Config) {
	return func(cfg *transport.Config) { cfg.Inner = list }
}

func outer(list ...layers.Layer) func(*transport.Config) {
	return func(cfg *transport.Config) { cfg.Outer = list }
}

func observer(f layers.ObserverFunc) func(*transport.Config) {
	return func(cfg *transport.Config) { cfg.Observer = f }
}
