package page

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/layers"
)

// How much is kept of calls.
const (
	mostRoutes  = 64 // further ones are kept together
	mostFailed  = 40 // of a route
	mostRefused = 8  // of those that failed, without a send
	mostSlow    = 24
	mostSpans   = 64  // of a call
	mostText    = 400 // bytes of an error
)

// A call is slow if it is among the slowest of its route in a span of time.
const (
	slowSpan = time.Minute
	slowest  = 3
)

// kept is the calls that are kept, by route.
type kept struct {
	routes atomic.Pointer[map[string]*routeCalls] // is never changed, but replaced
	latest atomic.Pointer[routeCalls]             // most calls are of the route that the one before was of
	mu     sync.Mutex                             // to replace it
	others routeCalls
}

// routeCalls is what is kept of a route.
type routeCalls struct {
	name string
	// A call that ends before until, in nanoseconds since 1970, is slow if it takes
	// longer than bar. Most calls are not, and look no further.
	bar, until atomic.Int64

	mu      sync.Mutex
	failed  ring
	refused ring // while a circuit is open, say, there are many, and all alike
	slow    ring
	worst   []layers.Trace // of the present span of time, the shortest first; later in slow
}

func (k *kept) of(route string) *routeCalls {
	if r := k.latest.Load(); r != nil && r.name == route {
		return r
	}
	if m := k.routes.Load(); m != nil {
		if r := (*m)[route]; r != nil {
			k.latest.Store(r)
			return r
		}
		if len(*m) == mostRoutes {
			return &k.others
		}
	}
	k.mu.Lock()
	if m := k.all(); m[route] == nil && len(m) < mostRoutes {
		m = maps.Clone(m)
		m[route] = &routeCalls{name: route}
		k.routes.Store(&m)
	}
	k.mu.Unlock()
	return k.of(route)
}

// all returns the routes but the others.
func (k *kept) all() map[string]*routeCalls {
	if m := k.routes.Load(); m != nil {
		return *m
	}
	return map[string]*routeCalls{}
}

func (k *kept) each(do func(*routeCalls)) {
	for _, r := range slices.AppendSeq([]*routeCalls{&k.others}, maps.Values(k.all())) {
		r.mu.Lock()
		do(r)
		r.mu.Unlock()
	}
}

// add keeps a call that ended at now, if it failed or is slow.
func (r *routeCalls) add(t *layers.Trace, failed bool, now int64) {
	took := t.End.Sub(t.Start)
	if !failed && took <= time.Duration(r.bar.Load()) && now < r.until.Load() {
		return
	}
	if len(t.Spans) > mostSpans {
		t.Dropped += len(t.Spans) - mostSpans
		t.Spans = slices.Clone(t.Spans[:mostSpans])
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case failed && !slices.ContainsFunc(t.Spans, func(s layers.Span) bool { return s.Kind == layers.KindSend }):
		r.refused.add(*t, mostRefused)
		return
	case failed:
		r.failed.add(*t, mostFailed)
		return
	}
	if now >= r.until.Load() {
		for _, w := range r.worst {
			r.slow.add(w, mostSlow)
		}
		r.worst = r.worst[:0]
		r.bar.Store(-1)
		r.until.Store(now + int64(slowSpan))
	}
	if len(r.worst) == slowest {
		if took <= length(r.worst[0]) {
			return
		}
		r.worst = slices.Delete(r.worst, 0, 1)
	}
	at, _ := slices.BinarySearchFunc(r.worst, took, func(t layers.Trace, d time.Duration) int { return cmp.Compare(length(t), d) })
	r.worst = slices.Insert(r.worst, at, *t)
	if len(r.worst) == slowest {
		r.bar.Store(int64(length(r.worst[0])))
	}
}

// all goes through what is kept. The mutex must be held.
func (r *routeCalls) all() iter.Seq[*layers.Trace] {
	return func(yield func(*layers.Trace) bool) {
		for _, list := range [][]layers.Trace{r.failed.list, r.refused.list, r.slow.list, r.worst} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

func length(t layers.Trace) time.Duration { return t.End.Sub(t.Start) }

// last returns the calls that are kept, latest first.
func (k *kept) last() (failed, slow []layers.Trace) {
	k.each(func(r *routeCalls) {
		failed = append(append(failed, r.failed.list...), r.refused.list...)
		slow = append(append(slow, r.slow.list...), r.worst...)
	})
	latest := func(a, b layers.Trace) int { return b.End.Compare(a.End) }
	slices.SortFunc(failed, latest)
	slices.SortFunc(slow, latest)
	return failed, slow
}

func (k *kept) find(number int64) (t layers.Trace, found bool) {
	k.each(func(r *routeCalls) {
		for kept := range r.all() {
			if kept.Number == number {
				t, found = *kept, true
			}
		}
	})
	return t, found
}

// ring holds the last of many.
type ring struct {
	list []layers.Trace
	at   int
}

func (r *ring) add(t layers.Trace, most int) {
	if len(r.list) < most {
		r.list = append(r.list, t)
		return
	}
	r.list[r.at] = t
	r.at = (r.at + 1) % most
}

// text is an error of which only the text is left, and whether somebody gave up.
type text struct {
	words    string
	canceled bool
}

func textOf(words string, err error) text {
	return text{cut(words, mostText), errors.Is(err, context.Canceled)}
}

func (t text) Error() string        { return t.words }
func (t text) Is(target error) bool { return t.canceled && target == context.Canceled }

func isShort(err error) bool {
	_, short := err.(text) //nolint:errorlint // It wraps nothing.
	return err == nil || short
}

// shorten puts a short text in the place of each error: errors may hold on to
// anything. No call waits for the writing of one.
func (k *kept) shorten() {
	short := map[int64]layers.Trace{}
	k.each(func(r *routeCalls) {
		for t := range r.all() {
			if !isShort(t.Err) || slices.ContainsFunc(t.Spans, func(s layers.Span) bool { return !isShort(s.Err) }) {
				short[t.Number] = *t
			}
		}
	})
	for number, t := range short {
		short[number] = shorten(t)
	}
	k.each(func(r *routeCalls) {
		for t := range r.all() {
			if s, ok := short[t.Number]; ok {
				*t = s
			}
		}
	})
}

func shorten(t layers.Trace) layers.Trace {
	t.Spans = slices.Clone(t.Spans) // those of a list that was handed out are the same
	for i := range t.Spans {
		if s := &t.Spans[i]; !isShort(s.Err) {
			s.Err = textOf(s.Failure(), s.Err)
		}
	}
	if !isShort(t.Err) {
		t.Err = textOf(t.Failure(), t.Err)
	}
	return t
}
