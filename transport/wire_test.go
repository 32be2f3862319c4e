package transport_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	neturl "net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// wire is a transport over a real http.Transport and an in-memory network.
type wire struct {
	*transport.Transport
	net   *clocktest.Network
	base  *http.Transport
	dials atomic.Int32
}

// kinds are the ways to speak HTTP, and the URL of each.
var kinds = []struct{ name, url string }{
	{"http1", "http://api.test"}, {"tls1", "https://api.test"}, {"http2", "https://api.test"}, {"h2c", "http://api.test"},
}

// muxed reports that the requests of a kind share connections.
func muxed(kind string) bool { return kind == "http2" || kind == "h2c" }

// newWire serves api.test with h, unless it is nil.
func newWire(t *testing.T, c *clocktest.Clock, kind string, h http.Handler, p policy.Policy, change ...func(*transport.Config)) *wire {
	t.Helper()
	w := &wire{net: clocktest.NewNetwork(t)}
	if h != nil {
		w.net.Serve("api.test", h)
	}
	w.base = w.net.Transport()
	dial := layers.DialContext(w.net.DialContext)
	w.base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		w.dials.Add(1)
		return dial(ctx, network, addr)
	}
	switch kind {
	case "tls1":
		w.base.Protocols = new(http.Protocols)
		w.base.Protocols.SetHTTP1(true)
	case "h2c":
		w.base.Protocols = new(http.Protocols)
		w.base.Protocols.SetUnencryptedHTTP2(true)
	}
	w.Transport = newTransport(t, c, w.base, p, change...)
	t.Cleanup(w.base.CloseIdleConnections)
	return w
}

// eachKind runs f over HTTP/1, HTTP/1 in TLS, and HTTP/2.
func eachKind(t *testing.T, f func(t *testing.T, c *clocktest.Clock, kind, url string)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) { f(t, c, k.name, k.url) })
		})
	}
}

// arrivals are the times at which a handler was asked.
type arrivals struct {
	c  *clocktest.Clock
	mu sync.Mutex
	at []time.Duration
}

func (a *arrivals) note() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = append(a.at, a.c.Elapsed())
	return len(a.at)
}

func (a *arrivals) list() []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.at
}

// never answers a request, and ends when its client has gone.
func never(_ http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	gone(r)
}

// halfway sends headers, and no body.
func halfway(rw http.ResponseWriter, r *http.Request) {
	http.NewResponseController(rw).Flush()
	gone(r)
}

// gone waits until the client has gone. A handler that then returned would
// answer, just in time for a client that has only begun to close a connection:
// TLS says goodbye first.
func gone(r *http.Request) {
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

func TestWireServerThatNeverAnswers(t *testing.T) {
	eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
		asked := &arrivals{c: c}
		var gone []time.Duration
		w := newWire(t, c, kind, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			asked.note()
			defer func() { // never panics, so as not to answer
				asked.mu.Lock()
				defer asked.mu.Unlock()
				gone = append(gone, c.Elapsed())
			}()
			never(rw, r)
		}), settings(policy.Settings{
			Deadline: 10 * time.Second, Timeouts: policy.Timeouts{Read: 4 * time.Second}, Retry: noWait,
		}))
		_, err := (&http.Client{Transport: w}).Get(url)
		equal(t, "the time", c.Elapsed(), 10*time.Second)
		equalTimes(t, asked.list(), 0, 4*time.Second, 8*time.Second)
		var u *neturl.Error
		if !errors.As(err, &u) || !u.Timeout() {
			t.Errorf("%v (%T) is no timeout of net/http's client", err, err)
		}
		e := wantTimeout(t, err, layers.PhaseDeadline)
		equal(t, "the number of attempts", e.Attempts, 3)
		has(t, e.Error(), "in phase read of attempt 3")
		c.Add(0)
		equalTimes(t, gone, 4*time.Second, 8*time.Second, 10*time.Second)
	})
}

