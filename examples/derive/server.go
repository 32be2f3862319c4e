package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// The latencies of the server, about a fiftieth of what a model takes.
var (
	search = logNormal{20 * time.Millisecond, 0.6}
	prompt = map[string]logNormal{ // first content, by the bucket of the prompt
		"short": {25 * time.Millisecond, 0.4},
		"30k":   {110 * time.Millisecond, 0.4},
	}
	token = logNormal{5 * time.Millisecond, 0.3}
	pause = logNormal{200 * time.Millisecond, 0.25} // two answers in three have one
)

const (
	tokens = 10  // of an answer
	dead   = 100 // one call in so many never gets an answer, or no more of it
)

// logNormal is a distribution with a long tail, as latencies have.
type logNormal struct {
	median time.Duration
	sigma  float64
}

// server draws its latencies from a fixed seed.
type server struct {
	mu    sync.Mutex
	rand  *rand.Rand
	calls int
}

func newServer() *server { return &server{rand: rand.New(rand.NewPCG(7, 7))} }

func (s *server) draw(d logNormal) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(float64(d.median) * math.Exp(d.sigma*s.rand.NormFloat64()))
}

// fate says where a call dies: before its answer, in the middle of it, or not.
func (s *server) fate() (before, amid bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	return s.calls%dead == dead/2, s.calls%dead == 0
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	before, amid := s.fate()
	if before {
		<-r.Context().Done()
		return
	}
	if r.URL.Path == "/search" {
		time.Sleep(s.draw(search))
		fmt.Fprintln(w, "found")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	time.Sleep(s.draw(prompt[r.URL.Query().Get("prompt")]))
	pausing := s.draw(logNormal{time.Second, 1}) < 1500*time.Millisecond
	for i := range tokens {
		fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":\"word %d\"}}]}\n\n", i)
		_ = http.NewResponseController(w).Flush()
		switch {
		case amid && i == tokens/2:
			<-r.Context().Done()
			return
		case pausing && i == tokens/3:
			time.Sleep(s.draw(pause))
		default:
			time.Sleep(s.draw(token))
		}
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}
