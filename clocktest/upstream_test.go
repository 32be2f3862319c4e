package clocktest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	. "github.com/weir-go/weir/clocktest"
)

// send sends a request and notes every arrival, until the end.
func send(l *timeline, rt http.RoundTripper, req *http.Request) {
	resp, err := rt.RoundTrip(req)
	if err != nil {
		l.add("error: %v", err)
		return
	}
	defer resp.Body.Close()
	l.add("%s", resp.Status)
	buf := make([]byte, 64)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			l.add("%q", buf[:n])
		}
		if err != nil {
			l.add("%v", err)
			return
		}
	}
}

func request(ctx context.Context, body io.Reader) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://user:secret@a.test/x?q", body)
	if err != nil {
		panic(err)
	}
	return req
}

var errMine = errors.New("mine")

// Every step, given up by its caller after an hour.
func TestSteps(t *testing.T) {
	const s = time.Second
	chunks := []Chunk{{After: s, Data: "a"}, {After: s}, {After: s, Data: "b"}}
	for name, test := range map[string]struct {
		step Step
		want []string
	}{
		"reply":       {Reply(200), []string{"0s 200 OK", "0s EOF"}},
		"body":        {Reply(404).After(s).Body("hello"), []string{"1s 404 Not Found", `1s "hello"`, "1s EOF"}},
		"chunks":      {Reply(200).After(s).Chunks(chunks...), []string{"1s 200 OK", `2s "a"`, `4s "b"`, "4s EOF"}},
		"more chunks": {Reply(200).Body("-").Chunks(chunks[0]).Chunks(chunks[2]), []string{"0s 200 OK", `0s "-"`, `1s "a"`, `2s "b"`, "2s EOF"}},
		"late end":    {Reply(200).Chunks(Chunk{After: s}), []string{"0s 200 OK", "1s EOF"}},
		"drip":        {Reply(200).Chunks(Drip("abc", 2, s)...), []string{"0s 200 OK", `1s "ab"`, `2s "c"`, "2s EOF"}},
		"silent":      {Reply(200).Silent(), []string{"0s 200 OK", "1h0m0s mine"}},
		"stall":       {Reply(200).Chunks(chunks...).Silent(), []string{"0s 200 OK", `1s "a"`, `3s "b"`, "1h0m0s mine"}},
		"no reply":    {NoReply(), []string{"1h0m0s error: mine"}},
		"reset": {Reply(200).Body("a").Reset(),
			[]string{"0s 200 OK", `0s "a"`, "0s read tcp: read: connection reset by peer"}},
		"cut short": {Reply(200).Chunks(chunks...).Fail(io.ErrUnexpectedEOF),
			[]string{"0s 200 OK", `1s "a"`, `3s "b"`, "3s unexpected EOF"}},
		"reset before": {Fail(ErrReset).After(s), []string{"1s error: read tcp: read: connection reset by peer"}},
		"refused":      {FailDial(ErrRefused).Connect(s), []string{"1s error: dial tcp: connect: connection refused"}},
		"phases":       {Reply(200).Pool(s).Connect(2 * s).After(3 * s), []string{"6s 200 OK", "6s EOF"}},
		"slow read":    {Reply(200).ReadBody(3, s).After(s), []string{"5s 200 OK", "5s EOF"}},
		"duplex":       {Reply(200).ReadBody(3, s).Duplex().Body("a"), []string{"0s 200 OK", `0s "a"`, "0s EOF"}},
		"early reply":  {Reply(413).IgnoreBody().After(s), []string{"1s 413 Request Entity Too Large", "1s EOF"}},
		"write stall":  {NoReply().IgnoreBody(), []string{"1h0m0s error: mine"}},
		"func": {Func(func(r *http.Request) Step { return Reply(200).Body(r.URL.Path) }),
			[]string{"0s 200 OK", `0s "/x"`, "0s EOF"}},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(t *testing.T, c *Clock) {
				ctx, cancel := context.WithCancelCause(t.Context())
				c.AfterFunc(time.Hour, func() { cancel(errMine) })
				l := &timeline{c: c}
				body := &closing{Reader: strings.NewReader("0123456789")}
				send(l, NewUpstream(t, c, test.step), request(ctx, body))
				l.check(t, test.want...)
				c.Add(0)
				if body.closed != 1 {
					t.Errorf("request body closed %d times", body.closed)
				}
			})
		})
	}
}

