package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	takes   = 20 * time.Millisecond // a summary
	killAt  = 120                   // summaries done when the first run is killed
	downAt  = 200                   // likewise, when the server goes down
	downFor = 600 * time.Millisecond
)

// api is a server that is down for a while.
type api struct {
	half chan struct{} // closed at killAt

	mu      sync.Mutex
	done    map[string]int // summaries by document
	total   int
	until   time.Time // of the outage
	refused int       // answered with 503
}

func newAPI() *api { return &api{half: make(chan struct{}), done: map[string]int{}} }

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.isDown() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	select {
	case <-time.After(takes):
	case <-r.Context().Done():
		return // whoever asked is gone
	}
	a.mu.Lock()
	a.done[strings.TrimPrefix(r.URL.Path, "/")]++
	a.total++
	switch a.total {
	case killAt:
		close(a.half)
	case downAt:
		a.until = time.Now().Add(downFor)
	}
	a.mu.Unlock()
	fmt.Fprintln(w, "a summary")
}

func (a *api) isDown() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	down := time.Now().Before(a.until)
	if down {
		a.refused++
	}
	return down
}

func (a *api) count(document string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.done[document]
}

// report says what the server did, and whether that is what it should have
// done. inFlight are the documents that it had to do again, and how often, atEnd
// how many at the end of each run.
func (a *api) report(w io.Writer, inFlight map[string]int, atEnd []int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range documents {
		switch n := a.done[name]; {
		case n == 0:
			return fmt.Errorf("%s was lost", name)
		case n-1 != inFlight[name]:
			return fmt.Errorf("%s was done %d times, and was in flight %d times when a run ended", name, n, inFlight[name])
		}
	}
	fmt.Fprintf(w, "\n%d of %d documents done; done twice: %d that were in flight at the kill, %d that the deadline cut off\n",
		len(a.done), len(documents), atEnd[0], atEnd[1])
	fmt.Fprintf(w, "the server was down for %v, and had to say so %d times\n", downFor, a.refused)
	if most := slices.Max(atEnd); most > workers {
		return fmt.Errorf("%d were in flight at once, with %d workers", most, workers)
	}
	return nil
}
