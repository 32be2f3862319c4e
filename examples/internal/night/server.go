package night

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
)

// Serve starts a loopback server. It answers what matches a pattern with the
// handlers of its list, one after another, and the last one for ever.
func Serve(script map[string][]http.HandlerFunc) *httptest.Server {
	mux := http.NewServeMux()
	for pattern, steps := range script {
		var mu sync.Mutex
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			step := steps[0]
			if len(steps) > 1 {
				steps = steps[1:]
			}
			mu.Unlock()
			step(w, r)
		})
	}
	return httptest.NewServer(mux)
}

// Reply answers with a status, a body, and header fields as name, value, name,
// value.
func Reply(status int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// Silent never answers.
func Silent(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// Cut answers with headers and the first part of a body that is longer, and
// breaks the connection.
func Cut(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, body)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}