// TestWirePhases: every phase ends on the wire at its limit, and says so.
func TestWirePhases(t *testing.T) {
	limits := policy.Timeouts{Pool: 1 * time.Second, Connect: 2 * time.Second, Write: 3 * time.Second, Read: 4 * time.Second}
	half := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		io.WriteString(rw, "half")
		halfway(rw, r)
	})
	unread := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { gone(r) })
	upload := func() io.Reader { return plain{io.LimitReader(zeros{}, 8<<20)} }
	memory := func() io.Reader { return bytes.NewReader(make([]byte, 8<<20)) }
	for _, test := range []struct {
		name  string
		h     http.Handler
		setup func(t *testing.T, w *wire)
		body  func() io.Reader
		phase layers.Phase
		took  time.Duration
		sent  layers.Sent
		only  string
	}{
		{"connect", nil, func(_ *testing.T, w *wire) { w.net.Blackhole("api.test:80"); w.net.Blackhole("api.test:443") }, nil,
			layers.PhaseConnect, 2 * time.Second, layers.Unsent, ""},
		{"slow connect, slow handshake", nil, func(_ *testing.T, w *wire) {
			w.net.Listen("api.test:443")
			w.net.Delay("api.test:443", time.Second)
		}, nil, layers.PhaseConnect, 2 * time.Second, layers.Unsent, "tls1 http2"},
		{"handshake", nil, func(_ *testing.T, w *wire) { w.net.Listen("api.test:443") }, nil,
			layers.PhaseConnect, 2 * time.Second, layers.Unsent, "tls1 http2"},
		{"write", nil, func(_ *testing.T, w *wire) { w.net.Listen("api.test:80") }, upload,
			layers.PhaseWrite, 3 * time.Second, layers.MaybeSent, "http1"},
		{"write from memory", nil, func(_ *testing.T, w *wire) { w.net.Listen("api.test:80") }, memory,
			layers.PhaseWrite, 3 * time.Second, layers.MaybeSent, "http1"},
		{"unread upload", unread, nil, upload, layers.PhaseWrite, 3 * time.Second, layers.MaybeSent, ""},
		{"unread upload from memory", unread, nil, memory, layers.PhaseWrite, 3 * time.Second, layers.MaybeSent, ""},
		{"headers", http.HandlerFunc(never), nil, nil, layers.PhaseRead, 4 * time.Second, layers.MaybeSent, ""},
		{"headers after an upload", http.HandlerFunc(never), nil, upload, layers.PhaseRead, 4 * time.Second, layers.MaybeSent, ""},
		{"body", half, nil, nil, layers.PhaseRead, 4 * time.Second, layers.Answered, ""},
		{"pool", http.HandlerFunc(never), func(t *testing.T, w *wire) {
			w.base.MaxConnsPerHost = 1
			req := request(t, t.Context(), "GET", "http://api.test/held", nil)
			go func() {
				if resp, err := w.base.RoundTrip(req); err == nil {
					resp.Body.Close()
				}
			}()
			time.Sleep(0)
		}, nil, layers.PhasePool, time.Second, layers.Unsent, "http1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
				if test.only != "" && !strings.Contains(test.only, kind) {
					return
				}
				w := newWire(t, c, kind, test.h, once(limits))
				if test.setup != nil {
					test.setup(t, w)
					c.Add(0)
				}
				var body io.Reader
				if test.body != nil {
					body = test.body()
				}
				r := do(c, w, request(t, t.Context(), "POST", url, body))
				wantTook(t, r, test.took)
				e := wantTimeout(t, r.err, test.phase)
				equal(t, "the elapsed time told", e.Elapsed, test.took)
				equal(t, "what was sent", e.Sent, test.sent)
			})
		})
	}
}

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestWireFreesTheDial: a connect phase that expired holds neither its socket
// nor the host's slot.
func TestWireFreesTheDial(t *testing.T) {
	for _, stage := range []string{"dial", "handshake"} {
		t.Run(stage, func(t *testing.T) {
			eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
				if stage == "handshake" && strings.HasPrefix(url, "http:") {
					return
				}
				w := newWire(t, c, kind, nil, once(policy.Timeouts{Connect: 2 * time.Second}))
				w.base.MaxConnsPerHost = 1
				hung := make(chan time.Duration, 1)
				done := func() {}
				if stage == "dial" {
					w.net.Blackhole("api.test:80")
					w.net.Blackhole("api.test:443")
					hung <- 2 * time.Second
				} else {
					l := w.net.Listen("api.test:443")
					go func() {
						conn, _ := l.Accept()
						io.Copy(io.Discard, conn)
						hung <- c.Elapsed()
						conn.Close()
					}()
					done = func() { l.Close() }
				}
				wantTimeout(t, do(c, w, request(t, t.Context(), "GET", url, nil)).err, layers.PhaseConnect)
				equal(t, "when the peer saw the end", <-hung, 2*time.Second)
				done()
				w.net.Delay("api.test:80", 0)
				w.net.Delay("api.test:443", 0)
				w.net.Serve("api.test", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "here") }))
				r := do(c, w, request(t, t.Context(), "GET", url, nil))
				wantStatus(t, r, 200)
				wantTook(t, r, 0)
			})
		})
	}
}

// TestWireFreesTheProxy: the same holds for what is done with a proxy once it is
// there, and for what is done through it.
func TestWireFreesTheProxy(t *testing.T) {
	for name, test := range map[string]struct {
		proxy, url, says string // says answers what the client begins with
	}{
		"a silent SOCKS proxy":                     {"socks5://proxy.test:1080", "http://api.test/", ""},
		"a SOCKS proxy that says hello":            {"socks5://proxy.test:1080", "http://api.test/", "\x05\x00"},
		"a silent SOCKS proxy, for TLS":            {"socks5://proxy.test:1080", "https://api.test/", ""},
		"a silent proxy, for TLS":                  {"http://proxy.test:1080", "https://api.test/", ""},
		"silence behind a proxy, for TLS":          {"http://proxy.test:1080", "https://api.test/", "HTTP/1.1 200 OK\r\n\r\n"},
		"a silent proxy with TLS":                  {"https://proxy.test:1080", "http://api.test/", ""},
		"a silent proxy with TLS, for TLS":         {"https://proxy.test:1080", "https://api.test/", ""},
		"silence behind a proxy with TLS, for TLS": {"https://proxy.test", "https://api.test/", ""},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				w := newWire(t, c, "tls1", nil, once(policy.Timeouts{Connect: 2 * time.Second, Pool: time.Second}))
				w.base.MaxConnsPerHost = 1
				proxy, err := neturl.Parse(test.proxy)
				if err != nil {
					t.Fatal(err)
				}
				w.base.Proxy = http.ProxyURL(proxy)
				w.net.Serve("proxy.test", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
					conn, _, err := http.NewResponseController(rw).Hijack()
					if err != nil {
						panic(err)
					}
					defer conn.Close()
					io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
					io.Copy(io.Discard, conn)
				}))
				l := w.net.Listen("proxy.test:1080")
				defer l.Close()
				gone := make(chan time.Duration, 2)
				go func() {
					for {
						conn, err := l.Accept()
						if err != nil {
							return
						}
						conn.Read(make([]byte, 1<<10))
						io.WriteString(conn, test.says)
						io.Copy(io.Discard, conn)
						conn.Close()
						gone <- c.Elapsed()
					}
				}()
				for i := range 2 {
					r := do(c, w, request(t, t.Context(), "GET", test.url, nil))
					wantTimeout(t, r.err, layers.PhaseConnect)
					wantTook(t, r, 2*time.Second)
					if proxy.Port() != "" {
						equal(t, "when the proxy saw the end", <-gone, time.Duration(i+1)*2*time.Second)
					}
				}
			})
		})
	}
}

