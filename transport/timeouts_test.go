package transport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

// once is a policy of these timeouts without a second attempt.
func once(o policy.Timeouts) policy.Policy {
	return settings(policy.Settings{Timeouts: o, Retry: policy.Retry{MaxAttempts: 1}})
}

// TestEachPhase: every phase ends at its limit to the nanosecond, and not
// before, and the error says which.
func TestEachPhase(t *testing.T) {
	const limit = 3 * time.Second
	body := func() io.Reader { return plain{strings.NewReader("body")} }
	for _, test := range []struct {
		name   string
		phase  layers.Phase
		limits policy.Timeouts
		byDef  time.Duration
		body   func() io.Reader
		step   func(d time.Duration) clocktest.Step // takes d in the phase
		sent   layers.Sent
	}{
		{
			"pool", layers.PhasePool, policy.Timeouts{Pool: limit}, 15 * time.Second, nil,
			func(d time.Duration) clocktest.Step { return clocktest.Reply(200).Pool(d) }, layers.Unsent,
		},
		{
			"connect", layers.PhaseConnect, policy.Timeouts{Connect: limit}, 10 * time.Second, nil,
			func(d time.Duration) clocktest.Step { return clocktest.Reply(200).Connect(d) }, layers.Unsent,
		},
		{
			"write", layers.PhaseWrite, policy.Timeouts{Write: limit}, 10 * time.Second, body,
			func(d time.Duration) clocktest.Step { return clocktest.Reply(200).ReadBody(4, d) }, layers.MaybeSent,
		},
		{
			"headers", layers.PhaseRead, policy.Timeouts{Read: limit}, 30 * time.Second, nil,
			func(d time.Duration) clocktest.Step { return clocktest.Reply(200).After(d) }, layers.MaybeSent,
		},
		{
			"body", layers.PhaseRead, policy.Timeouts{Read: limit}, 30 * time.Second, nil,
			func(d time.Duration) clocktest.Step {
				return clocktest.Reply(200).Chunks(clocktest.Chunk{Data: "half"}, clocktest.Chunk{After: d, Data: "rest"})
			}, layers.Answered,
		},
		{
			"attempt", layers.PhaseAttempt, policy.Timeouts{Attempt: limit}, 0, nil,
			func(d time.Duration) clocktest.Step { return clocktest.Reply(200).After(d) }, layers.MaybeSent,
		},
		{
			"attempt in its body", layers.PhaseAttempt, policy.Timeouts{Attempt: limit}, 0, nil,
			func(d time.Duration) clocktest.Step {
				return clocktest.Reply(200).After(time.Second).Chunks(clocktest.Drip("0123456789", 1, (d-time.Second)/10)...)
			}, layers.Answered,
		},
	} {
		for _, http2 := range []bool{false, true} {
			run := func(name string, limits policy.Timeouts, taken, limit time.Duration) {
				t.Run(fmt.Sprintf("%s %s http2=%v", test.name, name, http2), func(t *testing.T) {
					clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
						up := clocktest.NewUpstream(t, c, test.step(taken))
						up.HTTP2 = http2
						var b io.Reader
						if test.body != nil {
							b = test.body()
						}
						r := do(c, newTransport(t, c, up, once(limits)), request(t, t.Context(), "POST", url, b))
						if limit == 0 {
							wantStatus(t, r, 200)
							wantTook(t, r, taken)
							return
						}
						wantTook(t, r, limit)
						e := wantTimeout(t, r.err, test.phase)
						equal(t, "the layer", e.Layer, "timeouts")
						equal(t, "the limit told", e.Limit, limit)
						equal(t, "the elapsed time told", e.Elapsed, limit)
						equal(t, "what was sent", e.Sent, test.sent)
						equal(t, "whether it can be repeated", e.Retryable, test.sent == layers.Unsent)
						equal(t, "the number of attempts", e.Attempts, 1)
						has(t, e.Error(), fmt.Sprintf("%s timeout after %v (limit %v)", test.phase, limit, limit))
						if sent := up.Requests()[0]; !sent.Canceled || !sent.End.Equal(c.Now()) {
							t.Errorf("the exchange ended at %v, canceled %v", sent.End, sent.Canceled)
						}
					})
				})
			}
			run("late", test.limits, limit+time.Hour, limit)
			run("in time", test.limits, limit-10, 0)
			if test.byDef > 0 {
				run("late by default", policy.Timeouts{}, test.byDef+time.Hour, test.byDef)
				run("in time by default", policy.Timeouts{}, test.byDef-1, 0)
			}
			off := policy.Timeouts{Pool: policy.Off, Connect: policy.Off, Write: policy.Off, Read: policy.Off}
			run("off", off, 59*time.Second, 0)
			alone := policy.Settings{Timeouts: off}.With(policy.Settings{Timeouts: test.limits}).Timeouts
			run("late, the others off", alone, limit+time.Hour, limit)
		}
	}
}

