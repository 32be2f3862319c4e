package page

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/transport"
)

// How much a Watch keeps.
const (
	mostCalls   = 200 // of failed ones, and of slow ones
	mostSpans   = 64  // of each
	mostSeries  = 64  // lines of shared state
	mostSamples = 120
	beat        = 2 * time.Second // between two samples, while there are calls
)

// Watch is an observer that keeps what a page shows of calls: those under way,
// the last that failed and the last that were slow, and how the shared state
// went in the last minutes. Its memory is bounded. It is safe for concurrent
// use.
type Watch struct {
	layers.Observer

	tracer *layers.Tracer

	mu     sync.Mutex
	due    time.Time // the next sample
	bar    time.Duration
	number int64
	failed ring
	slow   ring
	series map[string]*series
	of     *transport.Transport
}

// NewWatch returns a Watch that has seen nothing.
func NewWatch() *Watch {
	w := &Watch{series: map[string]*series{}}
	w.tracer = layers.NewTracer(w.ended)
	w.Observer = w.tracer
	return w
}

// Wants asks for the ends of waits too; see [layers.Observer].
func (w *Watch) Wants(k layers.Kind) bool { return layers.Wants(w.Observer, k) }

// watch samples the state of a transport from now on.
func (w *Watch) watch(t *transport.Transport) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of = t
}

// Call is a call that a Watch keeps.
type Call struct {
	layers.Trace
	// ID names it in the page. A call under way has none.
	ID int64
}

// ring holds the last calls of a kind.
type ring struct {
	list []Call
	at   int
}

func (r *ring) add(c Call) {
	if len(r.list) < mostCalls {
		r.list = append(r.list, c)
		return
	}
	r.list[r.at] = c
	r.at = (r.at + 1) % mostCalls
}

// ended keeps a call that failed or was slow.
func (w *Watch) ended(_ context.Context, t layers.Trace) {
	failed := t.Err != nil && !errors.Is(t.Err, context.Canceled) ||
		t.Status >= http.StatusInternalServerError || t.Status == http.StatusTooManyRequests
	took := t.End.Sub(t.Start)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sample(t.End)
	// What counts as slow is as long as the last that did, less with every call.
	w.bar -= w.bar / 1000
	ring := &w.failed
	if !failed {
		if took < w.bar {
			return
		}
		w.bar, ring = took, &w.slow
	}
	if len(t.Spans) > mostSpans {
		t.Dropped += len(t.Spans) - mostSpans
		t.Spans = slices.Clone(t.Spans[:mostSpans])
	}
	w.number++
	ring.add(Call{t, w.number})
}

// find returns the call with an ID.
func (w *Watch) find(id int64) (Call, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range []*ring{&w.failed, &w.slow} {
		for _, c := range r.list {
			if c.ID == id {
				return c, true
			}
		}
	}
	return Call{}, false
}

// last returns the calls that are kept, latest first.
func (w *Watch) last() (failed, slow []Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	latest := func(r ring) []Call {
		list := slices.Clone(r.list)
		slices.SortFunc(list, func(a, b Call) int { return b.End.Compare(a.End) })
		return list
	}
	return latest(w.failed), latest(w.slow)
}

// series is how a number went.
type series struct {
	samples []float64
	seen    time.Time
}

func (s *series) add(now time.Time, v float64) {
	if s.samples = append(s.samples, v); len(s.samples) > mostSamples {
		s.samples = slices.Delete(s.samples, 0, len(s.samples)-mostSamples)
	}
	s.seen = now
}

// sample notes how the shared state stands, if it is time to. The mutex must be
// held.
func (w *Watch) sample(now time.Time) {
	if w.of == nil || now.Before(w.due) {
		return
	}
	w.due = now.Add(beat)
	for name, v := range levels(w.of) {
		s := w.series[name]
		if s == nil {
			if len(w.series) >= mostSeries {
				w.forget()
			}
			s = new(series)
			w.series[name] = s
		}
		s.add(now, v)
	}
}

// forget drops the series that was not seen for longest.
func (w *Watch) forget() {
	oldest := ""
	for name, s := range w.series {
		if oldest == "" || s.seen.Before(w.series[oldest].seen) {
			oldest = name
		}
	}
	delete(w.series, oldest)
}

// went returns the samples of a series.
func (w *Watch) went(name string) []float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.series[name]; s != nil {
		return slices.Clone(s.samples)
	}
	return nil
}

// levels are the numbers that are drawn as lines.
func levels(t *transport.Transport) map[string]float64 {
	m := map[string]float64{}
	for _, b := range t.Budgets() {
		m[budgetName(b)] = b.Level
	}
	for _, b := range t.Breakers() {
		s := b.Status()
		m[breakerName(s)] = float64(s.State)
	}
	for _, s := range t.Slots() {
		m[slotsName(s)] = float64(s.Used)
	}
	for _, r := range t.RetryBudgets() {
		m[retryName(r)] = r.Level
	}
	return m
}

func budgetName(b layers.BudgetStatus) string {
	return "budget " + strconv.Quote(b.ID.Budget) + " " + b.ID.Pattern + " " + b.Key
}

func breakerName(b layers.BreakerStatus) string { return "breaker " + b.ID.Pattern + " " + b.Key }

func slotsName(s layers.SlotsStatus) string { return "slots " + s.ID.Pattern + " " + s.Key }

func retryName(r layers.RetryBudgetStatus) string { return "retry " + r.Origin }