// TestWireDialTLS: a dial function that does the handshake itself may be wrapped too: it
// ends with the connect phase, and what it returns is still seen to be TLS.
func TestWireDialTLS(t *testing.T) {
	for _, kind := range kinds[1:3] {
		t.Run(kind.name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				w := newWire(t, c, kind.name, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, r.Proto) }),
					once(policy.Timeouts{Connect: 2 * time.Second, Pool: time.Second}))
				w.base.MaxConnsPerHost = 1
				silent := w.net.Listen("silent.test:443")
				defer silent.Close()
				w.base.DialTLSContext = layers.DialContext(func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := w.net.DialContext(ctx, network, addr)
					if err != nil {
						return nil, err
					}
					config := w.net.TLSClientConfig()
					config.ServerName, _, _ = net.SplitHostPort(addr)
					if kind.name == "http2" {
						config.NextProtos = []string{"h2"}
					}
					secure := tls.Client(conn, config)
					return secure, secure.HandshakeContext(ctx)
				})
				for range 2 {
					r := do(c, w, request(t, t.Context(), "GET", kind.url, nil))
					wantStatus(t, r, 200)
					equal(t, "that it is TLS", r.resp.TLS != nil, true)
					equal(t, "the version", r.resp.ProtoMajor, map[string]int{"tls1": 1, "http2": 2}[kind.name])
					r = do(c, w, request(t, t.Context(), "GET", "https://silent.test/", nil))
					wantTimeout(t, r.err, layers.PhaseConnect)
					wantTook(t, r, 2*time.Second)
				}
			})
		})
	}
}

// hijacked serves bytes as they are, each piece after a wait.
func hijacked(each time.Duration, pieces ...string) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		for _, p := range pieces {
			time.Sleep(each)
			if _, err := io.WriteString(conn, p); err != nil {
				return
			}
		}
		conn.Read(make([]byte, 1)) // until the client goes
	})
}

// TestWireTrickle: bytes that trickle within one chunk, one block of gzip or one
// header are no silence, though no Read returns meanwhile.
func TestWireTrickle(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
	text := "twelve bytes"
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	io.WriteString(z, text)
	z.Close()
	letters := func(s string) []string { return strings.Split(s, "") }
	for name, pieces := range map[string][]string{
		"chunk":  append([]string{head + "Transfer-Encoding: chunked\r\n\r\nc\r\n"}, append(letters(text), "\r\n0\r\n\r\n")...),
		"length": append([]string{head + "Content-Length: 12\r\n\r\n"}, letters(text)...),
		"gzip":   append([]string{head + fmt.Sprintf("Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n", zipped.Len())}, letters(zipped.String())...),
		"header": append(letters(head+"Content-Length: 12\r\n\r\n"), text),
	} {
		for _, kind := range kinds[:2] {
			t.Run(name+" "+kind.name, func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					p := settings(policy.Settings{Deadline: time.Hour, Timeouts: policy.Timeouts{Read: 4 * time.Second}, Retry: policy.Retry{MaxAttempts: 1}})
					whole := newWire(t, c, kind.name, hijacked(3*time.Second, pieces...), p)
					r := do(c, whole, request(t, t.Context(), "GET", kind.url, nil))
					wantStatus(t, r, 200)
					equal(t, "the body", r.body, text)
				})
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					p := once(policy.Timeouts{Read: 4 * time.Second})
					cut := newWire(t, c, kind.name, hijacked(3*time.Second, pieces[:8]...), p)
					r := do(c, cut, request(t, t.Context(), "GET", kind.url, nil))
					e := wantTimeout(t, r.err, layers.PhaseRead)
					wantTook(t, r, 8*3*time.Second+4*time.Second)
					equal(t, "the elapsed time told", e.Elapsed, 4*time.Second)
				})
			})
		}
	}
}

// TestWireTrickleThroughProxies: nor are they behind a proxy, with TLS within TLS.
func TestWireTrickleThroughProxies(t *testing.T) {
	for _, proxy := range []string{"http://proxy.test", "https://proxy.test"} {
		for _, kind := range kinds[:2] {
			t.Run(proxy+" "+kind.name, func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					pieces := append([]string{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nc\r\n"}, strings.Split("twelve bytes", "")...)
					w := newWire(t, c, "tls1", hijacked(3*time.Second, append(pieces, "\r\n0\r\n\r\n")...),
						settings(policy.Settings{Timeouts: policy.Timeouts{Read: 4 * time.Second}, Retry: policy.Retry{MaxAttempts: 1}}))
					u, err := neturl.Parse(proxy)
					if err != nil {
						t.Fatal(err)
					}
					w.base.Proxy = http.ProxyURL(u)
					w.net.Serve("proxy.test", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
						address := r.Host
						if r.Method != http.MethodConnect {
							address += ":80"
						}
						to, err := w.net.DialContext(r.Context(), "tcp", address)
						if err != nil {
							panic(err)
						}
						conn, buf, err := http.NewResponseController(rw).Hijack()
						if err != nil {
							panic(err)
						}
						if r.Method == http.MethodConnect {
							io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
						} else {
							go r.Write(to)
						}
						splice(conn, buf, to)
					}))
					r := do(c, w, request(t, t.Context(), "GET", kind.url, nil))
					wantStatus(t, r, 200)
					equal(t, "the body", r.body, "twelve bytes")
					w.base.CloseIdleConnections()
				})
			})
		}
	}
}

// TestWireKeepsRoutesApart: one http.Transport, other numbers for each route.
func TestWireKeepsRoutesApart(t *testing.T) {
	eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
		w := newWire(t, c, kind, http.HandlerFunc(never), policy.Policy{
			Settings: policy.Settings{Retry: policy.Retry{MaxAttempts: 1}},
			Routes: []policy.Route{
				{Pattern: "/fast", Settings: policy.Settings{Timeouts: policy.Timeouts{Read: time.Second}}},
				{Pattern: "/slow", Settings: policy.Settings{Timeouts: policy.Timeouts{Read: 20 * time.Second}}},
			},
		})
		var calls sync.WaitGroup
		for path, want := range map[string]time.Duration{"/fast": time.Second, "/slow": 20 * time.Second, "/": 30 * time.Second} {
			calls.Go(func() {
				r := do(c, w, request(t, t.Context(), "GET", url+path, nil))
				wantTook(t, r, want)
				wantTimeout(t, r.err, layers.PhaseRead)
			})
		}
		calls.Wait()
	})
}