// TestSlowButAlive: long after any limit, as long as something moves.
func TestSlowButAlive(t *testing.T) {
	t.Run("server", func(t *testing.T) {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			text := strings.Repeat("x", 19)
			up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(29*time.Second).Chunks(clocktest.Drip(text, 1, 29*time.Second)...))
			r := get(t, c, newTransport(t, c, up, settings(policy.Settings{Deadline: 10 * time.Minute})))
			wantStatus(t, r, 200)
			equal(t, "the body", r.body, text)
			wantTook(t, r, 20*29*time.Second)
		})
	})
	t.Run("caller", func(t *testing.T) {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Chunks(clocktest.Drip("abc", 1, time.Second)...).Silent())
			tr := newTransport(t, c, up, settings(policy.Settings{Deadline: 10 * time.Hour, Timeouts: policy.Timeouts{Read: time.Second + 1}}))
			resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			for _, want := range "abc" {
				c.Add(time.Hour)
				var b [8]byte
				n, err := resp.Body.Read(b[:])
				if string(b[:n]) != string(want) || err != nil {
					t.Errorf("read %q, %v", b[:n], err)
				}
			}
			before := c.Elapsed()
			_, err = resp.Body.Read(make([]byte, 8))
			wantTimeout(t, err, layers.PhaseRead)
			equal(t, "the silence", c.Elapsed()-before, time.Second+1)
			if _, again := resp.Body.Read(make([]byte, 8)); again != err {
				t.Errorf("then %v, want the same error", again)
			}
		})
	})
	t.Run("upload", func(t *testing.T) {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, clocktest.Reply(200).ReadBody(1, 9*time.Second))
			tr := newTransport(t, c, up, settings(policy.Settings{Deadline: time.Hour}))
			r := do(c, tr, request(t, t.Context(), "POST", url, plain{strings.NewReader("0123456789")}))
			wantStatus(t, r, 200)
			wantTook(t, r, 90*time.Second)
		})
	})
	t.Run("producer", func(t *testing.T) {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, clocktest.Reply(200).ReadBody(10, 3*time.Second))
			tr := newTransport(t, c, up, settings(policy.Settings{Deadline: time.Hour}))
			r := do(c, tr, request(t, t.Context(), "POST", url, &slowReader{c, "012345", 5 * time.Minute}))
			wantStatus(t, r, 200)
			wantTook(t, r, 6*(5*time.Minute+3*time.Second))
		})
	})
}

// slowReader gives a byte at a time, each after a wait.
type slowReader struct {
	clock clock.Clock
	text  string
	gap   time.Duration
}

func (r *slowReader) Read(p []byte) (int, error) {
	if r.text == "" {
		return 0, io.EOF
	}
	r.clock.Sleep(r.gap)
	n := copy(p[:1], r.text)
	r.text = r.text[n:]
	return n, nil
}

// TestReadBeginsAfterTheUpload: a long upload is no wait for headers.
func TestReadBeginsAfterTheUpload(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.NoReply().ReadBody(1, 9*time.Second))
		r := do(c, newTransport(t, c, up, settings(policy.Settings{Deadline: time.Hour, Timeouts: policy.Timeouts{Read: 20 * time.Second}})),
			request(t, t.Context(), "POST", url, plain{strings.NewReader("0123")}))
		e := wantTimeout(t, r.err, layers.PhaseRead)
		wantTook(t, r, 36*time.Second+20*time.Second)
		equal(t, "the elapsed time told", e.Elapsed, 20*time.Second)
	})
}

