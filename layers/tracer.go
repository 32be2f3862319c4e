package layers

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Trace is what happened to a call, in spans of time.
type Trace struct {
	Route    string
	Start    time.Time
	End      time.Time // zero: the call goes on
	Deadline time.Time // zero: it has none
	Attempts int       // sends
	Status   int       // of the answer that the caller has; 0: it has none
	Err      error     // why the call, or its body, failed; nil: it did not
	// Abandoned reports that the caller gave up the call, or closed its body
	// early.
	Abandoned bool
	Reason    string // why there was no further attempt: see [Call.Reason]

	// Spans are in the order in which they began.
	Spans []Span
	// Dropped counts those beyond the first 256.
	Dropped int
}

// Span is a part of a call.
type Span struct {
	// Kind is KindSend for an attempt, its body included; KindPhase for a phase
	// of it; KindWait for a wait; and KindContent, KindFailure, KindOpaque and
	// KindRefused for what took no time.
	Kind    Kind
	Attempt int
	Phase   Phase // of a phase, a wait or a refusal
	Start   time.Time
	End     time.Time // zero: it goes on
	Status  int       // of a send
	Err     error
}

// Failure is the text of Err, without what may hold a secret; empty: the call did
// not fail.
func (t *Trace) Failure() string { return failure(t.Err) }

// Failure is the text of Err, without what may hold a secret; empty: there is
// none.
func (s *Span) Failure() string { return failure(s.Err) }

func failure(err error) string {
	if err == nil {
		return ""
	}
	return safeText(err)
}

// Waited returns how long the call waited for each thing that it waited for.
func (t *Trace) Waited() map[Phase]time.Duration {
	return total(t.Spans, KindWait)
}

// Tracer is an [Observer] that makes a Trace of each call, and hands it over
// when the call has ended, on the goroutine that ended it.
type Tracer struct {
	done func(context.Context, Trace)
	live sync.Map // of *Call to *tracing
}

// NewTracer returns a Tracer. The context that done gets is the call's.
func NewTracer(done func(context.Context, Trace)) *Tracer { return &Tracer{done: done} }

const maxSpans = 256

// tracing is the trace of a call that goes on.
type tracing struct {
	mu sync.Mutex
	Trace
}

// Wants asks for the ends of waits too; see [Observer].
func (t *Tracer) Wants(k Kind) bool { return k == KindWaited }

// Observe implements Observer.
func (t *Tracer) Observe(ctx context.Context, e Event) {
	c, ok := CallFrom(ctx)
	switch {
	case !ok || e.Kind == KindBreaker || e.Kind == KindGap:
		return
	case e.Kind == KindStart:
		t.live.Store(c, &tracing{Trace: Trace{Route: e.Route, Start: e.At}})
		return
	}
	found, ok := t.live.Load(c)
	if !ok {
		return
	}
	r := found.(*tracing) // Nothing else is stored.
	r.add(e)
	if e.Kind != KindEnd {
		return
	}
	t.live.Delete(c)
	r.of(c)
	t.done(ctx, r.Trace)
}

// Live returns the traces of the calls that go on, oldest first.
func (t *Tracer) Live() []Trace {
	var list []Trace
	t.live.Range(func(call, found any) bool {
		c, r := call.(*Call), found.(*tracing) // Nothing else is stored.
		r.mu.Lock()
		trace := r.Trace
		trace.Spans = slices.Clone(trace.Spans)
		r.mu.Unlock()
		trace.of(c)
		list = append(list, trace)
		return true
	})
	slices.SortFunc(list, func(a, b Trace) int { return a.Start.Compare(b.Start) })
	return list
}

// of takes over what a call can be asked for.
func (t *Trace) of(c *Call) {
	t.Deadline, _ = c.Deadline()
	t.Attempts, t.Reason = c.Attempts(), c.Reason()
}

// add notes an event.
func (r *tracing) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.Kind {
	case KindWaited:
		r.close(e, func(s *Span) bool { return s.Kind == KindWait && s.Attempt == e.Attempt && s.Phase == e.Phase })
	case KindPhase, KindResponse, KindDone:
		r.close(e, func(s *Span) bool { return s.Kind == KindPhase && s.Attempt == e.Attempt })
	}
	switch e.Kind {
	case KindSend, KindPhase, KindWait:
		r.open(e, time.Time{})
	case KindContent, KindFailure, KindOpaque, KindRefused:
		r.open(e, e.At)
	case KindResponse:
		r.send(e, func(s *Span) { s.Status = e.Status })
	case KindDone:
		r.send(e, func(s *Span) { s.Status, s.Err, s.End = e.Status, e.Err, e.At })
	case KindEnd:
		r.close(e, func(*Span) bool { return true })
		r.End, r.Status, r.Err, r.Abandoned = e.At, e.Status, e.Err, e.Abandoned
	}
}

func (r *tracing) open(e Event, end time.Time) {
	if len(r.Spans) == maxSpans {
		r.Dropped++
		return
	}
	r.Spans = append(r.Spans, Span{Kind: e.Kind, Attempt: e.Attempt, Phase: e.Phase, Start: e.At, End: end, Err: e.Err})
}

// close ends the open spans that match.
func (r *tracing) close(e Event, match func(*Span) bool) {
	for i := range r.Spans {
		if s := &r.Spans[i]; s.End.IsZero() && match(s) {
			s.End = e.At
		}
	}
}

// send changes the span of the attempt of e.
func (r *tracing) send(e Event, change func(*Span)) {
	for i := range r.Spans {
		if s := &r.Spans[i]; s.Kind == KindSend && s.Attempt == e.Attempt {
			change(s)
		}
	}
}
