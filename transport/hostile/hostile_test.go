// Package hostile lets a stack with every layer on loose on servers that mean
// it ill, over real sockets. Each call is bounded in time by its deadline and in
// memory by a figure that stands beside the server, and leaves no goroutine.
//
// It is a module of its own for the sake of what it needs: users of the library
// download none of it.
package hostile

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/stream"
	"github.com/weir-go/weir/transport"
)

const (
	deadline = 400 * time.Millisecond
	hang     = 10 * time.Second // a call that takes this long does not end by itself
	mebibyte = 1 << 20

	// transport.Base reads a MiB of headers before it gives up. A line grows by
	// copies, and short ones are an entry each. On a busy machine a hedge is beside.
	headers = -12 // in each send
)

// strict is a policy with every layer on. Its stream route bounds content.
var strict = policy.Policy{
	Settings: policy.Settings{
		Deadline: deadline,
		Retry:    policy.Retry{BaseDelay: time.Millisecond, Budget: policy.Off},
		Hedge:    policy.Hedge{Delay: 100 * time.Millisecond},
		Breaker:  policy.Breaker{Failures: 1000},
		Rate:     policy.Rate{PerSecond: 1000, Burst: 100},
		InFlight: policy.InFlight{Max: 10},
	},
	Routes: []policy.Route{{Pattern: "/stream", Settings: policy.Settings{
		Hedge:  policy.Hedge{Enabled: policy.Off},
		Retry:  policy.Retry{MaxAttempts: 1},
		Stream: policy.Stream{Enabled: policy.On, FirstContent: deadline - 100*time.Millisecond, Gap: deadline},
	}}},
}

// server is a listener whose connections are each served by a function.
type server struct {
	net.Listener

	serve func(net.Conn)
	mu    sync.Mutex
	conns []net.Conn
	wg    sync.WaitGroup
}

func newServer(t *testing.T, serve func(net.Conn)) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Listener: l, serve: serve}
	s.wg.Go(s.accept)
	return s
}

func (s *server) accept() {
	for {
		conn, err := s.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns = append(s.conns, conn)
		s.mu.Unlock()
		s.wg.Go(func() {
			defer conn.Close()
			s.serve(conn)
		})
	}
}