func TestPhasesAreCutToTheTimeLeft(t *testing.T) {
	for name, step := range map[string]clocktest.Step{
		"pool":    clocktest.Reply(200).Pool(time.Hour),
		"connect": clocktest.Reply(200).Connect(time.Hour),
		"write":   clocktest.NoReply().IgnoreBody(),
		"read":    clocktest.NoReply(),
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, step)
				r := do(c, newTransport(t, c, up, settings(policy.Settings{Deadline: 5 * time.Second})),
					request(t, t.Context(), "POST", url, plain{strings.NewReader("body")}))
				wantTook(t, r, 5*time.Second)
				e := wantTimeout(t, r.err, layers.PhaseDeadline)
				has(t, e.Error(), "in phase "+name+" of attempt 1")
				sent := layers.MaybeSent
				if name == "pool" || name == "connect" {
					sent = layers.Unsent
				}
				equal(t, "what was sent", e.Sent, sent)
			})
		})
	}
}

// TestRoutesOnOneBase: routes with different numbers keep their own.
func TestRoutesOnOneBase(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.NoReply().Forever())
		tr := newTransport(t, c, up, policy.Policy{
			Settings: policy.Settings{Retry: policy.Retry{MaxAttempts: 1}},
			Routes: []policy.Route{
				{Pattern: "/fast/", Settings: policy.Settings{Timeouts: policy.Timeouts{Read: time.Second}}},
				{Pattern: "/slow/", Settings: policy.Settings{Timeouts: policy.Timeouts{Read: 20 * time.Second}}},
			},
		})
		results := make(chan result)
		paths := map[string]time.Duration{"/fast/x": time.Second, "/slow/x": 20 * time.Second, "/other": 30 * time.Second}
		for path, want := range paths {
			go func() {
				r := do(c, tr, request(t, t.Context(), "GET", "http://api.example"+path, nil))
				wantTook(t, r, want)
				equal(t, "the limit told", wantTimeout(t, r.err, layers.PhaseRead).Limit, want)
				results <- r
			}()
		}
		for range paths {
			<-results
		}
	})
}

// hooks is a base that fires hooks as its function does.
func hooks(f func(trace *httptrace.ClientTrace, req *http.Request) (*http.Response, error)) http.RoundTripper {
	return layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		trace := &httptrace.ClientTrace{ // none is nil, whoever else listens
			GetConn: func(string) {}, GotConn: func(httptrace.GotConnInfo) {}, DNSStart: func(httptrace.DNSStartInfo) {},
			ConnectStart: func(string, string) {}, ConnectDone: func(string, string, error) {}, TLSHandshakeStart: func() {},
			WroteHeaders: func() {}, Wait100Continue: func() {}, WroteRequest: func(httptrace.WroteRequestInfo) {}, GotFirstResponseByte: func() {},
		}
		httptrace.WithClientTrace(req.Context(), trace)
		if req.Body != nil {
			defer req.Body.Close()
		}
		return f(trace, req)
	})
}

func hang(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, context.Cause(req.Context())
}

// TestSlowUpload: a server that takes 4 KiB a second makes progress, however much
// at once a base reads of the body: over HTTP/2 half a MiB, from one that takes large frames.
func TestSlowUpload(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		const size = 1 << 20
		base := hooks(func(h *httptrace.ClientTrace, req *http.Request) (*http.Response, error) {
			h.GetConn("a:443")
			h.GotConn(httptrace.GotConnInfo{})
			for buf, err := make([]byte, size/2), error(nil); err == nil; {
				var n int
				n, err = req.Body.Read(buf)
				c.Sleep(time.Duration(n) * time.Second / (4 << 10))
			}
			_, _ = closing(req, nil)
			return &http.Response{StatusCode: 200, Body: http.NoBody}, req.Context().Err()
		})
		tr := newTransport(t, c, base, settings(policy.Settings{Deadline: time.Hour, Timeouts: policy.Timeouts{Write: 10 * time.Second}}))
		r := do(c, tr, request(t, t.Context(), "POST", "https://a/", bytes.NewReader(make([]byte, size))))
		wantTook(t, r, 256*time.Second)
		if r.err != nil {
			t.Error(r.err)
		}
	})
}