// closing counts how often it is closed.
type closing struct {
	io.Reader
	closed int
}

func (c *closing) Close() error { c.closed++; return nil }

// A cancellation is noticed at once in every phase, and by then the request's
// body is closed.
func TestCancel(t *testing.T) {
	const hour = time.Hour
	for name, step := range map[string]Step{
		"pool":         Reply(200).Pool(hour),
		"connect":      Reply(200).Connect(hour),
		"write":        Reply(200).ReadBody(1, hour),
		"write stall":  NoReply().IgnoreBody(),
		"headers":      Reply(200).After(hour),
		"no reply":     NoReply(),
		"body":         Reply(200).Chunks(Chunk{After: hour, Data: "x"}),
		"end of body":  Reply(200).Chunks(Chunk{After: hour}),
		"silent":       Reply(200).Silent(),
		"duplex":       Reply(200).ReadBody(1, hour).Duplex().Silent(),
		"error":        Fail(errMine).After(hour),
		"body's error": Reply(200).Chunks(Chunk{After: hour}).Reset(),
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprint(name, http2), func(t *testing.T) {
				Run(t, func(t *testing.T, c *Clock) {
					ctx, cancel := context.WithCancelCause(t.Context())
					c.AfterFunc(time.Second, func() { cancel(errMine) })
					u := NewUpstream(t, c, step)
					u.HTTP2 = http2
					body := &closing{Reader: strings.NewReader("body")}
					resp, err := u.RoundTrip(request(ctx, body))
					if err == nil {
						_, err = io.ReadAll(resp.Body)
						resp.Body.Close()
					}
					want := errMine
					if http2 {
						want = context.Canceled
					}
					if err != want {
						t.Errorf("got %v, want %v", err, want)
					}
					r := u.Requests()[0]
					if c.Elapsed() != time.Second || c.Until(r.End) != 0 || !r.Canceled {
						t.Errorf("returned after %v, ended at %v, canceled %v", c.Elapsed(), r.End, r.Canceled)
					}
					c.Add(0)
					if body.closed != 1 {
						t.Errorf("request body closed %d times", body.closed)
					}
				})
			})
		}
	}
}

func TestCanceledBeforehand(t *testing.T) {
	Run(t, func(t *testing.T, c *Clock) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errMine)
		u := NewUpstream(t, c)
		body := &closing{Reader: strings.NewReader("body")}
		if _, err := u.RoundTrip(request(ctx, body)); err != errMine {
			t.Error(err)
		}
		if body.closed != 1 || len(u.Requests()) != 0 {
			t.Errorf("body closed %d times, %d requests", body.closed, len(u.Requests()))
		}
	})
}

// What arrived by the instant of a cancellation is delivered, however late it is
// read, and nothing else is; whichever of the two comes first at that instant.
func TestArrivedBeforeCancel(t *testing.T) {
	for _, before := range []time.Duration{4 * time.Second, 1} {
		Run(t, func(t *testing.T, c *Clock) {
			ctx, cancel := context.WithCancelCause(t.Context())
			c.AfterFunc(4*time.Second-before, func() {
				c.AfterFunc(before, func() { cancel(errMine) })
			})
			c.Add(0)
			u := NewUpstream(t, c,
				Reply(200).After(time.Second).Chunks(Drip("abcdef", 1, time.Second)...),
				Reply(200).After(4*time.Second).Body("x"))
			l := &timeline{c: c}
			c.AfterFunc(0, func() { send(l, u, request(ctx, nil)) })
			c.Add(0)
			late, err := u.RoundTrip(request(ctx, nil))
			if err != nil {
				t.Fatal(err)
			}
			c.Sleep(time.Hour)
			b, err := io.ReadAll(late.Body)
			l.add("%q, %v", b, err)
			late.Body.Close()
			l.check(t, "1s 200 OK", `2s "a"`, `3s "b"`, `4s "c"`, "4s mine", `1h0m4s "x", <nil>`)
		})
	}
}