// everything turns every layer on, each with numbers that do not bind.
func everything() policy.Settings {
	return policy.Settings{
		Deadline: time.Hour,
		Timeouts: policy.Timeouts{Attempt: 50 * time.Minute},
		Hedge:    policy.Hedge{Delay: 40 * time.Minute},
		Breaker:  policy.Breaker{Failures: 5},
		Rate:     policy.Rate{PerSecond: 1000, Burst: 100},
		InFlight: policy.InFlight{Max: 10},
	}
}

// streams turns the stream guard on beside everything else. It rules out hedges.
func streams() policy.Settings {
	return everything().With(policy.Settings{Stream: policy.Stream{Enabled: policy.On}})
}

// nothing turns every layer off.
func nothing() policy.Settings {
	return policy.Settings{
		Deadline: policy.Off, Retry: policy.Retry{Enabled: policy.Off},
		Timeouts: policy.Timeouts{Pool: policy.Off, Connect: policy.Off, Write: policy.Off, Read: policy.Off},
	}
}

func TestWireSlowBodyArrivesWhole(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 1<<16)
	pass := around(passOn)
	some := policy.Settings{Deadline: time.Hour}
	for _, test := range []struct {
		name         string
		s            policy.Settings
		inner, outer []layers.Layer
	}{
		{"everything", everything(), []layers.Layer{pass}, []layers.Layer{pass}},
		{"streams", streams(), []layers.Layer{pass}, []layers.Layer{pass}},
		{"the defaults", some, nil, nil}, {"an inner layer", some, []layers.Layer{pass}, nil}, {"an outer layer", some, nil, []layers.Layer{pass}},
		{"nothing", nothing(), nil, nil}, {"only an inner layer", nothing(), []layers.Layer{pass}, nil}, {"only an outer layer", nothing(), nil, []layers.Layer{pass}},
	} {
		t.Run(test.name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
				slowBody(t, c, kind, url, text, settings(test.s), inner(test.inner...), outer(test.outer...))
			})
		})
	}
}

func slowBody(t *testing.T, c *clocktest.Clock, kind, url, text string, p policy.Policy, change ...func(*transport.Config)) {
	w := newWire(t, c, kind, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(text); i += 1 << 15 {
			time.Sleep(20 * time.Second)
			io.WriteString(rw, text[i:i+1<<15])
			http.NewResponseController(rw).Flush()
		}
	}), p, change...)
	r := do(c, w, request(t, t.Context(), "GET", url, nil))
	wantStatus(t, r, 200)
	wantTook(t, r, 32*20*time.Second)
	if r.body != text {
		t.Errorf("got %d bytes of %d", len(r.body), len(text))
	}
	call := r.call(t)
	equal(t, "the number of attempts", call.Attempts(), 1)
	if call.Err() == nil {
		t.Error("the call goes on after its body")
	}
}

// TestWireEarlyAnswer: a 503 arrives while the upload is still being written.
func TestWireEarlyAnswer(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789abcdef"), 1<<19)
	for name, body := range map[string]func() io.Reader{
		"memory": func() io.Reader { return bytes.NewReader(text) },
		"stream": func() io.Reader { return plain{bytes.NewReader(text)} },
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
				asked := &arrivals{c: c}
				var got []byte
				w := newWire(t, c, kind, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					if asked.note() == 1 {
						io.CopyN(io.Discard, r.Body, 1000)
						rw.WriteHeader(503)
						return
					}
					got, _ = io.ReadAll(r.Body)
				}), retrying(policy.Retry{BaseDelay: policy.Off, Buffer: int64(len(text))}))
				req := request(t, t.Context(), "PUT", url, body())
				r := do(c, w, req)
				if name == "stream" && r.err == nil && r.resp.StatusCode == 503 {
					t.Fatalf("not sent again: %s", r.call(t).Reason())
				}
				wantStatus(t, r, 200)
				if !bytes.Equal(got, text) {
					t.Errorf("the second send had %d bytes of %d", len(got), len(text))
				}
			})
		})
	}
}

// TestWireKeepsConnections: nothing that weir does costs a connection.
func TestWireKeepsConnections(t *testing.T) {
	eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
		var failing atomic.Bool
		w := newWire(t, c, kind, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if failing.Load() {
				rw.WriteHeader(503)
			}
			io.WriteString(rw, strings.Repeat("body", 1000))
		}), settings(policy.Settings{Retry: policy.Retry{BaseDelay: policy.Off, MaxAttempts: 10, Budget: policy.Off}}))
		calls := 300
		if kind == "http1" {
			calls = 3000
		}
		for range calls {
			wantStatus(t, do(c, w, request(t, t.Context(), "GET", url, nil)), 200)
		}
		failing.Store(true) // ten 503s in a row
		r := do(c, w, request(t, t.Context(), "GET", url, nil))
		wantStatus(t, r, 503)
		equal(t, "the number of attempts", r.call(t).Attempts(), 10)
		equal(t, "the number of connections", w.dials.Load(), 1)
	})
}

// TestWireFailureLeavesThePool: a call that fails for good closes no connection
// but its own.
func TestWireFailureLeavesThePool(t *testing.T) {
	eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
		w := newWire(t, c, kind, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/hung" {
				never(rw, r)
			}
		}), settings(policy.Settings{Timeouts: policy.Timeouts{Read: time.Second}, Retry: noWait}))
		w.net.Serve("other.test", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		other := strings.Replace(url, "api", "other", 1)
		wantStatus(t, do(c, w, request(t, t.Context(), "GET", other, nil)), 200)
		before := w.dials.Load()
		wantTimeout(t, do(c, w, request(t, t.Context(), "GET", url+"/hung", nil)).err, layers.PhaseRead)
		after := w.dials.Load()
		wantStatus(t, do(c, w, request(t, t.Context(), "GET", other, nil)), 200)
		equal(t, "the number of new connections to the other host", w.dials.Load()-after, 0)
		if muxed(kind) {
			equal(t, "the number of new connections", after-before, 1) // only streams were reset
		}
	})
}

