package clocktest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	. "github.com/weir-go/weir/clocktest"
)

// A real server and a real transport, over HTTP/1 and HTTP/2, at exact times.
func TestServe(t *testing.T) {
	for _, url := range []string{"http://a.test/", "https://a.test/", "https://127.0.0.1/", "https://[::1]/"} {
		Run(t, func(t *testing.T, c *Clock) {
			l := &timeline{c: c}
			n := NewNetwork(t)
			for _, host := range []string{"a.test", "127.0.0.1", "::1"} {
				n.Serve(host, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					l.add("server reads %s over %s", r.Method, r.Proto)
					io.Copy(io.Discard, r.Body)
					c.Sleep(2 * time.Second)
					w.WriteHeader(202)
					w.(http.Flusher).Flush()
					c.Sleep(3 * time.Second)
					io.WriteString(w, "body")
				}))
			}
			n.Delay("a.test:80", time.Second)
			n.Delay("a.test:443", time.Second)
			n.Delay("127.0.0.1:443", time.Second)
			n.Delay("[::1]:443", time.Second)
			transport := n.Transport()
			for range 2 {
				req, err := http.NewRequestWithContext(t.Context(), "PUT", url, strings.NewReader("request"))
				if err != nil {
					t.Fatal(err)
				}
				send(l, transport, req)
			}
			proto := "HTTP/2.0"
			if strings.HasPrefix(url, "http:") {
				proto = "HTTP/1.1"
			}
			l.check(t,
				"1s server reads PUT over "+proto, "3s 202 Accepted", `6s "body"`, "6s EOF",
				"6s server reads PUT over "+proto, "8s 202 Accepted", `11s "body"`, "11s EOF")
		})
	}
}

// A test may end before its server's handlers do.
func TestServeOutlivesTest(t *testing.T) {
	var served atomic.Int32
	Run(t, func(t *testing.T, c *Clock) {
		n := NewNetwork(t)
		n.Serve("a.test", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			c.Sleep(time.Hour)
			served.Add(1)
		}))
		for _, url := range []string{"http://a.test/", "https://a.test/"} {
			client := &http.Client{Transport: n.Transport(), Timeout: time.Second}
			if _, err := client.Get(url); !os.IsTimeout(err) {
				t.Error(err)
			}
		}
	})
	if n := served.Load(); n != 2 {
		t.Errorf("%d handlers returned", n)
	}
}

func TestConnectHooks(t *testing.T) {
	Run(t, func(t *testing.T, c *Clock) {
		l := &timeline{c: c}
		n := NewNetwork(t)
		n.Serve("a.test", http.NotFoundHandler())
		n.Delay("a.test:80", time.Second)
		transport := n.Transport()
		for range 2 {
			req := request(traced(t.Context(), l), nil)
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		l.check(t, "0s GetConn a.test:80", "0s ConnectStart a.test:80", "1s ConnectDone a.test:80 <nil>",
			"1s GotConn true false false", "1s WroteHeaders", "1s WroteRequest <nil>", "1s GotFirstResponseByte",
			"1s GetConn a.test:80", "1s GotConn true true true", "1s WroteHeaders", "1s WroteRequest <nil>", "1s GotFirstResponseByte")
	})
}

// Every way not to answer, over a transport with timeouts of its own.
func TestFaults(t *testing.T) {
	for name, test := range map[string]struct {
		url   string
		after time.Duration
		err   string
	}{
		"refused":   {"http://nobody.test/", 0, "dial tcp nobody.test:80: connect: connection refused"},
		"blackhole": {"http://hole.test/", time.Hour, "mine"},
		"unread":    {"http://mute.test/", 2 * time.Second, "net/http: timeout awaiting response headers"},
		"TLS":       {"https://mute.test/", 3 * time.Second, "net/http: TLS handshake timeout"},
		"HTTP/1":    {"http://hung.test/", 2 * time.Second, "net/http: timeout awaiting response headers"},
		"HTTP/2":    {"https://hung.test/", 2 * time.Second, "http2: timeout awaiting response headers"},
		"reset":     {"http://reset.test/", time.Second, "read tcp client:49152->reset.test:80: read: connection reset by peer"},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(t *testing.T, c *Clock) {
				n := NewNetwork(t)
				n.Blackhole("hole.test:80")
				n.Listen("mute.test:80")
				n.Listen("mute.test:443")
				n.Serve("hung.test", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
				n.Serve("reset.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					c.Sleep(time.Second)
					conn, _, err := http.NewResponseController(w).Hijack()
					if err != nil {
						t.Error(err)
					}
					conn.(interface{ Reset() }).Reset()
				}))
				transport := n.Transport()
				transport.ResponseHeaderTimeout = 2 * time.Second
				transport.TLSHandshakeTimeout = 3 * time.Second
				ctx, cancel := context.WithCancelCause(t.Context())
				c.AfterFunc(time.Hour, func() { cancel(errMine) })
				req, err := http.NewRequestWithContext(ctx, "GET", test.url, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, err = transport.RoundTrip(req)
				if err == nil || err.Error() != test.err || c.Elapsed() != test.after {
					t.Errorf("after %v: %v", c.Elapsed(), err)
				}
			})
		})
	}
}

