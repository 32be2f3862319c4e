package transport_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	neturl "net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

const secret = "s3cr3t"

// A witness hears and keeps all that a stack says.
type witness struct {
	mu       sync.Mutex
	said     strings.Builder
	timeline layers.Timeline
	log      bytes.Buffer
	all      layers.Observer
}

func newWitness() *witness {
	w := new(witness)
	traced := layers.NewTracer(func(_ context.Context, t layers.Trace) {
		w.say("trace", fmt.Sprintf("%+v", t))
		w.say("trace", t.String())
		w.json("trace", t)
		w.chain("trace", t.Err)
		for _, s := range t.Spans {
			w.chain("span", s.Err)
		}
	})
	w.all = layers.Observers(&w.timeline, traced, layers.Log(slog.New(slog.NewJSONHandler(&w.log, nil))),
		layers.ObserverFunc(func(_ context.Context, e layers.Event) {
			w.say("event", e.String())
			w.say("event", e.LogValue().String())
			w.json("event", e)
			w.chain("event", e.Err)
		}))
	return w
}

func (w *witness) say(what, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(&w.said, "%s: %s\n", what, text)
}

// json says what a value is in JSON.
func (w *witness) json(what string, v any) {
	if text, err := json.Marshal(v); err == nil {
		w.say(what+" in JSON", string(text))
	}
}

// chain says what each error does that err wraps.
func (w *witness) chain(what string, err error) {
	if err == nil {
		return
	}
	w.say(what, err.Error())
	w.json(what, err)
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		w.chain(what+" <- "+fmt.Sprintf("%T", err), e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			w.chain(what+" <- ", err)
		}
	}
}

// check reports each line that tells a secret.
func (w *witness) check(t *testing.T) {
	t.Helper()
	w.say("timeline", w.timeline.String())
	w.say("log", w.log.String())
	for line := range strings.Lines(w.said.String()) {
		if strings.Contains(line, secret) || strings.Contains(line, "key=") {
			t.Errorf("a secret in %s", line)
		}
	}
}

// unsaid wraps an error without telling its text.
type unsaid struct{ error }

func (e unsaid) Error() string { return "no token" }
func (e unsaid) Unwrap() error { return e.error }

// answering is a listener that answers each connection with text.
func answering(n *clocktest.Network, addr, text string) {
	l := n.Listen(addr)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				conn.Read(make([]byte, 4096))
				io.WriteString(conn, text)
			}()
		}
	}()
}