func TestWireCloseIdleConnections(t *testing.T) {
	eachSubject(t, http.HandlerFunc(echo), "", nil, func(t *testing.T, p *party) {
		subjects := []http.RoundTripper{p.subject}
		if tr, ok := p.subject.(*transport.Transport); ok {
			subjects = append(subjects, view(t, tr, policy.Settings{Deadline: time.Minute}))
		}
		for i, rt := range subjects {
			client := &http.Client{Transport: rt}
			for range 2 {
				resp, err := client.Get(p.url)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
			}
			p.c.Add(0)
			equal(t, "the number of connections", p.dials.Load(), int32(i+1))
			client.CloseIdleConnections()
		}
		wantStatus(t, do(p.c, p, request(t, t.Context(), "GET", p.url, nil)), 200)
		equal(t, "the number of connections", int(p.dials.Load()), len(subjects)+1)
	})
}

// TestWireBlockedBody: a caller's body that blocks holds nothing past the
// deadline, and nothing is left once its Read returns.
func TestWireBlockedBody(t *testing.T) {
	for _, stubborn := range []bool{false, true} {
		t.Run(fmt.Sprintf("stubborn=%v", stubborn), func(t *testing.T) {
			eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
				w := newWire(t, c, kind, http.HandlerFunc(never), settings(policy.Settings{Deadline: 3 * time.Second}))
				body := &blockedBody{stubborn: stubborn, release: make(chan struct{})}
				r := do(c, w, request(t, t.Context(), "POST", url, body))
				wantTook(t, r, 3*time.Second)
				wantTimeout(t, r.err, layers.PhaseDeadline)
				if stubborn {
					close(body.release)
				}
				c.Add(0)
				equal(t, "the number of closes", int(body.closes.Load()), 1)
			})
		})
	}
}

// TestWireBodyOutlivesItsAnswer: a caller's body that blocks is closed, and lets go of
// what reads it, soon after the call whose server does not wait for it is over; also if
// it was to be sent again.
func TestWireBodyOutlivesItsAnswer(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter){
		"text":    func(rw http.ResponseWriter) { rw.WriteHeader(413); io.WriteString(rw, "too much") },
		"nothing": func(rw http.ResponseWriter) { rw.WriteHeader(413) },
		"failure": func(rw http.ResponseWriter) { rw.WriteHeader(503); io.WriteString(rw, "too much") },
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
				w := newWire(t, c, kind, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
					_ = http.NewResponseController(rw).EnableFullDuplex() // HTTP/2 always is
					answer(rw)
				}), settings(policy.Settings{}))
				body := &blockedBody{release: make(chan struct{})}
				r := do(c, w, request(t, t.Context(), "PUT", url, body))
				if r.err != nil {
					t.Fatal(r.err)
				}
				c.Add(50 * time.Millisecond)
				equal(t, "the number of closes", int(body.closes.Load()), 1)
			})
		})
	}
}

// TestWireBodyThatFails: the caller's own failure is not the server's.
func TestWireBodyThatFails(t *testing.T) {
	broken := errors.New("the disk is gone")
	eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
		asked := &arrivals{c: c}
		w := newWire(t, c, kind, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			asked.note()
			io.Copy(io.Discard, r.Body)
		}), policy.Policy{})
		r := do(c, w, request(t, t.Context(), "PUT", url, plain{io.MultiReader(strings.NewReader("half"), failing{broken})}))
		e := wantError(t, r.err)
		if !errors.Is(e, broken) {
			t.Errorf("got %v, want the body's error", e)
		}
		equal(t, "the reason", e.Reason, layers.ReasonNotRetryable)
		c.Add(0)
		equal(t, "the number of requests", len(asked.list()), 1)
	})
}

// TestWireCloseDuringARead: it ends the Read, at once.
func TestWireCloseDuringARead(t *testing.T) {
	eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
		w := newWire(t, c, kind, http.HandlerFunc(halfway), settings(everything()))
		resp, err := w.RoundTrip(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, resp.Body)
			ended <- err
		}()
		c.Add(time.Second)
		for range 2 {
			resp.Body.Close()
		}
		if err := <-ended; err == nil {
			t.Error("the Read saw a good end")
		}
		equal(t, "the time", c.Elapsed(), time.Second)
		if callOf(t, resp).Err() == nil {
			t.Error("the call goes on")
		}
	})
}

func TestWireCallerCancels(t *testing.T) {
	cause := errors.New("the user went away")
	for name, h := range map[string]http.HandlerFunc{
		"headers": never,
		"body":    halfway,
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
				w := newWire(t, c, kind, h, policy.Policy{})
				ctx, cancel := context.WithCancelCause(t.Context())
				c.AfterFunc(2*time.Second, func() { cancel(cause) })
				r := do(c, w, request(t, ctx, "GET", url, nil))
				wantTook(t, r, 2*time.Second)
				if !errors.Is(r.err, context.Canceled) || !errors.Is(r.err, cause) {
					t.Errorf("got %v (%T), want the caller's cancellation and its cause", r.err, r.err)
				}
			})
		})
	}
}

// TestWireClientTimeout: http.Client.Timeout keeps what users see today.
func TestWireClientTimeout(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"headers": never,
		"body":    halfway,
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
				w := newWire(t, c, kind, h, policy.Policy{})
				seen := func(rt http.RoundTripper) error {
					client := &http.Client{Transport: rt, Timeout: 2 * time.Second}
					start := c.Elapsed()
					resp, err := client.Get(url)
					if err == nil {
						_, err = io.ReadAll(resp.Body)
						resp.Body.Close()
					}
					equal(t, "the time", c.Elapsed()-start, 2*time.Second)
					return err
				}
				bare, through := seen(w.base), seen(w)
				for _, target := range []error{context.DeadlineExceeded, context.Canceled} {
					equal(t, fmt.Sprintf("whether it is %v", target), errors.Is(through, target), errors.Is(bare, target))
				}
				// In a bubble, the client does not see itself late over the bare
				// transport, and leaves out the rest of its text.
				if !strings.HasPrefix(through.Error(), bare.Error()) {
					t.Errorf("got %q, want %q", through, bare)
				}
			})
		})
	}
}