func TestDialEnds(t *testing.T) {
	Run(t, func(t *testing.T, c *Clock) {
		n := NewNetwork(t)
		n.Listen("slow.test:80")
		n.Delay("slow.test:80", time.Minute)
		for d, want := range map[time.Duration]error{
			time.Minute - 1: context.DeadlineExceeded,
			time.Minute:     nil, // there in time
		} {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			_, err := n.DialContext(ctx, "tcp", "slow.test:80")
			cancel()
			if !errors.Is(err, want) {
				t.Errorf("%v: %v", d, err)
			}
			var op *net.OpError
			if want != nil && (!errors.As(err, &op) || op.Op != "dial" || !op.Timeout()) {
				t.Errorf("%v: %#v", d, err)
			}
		}
	})
}

func TestListener(t *testing.T) {
	Run(t, func(t *testing.T, c *Clock) {
		n := NewNetwork(t)
		l := n.Listen("a.test:1")
		dial := func() (net.Conn, error) { return n.DialContext(t.Context(), "tcp", "a.test:1") }
		first, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		second, _ := dial()
		c.AfterFunc(time.Second, func() { l.Close() })
		conn, err := l.Accept()
		if err != nil || conn.RemoteAddr().String() != first.LocalAddr().String() || conn.LocalAddr().String() != l.Addr().String() {
			t.Errorf("%v, %v", conn, err)
		}
		c.Sleep(2 * time.Second)
		if _, err := second.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("never accepted: %v", err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept: %v", err)
		}
		if _, err := dial(); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial: %v", err)
		}
		n.Listen("a.test:1")
	})
}

// An address that nobody dials is a mistake, and not a host that refuses.
func TestAddressesThatNobodyDials(t *testing.T) {
	for want, f := range map[string]func(*Network){
		"missing port": func(n *Network) { n.Listen("a.test") },
		"clocktest":    func(n *Network) { n.Blackhole("a.test") },
		"Listen takes": func(n *Network) { n.Serve("a.test:8080", http.NotFoundHandler()) },
	} {
		Run(t, func(t *testing.T, _ *Clock) {
			n := NewNetwork(t)
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, want) {
					t.Errorf("panics with %q, want %q", text, want)
				}
			}()
			f(n)
		})
	}
}

func TestNetworkOutsideOfABubble(t *testing.T) {
	if out := failing(t, "TestFailOutside"); !strings.Contains(out, "outside of the bubble") || !strings.Contains(out, "network_test.go") {
		t.Error(out)
	}
}

func TestFailOutside(t *testing.T) {
	onlyOnPurpose(t)
	NewNetwork(t)
}

// conns returns both ends of a connection.
func conns(t *testing.T) (client, server net.Conn) {
	n := NewNetwork(t)
	l := n.Listen("a.test:1")
	client, err := n.DialContext(t.Context(), "tcp", "a.test:1")
	if err != nil {
		t.Fatal(err)
	}
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return client, server
}

func TestConnEnds(t *testing.T) {
	read := func(c net.Conn) error {
		c.SetReadDeadline(time.Now().Add(time.Second))
		_, err := io.ReadAll(c)
		return err
	}
	write := func(c net.Conn) error { _, err := c.Write([]byte("x")); return err }
	for name, test := range map[string]struct {
		end                                func(net.Conn)
		read, write, peerReads, peerWrites error
	}{
		"open":  {func(net.Conn) {}, os.ErrDeadlineExceeded, nil, os.ErrDeadlineExceeded, nil},
		"close": {func(c net.Conn) { c.Close() }, net.ErrClosed, net.ErrClosed, nil, syscall.EPIPE},
		"closed by peer first": {func(c net.Conn) { c.(interface{ CloseWrite() error }).CloseWrite(); c.Close() },
			net.ErrClosed, net.ErrClosed, nil, syscall.EPIPE},
		"half": {func(c net.Conn) { c.(interface{ CloseWrite() error }).CloseWrite() },
			os.ErrDeadlineExceeded, net.ErrClosed, nil, nil},
		"reset": {func(c net.Conn) { c.(interface{ Reset() }).Reset() },
			net.ErrClosed, net.ErrClosed, syscall.ECONNRESET, syscall.ECONNRESET},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(t *testing.T, c *Clock) {
				client, server := conns(t)
				write(client)
				test.end(client)
				for what, errs := range map[string][2]error{
					"read":        {read(client), test.read},
					"write":       {write(client), test.write},
					"peer reads":  {read(server), test.peerReads},
					"peer writes": {write(server), test.peerWrites},
				} {
					if !errors.Is(errs[0], errs[1]) {
						t.Errorf("%s: got %v, want %v", what, errs[0], errs[1])
					}
				}
			})
		})
	}
}

