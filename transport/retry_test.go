package transport_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	neturl "net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// noWait retries at once.
var noWait = policy.Retry{BaseDelay: policy.Off}

func retrying(r policy.Retry) policy.Policy { return settings(policy.Settings{Retry: r}) }

func TestExhaustionReturnsTheLastResponse(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c,
			clocktest.Reply(503).Body("first"), clocktest.Reply(502).Body("second"), clocktest.Reply(503).Body("last"))
		r := get(t, c, newTransport(t, c, up, policy.Policy{}))
		wantStatus(t, r, 503)
		equal(t, "the body", r.body, "last")
		equalTimes(t, times(c, up), 0, 250*time.Millisecond, 750*time.Millisecond)
		wantTook(t, r, 750*time.Millisecond) // nothing is waited for after the last
		equal(t, "the reason", r.call(t).Reason(), layers.ReasonAttempts)
		equal(t, "the number of attempts", r.call(t).Attempts(), 3)
	})
}

func TestExhaustionReturnsTheLastError(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503), clocktest.Fail(clocktest.ErrReset), clocktest.Fail(io.ErrUnexpectedEOF))
		r := get(t, c, newTransport(t, c, up, retrying(noWait)))
		e := wantError(t, r.err)
		if !errors.Is(e, io.ErrUnexpectedEOF) || errors.Is(e, clocktest.ErrReset) {
			t.Errorf("got %v, want the last attempt's error", e)
		}
		equal(t, "the number of attempts", e.Attempts, 3)
		equal(t, "the reason", e.Reason, layers.ReasonAttempts)
		equal(t, "what was sent", e.Sent, layers.MaybeSent)
		equal(t, "whether it can be repeated", e.Retryable, true)
		equal(t, "the layer", e.Layer, "base")
		equal(t, "the text", e.Error(), "unexpected EOF (3 attempts, attempts exhausted)")
	})
}

func TestSuccessHasNoReason(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503), clocktest.Reply(200).Body("fine"))
		r := get(t, c, newTransport(t, c, up, retrying(noWait)))
		wantStatus(t, r, 200)
		equal(t, "the body", r.body, "fine")
		equal(t, "the reason", r.call(t).Reason(), "")
		equal(t, "the number of attempts", r.call(t).Attempts(), 2)
	})
}

func TestWhatIsSafeToRepeat(t *testing.T) {
	const key = "Idempotency-Key"
	for _, test := range []struct {
		method string
		header string
		retry  policy.Retry
		step   clocktest.Step // answers the first attempt
		sends  int
	}{
		{"", "", noWait, clocktest.Reply(503), 2},
		{"GET", "", noWait, clocktest.Reply(503), 2},
		{"HEAD", "", noWait, clocktest.Reply(503), 2},
		{"OPTIONS", "", noWait, clocktest.Reply(503), 2},
		{"TRACE", "", noWait, clocktest.Reply(503), 2},
		{"PUT", "", noWait, clocktest.Reply(503), 2},
		{"DELETE", "", noWait, clocktest.Reply(503), 2},
		{"POST", "", noWait, clocktest.Reply(503), 1},
		{"PATCH", "", noWait, clocktest.Reply(503), 1},
		{"QUERY", "", noWait, clocktest.Reply(503), 1},
		{"POST", key, noWait, clocktest.Reply(503), 2},
		{"PATCH", "X-Idempotency-Key", noWait, clocktest.Reply(503), 2},
		{"POST", "", policy.Retry{BaseDelay: policy.Off, Idempotent: policy.On}, clocktest.Reply(503), 2},
		{"POST", "", noWait, clocktest.Fail(clocktest.ErrReset), 1},
		{"POST", key, noWait, clocktest.Fail(clocktest.ErrReset), 2},
		{"GET", "", noWait, clocktest.Fail(clocktest.ErrReset), 2},
		{"POST", "", noWait, clocktest.NoReply(), 1},
		{"POST", key, noWait, clocktest.NoReply(), 2},
		// Proof that nothing was sent makes every method safe.
		{"POST", "", noWait, clocktest.FailDial(clocktest.ErrRefused), 2},
		{"POST", "", noWait, clocktest.Reply(200).Pool(time.Hour), 2},
		{"POST", "", noWait, clocktest.Reply(200).Connect(time.Hour), 2},
		{"PATCH", "", noWait, clocktest.Fail(&tls.CertificateVerificationError{}), 1}, // but hopeless
	} {
		t.Run(fmt.Sprintf("%s%s", test.method, test.header), func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, test.step, clocktest.Reply(200))
				req := request(t, t.Context(), test.method, url, nil)
				req.Method = test.method
				if test.header != "" {
					req.Header.Set(test.header, "k1")
				}
				r := do(c, newTransport(t, c, up, settings(policy.Settings{Deadline: 2 * time.Hour, Retry: test.retry})), req)
				sent := up.Requests()
				equal(t, "the number of sends", len(sent), test.sends)
				for _, s := range sent {
					if test.header != "" && s.Header.Get(test.header) != "k1" {
						t.Errorf("an attempt had the key %q", s.Header.Get(test.header))
					}
				}
				if test.sends == 2 {
					wantStatus(t, r, 200)
				}
			})
		})
	}
}

func TestNotSafe(t *testing.T) {
	for _, test := range []struct {
		name      string
		step      clocktest.Step
		sent      layers.Sent
		retryable bool
		reason    string
	}{
		{"reset", clocktest.Fail(clocktest.ErrReset), layers.MaybeSent, false, layers.ReasonNotSafe},
		{"read timeout", clocktest.NoReply(), layers.MaybeSent, false, layers.ReasonNotSafe},
		{"certificate", clocktest.FailDial(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), layers.Unsent, true, layers.ReasonNotRetryable},
	} {
		t.Run(test.name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, test.step)
				r := do(c, newTransport(t, c, up, policy.Policy{}), request(t, t.Context(), "POST", url, strings.NewReader("x")))
				e := wantError(t, r.err)
				equal(t, "what was sent", e.Sent, test.sent)
				equal(t, "whether it can be repeated", e.Retryable, test.retryable)
				equal(t, "the reason", e.Reason, test.reason)
				equal(t, "the number of attempts", e.Attempts, 1)
			})
		})
	}
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).Body("busy"))
		r := do(c, newTransport(t, c, up, policy.Policy{}), request(t, t.Context(), "POST", url, nil))
		wantStatus(t, r, 503)
		equal(t, "the body", r.body, "busy")
		equal(t, "the reason", r.call(t).Reason(), layers.ReasonNotSafe)
	})
}

