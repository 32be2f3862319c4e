package transport_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	neturl "net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// splice passes on what two connections say to each other, until one ends.
func splice(a io.ReadWriteCloser, fromA io.Reader, b io.ReadWriteCloser) {
	var both sync.WaitGroup
	pass := func(to io.WriteCloser, from io.Reader) {
		io.Copy(to, from)
		a.Close()
		b.Close()
	}
	both.Go(func() { pass(b, fromA) })
	both.Go(func() { pass(a, b) })
	both.Wait()
}

// httpProxy serves as a proxy: it forwards requests, and tunnels for CONNECT after a while.
func httpProxy(wait func()) http.Handler {
	onward := &httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}, ErrorLog: log.New(io.Discard, "", 0), Transport: &http.Transport{DisableKeepAlives: true}}
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			onward.ServeHTTP(rw, r)
			return
		}
		wait()
		to, err := net.Dial("tcp", r.Host)
		if err != nil {
			rw.WriteHeader(502)
			return
		}
		conn, buf, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			panic(err)
		}
		io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		splice(conn, buf, to)
	})
}

// socksProxy serves SOCKS, with a while before each answer.
func socksProxy(l net.Listener, wait func()) {
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		conns.Go(func() {
			defer conn.Close()
			r := bufio.NewReader(conn)
			head := make([]byte, 3)
			if _, err := io.ReadFull(r, head); err != nil {
				return
			}
			wait()
			conn.Write([]byte{5, 0})
			ask := make([]byte, 10) // IPv4
			if _, err := io.ReadFull(r, ask); err != nil {
				return
			}
			to, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: ask[4:8], Port: int(ask[8])<<8 | int(ask[9])})
			if err != nil {
				return
			}
			wait()
			conn.Write([]byte{5, 0, 0, 1, 127, 0})
			conn.Write([]byte{0, 1, 0, 0})
			splice(conn, r, to)
		})
	}
}

// openConn tells when it is closed.
type openConn struct {
	net.Conn
	once sync.Once
	open *sync.WaitGroup
}

func (c *openConn) Close() error {
	c.once.Do(c.open.Done)
	return c.Conn.Close()
}

// start starts a server that hesitates in the handshake, if it has one.
func start(s *httptest.Server, secure, http2 bool, most *atomic.Int64) {
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if s.EnableHTTP2 = http2; !secure {
		s.Start()
		return
	}
	s.Listener = hesitant{s.Listener, most}
	s.StartTLS()
}

// TestBaseNeverBreaksAnothersConnection: connect phases that expire at the very
// moment at which a handshake succeeds, with the server or a proxy, and other requests
// take over the connection. A request then succeeds, or fails by a timeout of its own,
// and no socket is left.
func TestBaseNeverBreaksAnothersConnection(t *testing.T) {
	for _, test := range []struct {
		proxy         string // its scheme
		secure, http2 bool
		waits         int64 // until there is a connection
	}{
		{"", true, false, 1},
		{"", true, true, 1},
		{"socks5", false, false, 2},
		{"socks5", true, false, 3},
		{"http", true, true, 2},
		{"https", false, false, 1},
		{"https", true, false, 3},
		{"https", true, true, 3},
	} {
		t.Run(fmt.Sprintf("proxy=%s,secure=%v,http2=%v", test.proxy, test.secure, test.http2), func(t *testing.T) {
			var most atomic.Int64
			wait := func() { time.Sleep(time.Duration(rand.N(max(1, most.Load())))) }
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if !test.http2 && rand.N(4) == 0 {
					w.Header().Set("Connection", "close") // so that there are dials all the time
				}
				io.WriteString(w, "fine")
			}))
			start(server, test.secure, test.http2, &most)
			defer server.Close()
			var open sync.WaitGroup
			base := transport.Base()
			base.DialContext = layers.DialContext(func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				open.Add(1)
				return &openConn{Conn: conn, open: &open}, nil
			})
			base.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig
			base.MaxConnsPerHost = 12
			base.IdleConnTimeout = time.Second // CloseIdleConnections leaves what is dialed for HTTP/2 just then
			if !test.http2 {
				base.Protocols = new(http.Protocols)
				base.Protocols.SetHTTP1(true)
			}
			switch test.proxy {
			case "":
			case "socks5":
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				go socksProxy(l, wait)
				base.Proxy = http.ProxyURL(&neturl.URL{Scheme: test.proxy, Host: l.Addr().String()})
			default:
				s := httptest.NewUnstartedServer(httpProxy(wait))
				start(s, test.proxy == "https", false, &most)
				defer s.Close()
				if test.proxy == "https" {
					base.TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig // which are all of one certificate
				}
				base.Proxy = http.ProxyURL(&neturl.URL{Scheme: test.proxy, Host: s.Listener.Addr().String()})
			}
			var fine, late atomic.Int32
			// On a busy machine a handshake takes its time.
			for limit := time.Duration(test.waits) * 15 * time.Millisecond; fine.Load() == 0 && limit < 5*time.Second; limit *= 2 {
				most.Store(2 * int64(limit) / test.waits)
				tr := newTransport(t, nil, base, once(policy.Timeouts{Connect: limit}))
				var callers sync.WaitGroup
				for range 16 {
					callers.Go(func() {
						for range 20 / test.waits {
							resp, err := tr.RoundTrip(request(t, t.Context(), "GET", server.URL, nil))
							if err == nil {
								_, err = io.Copy(io.Discard, resp.Body)
								resp.Body.Close()
							}
							if test.http2 && rand.N(4) == 0 { // as a GOAWAY would, but it ends others' sends
								base.CloseIdleConnections()
							}
							var e *layers.Error
							switch {
							case err == nil:
								fine.Add(1)
							case errors.As(err, &e) && e.Phase == layers.PhaseConnect && e.Layer == "timeouts":
								late.Add(1)
							default:
								t.Errorf("a request failed: %v (%T)", err, err)
							}
						}
					})
				}
				callers.Wait()
			}
			t.Logf("%d were fine, %d late", fine.Load(), late.Load())
			if fine.Load() == 0 {
				t.Error("none succeeded")
			}
			base.CloseIdleConnections()
			open.Wait()
		})
	}
}