func TestWireBrokenAnswers(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\n"
	for _, test := range []struct {
		name, answer string
		attempts     int // 1: headers came
		end          error
	}{
		{"nothing", "", 3, io.EOF},
		{"a line", head + "Content-Le", 3, nil},
		{"headers cut", head + "A: b\r\n", 3, io.ErrUnexpectedEOF},
		{"malformed", "HTTP/1.1 s3cr3t\r\n\r\n", 3, nil},
		{"malformed header", head + "s3cr3t\r\n\r\n", 3, nil},
		{"body cut", head + "Content-Length: 10\r\n\r\nhalf", 1, io.ErrUnexpectedEOF},
		{"chunk cut", head + "Transfer-Encoding: chunked\r\n\r\na\r\nhalf", 1, io.ErrUnexpectedEOF},
	} {
		t.Run(test.name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				asked := &arrivals{c: c}
				w := newWire(t, c, "http1", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
					asked.note()
					conn, _, _ := http.NewResponseController(rw).Hijack()
					io.WriteString(conn, test.answer)
					conn.Close()
				}), retrying(noWait))
				r := do(c, w, request(t, t.Context(), "GET", kinds[0].url+"?key=s3cr3t", nil))
				if r.err == nil {
					t.Fatal("no error")
				}
				if test.end != nil && !errors.Is(r.err, test.end) {
					t.Errorf("got %v, want %v", r.err, test.end)
				}
				equal(t, "the number of requests", len(asked.list()), test.attempts)
				if strings.Contains(r.err.Error(), "s3cr3t") {
					t.Errorf("a secret in %q", r.err)
				}
				if test.attempts > 1 {
					e := wantError(t, r.err)
					equal(t, "what was sent", e.Sent, layers.MaybeSent)
					equal(t, "the reason", e.Reason, layers.ReasonAttempts)
				}
			})
		})
	}
}

// TestWireHopeless: what will fail again is sent, or tried, once.
func TestWireHopeless(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		w := newWire(t, c, "tls1", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), policy.Policy{})
		w.net.Serve("forged.test", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		w.base.TLSClientConfig.ServerName = "api.test"
		for name, change := range map[string]func(*http.Request){
			"certificate": func(r *http.Request) { r.URL.Host = "forged.test" },
			"scheme":      func(r *http.Request) { r.URL.Scheme = "gopher" },
			"header":      func(r *http.Request) { r.Header["X"] = []string{"s3cr3t\n"} },
			"no host":     func(r *http.Request) { r.URL.Host = "" },
			"method":      func(r *http.Request) { r.Method = "not one" },
		} {
			before := w.dials.Load()
			body := &closeCounter{Reader: strings.NewReader("x")}
			req := request(t, t.Context(), "PUT", "https://api.test", body)
			change(req)
			r := do(c, w, req)
			e := wantError(t, r.err)
			equal(t, name+": the reason", e.Reason, layers.ReasonNotRetryable)
			equal(t, name+": the number of attempts", e.Attempts, 1)
			if name == "certificate" {
				equal(t, name+": what was sent", e.Sent, layers.Unsent)
			}
			equal(t, name+": the number of closes", int(body.closes.Load()), 1)
			wantTook(t, r, 0)
			if dials := w.dials.Load() - before; dials > 1 {
				t.Errorf("%s: %d dials", name, dials)
			}
			if strings.Contains(e.Error(), "s3cr3t") {
				t.Errorf("a secret in %q", e)
			}
		}
	})
}

// countedConn counts the writes of a client.
type countedConn struct {
	net.Conn
	writes *atomic.Int32
}

func (c countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// TestWireUnfitRequests: a request that cannot be sent as it is, or does not hold
// what it says, is tried once, and nobody else's call pays for it.
func TestWireUnfitRequests(t *testing.T) {
	eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
		w := newWire(t, c, kind, http.HandlerFunc(echo), settings(policy.Settings{Breaker: policy.Breaker{Failures: 1}, Retry: noWait}))
		wantStatus(t, do(c, w, request(t, t.Context(), "GET", url, nil)), 200)
		for name, change := range map[string]func(*http.Request){
			"header":             func(r *http.Request) { r.Header["X"] = []string{"\n"} },
			"header name":        func(r *http.Request) { r.Header["X\n"] = nil },
			"method":             func(r *http.Request) { r.Method = "not one" },
			"scheme":             func(r *http.Request) { r.URL.Scheme = "gopher" },
			"trailer":            func(r *http.Request) { r.ContentLength, r.Trailer = -1, http.Header{"X": {"\n"}} },
			"too long":           func(r *http.Request) { r.ContentLength = 1 },
			"too long a stream":  func(r *http.Request) { r.ContentLength, r.Body = 1, io.NopCloser(plain{r.Body}) },
			"too short":          func(r *http.Request) { r.ContentLength = 99 },
			"too short a stream": func(r *http.Request) { r.ContentLength, r.Body = 99, io.NopCloser(plain{r.Body}) },
		} {
			req := request(t, t.Context(), "PUT", url, strings.NewReader("hello"))
			change(req)
			if muxed(kind) && name == "method" {
				continue // it goes out as it is
			}
			r := do(c, w, req)
			if r.err == nil && strings.HasPrefix(name, "too long") {
				continue // the server was faster
			}
			e := wantError(t, r.err)
			equal(t, name+": the reason", e.Reason, layers.ReasonNotRetryable)
			equal(t, name+": the number of attempts", e.Attempts, 1)
			for _, b := range w.Breakers() {
				equal(t, name+": the circuit", b.State(), layers.StateClosed)
			}
		}
	})
}

// TestWireOneWrite: a small body goes out with its headers, as without weir.
func TestWireOneWrite(t *testing.T) {
	for name, body := range map[string]func() io.Reader{
		"bytes":   func() io.Reader { return bytes.NewReader(make([]byte, 100)) },
		"buffer":  func() io.Reader { return bytes.NewBuffer(make([]byte, 100)) },
		"strings": func() io.Reader { return strings.NewReader(strings.Repeat("x", 100)) },
		"none":    func() io.Reader { return http.NoBody },
		"nil":     func() io.Reader { return nil },
	} {
		for _, attempts := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, attempt %d", name, attempts), func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					var writes, asked atomic.Int32
					w := newWire(t, c, "http1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
						equal(t, "the transfer encoding", len(r.TransferEncoding), 0)
						if name != "none" && name != "nil" {
							equal(t, "the length", r.ContentLength, 100)
						}
						if int(asked.Add(1)) < attempts {
							rw.WriteHeader(503)
						}
					}), settings(everything()))
					dial := w.base.DialContext
					w.base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
						conn, err := dial(ctx, network, addr)
						return countedConn{conn, &writes}, err
					}
					r := do(c, w, request(t, t.Context(), "PUT", kinds[0].url, body()))
					wantStatus(t, r, 200)
					equal(t, "the number of writes", int(writes.Load()), attempts)
				})
			})
		}
	}
}