func TestStatuses(t *testing.T) {
	for status, sends := range map[int]int{
		408: 3, 425: 2, 429: 3, 500: 3, 502: 3, 503: 3, 504: 3,
		400: 1, 401: 1, 403: 1, 404: 1, 409: 1, 423: 1, 501: 1, 505: 1, 507: 1, 304: 1,
	} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, clocktest.Reply(status).Times(3))
			wantStatus(t, get(t, c, newTransport(t, c, up, retrying(noWait))), status)
			equal(t, fmt.Sprintf("the number of sends on %d", status), len(up.Requests()), sends)
		})
	}
	for name, test := range map[string]struct {
		statuses []int
		sends    map[int]int
	}{
		"other": {[]int{404}, map[int]int{404: 3, 503: 1}},
		"425":   {[]int{425}, map[int]int{425: 2, 503: 1}},
		"none":  {[]int{}, map[int]int{503: 1, 425: 1, 429: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			for status, sends := range test.sends {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					up := clocktest.NewUpstream(t, c, clocktest.Reply(status).Times(3))
					r := get(t, c, newTransport(t, c, up, retrying(policy.Retry{BaseDelay: policy.Off, Statuses: test.statuses})))
					wantStatus(t, r, status)
					equal(t, fmt.Sprintf("the number of sends on %d", status), len(up.Requests()), sends)
				})
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	const backoff = 250 * time.Millisecond
	// The clock stands at midnight of 2000-01-01, a Saturday.
	for _, test := range []struct {
		header, value string
		wait          time.Duration
	}{
		{"Retry-After", "7", 7 * time.Second},
		{"Retry-After", "0", backoff},
		{"Retry-After", "Sat, 01 Jan 2000 00:00:08 GMT", 8 * time.Second},
		{"Retry-After", "Saturday, 01-Jan-00 00:00:08 GMT", 8 * time.Second},
		{"Retry-After", "Sat Jan  1 00:00:08 2000", 8 * time.Second},
		{"Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT", backoff},
		{"Retry-After", "-5", backoff},
		{"Retry-After", "soon", backoff},
		{"Retry-After", "", backoff},
		{"Retry-After-Ms", "1500", 1500 * time.Millisecond},
		{"Retry-After-Ms", "1", backoff}, // never earlier than the backoff
		{"Retry-After-Ms", "-1", backoff},
		{"Retry-After", "9999999999", -1}, // ends the call
		{"Retry-After-Ms", "99999999999999999999", -1},
	} {
		t.Run(test.header+" "+test.value, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c,
					clocktest.Reply(503).Header(test.header, test.value).Body("busy"), clocktest.Reply(200))
				r := get(t, c, newTransport(t, c, up, policy.Policy{}))
				if test.wait < 0 {
					wantStatus(t, r, 503)
					equal(t, "the body", r.body, "busy")
					equal(t, "the reason", r.call(t).Reason(), layers.ReasonDeadline)
					return
				}
				wantStatus(t, r, 200)
				equalTimes(t, times(c, up), 0, test.wait)
			})
		})
	}
}

func TestHintAboveTheLimit(t *testing.T) {
	for _, test := range []struct {
		hint, deadline, limit time.Duration
		reason                string
	}{
		{30 * time.Second, time.Minute, 0, ""},
		{31 * time.Second, time.Minute, 0, layers.ReasonHint},
		{31 * time.Second, time.Minute, policy.Off, ""},
		{5 * time.Second, time.Minute, 4 * time.Second, layers.ReasonHint},
		{31 * time.Second, 10 * time.Second, 0, layers.ReasonDeadline}, // it wins where both apply
		{48 * time.Hour, policy.Off, policy.Off, ""},
	} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c,
				clocktest.Reply(429).Header("Retry-After", fmt.Sprint(int(test.hint.Seconds()))).Body("later"), clocktest.Reply(200))
			r := get(t, c, newTransport(t, c, up, settings(policy.Settings{
				Deadline: test.deadline, Retry: policy.Retry{MaxHint: test.limit},
			})))
			if test.reason == "" {
				wantStatus(t, r, 200)
				wantTook(t, r, test.hint)
				return
			}
			wantStatus(t, r, 429)
			wantTook(t, r, 0)
			equal(t, "the body", r.body, "later")
			equal(t, "the reason", r.call(t).Reason(), test.reason)
		})
	}
}

func TestBackoff(t *testing.T) {
	const s = time.Second
	for _, test := range []struct {
		name  string
		retry policy.Retry
		rand  func() float64
		sent  []time.Duration
	}{
		{"off", noWait, noJitter, []time.Duration{0, 0, 0}},
		{"curve", policy.Retry{BaseDelay: s, MaxAttempts: 6, MaxDelay: 5 * s}, noJitter, []time.Duration{0, 1 * s, 3 * s, 7 * s, 12 * s, 17 * s}},
		{"half", policy.Retry{BaseDelay: s}, func() float64 { return 0.5 }, []time.Duration{0, s / 2, s * 3 / 2}},
		{"library default", policy.Retry{BaseDelay: s, Backoff: retryablehttp.DefaultBackoff}, noJitter, []time.Duration{0, s, 3 * s}},
		{"library linear", policy.Retry{BaseDelay: s, MaxDelay: s, Backoff: retryablehttp.LinearJitterBackoff}, noJitter, []time.Duration{0, s, 3 * s}},
		{"library hints", policy.Retry{BaseDelay: s, MaxDelay: s, Backoff: retryablehttp.RateLimitLinearJitterBackoff}, noJitter, []time.Duration{0, s, 3 * s}},
		{"negative", policy.Retry{Backoff: func(_, _ time.Duration, _ int, _ *http.Response) time.Duration { return -s }}, noJitter, []time.Duration{0, 0, 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, clocktest.Reply(503).Times(len(test.sent)))
				tr := newTransport(t, c, up, retrying(test.retry), func(cfg *transport.Config) { cfg.Rand = test.rand })
				wantStatus(t, get(t, c, tr), 503)
				equalTimes(t, times(c, up), test.sent...)
			})
		})
	}
}

// TestJitter: without a Rand of the test's, waits differ and stay in bounds.
func TestJitter(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).Forever())
		tr := newTransport(t, c, up, retrying(policy.Retry{MaxAttempts: 2, Budget: policy.Off}), func(cfg *transport.Config) { cfg.Rand = nil })
		seen := map[time.Duration]bool{}
		for range 50 {
			r := get(t, c, tr)
			wantStatus(t, r, 503)
			if r.took < 0 || r.took > 250*time.Millisecond {
				t.Errorf("waited %v, want up to 250ms", r.took)
			}
			seen[r.took] = true
		}
		if len(seen) < 40 {
			t.Errorf("50 waits had %d lengths", len(seen))
		}
	})
}