// Close ends a Read that waits, and the exchange.
func TestCloseDuringRead(t *testing.T) {
	Run(t, func(t *testing.T, c *Clock) {
		u := NewUpstream(t, c, Reply(200).Chunks(Chunk{After: time.Hour, Data: "late"}))
		l := &timeline{c: c}
		resp, err := u.RoundTrip(request(t.Context(), nil))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			n, err := resp.Body.Read(make([]byte, 1))
			l.add("%d, %v", n, err)
		}()
		c.Sleep(time.Second)
		resp.Body.Close()
		resp.Body.Close()
		c.Add(0)
		l.check(t, "1s 0, clocktest: read on closed response body")
		if _, err := resp.Body.Read(nil); err == nil {
			t.Error("Read after Close works")
		}
		if r := u.Requests()[0]; r.Canceled || r.End.Sub(r.At) != time.Second {
			t.Errorf("%+v", r)
		}
	})
}

func TestRequests(t *testing.T) {
	Run(t, func(t *testing.T, c *Clock) {
		u := NewUpstream(t, c, Reply(200).After(time.Second).Body("x").Times(2), Reply(204).Times(0), Reply(500).Forever())
		var statuses []int
		for i := range 4 {
			req := request(t.Context(), strings.NewReader(fmt.Sprint("body ", i)))
			req.Header.Set("I", fmt.Sprint(i))
			resp, err := u.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.Request != req {
				t.Error("resp.Request is another one")
			}
			statuses = append(statuses, resp.StatusCode)
			c.Sleep(time.Minute)
		}
		if !slices.Equal(statuses, []int{200, 200, 500, 500}) {
			t.Error(statuses)
		}
		r := u.Requests()[1]
		if r.At != c.Now().Add(-3*time.Minute-time.Second) || r.End.Sub(r.At) != time.Second || r.Canceled ||
			r.Method != "POST" || r.URL.Path != "/x" || r.Header.Get("I") != "1" || string(r.Body) != "body 1" {
			t.Errorf("%+v", r)
		}
	})
}

func TestResponse(t *testing.T) {
	for name, test := range map[string]struct {
		method string
		step   Step
		length int64
		header string // Content-Length
		none   bool   // no body
	}{
		"empty":       {"GET", Reply(200), 0, "0", true},
		"body":        {"GET", Reply(200).Body("abc"), 3, "3", false},
		"HEAD":        {"HEAD", Reply(200).Body("abc"), 3, "3", true},
		"HEAD chunks": {"HEAD", Reply(200).Chunks(Chunk{Data: "abc"}), -1, "", true},
		"chunks":      {"GET", Reply(200).Chunks(Chunk{Data: "abc"}), -1, "", false},
		"announced":   {"GET", Reply(200).Header("Content-Length", "9").Chunks(Chunk{Data: "abc"}), 9, "9", false},
		"silent":      {"GET", Reply(200).Body("abc").Silent(), -1, "", false},
		"204":         {"GET", Reply(204), 0, "", true},
		"304":         {"GET", Reply(304).Header("Content-Length", "9"), 9, "9", true},
		"trailer":     {"GET", Reply(200).Body("abc").Trailer("T", "v"), -1, "", false},
	} {
		Run(t, func(t *testing.T, c *Clock) {
			u := NewUpstream(t, c, test.step)
			req := request(t.Context(), nil)
			req.Method = test.method
			resp, err := u.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			if resp.ContentLength != test.length || resp.Header.Get("Content-Length") != test.header || (resp.Body == http.NoBody) != test.none {
				t.Errorf("%s: %+v", name, resp)
			}
			resp.Body.Close()
		})
	}
}