// seen is what a caller can see of a response.
type seen struct {
	status        int
	proto         string
	header        string
	length        int64
	encoding      string
	uncompressed  bool
	announced     string // trailer, before the body is read
	trailer       string
	body          string
	noBody, close bool
	tls           bool
	err           string
}

func look(t *testing.T, rt http.RoundTripper, req *http.Request) seen {
	t.Helper()
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	s := seen{
		status: resp.StatusCode, proto: resp.Proto, header: fmt.Sprint(resp.Header), length: resp.ContentLength,
		encoding: fmt.Sprint(resp.TransferEncoding), uncompressed: resp.Uncompressed, announced: fmt.Sprint(resp.Trailer),
		noBody: resp.Body == http.NoBody, close: resp.Close, tls: resp.TLS != nil,
	}
	b, err := io.ReadAll(resp.Body)
	s.body = string(b)
	if err != nil {
		s.err = err.Error()
	}
	resp.Body.Close()
	s.trailer = fmt.Sprint(resp.Trailer)
	return s
}

// TestWireResponsesAreUnchanged: what a caller gets is what the base gives.
func TestWireResponsesAreUnchanged(t *testing.T) {
	for _, test := range []struct {
		name, method string
		h            http.HandlerFunc
	}{
		{"body", "GET", func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "hello") }},
		{"chunks", "GET", func(rw http.ResponseWriter, _ *http.Request) {
			io.WriteString(rw, "hel")
			http.NewResponseController(rw).Flush()
			io.WriteString(rw, "lo")
		}},
		{"trailers", "GET", func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Trailer", "X-Sum")
			io.WriteString(rw, "hello")
			rw.Header().Set("X-Sum", "42")
			rw.Header().Set(http.TrailerPrefix+"X-Late", "43")
		}},
		{"HEAD", "HEAD", func(rw http.ResponseWriter, _ *http.Request) { rw.Header().Set("Content-Length", "1000") }},
		{"HEAD with gzip", "HEAD", func(rw http.ResponseWriter, _ *http.Request) { rw.Header().Set("Content-Encoding", "gzip") }},
		{"204", "DELETE", func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(204) }},
		{"304", "GET", func(rw http.ResponseWriter, _ *http.Request) { rw.Header().Set("Etag", "x"); rw.WriteHeader(304) }},
		{"empty", "GET", func(http.ResponseWriter, *http.Request) {}},
		{"gzip", "GET", func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(rw)
			io.WriteString(z, strings.Repeat("hello", 100))
			z.Close()
		}},
		{"404", "GET", http.NotFound},
		{"close", "GET", func(rw http.ResponseWriter, _ *http.Request) { rw.Header().Set("Connection", "close") }},
		{"302", "GET", func(rw http.ResponseWriter, r *http.Request) { http.Redirect(rw, r, "/next", 302) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				rw.Header()["Date"] = nil
				test.h(rw, r)
			})
			eachSubject(t, h, "", nil, func(t *testing.T, p *party) {
				want := look(t, p.base, request(t, t.Context(), test.method, p.url, nil))
				if got := look(t, p, request(t, t.Context(), test.method, p.url, nil)); got != want {
					t.Errorf("got  %+v\nwant %+v", got, want)
				}
			})
		})
	}
}

// TestWireRequestTrailers: those that the caller sets while its body is read are
// sent, though weir works on copies of the request.
func TestWireRequestTrailers(t *testing.T) {
	var sums []string
	h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		sums = append(sums, string(b)+" "+r.Trailer.Get("X-Sum"))
		if len(sums) == 1 {
			rw.WriteHeader(503)
		}
	})
	eachSubject(t, h, "", nil, func(t *testing.T, p *party) {
		sums = nil
		req := request(t, t.Context(), "PUT", p.url, nil)
		req.Trailer = http.Header{"X-Sum": nil}
		req.ContentLength = -1
		req.GetBody = func() (io.ReadCloser, error) {
			return plain{io.MultiReader(strings.NewReader("hello"), atEnd(func() { req.Trailer.Set("X-Sum", "42") }))}, nil
		}
		req.Body, _ = req.GetBody()
		r := do(p.c, p, req)
		wantStatus(t, r, []int{503, 200}[len(sums)-1])
		for _, sum := range sums {
			equal(t, "what arrived", sum, "hello 42")
		}
	})
}

// atEnd is the end of a body, and what happens then.
type atEnd func()

func (f atEnd) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}

// TestWireInterim: 1xx answers and the caller's own trace pass as without weir.
func TestWireInterim(t *testing.T) {
	h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Link", "</style.css>")
		rw.WriteHeader(103)
		rw.WriteHeader(103)
		io.Copy(io.Discard, r.Body)
		io.WriteString(rw, "hello")
	})
	eachSubject(t, h, "", nil, func(t *testing.T, p *party) {
		p.base.ExpectContinueTimeout = 10 * time.Second
		trace := func(rt http.RoundTripper) string {
			var mu sync.Mutex
			seen := map[string]int{}
			note := func(what string) {
				mu.Lock()
				defer mu.Unlock()
				seen[what]++
			}
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				GetConn: func(string) { note("GetConn") }, GotConn: func(httptrace.GotConnInfo) { note("GotConn") },
				PutIdleConn: func(error) { note("PutIdleConn") }, GotFirstResponseByte: func() { note("GotFirstResponseByte") },
				Got100Continue: func() { note("Got100Continue") }, Wait100Continue: func() { note("Wait100Continue") },
				Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
					note(fmt.Sprint(code, h.Get("Link")))
					return nil
				},
				WroteHeaderField: func(key string, _ []string) { note(key) },
				WroteHeaders:     func() { note("WroteHeaders") }, WroteRequest: func(i httptrace.WroteRequestInfo) { note(fmt.Sprint("WroteRequest ", i.Err)) },
			})
			req := request(t, ctx, "PUT", p.url, strings.NewReader("hello"))
			req.Header.Set("Expect", "100-continue")
			equal(t, "the body", look(t, rt, req).body, "hello")
			p.c.Add(0)
			mu.Lock()
			defer mu.Unlock()
			return fmt.Sprint(seen)
		}
		_ = trace(p.base) // dials
		want := trace(p.base)
		equal(t, "the trace", regexp.MustCompile(` (?i:Authorization):1`).ReplaceAllString(trace(p), ""), want)
		has(t, want, "103</style.css>:2")
		if !muxed(p.kind) {
			has(t, want, "Got100Continue:1")
		}
	})
}

