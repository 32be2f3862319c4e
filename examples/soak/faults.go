package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A fault is a way to answer. The path of a request names it, and the request:
// /fault/id.
type fault func(s *server, w http.ResponseWriter, r *http.Request)

// server answers in all the ways that servers do on a bad night.
type server struct {
	mu    sync.Mutex
	seen  map[string]int // sends of each request that the server has read
	twice []string       // requests that must not be sent twice, and were
	bomb  []byte         // small, and 64 MiB once it is unpacked
}

func newServer() *server {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	block := make([]byte, 1<<20)
	for range 64 {
		_, _ = z.Write(block)
	}
	_ = z.Close()
	return &server{seen: map[string]int{}, bomb: packed.Bytes()}
}

// times counts the sends of a request, this one included.
func (s *server) times(r *http.Request) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[r.URL.Path]++
	n := s.seen[r.URL.Path]
	if n > 1 && r.Method == http.MethodPost {
		s.twice = append(s.twice, r.URL.Path)
	}
	return n
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if f, ok := faults[kind]; ok {
		f(s, w, r)
		return
	}
	http.NotFound(w, r)
}

// size is how long the right body of a request is, and content is what it is.
func size(path string) int { return 1 + int(sum(path)%20_000) }

func sum(path string) (h uint32) {
	for _, c := range []byte(path) {
		h = h*31 + uint32(c)
	}
	return h
}

func content(path string) []byte {
	b := make([]byte, size(path))
	for i, x := 0, sum(path); i < len(b); i++ {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

func fine(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(content(r.URL.Path)) }

// hang holds the connection until the client gives it up.
func hang(r *http.Request) { <-r.Context().Done() }

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// raw writes text to the connection in place of a response, and goes on with it
// as end says.
func raw(w http.ResponseWriter, text string, end func(net.Conn)) {
	conn, buffer, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = buffer.WriteString(text)
	_ = buffer.Flush()
	end(conn)
}

func closed(net.Conn) {}

// unread waits until the client has gone.
func unread(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

func reset(c net.Conn) {
	switch c := c.(type) {
	case *net.TCPConn:
		_ = c.SetLinger(0)
	case interface{ Reset() }:
		c.Reset()
	}
}

const half = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nthe first half"

const event = `data: {"choices":[{"index":0,"delta":{"content":"word "}}]}` + "\n\n"

func stream(w http.ResponseWriter, r *http.Request, words int, end func()) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	for range words {
		fmt.Fprint(w, event)
		_ = out.Flush()
		pause(r.Context(), 50*time.Millisecond)
	}
	end()
}

var faults = map[string]fault{
	"fine": func(_ *server, w http.ResponseWriter, r *http.Request) { fine(w, r) },
	"slow": func(_ *server, w http.ResponseWriter, r *http.Request) { // hedged
		if sum(r.URL.Path)%2 == 0 {
			pause(r.Context(), 300*time.Millisecond)
		}
		fine(w, r)
	},
	"flaky": func(s *server, w http.ResponseWriter, r *http.Request) {
		if s.times(r) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fine(w, r)
	},
	"limited": func(s *server, w http.ResponseWriter, r *http.Request) {
		if s.times(r) == 1 {
			w.Header().Set("Retry-After-Ms", "200")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		fine(w, r)
	},
	"post": func(s *server, w http.ResponseWriter, r *http.Request) {
		s.times(r)
		_, _ = io.Copy(io.Discard, r.Body)
		switch sum(r.URL.Path) % 4 {
		case 0:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 1:
			raw(w, "", reset)
		case 2:
			hang(r)
		default:
			fine(w, r)
		}
	},
	"silent": func(_ *server, _ http.ResponseWriter, r *http.Request) { hang(r) },
	"halfline": func(_ *server, w http.ResponseWriter, _ *http.Request) {
		raw(w, "HTTP/1.1 2", unread)
	},
	"headers": func(_ *server, w http.ResponseWriter, _ *http.Request) {
		raw(w, half[:40], unread)
	},
	"halfbody": func(_ *server, w http.ResponseWriter, _ *http.Request) { raw(w, half, unread) },
	"reset":    func(_ *server, w http.ResponseWriter, _ *http.Request) { raw(w, half, reset) },
	"short":    func(_ *server, w http.ResponseWriter, _ *http.Request) { raw(w, half, closed) },
	"closing": func(_ *server, w http.ResponseWriter, r *http.Request) { // though it promised to keep it
		text := string(content(r.URL.Path))
		raw(w, "HTTP/1.1 200 OK\r\nContent-Length: "+strconv.Itoa(len(text))+"\r\n\r\n"+text, closed)
	},
	"garbage": func(_ *server, w http.ResponseWriter, _ *http.Request) {
		raw(w, "220 mail.example ESMTP\r\n", closed)
	},
	"drip": func(_ *server, w http.ResponseWriter, r *http.Request) {
		for _, b := range content(r.URL.Path) {
			if _, err := w.Write([]byte{b}); err != nil || r.Context().Err() != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			pause(r.Context(), time.Second)
		}
	},
	"endless": func(_ *server, w http.ResponseWriter, _ *http.Request) { endless(w) },
	"busy": func(_ *server, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		endless(w)
	},
	"bomb": func(s *server, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = w.Write(s.bomb)
	},
	"early": func(_ *server, w http.ResponseWriter, r *http.Request) { // a flood of 1xx
		for range 100 {
			w.WriteHeader(http.StatusEarlyHints)
		}
		fine(w, r)
	},
	"heavy": func(_ *server, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Heavy", strings.Repeat("x", 1<<19))
		fine(w, r)
	},
	"loop": func(_ *server, w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Path, http.StatusFound)
	},
	"chat": func(_ *server, w http.ResponseWriter, r *http.Request) {
		stream(w, r, 10, func() { fmt.Fprint(w, "data: [DONE]\n\n") })
	},
	"chatdies": func(_ *server, w http.ResponseWriter, r *http.Request) { stream(w, r, 3, func() { hang(r) }) },
	"chatpings": func(_ *server, w http.ResponseWriter, r *http.Request) {
		stream(w, r, 0, func() {
			for r.Context().Err() == nil {
				fmt.Fprint(w, ": ping\n\n")
				_ = http.NewResponseController(w).Flush()
				pause(r.Context(), 50*time.Millisecond)
			}
		})
	},
	"chatline": func(_ *server, w http.ResponseWriter, r *http.Request) { // that never ends
		stream(w, r, 0, func() {
			fmt.Fprint(w, "data: ")
			endless(w)
		})
	},
}

// endless writes until the client has gone.
func endless(w http.ResponseWriter) {
	block := bytes.Repeat([]byte("x"), 16<<10)
	for {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}
