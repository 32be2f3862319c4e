package transport_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
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

// hesitant is a listener whose connections take a while before they first
// write, each another while.
type hesitant struct {
	net.Listener
	most *atomic.Int64 // nanoseconds
}

func (l hesitant) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &hesitantConn{Conn: conn, wait: time.Duration(rand.N(max(1, l.most.Load())))}, nil
}

type hesitantConn struct {
	net.Conn
	wait time.Duration
	once sync.Once
}

func (c *hesitantConn) Write(p []byte) (int, error) {
	c.once.Do(func() { time.Sleep(c.wait) })
	return c.Conn.Write(p)
}

// lingering is a connection whose second Write returns late, though what it
// writes is on its way: in a handshake, the last thing that a client does.
type lingering struct {
	net.Conn
	writes int
}

func (c *lingering) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if c.writes++; c.writes == 2 {
		time.Sleep(3 * time.Second)
	}
	return n, err
}

// TestHandshakeThatSucceedsAsItIsGivenUp: the connection is whole, and serves
// the request that waits for the host's only slot.
func TestHandshakeThatSucceedsAsItIsGivenUp(t *testing.T) {
	for _, kind := range kinds[1:3] {
		t.Run(kind.name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				w := newWire(t, c, kind.name, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "fine") }),
					once(policy.Timeouts{Connect: 2 * time.Second}))
				w.base.MaxConnsPerHost = 1
				dials := 0
				w.base.DialContext = layers.DialContext(func(ctx context.Context, network, addr string) (net.Conn, error) {
					dials++
					conn, err := w.net.DialContext(ctx, network, addr)
					return &lingering{Conn: conn}, err
				})
				second := make(chan result)
				c.AfterFunc(time.Second, func() {
					second <- do(c, w, request(t, t.Context(), "POST", kind.url, strings.NewReader("x")))
				})
				first := do(c, w, request(t, t.Context(), "GET", kind.url, nil))
				wantTook(t, first, 2*time.Second)
				wantTimeout(t, first.err, layers.PhaseConnect)
				r := <-second
				wantStatus(t, r, 200)
				equal(t, "the time", c.Elapsed(), 3*time.Second)
				c.Add(time.Minute)
				wantStatus(t, do(c, w, request(t, t.Context(), "GET", kind.url, nil)), 200)
				equal(t, "the number of dials", dials, 1)
			})
		})
	}
}

// TestBaseThatDialsItself: under the context of its request, with the hooks of a pool.
func TestBaseThatDialsItself(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		n := clocktest.NewNetwork(t)
		n.Blackhole("api.test:80")
		dial := layers.DialContext(n.DialContext)
		tr := newTransport(t, c, layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			httptrace.ContextClientTrace(req.Context()).GetConn("api.test:80")
			_, err := dial(req.Context(), "tcp", "api.test:80")
			return nil, err
		}), once(policy.Timeouts{Connect: 2 * time.Second}))
		r := do(c, tr, request(t, t.Context(), "GET", "http://api.test", nil))
		wantTook(t, r, 2*time.Second)
		wantTimeout(t, r.err, layers.PhaseConnect)
	})
}

// TestBaseClosesSockets: what is aborted is closed, be it a handshake, or a
// request that waits.
func TestBaseClosesSockets(t *testing.T) {
	for _, test := range []struct {
		scheme string
		limits policy.Timeouts
		phase  layers.Phase
	}{
		{"https", policy.Timeouts{Connect: 20 * time.Millisecond}, layers.PhaseConnect},
		{"http", policy.Timeouts{Read: 20 * time.Millisecond}, layers.PhaseRead},
	} {
		t.Run(test.scheme, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			ended := make(chan error)
			go func() {
				conn, err := l.Accept()
				if err == nil {
					_, err = io.Copy(io.Discard, conn) // until the client closes
					conn.Close()
				}
				ended <- err
			}()
			base := transport.Base()
			defer base.CloseIdleConnections()
			base.MaxConnsPerHost = 1
			tr := newTransport(t, nil, base, once(test.limits))
			_, err = tr.RoundTrip(request(t, t.Context(), "GET", test.scheme+"://"+l.Addr().String(), nil))
			wantTimeout(t, err, test.phase)
			if err := <-ended; err != nil && !strings.Contains(err.Error(), "reset") {
				t.Error(err)
			}
		})
	}
}

// freezable is a connection that can go silent without being closed.
type freezable struct {
	net.Conn
	frozen atomic.Bool
	once   sync.Once
	closed chan struct{}
}

func (c *freezable) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.frozen.Load() && err == nil {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *freezable) Write(p []byte) (int, error) {
	if c.frozen.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *freezable) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// TestBaseFindsDeadConnections: an HTTP/2 connection that went silent is given
// up within half a minute, and calls go over a new one.
func TestBaseFindsDeadConnections(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		n := clocktest.NewNetwork(t)
		n.Serve("api.test", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "fine") }))
		var conns []*freezable
		base := transport.Base()
		base.Proxy, base.TLSClientConfig = nil, n.TLSClientConfig()
		dial := layers.DialContext(n.DialContext)
		base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			conns = append(conns, &freezable{Conn: conn, closed: make(chan struct{})})
			return conns[len(conns)-1], nil
		}
		t.Cleanup(base.CloseIdleConnections)
		tr := newTransport(t, c, base, once(policy.Timeouts{Read: 4 * time.Second}))
		ask := func() result { return do(c, tr, request(t, t.Context(), "GET", "https://api.test", nil)) }
		r := ask()
		wantStatus(t, r, 200)
		equal(t, "the protocol", r.resp.ProtoMajor, 2)
		conns[0].frozen.Store(true)
		wantTimeout(t, ask().err, layers.PhaseRead)
		c.Add(30*time.Second - 4*time.Second)
		wantStatus(t, ask(), 200)
		equal(t, "the number of connections", len(conns), 2)
	})
}

// TestBase: what callers may count on of the default base.
func TestBase(t *testing.T) {
	base := transport.Base()
	if transport.Base() == base {
		t.Error("two calls share a pool")
	}
	if h2 := base.HTTP2; !base.ForceAttemptHTTP2 || h2 == nil || h2.SendPingTimeout <= 0 || h2.PingTimeout <= 0 || h2.WriteByteTimeout <= 0 {
		t.Errorf("HTTP/2 is set to %+v", h2)
	}
	if base.TLSHandshakeTimeout <= 0 || base.ExpectContinueTimeout <= 0 || base.IdleConnTimeout <= 0 || base.Proxy == nil || base.DialContext == nil {
		t.Error("a bound is missing")
	}
	for status, passes := range map[int]bool{200: true, 403: false} {
		if err := base.OnProxyConnectResponse(t.Context(), nil, nil, &http.Response{StatusCode: status}); (err == nil) != passes {
			t.Errorf("after a proxy's %d: %v", status, err)
		}
	}
	if base.ResponseHeaderTimeout != 0 {
		t.Error("it bounds what the policy does")
	}
}