// TestWireExpectContinue: the wait for 100 Continue is a wait for the server's
// word, and the body is not touched before it.
func TestWireExpectContinue(t *testing.T) {
	const continues = 20 * time.Second
	for _, test := range []struct {
		name string
		h    http.HandlerFunc
		body string
		took time.Duration
		read bool
	}{
		{"granted", func(rw http.ResponseWriter, r *http.Request) {
			time.Sleep(3 * time.Second)
			b, _ := io.ReadAll(r.Body)
			rw.Write(b)
		}, "hello", 3 * time.Second, true},
		{"refused", func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(417) }, "", 0, false},
		{"never", func(_ http.ResponseWriter, r *http.Request) { gone(r) }, "", 4 * time.Second, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, kind := range kinds[:2] { // HTTP/2 has no such wait in net/http's server
				t.Run(kind.name, func(t *testing.T) {
					clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
						w := newWire(t, c, kind.name, test.h, once(policy.Timeouts{Write: time.Second, Read: 4 * time.Second}))
						w.base.ExpectContinueTimeout = continues
						body := &closeCounter{Reader: strings.NewReader("hello")}
						req := request(t, t.Context(), "POST", kind.url, body)
						req.Header.Set("Expect", "100-continue")
						r := do(c, w, req)
						wantTook(t, r, test.took)
						equal(t, "the body", r.body, test.body)
						if test.name == "never" {
							wantTimeout(t, r.err, layers.PhaseRead)
						}
						left, _ := io.ReadAll(body.Reader)
						equal(t, "whether the caller's body was read", len(left) == 0, test.read)
						c.Add(0)
						equal(t, "the number of closes", int(body.closes.Load()), 1)
					})
				})
			}
		})
	}
}

// TestWireUpgrade: a 101 is a connection of the caller's, with no clock on it.
func TestWireUpgrade(t *testing.T) {
	h := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		conn, both, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		for {
			line, err := both.ReadString('\n')
			if err != nil {
				io.WriteString(conn, "bye")
				return
			}
			io.WriteString(conn, line)
		}
	})
	ended := 0
	count := func(*testing.T, *party) *user {
		ended = 0
		return &user{told: func(_ context.Context, e layers.Event) {
			if e.Kind == layers.KindEnd {
				ended++
			}
		}}
	}
	eachSubject(t, h, "http1 tls1", count, func(t *testing.T, p *party) {
		req := request(t, t.Context(), "GET", p.url, nil)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		resp, err := p.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "the status", resp.StatusCode, 101)
		rwc, ok := resp.Body.(io.ReadWriteCloser)
		if !ok {
			t.Fatalf("the body is a %T", resp.Body)
		}
		lines := bufio.NewReader(rwc)
		for range 3 {
			p.c.Add(time.Hour)
			io.WriteString(rwc, "hello\n")
			line, err := lines.ReadString('\n')
			if line != "hello\n" || err != nil {
				t.Fatalf("got %q, %v", line, err)
			}
		}
		equal(t, "how often the call ended", ended, 0)
		half, ok := rwc.(interface{ CloseWrite() error })
		if !ok {
			t.Fatalf("a %T has no CloseWrite", rwc)
		}
		if err := half.CloseWrite(); err != nil {
			t.Error(err)
		}
		rest, err := io.ReadAll(lines)
		if string(rest) != "bye" || err != nil {
			t.Errorf("after CloseWrite: %q, %v", rest, err)
		}
		for range 2 {
			rwc.Close()
		}
		if _, ok := layers.CallFrom(resp.Request.Context()); ok {
			equal(t, "how often the call ended", ended, 1)
		}
	})
}

// TestWireUnsentIsProven: an error before a connection was there is proof, over
// every kind of proxy and network.
func TestWireUnsentIsProven(t *testing.T) {
	eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
		w := newWire(t, c, kind, nil, retrying(noWait))
		r := do(c, w, request(t, t.Context(), "POST", url, strings.NewReader("x")))
		e := wantError(t, r.err)
		equal(t, "what was sent", e.Sent, layers.Unsent)
		equal(t, "whether it can be repeated", e.Retryable, true)
		equal(t, "the number of attempts", e.Attempts, 3)
		equal(t, "the phase", e.Phase, layers.PhaseConnect)
	})
	for _, kind := range []string{"tls1", "http2"} { // the peer speaks no TLS
		t.Run("no TLS "+kind, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				w := newWire(t, c, kind, nil, retrying(noWait))
				l := w.net.Listen("api.test:443")
				go func() {
					for {
						conn, err := l.Accept()
						if err != nil {
							return
						}
						conn.Read(make([]byte, 1024))
						io.WriteString(conn, "220 mail ready\r\n")
						conn.Close()
					}
				}()
				e := wantError(t, do(c, w, request(t, t.Context(), "POST", kinds[1].url, strings.NewReader("x"))).err)
				equal(t, "what was sent", e.Sent, layers.Unsent)
				equal(t, "the number of attempts", e.Attempts, 3)
				if _, ok := errors.AsType[tls.RecordHeaderError](e); !ok {
					t.Errorf("got %v", e)
				}
			})
		})
	}
}