// TestHooksOutOfOrder: the hooks of net/http come late, twice or out of order.
func TestHooksOutOfOrder(t *testing.T) {
	limits := policy.Timeouts{Pool: 1 * time.Second, Connect: 2 * time.Second, Write: 3 * time.Second, Read: 4 * time.Second}
	const ms = time.Millisecond
	for _, test := range []struct {
		name  string
		fire  func(c *clocktest.Clock, h *httptrace.ClientTrace)
		phase layers.Phase
		took  time.Duration
		sent  layers.Sent
	}{
		{"none", func(*clocktest.Clock, *httptrace.ClientTrace) {}, layers.PhaseRead, 4 * time.Second, layers.MaybeSent},
		{"a late dial after GotConn", func(c *clocktest.Clock, h *httptrace.ClientTrace) {
			h.GetConn("a:80")
			h.GotConn(httptrace.GotConnInfo{})
			h.WroteRequest(httptrace.WroteRequestInfo{})
			c.Sleep(100 * ms)
			h.DNSStart(httptrace.DNSStartInfo{})
			h.ConnectStart("tcp", "a:80")
			h.TLSHandshakeStart()
			h.ConnectDone("tcp", "a:80", nil)
		}, layers.PhaseRead, 4 * time.Second, layers.MaybeSent},
		{"a second GetConn", func(c *clocktest.Clock, h *httptrace.ClientTrace) {
			h.GetConn("a:80")
			h.GotConn(httptrace.GotConnInfo{Reused: true})
			h.WroteRequest(httptrace.WroteRequestInfo{})
			c.Sleep(500 * ms)
			h.GetConn("a:80")
			c.Sleep(500 * ms)
			h.ConnectStart("tcp", "a:80")
		}, layers.PhaseConnect, 3 * time.Second, layers.MaybeSent}, // the first may have been received
		{"one connect phase", func(c *clocktest.Clock, h *httptrace.ClientTrace) {
			h.GetConn("a:80")
			h.DNSStart(httptrace.DNSStartInfo{})
			c.Sleep(500 * ms)
			h.ConnectStart("tcp", "a:80")
			c.Sleep(500 * ms)
			h.TLSHandshakeStart()
		}, layers.PhaseConnect, 2 * time.Second, layers.Unsent},
		{"waiting for 100", func(c *clocktest.Clock, h *httptrace.ClientTrace) {
			h.GetConn("a:80")
			h.GotConn(httptrace.GotConnInfo{})
			h.WroteHeaders()
			h.Wait100Continue()
		}, layers.PhaseRead, 4 * time.Second, layers.MaybeSent},
		{"a write that failed", func(c *clocktest.Clock, h *httptrace.ClientTrace) {
			h.GetConn("a:80")
			h.GotConn(httptrace.GotConnInfo{})
			h.WroteRequest(httptrace.WroteRequestInfo{Err: io.ErrClosedPipe})
		}, layers.PhaseWrite, 3 * time.Second, layers.MaybeSent},
		{"WroteRequest before GotConn", func(c *clocktest.Clock, h *httptrace.ClientTrace) {
			h.GetConn("a:80")
			h.WroteRequest(httptrace.WroteRequestInfo{})
		}, layers.PhasePool, 1 * time.Second, layers.Unsent},
		{"the first byte before the request is written", func(c *clocktest.Clock, h *httptrace.ClientTrace) {
			h.GetConn("a:443")
			h.GotConn(httptrace.GotConnInfo{})
			h.GotFirstResponseByte()
			h.WroteHeaders()
			h.WroteRequest(httptrace.WroteRequestInfo{})
		}, layers.PhaseRead, 4 * time.Second, layers.MaybeSent},
	} {
		t.Run(test.name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				base := hooks(func(h *httptrace.ClientTrace, req *http.Request) (*http.Response, error) {
					test.fire(c, h)
					return hang(req)
				})
				r := do(c, newTransport(t, c, base, once(limits)), request(t, t.Context(), "POST", url, nil))
				wantTook(t, r, test.took)
				e := wantTimeout(t, r.err, test.phase)
				equal(t, "what was sent", e.Sent, test.sent)
			})
		})
	}
}