// TestBackoffSeesNoRetryAfter: the hint is kept from the user's Backoff, which
// would wait for it beyond the limits, and is obeyed nevertheless.
func TestBackoffSeesNoRetryAfter(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).Header("Retry-After", "3").Header("X-Kept", "yes"), clocktest.Reply(200))
		tr := newTransport(t, c, up, retrying(policy.Retry{
			Backoff: func(least, most time.Duration, n int, resp *http.Response) time.Duration {
				equal(t, "the base delay", least, 250*time.Millisecond)
				equal(t, "the longest delay", most, 5*time.Second)
				equal(t, "the attempt", n, 0)
				equal(t, "Retry-After", resp.Header.Get("Retry-After"), "")
				equal(t, "another header", resp.Header.Get("X-Kept"), "yes")
				return time.Second
			},
		}))
		wantStatus(t, get(t, c, tr), 200)
		equalTimes(t, times(c, up), 0, 3*time.Second)
	})
}

// TestBackoffLeavesTheResponse: what is kept from the user's Backoff is there for the
// caller, if that response is the last.
func TestBackoffLeavesTheResponse(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).Header("Retry-After", "3000"))
		r := get(t, c, newTransport(t, c, up, retrying(policy.Retry{
			Backoff: func(time.Duration, time.Duration, int, *http.Response) time.Duration { return 0 },
		})))
		wantStatus(t, r, 503)
		equal(t, "Retry-After", r.resp.Header.Get("Retry-After"), "3000")
	})
}

// TestBackoffAfterAnError: a Backoff of the user's is asked about a failure without a
// response, too.
func TestBackoffAfterAnError(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Fail(clocktest.ErrReset), clocktest.Reply(200))
		tr := newTransport(t, c, up, retrying(policy.Retry{
			Backoff: func(_, _ time.Duration, _ int, resp *http.Response) time.Duration {
				equal(t, "the response", resp, nil)
				return time.Second
			},
		}))
		wantStatus(t, get(t, c, tr), 200)
		equalTimes(t, times(c, up), 0, time.Second)
	})
}

func TestCheck(t *testing.T) {
	certificate := clocktest.Fail(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}})
	for name, check := range map[string]retryablehttp.CheckRetry{
		"default": retryablehttp.DefaultRetryPolicy, "propagating": retryablehttp.ErrorPropagatedRetryPolicy,
	} {
		for _, test := range []struct {
			name  string
			step  clocktest.Step
			sends int
		}{
			{"503", clocktest.Reply(503), 3},
			{"501", clocktest.Reply(501), 1},
			{"408", clocktest.Reply(408), 1}, // not among those of go-retryablehttp
			{"reset", clocktest.Fail(clocktest.ErrReset), 3},
			{"certificate", certificate, 1},
			{"scheme", clocktest.Fail(errors.New("unsupported protocol scheme \"ftp\"")), 1},
			{"header", clocktest.Fail(errors.New("net/http: invalid header field value for \"X\"")), 1},
		} {
			t.Run(name+" "+test.name, func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					up := clocktest.NewUpstream(t, c, test.step.Times(3))
					get(t, c, newTransport(t, c, up, retrying(policy.Retry{BaseDelay: policy.Off, Check: check})))
					equal(t, "the number of sends", len(up.Requests()), test.sends)
				})
			})
		}
	}
}

// TestCheckDecidesOnlyTheOutcome: method and body safety stay ours.
func TestCheckDecidesOnlyTheOutcome(t *testing.T) {
	always := func(_ context.Context, _ *http.Response, err error) (bool, error) {
		var u *neturl.Error
		if err != nil && !errors.As(err, &u) {
			t.Errorf("Check was given %T, want a *url.Error", err)
		}
		return true, nil
	}
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200), clocktest.Fail(clocktest.ErrReset))
		tr := newTransport(t, c, up, retrying(policy.Retry{BaseDelay: policy.Off, Check: always}))
		r := do(c, tr, request(t, t.Context(), "POST", url, nil))
		wantStatus(t, r, 200)
		equal(t, "the reason", r.call(t).Reason(), layers.ReasonNotSafe)
		r = do(c, tr, request(t, t.Context(), "POST", url, nil))
		equal(t, "the reason", wantError(t, r.err).Reason, layers.ReasonNotSafe)
		equal(t, "the number of sends", len(up.Requests()), 2)
	})
}

// TestHooksMayReadTheBody: what Check and Backoff read of a response is not lost
// to the caller, nor is what they close.
func TestHooksMayReadTheBody(t *testing.T) {
	look := func(resp *http.Response) {
		b := make([]byte, 5)
		_, err := io.ReadFull(resp.Body, b)
		if string(b) != "quota" || err != nil {
			t.Errorf("the hook read %q, %v", b, err)
		}
		resp.Body.Close()
	}
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		busy := clocktest.Reply(503).Header("Retry-After", "1").Body("quota exceeded")
		up := clocktest.NewUpstream(t, c, busy, busy)
		r := get(t, c, newTransport(t, c, up, retrying(policy.Retry{
			MaxAttempts: 2,
			Check: func(_ context.Context, resp *http.Response, _ error) (bool, error) {
				look(resp)
				return true, nil
			},
			Backoff: func(_, _ time.Duration, _ int, resp *http.Response) time.Duration {
				look(resp)
				return 2 * time.Second
			},
		})))
		wantStatus(t, r, 503)
		equal(t, "the body", r.body, "quota exceeded")
		equalTimes(t, times(c, up), 0, 2*time.Second)
	})
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) { // the wait does not fit
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).Chunks(clocktest.Drip("quota exceeded", 5, time.Second)...))
		r := get(t, c, newTransport(t, c, up, retrying(policy.Retry{
			Backoff: func(_, _ time.Duration, _ int, resp *http.Response) time.Duration {
				look(resp)
				return time.Hour
			},
		})))
		wantStatus(t, r, 503)
		equal(t, "the body", r.body, "quota exceeded")
		equal(t, "the reason", r.call(t).Reason(), layers.ReasonDeadline)
		if r.call(t).Err() == nil {
			t.Error("the call goes on after its body")
		}
	})
}

// TestHeldWithinBounds: no more is read of a superseded answer than is kept.
func TestHeldWithinBounds(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		read := new(longBody)
		base := layers.RoundTripperFunc(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 503, ContentLength: -1, Body: read}, nil
		})
		resp, err := newTransport(t, c, base, retrying(policy.Retry{MaxAttempts: 2, BaseDelay: policy.Off})).RoundTrip(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		equal(t, "the number of bytes", read.n, 64<<10+1)
	})
}

// longBody counts what is read of it.
type longBody struct{ n int }

func (b *longBody) Read(p []byte) (int, error) {
	if b.n += len(p); b.n > 1<<20 {
		return 0, io.EOF
	}
	return len(p), nil
}

func (*longBody) Close() error { return nil }

