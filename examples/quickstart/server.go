package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// serve starts the server that misbehaves.
func serve() (url string, stop func(), err error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /fine", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "fine")
	})
	var flaky atomic.Int32
	mux.HandleFunc("GET /flaky", func(w http.ResponseWriter, _ *http.Request) {
		if flaky.Add(1) <= 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, "fine")
	})
	mux.HandleFunc("GET /busy", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	mux.HandleFunc("GET /silent", func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	})
	mux.HandleFunc("GET /half", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, "the first half")
		flush(w)
		<-r.Context().Done()
	})
	mux.HandleFunc("GET /hop/{n}", func(w http.ResponseWriter, r *http.Request) {
		pause(r.Context(), 250*time.Millisecond)
		var n int
		_, _ = fmt.Sscan(r.PathValue("n"), &n)
		http.Redirect(w, r, fmt.Sprintf("/hop/%d", n+1), http.StatusFound)
	})
	over := make(chan struct{})
	mux.HandleFunc("POST /upload", func(http.ResponseWriter, *http.Request) {
		<-over // nobody reads the body, so nobody sees that its sender has gone
	})
	mux.HandleFunc("GET /export", func(w http.ResponseWriter, r *http.Request) {
		for range 4 {
			pause(r.Context(), 250*time.Millisecond)
			fmt.Fprint(w, "a part\n")
			flush(w)
		}
	})

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: time.Second,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			// A kernel would take in megabytes of an upload that nobody reads.
			_ = c.(*net.TCPConn).SetReadBuffer(64 << 10)
			return ctx
		},
	}
	go func() { _ = server.Serve(l) }()
	return "http://" + l.Addr().String(), func() {
		close(over)
		_ = server.Close()
	}, nil
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