func TestTrailer(t *testing.T) {
	Run(t, func(t *testing.T, c *Clock) {
		base := Reply(200).Header("A", "1")
		u := NewUpstream(t, c, base.Header("A", "2").Trailer("T", "v").Body("x"), base.Header("A", "3"))
		u.HTTP2 = true
		resp, err := u.RoundTrip(request(t.Context(), nil))
		if err != nil {
			t.Fatal(err)
		}
		announced := maps.Clone(resp.Trailer)
		io.ReadAll(resp.Body)
		resp.Body.Close()
		if v, ok := announced["T"]; !ok || v != nil || resp.Trailer.Get("T") != "v" || resp.Proto != "HTTP/2.0" {
			t.Errorf("announced %v, got %+v", announced, resp)
		}
		resp, err = u.RoundTrip(request(t.Context(), nil))
		if err != nil || !slices.Equal(resp.Header["A"], []string{"1", "3"}) {
			t.Errorf("%v, %v", resp, err)
		}
	})
}

// traced returns a context whose hooks are noted.
func traced(ctx context.Context, l *timeline) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:              func(addr string) { l.add("GetConn %s", addr) },
		ConnectStart:         func(_, addr string) { l.add("ConnectStart %s", addr) },
		ConnectDone:          func(_, addr string, err error) { l.add("ConnectDone %s %v", addr, err) },
		GotConn:              func(i httptrace.GotConnInfo) { l.add("GotConn %v %v %v", i.Conn != nil, i.Reused, i.WasIdle) },
		WroteHeaders:         func() { l.add("WroteHeaders") },
		WroteRequest:         func(i httptrace.WroteRequestInfo) { l.add("WroteRequest %v", i.Err) },
		Got100Continue:       func() { l.add("Got100Continue") },
		Got1xxResponse:       func(code int, h textproto.MIMEHeader) error { l.add("Got1xx %d %v", code, h); return nil },
		GotFirstResponseByte: func() { l.add("GotFirstResponseByte") },
	})
}

func TestTrace(t *testing.T) {
	const s = time.Second
	for name, test := range map[string]struct {
		step Step
		want []string
	}{
		"idle": {Reply(200).After(s),
			[]string{"0s GetConn a.test:80", "0s GotConn true true true", "0s WroteHeaders", "0s WroteRequest <nil>", "1s GotFirstResponseByte"}},
		"pool": {Reply(200).Pool(s).IgnoreBody(),
			[]string{"0s GetConn a.test:80", "1s GotConn true true false", "1s WroteHeaders", "1s GotFirstResponseByte"}},
		"dial": {Reply(200).Pool(s).Connect(s).ReadBody(2, s).After(s),
			[]string{"0s GetConn a.test:80", "1s ConnectStart a.test:80", "2s ConnectDone a.test:80 <nil>", "2s GotConn true false false",
				"2s WroteHeaders", "4s WroteRequest <nil>", "5s GotFirstResponseByte"}},
		"refused": {FailDial(ErrRefused),
			[]string{"0s GetConn a.test:80", "0s ConnectStart a.test:80", "0s ConnectDone a.test:80 dial tcp: connect: connection refused"}},
		"1xx": {Reply(200).Interim(100, nil).Interim(103, http.Header{"Link": {"x"}}).ReadBody(2, s),
			[]string{"0s GetConn a.test:80", "0s GotConn true true true", "0s WroteHeaders", "0s GotFirstResponseByte", "0s Got100Continue",
				"0s Got1xx 100 map[]", "0s Got1xx 103 map[Link:[x]]", "2s WroteRequest <nil>"}},
		"canceled": {Reply(200).ReadBody(1, 50*time.Minute),
			[]string{"0s GetConn a.test:80", "0s GotConn true true true", "0s WroteHeaders", "1h0m0s WroteRequest mine"}},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(t *testing.T, c *Clock) {
				l := &timeline{c: c}
				ctx, cancel := context.WithCancelCause(traced(t.Context(), l))
				c.AfterFunc(time.Hour, func() { cancel(errMine) })
				resp, err := NewUpstream(t, c, test.step).RoundTrip(request(ctx, strings.NewReader("body")))
				if err == nil {
					resp.Body.Close()
				}
				l.check(t, test.want...)
			})
		})
	}
}