// TestGetBodyIsPassedInward: a base that begins a send anew by itself has the
// whole body again, whatever it is read from.
func TestGetBodyIsPassedInward(t *testing.T) {
	text := strings.Repeat("x", 65<<10)
	for name, test := range map[string]struct {
		text   string
		change func(*http.Request)
	}{
		"in memory":       {"hello", func(*http.Request) {}},
		"large in memory": {text, func(*http.Request) {}},
		"a stream":        {"hello", func(r *http.Request) { r.Body, r.GetBody = io.NopCloser(plain{strings.NewReader("hello")}), nil }},
		"its own": {"hello", func(r *http.Request) {
			r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(plain{strings.NewReader("hello")}), nil }
			r.Body, _ = r.GetBody()
		}},
	} {
		for layout, change := range layouts {
			t.Run(name+", "+layout, func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					base := layers.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
						for body := r.Body; ; {
							got, err := io.ReadAll(body)
							if body.Close(); string(got) != test.text || err != nil {
								t.Errorf("the base read %d bytes, %v", len(got), err)
							}
							if body != r.Body {
								return &http.Response{StatusCode: 200}, nil
							}
							if r.GetBody == nil {
								return nil, errors.New("no GetBody")
							}
							body, err = r.GetBody()
							if err != nil {
								return nil, err
							}
						}
					})
					req := request(t, t.Context(), "POST", url, strings.NewReader(test.text))
					test.change(req)
					wantStatus(t, do(c, newTransport(t, c, base, policy.Policy{}, change), req), 200)
				})
			})
		}
	}
}

// TestGetBodyFails: a base that begins a send anew is told why the body cannot be had.
func TestGetBodyFails(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		gone := errors.New("no longer there")
		base := layers.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
			r.Body.Close()
			_, err := r.GetBody()
			return nil, err
		})
		req := request(t, t.Context(), "POST", url, plain{strings.NewReader("x")})
		req.GetBody = func() (io.ReadCloser, error) { return nil, gone }
		e := wantError(t, do(c, newTransport(t, c, base, policy.Policy{}), req).err)
		equal(t, "the cause", e.Err, gone)
	})
}

// TestHooksReadWithinBounds: a hook that reads all that it is given has a bounded
// beginning of a body without end, and the caller the whole of one that is longer.
func TestHooksReadWithinBounds(t *testing.T) {
	const most = 70 << 10
	for _, test := range []struct{ status, length, sends int }{{503, 1 << 26, 3}, {200, 100 << 10, 1}, {200, 64 << 10, 1}} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				sends := 0
				base := layers.RoundTripperFunc(func(*http.Request) (*http.Response, error) {
					sends++
					body := io.LimitReader(zeros{}, int64(test.length))
					return &http.Response{StatusCode: test.status, ContentLength: -1, Body: io.NopCloser(body)}, nil
				})
				look := func(resp *http.Response) {
					n, err := io.Copy(io.Discard, resp.Body)
					if cut := test.length > 64<<10; cut != errors.Is(err, io.ErrUnexpectedEOF) || n > most {
						t.Errorf("the hook read %d bytes, then %v", n, err)
					}
				}
				r := get(t, c, newTransport(t, c, base, retrying(policy.Retry{
					Check: func(_ context.Context, resp *http.Response, _ error) (bool, error) {
						look(resp)
						return resp.StatusCode == 503, nil
					},
					Backoff: func(_, _ time.Duration, _ int, resp *http.Response) time.Duration {
						look(resp)
						return 0
					},
				})))
				equal(t, "the number of sends", sends, test.sends)
				if test.status == 200 {
					wantStatus(t, r, 200)
					equal(t, "the length of the body", len(r.body), test.length)
				}
			})
		})
	}
}

func TestCheckFails(t *testing.T) {
	refused := errors.New("the body says no")
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Body("{}"))
		r := get(t, c, newTransport(t, c, up, retrying(policy.Retry{
			Check: func(context.Context, *http.Response, error) (bool, error) { return false, refused },
		})))
		e := wantError(t, r.err)
		if !errors.Is(e, refused) {
			t.Errorf("got %v, want Check's error", e)
		}
		equal(t, "the layer", e.Layer, "retry")
		equal(t, "what was sent", e.Sent, layers.Answered)
		equal(t, "the reason", e.Reason, layers.ReasonNotRetryable)
		if !up.Requests()[0].End.Equal(c.Now()) {
			t.Error("the response was left open")
		}
	})
}

// plain hides what a body is, so that a request has no GetBody.
type plain struct{ io.Reader }

func (plain) Close() error { return nil }

func TestEachAttemptGetsTheWholeBody(t *testing.T) {
	text := strings.Repeat("0123456789", 5000) // less than Buffer
	file := t.TempDir() + "/body"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string]func(*http.Request){
		"bytes":   func(r *http.Request) { setBody(r, bytes.NewReader([]byte(text))) },
		"buffer":  func(r *http.Request) { setBody(r, bytes.NewBufferString(text)) },
		"strings": func(r *http.Request) { setBody(r, strings.NewReader(text)) },
		"unknown": func(r *http.Request) { r.Body, r.ContentLength = plain{strings.NewReader(text)}, -1 },
		"known":   func(r *http.Request) { r.Body, r.ContentLength = plain{strings.NewReader(text)}, int64(len(text)) },
		"file": func(r *http.Request) {
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			r.Body, r.ContentLength = f, int64(len(text))
		},
		"GetBody": func(r *http.Request) {
			r.GetBody = func() (io.ReadCloser, error) { return plain{strings.NewReader(text)}, nil }
			r.Body, _ = r.GetBody()
			r.ContentLength = -1
		},
		"at the limit": func(r *http.Request) {
			r.Body = plain{io.LimitReader(strings.NewReader(strings.Repeat(text, 2)), 64<<10)}
			r.ContentLength = -1
		},
	} {
		for phase, first := range map[string]clocktest.Step{
			"whole":       clocktest.Reply(503),
			"unread":      clocktest.Reply(503).IgnoreBody(),
			"partly read": clocktest.Reply(503).ReadBody(1000, time.Millisecond).Duplex().After(3 * time.Millisecond),
			"reset":       clocktest.Fail(clocktest.ErrReset),
		} {
			t.Run(name+" "+phase, func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					up := clocktest.NewUpstream(t, c, first, first, clocktest.Reply(200))
					req := request(t, t.Context(), "PUT", url, nil)
					body(req)
					want := text
					if name == "at the limit" {
						want = strings.Repeat(text, 2)[:64<<10]
					}
					r := do(c, newTransport(t, c, up, retrying(noWait)), req)
					wantStatus(t, r, 200)
					sent := up.Requests()
					if got := string(sent[2].Body); got != want {
						t.Errorf("the last attempt sent %d bytes, want %d", len(got), len(want))
					}
					for _, s := range sent[:2] {
						if !strings.HasPrefix(want, string(s.Body)) {
							t.Errorf("an attempt sent something else: %d bytes", len(s.Body))
						}
					}
				})
			})
		}
	}
}