// TestHooksAfterTheHeaders: nothing of the request's side counts any more.
func TestHooksAfterTheHeaders(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		var late *httptrace.ClientTrace
		base := hooks(func(h *httptrace.ClientTrace, req *http.Request) (*http.Response, error) {
			late = h
			h.GetConn("a:80")
			h.GotConn(httptrace.GotConnInfo{})
			return &http.Response{StatusCode: 200, Body: io.NopCloser(&slowReader{c, "ab", 20 * time.Second})}, nil
		})
		tr := newTransport(t, c, base, settings(policy.Settings{Deadline: time.Hour, Timeouts: policy.Timeouts{Pool: time.Second, Connect: time.Second, Write: time.Second}}))
		resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		c.AfterFunc(time.Second, func() {
			late.WroteRequest(httptrace.WroteRequestInfo{})
			late.GotConn(httptrace.GotConnInfo{})
			late.ConnectStart("tcp", "a:80")
			late.GetConn("a:80")
		})
		text, err := io.ReadAll(resp.Body)
		if string(text) != "ab" || err != nil {
			t.Errorf("read %q, %v", text, err)
		}
		resp.Body.Close()
		late.GetConn("a:80") // and nothing after the end
		c.Add(time.Minute)
	})
}

// TestBaseWithoutHooks: its whole wait for headers is the read phase, but for
// the caller's own share of the upload.
func TestBaseWithoutHooks(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		base := layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			_, err := io.ReadAll(req.Body)
			req.Body.Close()
			if err != nil {
				return nil, err
			}
			return hang(req)
		})
		tr := newTransport(t, c, base, settings(policy.Settings{
			Deadline: time.Hour, Timeouts: policy.Timeouts{Read: 3 * time.Second}, Retry: policy.Retry{MaxAttempts: 1},
		}))
		r := do(c, tr, request(t, t.Context(), "POST", url, &slowReader{c, "abc", time.Minute}))
		wantTook(t, r, 3*time.Minute+3*time.Second)
		wantTimeout(t, r.err, layers.PhaseRead)
	})
}

// TestEndAtTheLimit: an end that arrives as the limit expires is an end.
func TestEndAtTheLimit(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Chunks(clocktest.Chunk{Data: "all"}, clocktest.Chunk{After: 3 * time.Second}))
			up.HTTP2 = http2
			r := get(t, c, newTransport(t, c, up, once(policy.Timeouts{Read: 3 * time.Second})))
			wantStatus(t, r, 200)
			equal(t, "the body", r.body, "all")
			wantTook(t, r, 3*time.Second)
		})
		// Bytes that arrive then are delivered, before the timeout.
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Chunks(clocktest.Chunk{Data: "some, "}, clocktest.Chunk{After: 3 * time.Second, Data: "more"}).Silent())
			up.HTTP2 = http2
			r := get(t, c, newTransport(t, c, up, once(policy.Timeouts{Read: 3 * time.Second})))
			equal(t, "the body", r.body, "some, more")
			wantTimeout(t, r.err, layers.PhaseRead)
		})
	}
}

func TestCloseTwiceAndDuringARead(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Chunks(clocktest.Chunk{Data: "half"}).Silent())
		tr := newTransport(t, c, up, settings(policy.Settings{Deadline: policy.Off, Timeouts: policy.Timeouts{Read: policy.Off}}))
		resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		failed := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, resp.Body)
			failed <- err
		}()
		c.Add(time.Second)
		for range 2 {
			if err := resp.Body.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := <-failed; err == nil {
			t.Error("the Read saw a good end")
		}
		if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("a Read after Close got %d, %v", n, err)
		}
		equal(t, "the time", c.Elapsed(), time.Second)
	})
}