// Like HTTP/1, RoundTrip waits for a Read of the request's body. HTTP/2 does not.
func TestBlockedRequestBody(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		Run(t, func(t *testing.T, c *Clock) {
			l := &timeline{c: c}
			ctx, cancel := context.WithCancelCause(t.Context())
			c.AfterFunc(time.Second, func() { cancel(errMine) })
			r, w := io.Pipe()
			c.AfterFunc(time.Minute, func() {
				if _, err := io.WriteString(w, "finally"); err != nil {
					l.add("write: %v", err)
				}
			})
			u := NewUpstream(t, c, Reply(200))
			u.HTTP2 = http2
			send(l, u, request(ctx, r))
			c.Sleep(time.Hour)
			if http2 {
				l.check(t, "1s error: context canceled", "1m0s write: io: read/write on closed pipe")
			} else {
				l.check(t, "1m0s error: mine")
			}
		})
	}
}

// A Close of the request's body may take its time, which passes meanwhile.
func TestBlockedClose(t *testing.T) {
	Run(t, func(t *testing.T, c *Clock) {
		ctx, cancel := context.WithCancel(t.Context())
		c.AfterFunc(time.Second, cancel)
		free := make(chan struct{})
		c.AfterFunc(time.Minute, func() { close(free) })
		u := NewUpstream(t, c, NoReply().IgnoreBody())
		if _, err := u.RoundTrip(request(ctx, slowClose(free))); err == nil {
			t.Error("no error")
		}
		if got := c.Elapsed(); got != time.Minute {
			t.Errorf("it took %v, want a minute", got)
		}
	})
}

// slowClose is a body whose Close waits.
type slowClose chan struct{}

func (slowClose) Read([]byte) (int, error) { return 0, io.EOF }

func (b slowClose) Close() error {
	<-b
	return nil
}

// A body may wait for the response before it goes on.
func TestDuplex(t *testing.T) {
	Run(t, func(t *testing.T, c *Clock) {
		r, w := io.Pipe()
		u := NewUpstream(t, c, Reply(200).After(time.Second).Duplex().Chunks(Chunk{After: time.Hour}))
		resp, err := u.RoundTrip(request(t.Context(), r))
		if err != nil || c.Elapsed() != time.Second {
			t.Fatal(err, c.Elapsed())
		}
		io.WriteString(w, "after the headers")
		w.Close()
		io.ReadAll(resp.Body)
		resp.Body.Close()
		if got := string(u.Requests()[0].Body); got != "after the headers" {
			t.Errorf("request body: %q", got)
		}
	})
}

func TestRequestBodyFails(t *testing.T) {
	Run(t, func(t *testing.T, c *Clock) {
		r, w := io.Pipe()
		w.CloseWithError(errMine)
		if _, err := NewUpstream(t, c, Reply(200)).RoundTrip(request(t.Context(), r)); err != errMine {
			t.Error(err)
		}
	})
}

// A fakeT notes failures and runs cleanups on demand.
type fakeT struct {
	testing.TB
	cleanups []func()
	failures []string
}

func (f *fakeT) Cleanup(g func()) { f.cleanups = append(f.cleanups, g) }
func (f *fakeT) Errorf(format string, args ...any) {
	f.failures = append(f.failures, fmt.Sprintf(format, args...))
}