// setBody gives a request a body as http.NewRequest does.
func setBody(r *http.Request, body io.Reader) {
	with, err := http.NewRequest(r.Method, r.URL.String(), body)
	if err != nil {
		panic(err)
	}
	r.Body, r.GetBody, r.ContentLength = with.Body, with.GetBody, with.ContentLength
}

func TestNotReplayable(t *testing.T) {
	long := strings.Repeat("x", 64<<10+1)
	for _, test := range []struct {
		name   string
		length int64
		buffer int64
		size   int
		get    func() (io.ReadCloser, error)
	}{
		{"known", int64(len(long)), 0, len(long), nil},
		{"unknown", -1, 0, len(long), nil},
		{"no buffer", 3, policy.Off, 3, nil},
		{"small buffer", -1, 2, 3, nil},
		{"GetBody fails", 3, 0, 3, func() (io.ReadCloser, error) { return nil, errors.New("gone") }},
	} {
		for name, step := range map[string]clocktest.Step{"503": clocktest.Reply(503).Body("busy"), "reset": clocktest.Fail(clocktest.ErrReset)} {
			t.Run(test.name+" "+name, func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					up := clocktest.NewUpstream(t, c, step)
					body := &closeCounter{Reader: strings.NewReader(long[:test.size])}
					req := request(t, t.Context(), "PUT", url, body)
					req.ContentLength, req.GetBody = test.length, test.get
					r := do(c, newTransport(t, c, up, retrying(policy.Retry{Buffer: test.buffer})), req)
					equal(t, "the number of bytes sent", len(up.Requests()[0].Body), test.size)
					equal(t, "the number of closes", int(body.closes.Load()), 1)
					if name == "503" {
						wantStatus(t, r, 503)
						equal(t, "the body", r.body, "busy")
						equal(t, "the reason", r.call(t).Reason(), layers.ReasonNotReplayable)
						return
					}
					e := wantError(t, r.err)
					if !errors.Is(e, clocktest.ErrReset) {
						t.Errorf("got %v, want the original failure", e)
					}
					equal(t, "the reason", e.Reason, layers.ReasonNotReplayable)
				})
			})
		}
	}
}

// TestBodyThatAwaitsItsResponse: a body is never read ahead of the base.
func TestBodyThatAwaitsItsResponse(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Duplex().After(time.Second).Body("go on"))
		pr, pw := io.Pipe()
		req := request(t, t.Context(), "PUT", url, pr)
		req.ContentLength = -1
		r := do(c, newTransport(t, c, up, policy.Policy{}), req)
		wantStatus(t, r, 200)
		wantTook(t, r, time.Second)
		pw.Close()
	})
}

// blockedBody is a body that sends nothing. Its Read ends at a Close, or only
// with release if it is stubborn.
type blockedBody struct {
	closeCounter
	stubborn bool
	release  chan struct{}
}

func (b *blockedBody) Read([]byte) (int, error) {
	<-b.release
	return 0, errors.New("released")
}

func (b *blockedBody) Close() error {
	if err := b.closeCounter.Close(); err != nil {
		return err
	}
	if !b.stubborn && b.closes.Load() == 1 {
		close(b.release)
	}
	return nil
}

func TestBlockedBodyEndsWithTheDeadline(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, stubborn := range []bool{false, true} {
			for _, length := range []int64{-1, 10, 1 << 20} {
				t.Run(fmt.Sprintf("http2=%v,stubborn=%v,length=%d", http2, stubborn, length), func(t *testing.T) {
					clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
						up := clocktest.NewUpstream(t, c, clocktest.Reply(200))
						up.HTTP2 = http2
						body := &blockedBody{stubborn: stubborn, release: make(chan struct{})}
						req := request(t, t.Context(), "PUT", url, body)
						req.ContentLength = length
						r := do(c, newTransport(t, c, up, settings(policy.Settings{Deadline: 3 * time.Second})), req)
						wantTook(t, r, 3*time.Second)
						e := wantTimeout(t, r.err, layers.PhaseDeadline)
						equal(t, "the number of attempts", e.Attempts, 1)
						equal(t, "what was sent", e.Sent, layers.MaybeSent)
						if stubborn {
							close(body.release)
						}
						c.Add(0)
						equal(t, "the number of closes", int(body.closes.Load()), 1)
					})
				})
			}
		}
	}
}

// heldUpBody is a body whose Read or Close takes longer than any deadline.
type heldUpBody struct {
	c           *clocktest.Clock
	read, close time.Duration
	closed      atomic.Int32
}

func (b *heldUpBody) Read([]byte) (int, error) {
	b.c.Sleep(b.read)
	return 0, io.EOF
}

func (b *heldUpBody) Close() error {
	b.closed.Add(1)
	b.c.Sleep(b.close)
	return nil
}

