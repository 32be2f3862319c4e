package hostile

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/benbjohnson/clock"
	"golang.org/x/net/http2"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// TestBeginsAnew: net/http begins a request anew, at once and for ever, on a new
// connection after each that turns it down, also if that does not say that it did
// nothing. A send ends after the second, and what the first did is not known.
func TestBeginsAnew(t *testing.T) {
	protocol := func(p *peer) error { return p.WriteRSTStream(p.stream, http2.ErrCodeProtocol) }
	leave := func(p *peer) error { return p.WriteGoAway(0, http2.ErrCodeNo, nil) }
	anger := func(p *peer) error { return p.WriteGoAway(0, http2.ErrCodeInternal, nil) }
	for _, test := range []struct {
		name        string
		first, then func(p *peer) error
		sent        layers.Sent
	}{
		{"PROTOCOL_ERROR", protocol, protocol, layers.MaybeSent},
		{"GOAWAY", leave, leave, layers.MaybeSent},
		{"PROTOCOL_ERROR, then GOAWAY in anger", protocol, anger, layers.MaybeSent},
		{"GOAWAY in anger", anger, anger, layers.Unsent},
	} {
		for body, length := range map[string]int{"no body": 0, "a body": 1, "a long body": 100 << 10} {
			t.Run(test.name+", "+body, func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, _ *clocktest.Clock) {
					var asked atomic.Int32
					network := clocktest.NewNetwork(t)
					l := network.Listen("api.test:80")
					defer l.Close()
					go accepts(l, speaks(func(p *peer) error {
						if asked.Add(1) == 1 {
							return test.first(p)
						}
						return test.then(p)
					}))
					base := transport.Base()
					base.DialContext = layers.DialContext(network.DialContext)
					base.Protocols = new(http.Protocols)
					base.Protocols.SetUnencryptedHTTP2(true)
					tr, err := transport.New(transport.Config{Base: base, Clock: clock.New(), Policy: policy.Policy{
						Settings: policy.Settings{Retry: policy.Retry{MaxAttempts: 2, Budget: policy.Off}},
					}})
					if err != nil {
						t.Fatal(err)
					}
					defer tr.CloseIdleConnections()
					req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://api.test/", bytes.NewReader(make([]byte, length)))
					if err != nil {
						t.Fatal(err)
					}
					_, err = tr.RoundTrip(req) //nolint:bodyclose // There is none.
					e, ok := errors.AsType[*layers.Error](err)
					if !ok || e.Layer != "base" || e.Sent != test.sent || e.Retryable != (test.sent == layers.Unsent) {
						t.Errorf("it ends in %+v", err)
					}
					if got := asked.Load(); got != 2 {
						t.Errorf("%d requests, want 2", got)
					}
				})
			})
		}
	}
}

// accepts serves each connection of l.
func accepts(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			serve(c)
		}()
	}
}