// Closing ends what waits at either end.
func TestConnWakes(t *testing.T) {
	Run(t, func(t *testing.T, c *Clock) {
		l := &timeline{c: c}
		read := func(conn net.Conn) {
			c.AfterFunc(0, func() { _, err := conn.Read(make([]byte, 1)); l.add("read: %v", err) })
		}
		write := func(conn net.Conn) {
			c.AfterFunc(0, func() { n, err := conn.Write(make([]byte, 1<<20)); l.add("wrote %d: %v", n, err) })
		}
		for _, do := range []func(net.Conn){read, write} {
			for _, near := range []bool{true, false} {
				client, server := conns(t)
				if near {
					do(client)
				} else {
					do(server)
				}
				c.Sleep(time.Second)
				client.Close()
				c.Add(0)
			}
		}
		l.check(t,
			"1s read: read tcp client:49152->a.test:1: use of closed network connection",
			"2s read: EOF",
			"3s wrote 65536: write tcp client:49152->a.test:1: use of closed network connection",
			"4s wrote 65536: write tcp a.test:1->client:49152: write: broken pipe")
	})
}

// TestNothingToWaitFor: a dial that takes no time, and a deadline in the past, make
// no timer, which the race detector would not survive for long.
func TestNothingToWaitFor(t *testing.T) {
	Run(t, func(t *testing.T, c *Clock) {
		n := NewNetwork(t)
		n.Listen("a.test:1")
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				client, err := n.DialContext(t.Context(), "tcp", "a.test:1")
				if err != nil {
					t.Error(err)
					return
				}
				for range 2000 {
					client.SetDeadline(time.Unix(1, 0))
				}
			})
		}
		all.Wait()
	})
}

func TestConnDeadlines(t *testing.T) {
	Run(t, func(t *testing.T, c *Clock) {
		client, _ := conns(t)
		l := &timeline{c: c}
		until := func(d time.Duration) time.Time { return c.Now().Add(d) }
		read := func() { _, err := client.Read(make([]byte, 1)); l.add("read %v", err) }

		client.SetDeadline(until(time.Second))
		read()
		n, err := client.Write([]byte("late"))
		l.add("write %d %v", n, err)

		client.SetDeadline(time.Time{})
		n, err = client.Write(make([]byte, 64<<10))
		l.add("write %d %v", n, err)
		client.SetWriteDeadline(until(time.Second))
		n, err = client.Write(make([]byte, 1))
		l.add("write %d %v", n, err)

		// A deadline that is moved, or set while a Read waits, counts as it is then.
		client.SetReadDeadline(until(time.Second))
		c.AfterFunc(time.Second/2, func() { client.SetReadDeadline(until(time.Minute)) })
		read()
		client.SetReadDeadline(time.Time{})
		c.AfterFunc(time.Second, func() { client.SetReadDeadline(c.Now()) })
		read()

		const timeout = "tcp client:49152->a.test:1: i/o timeout"
		l.check(t, "1s read read "+timeout, "1s write 0 write "+timeout,
			"1s write 65536 <nil>", "2s write 0 write "+timeout,
			"1m2.5s read read "+timeout, "1m3.5s read read "+timeout)
	})
}

func TestLargeBodies(t *testing.T) {
	Run(t, func(t *testing.T, c *Clock) {
		n := NewNetwork(t)
		n.Serve("a.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			w.Write(b)
		}))
		client := &http.Client{Transport: n.Transport()}
		body := bytes.Repeat([]byte("0123456789"), 100_000)
		for _, url := range []string{"http://a.test/", "https://a.test/"} {
			resp, err := client.Post(url, "", bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || !bytes.Equal(got, body) {
				t.Errorf("%s: %d bytes, %v", url, len(got), err)
			}
		}
		if c.Elapsed() != 0 {
			t.Errorf("took %v", c.Elapsed())
		}
	})
}