// TestBaseInABodyAfterTheDeadline: a base that answers the end of its context, but
// is held up by the caller's body meanwhile, does not hold up the call.
func TestBaseInABodyAfterTheDeadline(t *testing.T) {
	const deadline, late = 300 * time.Millisecond, 5 * time.Millisecond
	ownEnd := func(next http.RoundTripper) http.RoundTripper {
		return layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			ctx, cancel := context.WithTimeout(req.Context(), deadline/2)
			defer cancel()
			return next.RoundTrip(req.WithContext(ctx))
		})
	}
	for _, test := range []struct {
		name         string
		first, again *heldUpBody
		base         func(c *clocktest.Clock, req *http.Request)
		inner        []layers.Layer
		took         time.Duration
	}{
		{"close", &heldUpBody{close: 3 * time.Second}, &heldUpBody{}, func(c *clocktest.Clock, req *http.Request) {
			<-req.Context().Done()
			c.Sleep(late)
			req.Body.Close()
		}, nil, deadline + late},
		{"quick close", &heldUpBody{}, &heldUpBody{}, func(_ *clocktest.Clock, req *http.Request) {
			<-req.Context().Done()
			req.Body.Close()
		}, nil, deadline},
		{"close, ended by a layer", &heldUpBody{close: 3 * time.Second}, &heldUpBody{}, func(c *clocktest.Clock, req *http.Request) {
			<-req.Context().Done()
			c.Sleep(late)
			req.Body.Close()
		}, []layers.Layer{ownEnd}, deadline/2 + late},
		{"read of a rewound body", &heldUpBody{}, &heldUpBody{read: 3 * time.Second}, func(_ *clocktest.Clock, req *http.Request) {
			req.Body.Close()
			if again, err := req.GetBody(); err == nil {
				_, _ = again.Read(make([]byte, 1))
				again.Close()
			}
		}, nil, deadline},
		{"read of a rewound body, ended by a layer", &heldUpBody{}, &heldUpBody{read: 3 * time.Second}, func(_ *clocktest.Clock, req *http.Request) {
			req.Body.Close()
			if again, err := req.GetBody(); err == nil {
				_, _ = again.Read(make([]byte, 1))
				again.Close()
			}
		}, []layers.Layer{ownEnd}, deadline},
		{"close of a rewound body", &heldUpBody{}, &heldUpBody{close: 3 * time.Second}, func(c *clocktest.Clock, req *http.Request) {
			req.Body.Close()
			again, err := req.GetBody()
			<-req.Context().Done()
			c.Sleep(late)
			if err == nil {
				again.Close()
			}
		}, nil, deadline + late},
		{"a body rewound too late", &heldUpBody{}, &heldUpBody{close: 3 * time.Second}, func(c *clocktest.Clock, req *http.Request) {
			req.Body.Close()
			<-req.Context().Done()
			c.Sleep(late)
			if again, err := req.GetBody(); err == nil {
				again.Close()
			}
		}, nil, deadline + late},
	} {
		t.Run(test.name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				base := layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
					test.base(c, req)
					return nil, context.Cause(req.Context())
				})
				rewound := 0
				first, again := test.first, test.again
				first.c, again.c = c, c
				req := request(t, t.Context(), "PUT", url, first)
				req.GetBody = func() (io.ReadCloser, error) { rewound++; return again, nil }
				s := settings(policy.Settings{Deadline: deadline, Retry: policy.Retry{Enabled: policy.Off}})
				r := do(c, newTransport(t, c, base, s, inner(test.inner...)), req)
				wantTook(t, r, test.took)
				if r.err == nil || !errors.Is(r.err, context.DeadlineExceeded) {
					t.Errorf("got %v", r.err)
				}
				c.Add(time.Minute)
				equal(t, "the number of closes", int(first.closed.Load()), 1)
				equal(t, "the number of closes of rewound bodies", int(again.closed.Load()), rewound)
			})
		})
	}
}

// TestBodyThatFails: the caller's own failure is no failure of the server.
func TestBodyThatFails(t *testing.T) {
	broken := errors.New("the disk is gone")
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200))
		body := &closeCounter{Reader: io.MultiReader(strings.NewReader("half"), failing{broken})}
		req := request(t, t.Context(), "PUT", url, body)
		r := do(c, newTransport(t, c, up, policy.Policy{}), req)
		e := wantError(t, r.err)
		if !errors.Is(e, broken) {
			t.Errorf("got %v, want the body's error", e)
		}
		equal(t, "the number of attempts", e.Attempts, 1)
		equal(t, "the reason", e.Reason, layers.ReasonNotRetryable)
		equal(t, "the number of closes", int(body.closes.Load()), 1)
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestStalledBodyOfAFailure: what a superseded response still has to say is
// waited for, but not for long.
func TestStalledBodyOfAFailure(t *testing.T) {
	stalled := clocktest.Reply(503).Chunks(clocktest.Chunk{Data: "half"}).Silent()
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, stalled, clocktest.Reply(200))
		wantStatus(t, get(t, c, newTransport(t, c, up, policy.Policy{})), 200)
		equalTimes(t, times(c, up), 0, 1250*time.Millisecond)
		equal(t, "the end of the first", up.Requests()[0].End.Sub(up.Requests()[0].At), time.Second)
	})
	// Near the deadline it costs the retry, and the response comes back.
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, stalled)
		r := get(t, c, newTransport(t, c, up, settings(policy.Settings{Deadline: time.Second, Retry: noWait})))
		equal(t, "the body", r.body, "half")
		equal(t, "the body's end", r.err, io.ErrUnexpectedEOF)
		equal(t, "the status", r.resp.StatusCode, 503)
		equal(t, "the reason", r.call(t).Reason(), layers.ReasonDeadline)
		wantTook(t, r, time.Second)
	})
	// Where there is no retry nothing is waited for: the caller reads.
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, stalled)
		tr := newTransport(t, c, up, settings(policy.Settings{Deadline: 5 * time.Second, Retry: policy.Retry{MaxAttempts: 1}}))
		r := get(t, c, tr)
		equal(t, "the body", r.body, "half")
		wantTimeout(t, r.err, layers.PhaseDeadline)
		wantTook(t, r, 5*time.Second)
	})
}

// TestRefusedForLackOfTime: reading the body of the 503 used up the time of the
// retry. Its wait does not begin.
func TestRefusedForLackOfTime(t *testing.T) {
	const kib = 1 << 10
	for _, test := range []struct {
		size, kept int
		end        error
	}{
		{10, 10, nil}, {64 * kib, 64 * kib, nil},
		{64*kib + 1, 64 * kib, io.ErrUnexpectedEOF}, {100 * kib, 64 * kib, io.ErrUnexpectedEOF}, {1000 * kib, 64 * kib, io.ErrUnexpectedEOF},
	} {
		for _, sized := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d,%v", test.size, sized), func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					text := strings.Repeat("x", test.size)
					step := clocktest.Reply(503).Chunks(clocktest.Chunk{Data: text[:5]}, clocktest.Chunk{After: 900 * time.Millisecond, Data: text[5:]})
					if sized {
						step = step.Header("Content-Length", fmt.Sprint(test.size))
					}
					up := clocktest.NewUpstream(t, c, step)
					r := get(t, c, newTransport(t, c, up, settings(policy.Settings{
						Deadline: 2 * time.Second, Retry: policy.Retry{BaseDelay: 1500 * time.Millisecond},
					})))
					equal(t, "the status", r.resp.StatusCode, 503)
					equal(t, "the length of the body", len(r.body), test.kept)
					equal(t, "the body's end", r.err, test.end)
					equal(t, "the reason", r.call(t).Reason(), layers.ReasonDeadline)
					wantTook(t, r, 900*time.Millisecond)
					_, err := r.resp.Body.Read(make([]byte, 1))
					equal(t, "a Read after Close", err, http.ErrBodyReadAfterClose)
				})
			})
		}
	}
}

// TestUndrainedWhenKnownBeforehand: what refuses the retry beforehand leaves the
// response as it is, long or stalled.
func TestUndrainedWhenKnownBeforehand(t *testing.T) {
	text := strings.Repeat("x", 1<<20)
	for name, test := range map[string]struct {
		s    policy.Settings
		hint string
	}{
		"time":     {policy.Settings{Deadline: time.Second, Retry: policy.Retry{BaseDelay: time.Second}}, ""},
		"hint":     {policy.Settings{}, "31"},
		"attempts": {policy.Settings{Retry: policy.Retry{MaxAttempts: 1}}, ""},
		"budget":   {policy.Settings{Retry: policy.Retry{MaxAttempts: 10, BaseDelay: policy.Off}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				long := clocktest.Reply(503).Header("Retry-After", test.hint).Chunks(clocktest.Drip(text, 1<<18, 100*time.Millisecond)...)
				up := clocktest.NewUpstream(t, c, long)
				if name == "budget" {
					up = clocktest.NewUpstream(t, c, clocktest.Reply(503), clocktest.Reply(503), clocktest.Reply(503), long)
				}
				r := get(t, c, newTransport(t, c, up, settings(test.s)))
				wantStatus(t, r, 503)
				equal(t, "the length of the body", len(r.body), len(text))
			})
		})
	}
}