func TestUpstreamFailsTest(t *testing.T) {
	Run(t, func(t *testing.T, c *Clock) {
		fake := &fakeT{TB: t}
		u := NewUpstream(fake, c, Reply(200).Body("x").Times(2))
		left, _ := u.RoundTrip(request(t.Context(), nil))
		closed, _ := u.RoundTrip(request(t.Context(), nil))
		closed.Body.Close()
		body := &closing{Reader: strings.NewReader("body")}
		_, err := u.RoundTrip(request(t.Context(), body))
		if err == nil || err.Error() != "clocktest: no step is left for POST http://a.test/x" || body.closed != 1 {
			t.Errorf("%v, body closed %d times", err, body.closed)
		}
		for _, cleanup := range fake.cleanups {
			cleanup()
		}
		if want := []string{
			"clocktest: no step was left for POST http://a.test/x",
			"clocktest: the response's body was not closed: POST http://a.test/x",
		}; !slices.Equal(fake.failures, want) {
			t.Errorf("got %q, want %q", fake.failures, want)
		}
		left.Body.Close()
	})
}

func TestErrors(t *testing.T) {
	//nolint:staticcheck // SA1032 takes ErrReset for what is looked for.
	if !errors.Is(ErrReset, syscall.ECONNRESET) || !errors.Is(ErrRefused, syscall.ECONNREFUSED) {
		t.Error("errors do not unwrap")
	}
}

// An upstream works with any clock, outside of a bubble too.
func TestUpstreamOnMock(t *testing.T) {
	mock := clock.NewMock()
	u := NewUpstream(t, mock, Reply(200).Body("x"), Reply(200).Connect(0).Chunks(Chunk{Data: "y"}))
	for range 2 {
		resp, err := u.RoundTrip(request(t.Context(), strings.NewReader("body")))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); err != nil {
			t.Error(err)
		}
		resp.Body.Close()
	}
	mock.Add(time.Hour)
}

// Over HTTP/2, the headers of a 204 need not end its stream.
func TestBodilessOverHTTP2(t *testing.T) {
	for _, status := range []int{204, 304} {
		for _, http2 := range []bool{false, true} {
			Run(t, func(t *testing.T, c *Clock) {
				step := Reply(status).Trailer("Sum", "42")
				u := NewUpstream(t, c, step, step.Chunks(Chunk{After: time.Second}), Reply(status))
				u.HTTP2 = http2
				for i, takes := range []time.Duration{0, time.Second, 0} {
					began := c.Now()
					resp, err := u.RoundTrip(request(t.Context(), nil))
					if err != nil {
						t.Fatal(err)
					}
					whole := http2 && i < 2
					if whole != (resp.Body != http.NoBody) || whole != (resp.ContentLength < 0) {
						t.Errorf("%d, HTTP/2 %v, step %d: body %T of length %d", status, http2, i, resp.Body, resp.ContentLength)
					}
					if b, err := io.ReadAll(resp.Body); len(b) > 0 || err != nil {
						t.Errorf("got %q, %v", b, err)
					}
					if whole && (resp.Trailer.Get("Sum") != "42" || c.Since(began) != takes) {
						t.Errorf("trailers %v after %v", resp.Trailer, c.Since(began))
					}
					resp.Body.Close()
				}
			})
		}
	}
}

// TestAnnouncedLength: a body is as long as its headers say, or ends too early, as
// with net/http.
func TestAnnouncedLength(t *testing.T) {
	for _, test := range []struct {
		step Step
		body string
		err  error
	}{
		{Reply(200).Body("abc"), "a", nil},
		{Reply(200).Chunks(Chunk{Data: "a"}).Silent(), "a", nil},
		{Reply(200), "", io.ErrUnexpectedEOF},
		{Reply(200).Reset(), "", ErrReset},
	} {
		Run(t, func(t *testing.T, c *Clock) {
			up := NewUpstream(t, c, test.step.Header("Content-Length", "1"))
			resp, err := up.RoundTrip(request(t.Context(), nil))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if string(body) != test.body || !errors.Is(err, test.err) || resp.ContentLength != 1 {
				t.Errorf("got %q of %d, %v, want %q, %v", body, resp.ContentLength, err, test.body, test.err)
			}
		})
	}
}