// TestEndOfABodyThatWasGivenUp: a body without a length that ends as it is given up was
// not whole, however good its end looks.
func TestEndOfABodyThatWasGivenUp(t *testing.T) {
	for name, s := range map[string]policy.Settings{
		"read":   {Timeouts: policy.Timeouts{Read: 3 * time.Second}},
		"stream": {Stream: policy.Stream{Enabled: policy.On, FirstContent: 3 * time.Second}},
		"closed": {Timeouts: policy.Timeouts{Read: policy.Off}},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				ended := make(chan struct{})
				tr := newTransport(t, c, layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
					end := sync.OnceFunc(func() { close(ended) })
					context.AfterFunc(req.Context(), end)
					return &http.Response{StatusCode: 200, ContentLength: -1, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: struct {
						readFunc
						closeFunc
					}{func([]byte) (int, error) {
						<-ended
						return 0, io.EOF
					}, func() error {
						end()
						return nil
					}}}, nil
				}), settings(s))
				resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
				if err != nil {
					t.Fatal(err)
				}
				if name == "closed" {
					c.AfterFunc(3*time.Second, func() { resp.Body.Close() })
				}
				n, err := resp.Body.Read(make([]byte, 1))
				equal(t, "the time", c.Elapsed(), 3*time.Second)
				if timeout, ok := err.(net.Error); n != 0 || err == io.EOF || name != "closed" && (!ok || !timeout.Timeout()) {
					t.Errorf("the Read got %d, %v", n, err)
				}
				resp.Body.Close()
			})
		})
	}
}

// TestCloseThatWaits: a base that waits in the Close of a body for the server is given up
// like one that waits in a Read.
func TestCloseThatWaits(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		tr := newTransport(t, c, layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, ContentLength: -1, Body: struct {
				io.Reader
				closeFunc
			}{strings.NewReader("more"), func() error {
				<-req.Context().Done()
				return nil
			}}}, nil
		}), once(policy.Timeouts{Read: 3 * time.Second}))
		resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		equal(t, "the time", c.Elapsed(), 3*time.Second)
	})
}

// TestResponseBodyIsClosedOnce: by its end, by the caller, or by both.
func TestResponseBodyIsClosedOnce(t *testing.T) {
	for _, drained := range []bool{false, true} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			body := &closeCounter{Reader: strings.NewReader("fine")}
			tr := newTransport(t, c, layers.RoundTripperFunc(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 200, Body: body}, nil
			}), settings(everything()))
			resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
			if err != nil {
				t.Fatal(err)
			}
			if drained {
				io.Copy(io.Discard, resp.Body)
			}
			for range 3 {
				resp.Body.Close()
			}
			equal(t, "the number of closes", int(body.closes.Load()), 1)
		})
	}
}

// TestOneJumpOverEverything: a clock that leaps over the phase and the deadline
// ends the call, once, by the deadline; one that stops just short does not.
func TestOneJumpOverEverything(t *testing.T) {
	mock := clock.NewMock()
	entered := make(chan struct{}, 1)
	tr := newTransport(t, mock, layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		entered <- struct{}{}
		return hang(req)
	}), settings(policy.Settings{Deadline: 20 * time.Second, Timeouts: policy.Timeouts{Read: 10 * time.Second}, Retry: policy.Retry{MaxAttempts: 1}}))
	failed := make(chan error, 1)
	go func() {
		_, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
		failed <- err
	}()
	<-entered
	mock.Add(10*time.Second - 1)
	select {
	case err := <-failed:
		t.Fatalf("ended early: %v", err)
	default:
	}
	mock.Add(time.Hour)
	err := <-failed
	var e *layers.Error
	if !errors.As(err, &e) || !e.Timeout() || e.Attempts != 1 {
		t.Errorf("got %v", err)
	}
}

// TestTimeoutsOfTheBase: those of net/http's own count as timeouts too.
func TestTimeoutsOfTheBase(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Fail(tlsHandshakeTimeout{}))
		r := get(t, c, newTransport(t, c, up, once(policy.Timeouts{})))
		e := wantError(t, r.err)
		equal(t, "the layer", e.Layer, "base")
		equal(t, "whether it is a timeout", e.Timeout(), true)
		equal(t, "whether it is context.DeadlineExceeded", errors.Is(e, context.DeadlineExceeded), true)
		equal(t, "the text", e.Error(), "net/http: TLS handshake timeout (attempts exhausted)")
	})
}

// tlsHandshakeTimeout is like an error of net/http, which tells only net.Error.
type tlsHandshakeTimeout struct{}

func (tlsHandshakeTimeout) Error() string   { return "net/http: TLS handshake timeout" }
func (tlsHandshakeTimeout) Timeout() bool   { return true }
func (tlsHandshakeTimeout) Temporary() bool { return true }