// TestNoBounds: neither deadline nor least attempt, from the first instant on.
func TestNoBounds(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503), clocktest.Reply(200))
		r := get(t, c, newTransport(t, c, up, settings(policy.Settings{Deadline: policy.Off, Retry: policy.Retry{MinAttempt: policy.Off}})))
		wantStatus(t, r, 200)
		equal(t, "the number of sends", len(up.Requests()), 2)
	})
	// A wait up to the deadline itself leaves nothing to send in.
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503))
		r := get(t, c, newTransport(t, c, up, settings(policy.Settings{
			Deadline: time.Second, Retry: policy.Retry{BaseDelay: time.Second, MinAttempt: policy.Off},
		})))
		wantStatus(t, r, 503)
		wantTook(t, r, 0)
		equal(t, "the reason", r.call(t).Reason(), layers.ReasonDeadline)
	})
}

// TestAttemptTimeout: an attempt that takes too long is retried while the call
// has time; the deadline's passing never is.
func TestAttemptTimeout(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, clocktest.NoReply().Times(3))
			up.HTTP2 = http2
			r := get(t, c, newTransport(t, c, up, settings(policy.Settings{
				Deadline: 5 * time.Second, Timeouts: policy.Timeouts{Attempt: 2 * time.Second}, Retry: noWait,
			})))
			equalTimes(t, times(c, up), 0, 2*time.Second, 4*time.Second)
			wantTook(t, r, 5*time.Second)
			e := wantTimeout(t, r.err, layers.PhaseDeadline)
			equal(t, "the reason", e.Reason, layers.ReasonDeadline)
		})
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, clocktest.NoReply().Times(2))
			up.HTTP2 = http2
			r := get(t, c, newTransport(t, c, up, settings(policy.Settings{
				Timeouts: policy.Timeouts{Attempt: 2 * time.Second}, Retry: policy.Retry{BaseDelay: policy.Off, MaxAttempts: 2},
			})))
			e := wantTimeout(t, r.err, layers.PhaseAttempt)
			wantTook(t, r, 4*time.Second)
			equal(t, "the limit told", e.Limit, 2*time.Second)
			equal(t, "the elapsed time told", e.Elapsed, 2*time.Second)
			equal(t, "the reason", e.Reason, layers.ReasonAttempts)
			equal(t, "the text", e.Error(), "attempt timeout after 2s (limit 2s) (2 attempts, attempts exhausted)")
		})
	}
}

// TestNotAfterAByte: what the caller has begun to read is not sent again.
func TestNotAfterAByte(t *testing.T) {
	for name, step := range map[string]clocktest.Step{
		"truncated": clocktest.Reply(200).Chunks(clocktest.Chunk{Data: "half"}).Fail(io.ErrUnexpectedEOF),
		"reset":     clocktest.Reply(200).Chunks(clocktest.Chunk{Data: "half"}).Reset(),
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, step)
				r := get(t, c, newTransport(t, c, up, policy.Policy{}))
				equal(t, "the body", r.body, "half")
				if r.err == nil {
					t.Error("the body ended well")
				}
			})
		})
	}
}

// TestHeldStreamThatBreaks: before its first content, a stream that is held back
// is a send like any other.
func TestHeldStreamThatBreaks(t *testing.T) {
	sse := clocktest.Reply(200).Header("Content-Type", "text/event-stream")
	broken := sse.Chunks(clocktest.Chunk{Data: ": ping\n\n"}).Reset()
	hold := settings(policy.Settings{Stream: policy.Stream{Enabled: policy.On, Hold: policy.On}, Retry: noWait})
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, broken, sse.Chunks(clocktest.Chunk{Data: "data: {\"type\":\"message_stop\"}\n\n"}))
		wantStatus(t, get(t, c, newTransport(t, c, up, hold)), 200)
	})
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, broken)
		r := do(c, newTransport(t, c, up, hold), request(t, t.Context(), "POST", url, nil))
		e := wantError(t, r.err)
		equal(t, "what was sent", e.Sent, layers.Answered)
		equal(t, "the reason", e.Reason, layers.ReasonNotSafe)
		if !errors.Is(e, clocktest.ErrReset) {
			t.Errorf("got %v, want the reset", e)
		}
	})
	for _, http2 := range []bool{false, true} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, sse.Chunks(clocktest.Chunk{Data: ": ping\n\n"}).Silent())
			up.HTTP2 = http2
			ctx, cancel := context.WithCancel(t.Context())
			c.AfterFunc(time.Second, cancel)
			r := do(c, newTransport(t, c, up, hold), request(t, ctx, "GET", url, nil))
			wantTook(t, r, time.Second)
			if r.err != context.Canceled {
				t.Errorf("got %v, want context.Canceled itself", r.err)
			}
		})
	}
}

// TestCancelAtTheEndOfABackoff: no attempt begins at the instant at which the
// caller gives up.
func TestCancelAtTheEndOfABackoff(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503))
		ctx, cancel := context.WithCancel(t.Context())
		c.AfterFunc(250*time.Millisecond-1, cancel)
		r := do(c, newTransport(t, c, up, policy.Policy{}), request(t, ctx, "GET", url, nil))
		if r.err != context.Canceled {
			t.Errorf("got %v, want context.Canceled itself", r.err)
		}
		equal(t, "the number of sends", len(up.Requests()), 1)
	})
	// Request.Cancel is the older way to give up.
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503))
		req := request(t, t.Context(), "GET", url, nil)
		cancel := make(chan struct{})
		req.Cancel = cancel //nolint:staticcheck // It is what http.Client.Timeout uses.
		c.AfterFunc(100*time.Millisecond, func() { close(cancel) })
		r := do(c, newTransport(t, c, up, policy.Policy{}), req)
		wantTook(t, r, 100*time.Millisecond)
		if !errors.Is(r.err, context.Canceled) {
			t.Errorf("got %v, want a cancellation", r.err)
		}
	})
}

// asking is an Inner layer that asks for one more send on a 401 or 403.
func asking(granted *[]bool) layers.Layer {
	return func(next http.RoundTripper) http.RoundTripper {
		return layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil && (resp.StatusCode == 401 || resp.StatusCode == 403) {
				*granted = append(*granted, layers.RetryOnce(req.Context(), "token refused"))
			}
			return resp, err
		})
	}
}