// stop closes the listener and its connections, and waits for their functions.
func (s *server) stop() {
	s.Close()
	s.mu.Lock()
	for _, c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// ending is what became of a call.
type ending struct {
	status int
	bytes  int64
	err    error // of RoundTrip, or of the body
	took   time.Duration
	memory uint64 // that was allocated meanwhile, by the server too
}

// call makes one call and reads the body to its end.
func call(t *testing.T, client *http.Client, url string) (e ending) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	resp, err := client.Do(req)
	if err == nil {
		e.status = resp.StatusCode
		e.bytes, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	e.err, e.took = err, time.Since(start)
	runtime.ReadMemStats(&after)
	e.memory = after.TotalAlloc - before.TotalAlloc
	return e
}

// outcome is what of an ending does not depend on the moment.
func (e ending) outcome() string {
	ours, _ := errors.AsType[*layers.Error](e.err)
	stall, _ := errors.AsType[*stream.StallError](e.err)
	switch {
	case e.err == nil:
		return fmt.Sprint(e.status)
	case stall != nil:
		return "stall " + string(stall.Kind)
	case ours != nil && ours.Phase == layers.PhaseDeadline && errors.Is(e.err, context.DeadlineExceeded):
		return "deadline"
	case errors.Is(e.err, io.ErrUnexpectedEOF):
		return "cut"
	case errors.Is(e.err, syscall.ECONNRESET):
		return "reset"
	case errors.Is(e.err, syscall.ECONNREFUSED):
		return "refused"
	}
	return "error"
}

// meets makes a call to a server at addr, and holds what becomes of it to one
// of the outcomes in want, or the deadline, which a busy machine may reach first,
// and to a number of mebibytes, which is for each send if it is below zero.
func meets(t *testing.T, addr, path, want string, mebibytes int, change func(*http.Transport)) {
	t.Helper()
	base := transport.Base()
	if change != nil {
		change(base)
	}
	var sends atomic.Int32
	count := layers.ObserverFunc(func(_ context.Context, e layers.Event) {
		if e.Kind == layers.KindSend {
			sends.Add(1)
		}
	})
	tr, err := transport.New(transport.Config{Base: base, Policy: strict, Observer: count})
	if err != nil {
		t.Fatal(err)
	}
	client := tr.Client()
	defer client.CloseIdleConnections()
	e := call(t, client, "http://"+addr+path)
	t.Logf("%s: status %d, %d bytes, after %v, with %d KiB in %d sends: %v",
		e.outcome(), e.status, e.bytes, e.took, e.memory>>10, sends.Load(), e.err)
	if !slices.Contains(strings.Split(want+", deadline", ", "), e.outcome()) {
		t.Errorf("it ends in %q (%v), want %q", e.outcome(), e.err, want)
	}
	if e.took > hang {
		t.Errorf("it took %v, with a deadline of %v", e.took, deadline)
	}
	if most := uint64(max(mebibytes, -mebibytes*int(sends.Load()))) * mebibyte; e.memory > most {
		t.Errorf("%d bytes were allocated, want %d at most", e.memory, most)
	}
}

// says is a server that reads a request, and writes text; what follows is up to
// then.
func says(text string, then func(net.Conn)) func(net.Conn) {
	block := []byte(text) // so that the server allocates nothing
	return func(c net.Conn) {
		if heard(c) && write(c, block) {
			then(c)
		}
	}
}

// heard reads a request.
func heard(c net.Conn) bool {
	n, err := c.Read(make([]byte, 4<<10))
	return n > 0 && err == nil
}

func write(c net.Conn, text []byte) bool {
	_, err := c.Write(text)
	return err == nil
}

func closes(net.Conn) {}

// waits until the client has gone.
func waits(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

func resets(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }

// repeats writes text for ever.
func repeats(text string) func(net.Conn) {
	block := bytes.Repeat([]byte(text), 1+16<<10/len(text))
	return func(c net.Conn) {
		for write(c, block) {
		}
	}
}

// drips writes text, a byte a second.
func drips(text string) func(net.Conn) {
	return func(c net.Conn) {
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			waits(c)
		}()
		for _, b := range []byte(text) {
			select {
			case <-time.After(time.Second):
			case <-gone:
				return
			}
			if _, err := c.Write([]byte{b}); err != nil {
				break
			}
		}
		c.Close()
		<-gone
	}
}

// bomb is small, and 64 MiB once it is unpacked.
var bomb = sync.OnceValue(func() string {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	block := make([]byte, mebibyte)
	for range 64 {
		_, _ = z.Write(block)
	}
	_ = z.Close()
	return packed.String()
})

const (
	ok      = "HTTP/1.1 200 OK\r\n"
	busy    = "HTTP/1.1 503 Service Unavailable\r\n"
	chunked = "Transfer-Encoding: chunked\r\n"
	events  = ok + "Content-Type: text/event-stream\r\n\r\n"
	chunk   = "10\r\n0123456789abcdef\r\n"
)

func TestServers(t *testing.T) {
	packed := fmt.Sprintf("Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(bomb()), bomb())
	for _, test := range []struct {
		name, path string
		serve      func(net.Conn)
		want       string
		mebibytes  int
	}{
		{"accepts, then is silent", "/", waits, "deadline", 1},
		{"accepts, then does not even read", "/", func(net.Conn) { time.Sleep(2 * deadline) }, "deadline", 1},
		{"closes at once", "/", closes, "error, reset", 1},
		{"half a status line", "/", says("HTTP/1.1 2", waits), "deadline", 1},
		{"another protocol", "/", says("220 mail.example ESMTP\r\n", waits), "error", 1},
		{"headers without an end", "/", says(ok+"Content-Length: 3\r\n", waits), "deadline", 1},
		{"headers, then silence", "/", says(ok+"Content-Length: 3\r\n\r\n", waits), "deadline", 1},
		{"one byte of a header a second", "/", says(ok, drips("Content-Length: 3\r\n\r\nabc")), "deadline", 1},
		{"one byte of a body a second", "/", says(ok+"Content-Length: 9\r\n\r\n", drips("abcdefghi")), "deadline", 1},
		{"reset in the body", "/", says(ok+"Content-Length: 9\r\n\r\nabc", resets), "reset, cut", 1},
		{"early close", "/", says(ok+"Content-Length: 9\r\n\r\nabc", closes), "cut", 1},
		{"early close in a chunk", "/", says(ok+chunked+"\r\n9\r\nabc", closes), "cut", 1},
		{"a length of every number", "/", says(ok+"Content-Length: 9223372036854775807\r\n\r\n", repeats("x")), "deadline", 1},
		{"chunks without end", "/", says(ok+chunked+"\r\n", repeats(chunk)), "deadline", 1},
		{"a chunk's extension without end", "/", says(ok+chunked+"\r\n1;", repeats("x")), "error", 1},
		{"trailers without end", "/", says(ok+chunked+"\r\n0\r\n", repeats("X-Y: z\r\n")), "error", 4},
		{"one 1xx after the other", "/", says("", repeats("HTTP/1.1 103 Early Hints\r\n\r\n")), "error", headers},
		{"half a MiB of headers", "/", says(ok+"X-Heavy: "+strings.Repeat("x", mebibyte/2)+"\r\nContent-Length: 3\r\n\r\nabc", waits), "200", 8},
		{"1 MiB of headers", "/", says(ok+"X-Heavy: "+strings.Repeat("x", mebibyte)+"\r\nContent-Length: 3\r\n\r\nabc", waits), "error", headers},
		{"a header without end", "/", says(ok+"X-Heavy: ", repeats("x")), "error", headers},
		{"headers without number", "/", says(ok, repeats("X-Y: z\r\n")), "error", headers},
		{"a redirect loop", "/", says("HTTP/1.1 302 Found\r\nLocation: /\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", closes), "error", 1},
		{"redirects with bodies without end", "/", says("HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", repeats("x")), "error", 1},
		{"503 with a body without end", "/", says(busy+"\r\n", repeats("x")), "cut", 4},
		{"503 with a body of one byte a second", "/", says(busy+"\r\n", drips("abcdefghi")), "cut", 1},
		{"503 with a gzip bomb", "/", says(busy+packed, waits), "cut", 4},
		{"200 with a gzip bomb", "/", says(ok+packed, waits), "200", 1},
		{"asks for patience", "/", says(busy+"Retry-After: 99999999999999999999\r\nContent-Length: 0\r\n\r\n", waits), "503", 1},
		{"an event's line without end", "/stream", says(events+"data: ", repeats("x")), "stall first-content", 1},
		{"an event of lines without end", "/stream", says(events, repeats("data: x\n")), "stall first-content", 1},
		{"a field's name without end", "/stream", says(events, repeats("x")), "stall first-content", 1},
		{"pings without end", "/stream", says(events, repeats(": ping\n\n")), "stall first-content", 1},
		{"an event's line without end, unguarded", "/", says(events+"data: ", repeats("x")), "deadline", 1},
		{"a stream that falls silent", "/stream", says(events+"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", waits), "stall gap", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			s := newServer(t, test.serve)
			defer s.stop()
			meets(t, s.Addr().String(), test.path, test.want, test.mebibytes, nil)
		})
	}
}

// TestCloseOnReuse: a server that promises to keep a connection, and closes it
// when it is used again.
func TestCloseOnReuse(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s := newServer(t, says(ok+"Content-Length: 3\r\n\r\nabc", func(c net.Conn) { heard(c) }))
	defer s.stop()
	tr, err := transport.New(transport.Config{Policy: strict})
	if err != nil {
		t.Fatal(err)
	}
	client := tr.Client()
	defer client.CloseIdleConnections()
	for range 10 {
		if e := call(t, client, "http://"+s.Addr().String()); e.outcome() != "200" || e.bytes != 3 {
			t.Errorf("got %+v", e)
		}
	}
}
