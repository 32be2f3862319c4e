package transport

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/weir-go/weir/layers"
)

// Base returns an http.Transport that the timeouts of a policy act on in full:
// a connect phase that expires ends its dial, and frees the slot of
// MaxConnsPerHost, without touching a connection that another request was
// handed (see [layers.DialContext]); and a dead HTTP/2 connection is found by
// pings, at the latest 30 s after it went silent, instead of failing call after
// call. Its own timeouts only bound what a finished call leaves behind, such as the
// Close of a body over HTTP/2 while the socket takes nothing, and what nobody can
// end: a Read of such a body that has bytes, and waits to tell the server so. It
// takes a MiB of response headers, where net/http takes ten: a call may meet them in
// each of its sends.
//
// Each call returns a transport, and so a connection pool, of its own. Change
// its fields before the first use.
func Base() *http.Transport {
	dialer := net.Dialer{Timeout: leftover, KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         layers.DialContext(dialer.DialContext),
		TLSHandshakeTimeout: leftover,
		ForceAttemptHTTP2:   true,
		OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			return proxyRefusedError(resp.StatusCode) // net/http would repeat the proxy's words
		},
		MaxResponseHeaderBytes: 1 << 20,
		MaxIdleConns:           256,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        90 * time.Second,
		// A server that does not know Expect: 100-continue never answers it.
		ExpectContinueTimeout: time.Second,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout:  15 * time.Second,
			PingTimeout:      15 * time.Second,
			WriteByteTimeout: 30 * time.Second,
		},
	}
}

// proxyRefusedError is a proxy's answer to CONNECT.
type proxyRefusedError int

func (e proxyRefusedError) Error() string {
	return "the proxy refused to connect: status " + strconv.Itoa(int(e))
}

// leftover bounds a dial that nobody waits for any more.
const leftover = 5 * time.Minute