func TestRetryOnce(t *testing.T) {
	no := clocktest.Reply(401).Body("who?")
	for _, test := range []struct {
		name    string
		method  string
		retry   policy.Retry
		body    func(*http.Request)
		steps   []clocktest.Step
		status  int
		granted []bool
		reason  string
	}{
		{"POST", "POST", policy.Retry{}, func(r *http.Request) { setBody(r, strings.NewReader("body")) },
			[]clocktest.Step{no, clocktest.Reply(200)}, 200, []bool{true}, ""},
		{"once", "GET", policy.Retry{}, nil,
			[]clocktest.Step{no, no}, 401, []bool{true, false}, ""},
		{"beyond MaxAttempts", "GET", policy.Retry{MaxAttempts: 1}, nil,
			[]clocktest.Step{no, clocktest.Reply(200)}, 200, []bool{true}, ""},
		{"beside MaxAttempts", "GET", policy.Retry{MaxAttempts: 2, BaseDelay: policy.Off}, nil,
			[]clocktest.Step{no, clocktest.Reply(503), clocktest.Reply(200)}, 200, []bool{true}, ""},
		{"recorded", "POST", policy.Retry{}, func(r *http.Request) { r.Body, r.ContentLength = plain{strings.NewReader("body")}, -1 },
			[]clocktest.Step{no, clocktest.Reply(200)}, 200, []bool{true}, ""},
		{"not replayable", "POST", policy.Retry{Buffer: 3}, func(r *http.Request) { r.Body, r.ContentLength = plain{strings.NewReader("body")}, -1 },
			[]clocktest.Step{no}, 401, []bool{false}, ""},
		{"retry off", "GET", policy.Retry{Enabled: policy.Off}, nil,
			[]clocktest.Step{no}, 401, []bool{false}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, test.steps...)
				var granted []bool
				tr := newTransport(t, c, up, retrying(test.retry), inner(asking(&granted)))
				req := request(t, t.Context(), test.method, url, nil)
				if test.body != nil {
					test.body(req)
				}
				r := do(c, tr, req)
				wantStatus(t, r, test.status)
				equal(t, "what was granted", fmt.Sprint(granted), fmt.Sprint(test.granted))
				equal(t, "the number of sends", len(up.Requests()), len(test.steps))
				equal(t, "the reason", r.call(t).Reason(), test.reason)
				wantTook(t, r, 0)
				for _, s := range up.Requests() {
					if test.body != nil && string(s.Body) != "body" {
						t.Errorf("an attempt sent %q", s.Body)
					}
				}
			})
		})
	}
	if layers.RetryOnce(t.Context(), "no call") {
		t.Error("granted outside of a call")
	}
}

// TestRetryOnceWaitsAsAsked: a send that a layer asked for is not made earlier than
// the server wants it.
func TestRetryOnceWaitsAsAsked(t *testing.T) {
	for _, test := range []struct {
		after  string
		set    policy.Settings
		took   time.Duration
		sends  int
		reason string
	}{
		{"7", policy.Settings{}, 7 * time.Second, 2, ""},
		{"0", policy.Settings{}, 0, 2, ""},
		{"soon", policy.Settings{}, 0, 2, ""},
		{"7", policy.Settings{Retry: policy.Retry{MaxHint: 6 * time.Second}}, 0, 1, layers.ReasonHint},
		{"7", policy.Settings{Deadline: 7 * time.Second}, 0, 1, layers.ReasonDeadline},
		{"7", policy.Settings{Retry: policy.Retry{MaxAttempts: 1}}, 7 * time.Second, 2, ""},
	} {
		t.Run(fmt.Sprintf("%s, %v, %v", test.after, test.set.Deadline, test.set.Retry.MaxHint), func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, clocktest.Reply(403).Header("Retry-After", test.after), clocktest.Reply(200))
				r := do(c, newTransport(t, c, up, settings(test.set), inner(asking(new([]bool)))), request(t, t.Context(), "POST", url, nil))
				wantTook(t, r, test.took)
				equal(t, "the number of sends", len(up.Requests()), test.sends)
				equal(t, "the reason", r.call(t).Reason(), test.reason)
			})
		})
	}
}

func TestPanic(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		body := &closeCounter{Reader: strings.NewReader("body")}
		var last *layers.Call
		tr := newTransport(t, c, layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			last, _ = layers.CallFrom(req.Context())
			req.Body.Close()
			panic("boom")
		}), policy.Policy{})
		func() {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("recovered %v, want the base's own panic", p)
				}
			}()
			do(c, tr, request(t, t.Context(), "PUT", url, body))
		}()
		equal(t, "the number of closes", int(body.closes.Load()), 1)
		if last.Err() == nil {
			t.Error("the call's context is still open")
		}
	})
}

// TestNoSecrets: an error of the base may quote what a server sent, or the URL.
func TestNoSecrets(t *testing.T) {
	const secret = "s3cr3t"
	target := "http://user:" + secret + "@api.example/v1?key=" + secret
	for name, err := range map[string]error{
		"nested client":   &neturl.Error{Op: "Post", URL: target, Err: io.ErrUnexpectedEOF},
		"wrapped":         fmt.Errorf("minting: %w", &neturl.Error{Op: "Post", URL: target, Err: io.ErrUnexpectedEOF}),
		"malformed line":  textproto.ProtocolError("malformed MIME header line: " + secret),
		"broken":          fmt.Errorf("net/http: HTTP/1.x transport connection broken: %w", textproto.ProtocolError("malformed MIME header: missing colon: "+secret)),
		"quoted response": fmt.Errorf("net/http: HTTP/1.x transport connection broken: %w", fmt.Errorf("malformed HTTP response %q", `x" `+secret)),
		"quoted list":     fmt.Errorf("http: message cannot contain multiple Content-Length headers; got %q", []string{secret, secret}),
		"invalid value":   fmt.Errorf("net/http: invalid header field value for %q", "Authorization: "+secret),
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, clocktest.Fail(err))
				var told strings.Builder
				tr := newTransport(t, c, up, retrying(policy.Retry{MaxAttempts: 1}), observer(func(_ context.Context, e layers.Event) {
					fmt.Fprintln(&told, e.LogValue())
				}))
				req := request(t, t.Context(), "GET", target, nil)
				req.Header.Set("Authorization", secret)
				r := do(c, tr, req)
				if !errors.Is(r.err, err) {
					t.Errorf("%v does not wrap the base's error", r.err)
				}
				for _, text := range []string{r.err.Error(), told.String()} {
					if strings.Contains(text, secret) || strings.Contains(text, "key=") {
						t.Errorf("a secret in %q", text)
					}
				}
				has(t, told.String(), "kind=done")
			})
		})
	}
}
