package page_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/weir-go/weir/transport"
	"github.com/weir-go/weir/transport/page"
)

// serve starts a server with a page, and returns what asks it for a path and has
// the answer's first line and, once it is there, its first event.
func serve(t *testing.T, wrap func(http.Handler) http.Handler) (s *httptest.Server, ask func(method, path string) (net.Conn, *bufio.Reader, string)) {
	t.Helper()
	tr, err := transport.New(transport.Config{Base: memory})
	if err != nil {
		t.Fatal(err)
	}
	s = httptest.NewServer(wrap(page.Handler(tr, page.Options{Watch: page.NewWatch()})))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s, func(method, path string) (net.Conn, *bufio.Reader, string) {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Error(err)
			return nil, nil, ""
		}
		fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: localhost\r\n\r\n", method, path)
		r := bufio.NewReader(conn)
		line, _ := r.ReadString('\n')
		for l := ""; strings.Contains(line, "200") && method == "GET" && !strings.HasPrefix(l, "data:"); {
			if l, err = r.ReadString('\n'); err != nil {
				break
			}
		}
		return conn, r, strings.TrimSpace(line)
	}
}

func asIs(h http.Handler) http.Handler { return h }

// TestShutdown: a server that shuts down does not wait for who looks.
func TestShutdown(t *testing.T) {
	s, ask := serve(t, asIs)
	conn, r, line := ask("GET", "/live/state")
	defer conn.Close()
	if line != "HTTP/1.1 200 OK" {
		t.Fatal(line)
	}
	if err := s.Config.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Error(err)
	}
	_ = s.Config.Shutdown(context.Background()) // again
}

// TestManyViewers: of 200 viewers at once 32 look, the others are told so, and
// once they have left there is room again; a HEAD takes none.
func TestManyViewers(t *testing.T) {
	_, ask := serve(t, asIs)
	for range 40 {
		conn, _, line := ask("HEAD", "/live/state")
		if line != "HTTP/1.1 405 Method Not Allowed" {
			t.Fatal(line)
		}
		conn.Close()
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	got := map[string]int{}
	for range 200 {
		all.Go(func() {
			conn, _, line := ask("GET", "/live/calls")
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, conn)
			got[line]++
		})
	}
	all.Wait()
	if got["HTTP/1.1 200 OK"] != 32 || got["HTTP/1.1 503 Service Unavailable"] != 168 {
		t.Errorf("the answers are %v", got)
	}
	for _, conn := range conns {
		conn.Close()
	}
	for line := ""; line != "HTTP/1.1 200 OK"; { // until the server has seen that they left
		var conn net.Conn
		conn, _, line = ask("GET", "/live/calls")
		conn.Close()
	}
}

// TestPlainWriter: a writer that cannot flush ends the stream, rather than keep
// all of it.
func TestPlainWriter(t *testing.T) {
	s, _ := serve(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(struct{ http.ResponseWriter }{w}, r) })
	})
	resp, err := s.Client().Get(s.URL + "/live/state")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || strings.Count(string(body), "\n\n") != 1 {
		t.Errorf("%v: %s", err, body)
	}
}
