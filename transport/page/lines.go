package page

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/transport"
)

// How much is kept of how the shared state went.
const (
	beat        = 2 * time.Second // between two samples, while there are calls or somebody looks
	mostSamples = 120
	mostLines   = 100 // shown, of each kind
	mostSeries  = 800 // kept
)

// lines are how the numbers of shared state went, one line a number.
type lines struct {
	next   atomic.Int64 // when a sample is due, in nanoseconds since 1970
	mu     sync.Mutex
	of     []*transport.Transport
	series map[lineName]*series
}

// lineName names a line.
type lineName struct {
	of                           *transport.Transport
	kind, budget, pattern, state string
}

// series is how a number went: the sample of beat n is at n modulo its length.
type series struct {
	at    [mostSamples]int64 // the beat; 0: none
	value [mostSamples]float64
	last  int64
}

func beatOf(t time.Time) int64 { return t.UnixNano() / int64(beat) }

// add samples a transport too, from now on.
func (l *lines) add(t *transport.Transport) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Contains(l.of, t) {
		l.of = append(l.of, t)
	}
}

// due reports that it is time for a sample, to one who then takes it.
func (l *lines) due(now int64) bool {
	next := l.next.Load()
	return now >= next && l.next.CompareAndSwap(next, now+int64(beat))
}

// sample notes how the shared state stands.
func (l *lines) sample(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := beatOf(now)
	if l.series == nil {
		l.series = map[lineName]*series{}
	}
	// What was not there for the whole length of a line makes room.
	maps.DeleteFunc(l.series, func(_ lineName, s *series) bool { return s.last <= n-mostSamples })
	for _, t := range l.of {
		s := stateOf(t)
		note(l, n, t, s.Circuits)
		note(l, n, t, s.Budgets)
		note(l, n, t, s.Slots)
		note(l, n, t, s.Retries)
	}
}

func note[N numbered](l *lines, n int64, t *transport.Transport, p part[N]) {
	for _, s := range p.Shown {
		name := nameOf(t, s)
		line := l.series[name]
		if line == nil {
			if len(l.series) >= mostSeries {
				continue
			}
			line = new(series)
			l.series[name] = line
		}
		line.at[n%mostSamples], line.value[n%mostSamples], line.last = n, s.level(), n
	}
}

// went returns the samples of a line up to now, oldest first.
func (l *lines) went(name lineName, now time.Time) (samples []sample) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.series[name]
	if s == nil {
		return nil
	}
	for n := beatOf(now) - mostSamples + 1; n <= beatOf(now); n++ {
		if n > 0 && s.at[n%mostSamples] == n {
			samples = append(samples, sample{int(n - beatOf(now) + mostSamples - 1), s.value[n%mostSamples]})
		}
	}
	return samples
}

// sample is a number of the past.
type sample struct {
	At    int // of mostSamples
	Value float64
}