// TestSecrets: what a request or an answer says is in no error, event, log or
// explanation, whatever fails.
func TestSecrets(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	raw := func(text string) http.Handler { return hijacked(0, strings.Split(text, "|")...) }
	failing := func(err error) func(p *secretive) {
		return func(p *secretive) {
			p.inner = around(func(_ http.RoundTripper, req *http.Request) (*http.Response, error) { return closing(req, err) })
		}
	}
	through := func(scheme, answer string) func(p *secretive) {
		return func(p *secretive) {
			proxy := &neturl.URL{Scheme: scheme, User: neturl.UserPassword("user", secret), Host: "proxy.test:80"}
			p.base.Proxy = http.ProxyURL(proxy)
			if answer != "" {
				answering(p.net, "proxy.test:80", answer)
			}
		}
	}
	tokenURL := "http://user:" + secret + "@auth.test/?key=" + secret
	for _, test := range []struct {
		name string
		h    http.Handler
		set  func(p *secretive)
	}{
		{"status line", raw("HTTP/1.1 " + secret + "\r\n\r\n"), nil},
		{"status code", raw("HTTP/1.1 2" + secret + " OK\r\n\r\n"), nil},
		{"another protocol", raw("220 " + secret + " ESMTP\r\n"), nil},
		{"version", raw(secret + "/1.1 200 OK\r\n\r\n"), nil},
		{"header without colon", raw(ok + secret + "\r\n\r\n"), nil},
		{"header name", raw(ok + "X " + secret + ": y\r\n\r\n"), nil},
		{"content length", raw(ok + "Content-Length: " + secret + "\r\n\r\n"), nil},
		{"content lengths", raw(ok + "Content-Length: 1\r\nContent-Length: " + secret + "\r\n\r\n"), nil},
		{"transfer encoding", raw(ok + "Transfer-Encoding: " + secret + "\r\n\r\n"), nil},
		{"chunk size", raw(ok + "Transfer-Encoding: chunked\r\n\r\n" + secret + "\r\n"), nil},
		{"chunk end", raw(ok + "Transfer-Encoding: chunked\r\n\r\n1\r\nx" + secret + "\r\n"), nil},
		{"trailer", raw(ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n" + secret + "\r\n\r\n"), nil},
		{"gzip", raw(ok + "Content-Encoding: gzip\r\nContent-Length: 22\r\n\r\n" + secret + "0123456789abcdef"), nil},
		{"interim", raw("HTTP/1.1 103 " + secret + "\r\n" + secret + "\r\n\r\n"), nil},
		{"body cut", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("X-Secret", secret)
			io.WriteString(rw, secret)
			panic(http.ErrAbortHandler)
		}), nil},
		{"busy", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Retry-After", secret)
			rw.WriteHeader(503)
			io.WriteString(rw, secret)
		}), nil},
		{"refused", nil, nil},
		{"no answer", http.HandlerFunc(never), nil},
		{"half an answer", http.HandlerFunc(halfway), nil},
		{"canceled", http.HandlerFunc(never), func(p *secretive) {
			ctx, cancel := context.WithCancel(p.req.Context())
			p.c.AfterFunc(time.Second, cancel)
			p.req = p.req.WithContext(ctx)
		}},
		{"a redirect", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "http://user:"+secret+"@nowhere.test/?key="+secret, 307)
		}), nil},
		{"a redirect that is none", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Location", "http://"+secret+"%zz/")
			rw.WriteHeader(302)
		}), nil},
		{"no TLS", nil, func(p *secretive) {
			p.req.URL.Scheme = "https"
			answering(p.net, "api.test:443", "220 "+secret+"\r\n")
		}},
		{"certificate", http.HandlerFunc(echo), func(p *secretive) {
			p.req.URL.Scheme = "https"
			p.base.TLSClientConfig.RootCAs = nil
		}},
		{"proxy refuses a tunnel", nil, func(p *secretive) {
			p.req.URL.Scheme = "https"
			p.base.OnProxyConnectResponse = transport.Base().OnProxyConnectResponse
			through("http", "HTTP/1.1 407 "+secret+"\r\nContent-Length: 0\r\n\r\n")(p)
		}},
		{"proxy answers a tunnel with garbage", nil, func(p *secretive) {
			p.req.URL.Scheme = "https"
			through("http", "HTTP/1.1 "+secret+"\r\n\r\n")(p)
		}},
		{"proxy answers with garbage", nil, through("http", secret+"\r\n\r\n")},
		{"proxy is not there", nil, through("http", "")},
		{"SOCKS proxy answers with garbage", nil, through("socks5", secret)},
		{"header value", nil, func(p *secretive) { p.req.Header["X"] = []string{secret + "\n"} }},
		{"header field", nil, func(p *secretive) { p.req.Header[secret+"\n"] = []string{"x"} }},
		{"method", nil, func(p *secretive) { p.req.Method = "not one" }},
		{"scheme", nil, func(p *secretive) { p.req.URL.Scheme = "gopher" }},
		{"no host", nil, func(p *secretive) { p.req.URL.Host = "" }},
		{"a token", nil, failing(&neturl.Error{Op: "Post", URL: tokenURL, Err: io.ErrUnexpectedEOF})},
		{"a token, wrapped", nil, failing(fmt.Errorf("minting: %w", &neturl.Error{Op: "Post", URL: tokenURL, Err: io.ErrUnexpectedEOF}))},
		{"a token, unsaid", nil, failing(unsaid{&neturl.Error{Op: "Post", URL: tokenURL, Err: io.EOF}})},
		{"two tokens", nil, failing(errors.Join(&neturl.Error{Op: "Post", URL: tokenURL, Err: io.EOF}, &neturl.Error{Op: "Get", URL: tokenURL, Err: io.EOF}))},
		{"a URL in a text", nil, failing(errors.New("cannot mint at " + tokenURL + ": no"))},
		{"a URL's fragment in a text", nil, failing(errors.New("sent to https://auth.test/#access_token=" + secret))},
		{"a path in a text", nil, failing(errors.New("GET /v1?key=" + secret + " failed"))},
		{"a URL in a dialer's text", nil, failing(&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("through " + tokenURL)})},
		{"a failure within a stream", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(rw, "data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":%q}}\n\n", secret)
		}), func(p *secretive) { p.streams() }},
		{"a stream that breaks off", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(rw, "data: {\"choices\":[{\"delta\":{\"content\":%q}}]}\n\n", secret)
		}), func(p *secretive) { p.streams() }},
		{"a stream that stalls", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(rw, "data: {\"choices\":[{\"delta\":{\"content\":%q}}]}\n\n", secret)
			halfway(rw, r)
		}), func(p *secretive) { p.streams() }},
		{"no slot", http.HandlerFunc(echo), func(p *secretive) { p.settings.Rate.Cost = func(*http.Request) int { return 1000 } }},
		{"a wrong override", http.HandlerFunc(echo), func(p *secretive) {
			p.req = p.req.WithContext(policy.WithOverride(p.req.Context(), policy.Settings{Deadline: time.Second, Timeouts: policy.Timeouts{Read: time.Minute}}))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				p := &secretive{wire: newWire(t, c, "tls1", test.h, policy.Policy{}), c: c, settings: everything(), inner: around(passOn)}
				p.settings.Deadline, p.settings.Timeouts, p.settings.Hedge.Delay = 10*time.Second, policy.Timeouts{}, 5*time.Second
				p.req = request(t, t.Context(), "PUT", "http://user:"+secret+"@api.test/v1?key="+secret+"#"+secret, strings.NewReader(secret))
				p.req.Header.Set("Authorization", "Bearer "+secret)
				if test.set != nil {
					test.set(p)
				}
				w := newWitness()
				tr := newTransport(t, c, p.base, settings(p.settings), inner(p.inner), observer(w.all.Observe))
				client := tr.Client()
				resp, err := client.Do(p.req)
				if outer, ok := errors.AsType[*neturl.Error](err); ok {
					err = outer.Err // http.Client itself tells the URL
				}
				if err == nil {
					_, err = io.ReadAll(resp.Body)
					resp.Body.Close()
				}
				if ours, ok := errors.AsType[*layers.Error](err); ok || test.name != "a redirect that is none" {
					if ok {
						err = ours
					}
					w.chain("error", err)
				}
				c.Add(time.Minute)
				e := tr.Explain(p.req)
				w.say("explanation", e.String())
				if b, err := json.Marshal(e); err == nil {
					w.say("explanation", string(b))
				}
				if _, unfit := errors.AsType[*policy.ConfigError](err); !unfit {
					has(t, w.said.String(), "kind=end")
				}
				w.check(t)
			})
		})
	}
}

// secretive is a request with secrets, and what it meets.
type secretive struct {
	*wire

	c        *clocktest.Clock
	req      *http.Request
	settings policy.Settings
	inner    layers.Layer
}

func (p *secretive) streams() {
	p.settings.Hedge = policy.Hedge{}
	p.settings.Stream = policy.Stream{Enabled: policy.On, FirstContent: 3 * time.Second, Gap: 3 * time.Second}
}
