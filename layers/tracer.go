package layers

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Trace is what happened to a call, in spans of time.
type Trace struct {
	Number   int64 // of the call among those of its Tracer, from 1
	Route    string
	Start    time.Time
	End      time.Time // zero: the call goes on
	Deadline time.Time // zero: it has none
	Attempts int       // sends, with those of the redirect hops before it
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
	// of it; KindWait for a wait; KindGap for a gap of its stream, if the Tracer
	// keeps gaps; and KindContent, KindFailure, KindOpaque and KindRefused for
	// what took no time.
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
	done   func(context.Context, Trace)
	gaps   int // of a call, that are kept
	number atomic.Int64
	live   sync.Map // of *Call to *tracing
}

// NewTracer returns a Tracer. The context that done gets is the call's. A nil done
// is for one that is only asked for its Live traces.
func NewTracer(done func(context.Context, Trace)) *Tracer { return &Tracer{done: done} }

// NewStreamTracer returns a Tracer as NewTracer does, that keeps the longest gaps
// of a call's streams too, so many of them: see [KindGap].
func NewStreamTracer(gaps int, done func(context.Context, Trace)) *Tracer {
	return &Tracer{done: done, gaps: gaps}
}

const maxSpans = 256

// tracing is the trace of a call that goes on.
type tracing struct {
	mu sync.Mutex
	Trace
	gaps []Span // shortest first
	over bool   // the spans are somebody else's by now
}

// Wants asks for the ends of waits too, and for gaps if they are kept; see
// [Observer].
func (t *Tracer) Wants(k Kind) bool { return k == KindWaited || k == KindGap && t.gaps > 0 }

// Observe implements Observer.
func (t *Tracer) Observe(ctx context.Context, e Event) {
	c, ok := CallFrom(ctx)
	switch {
	case !ok || e.Kind == KindBreaker:
		return
	case e.Kind == KindStart:
		t.live.Store(c, &tracing{Trace: Trace{Number: t.number.Add(1), Route: e.Route, Start: e.At}})
		return
	}
	found, ok := t.live.Load(c)
	if !ok {
		return
	}
	r := found.(*tracing) // Nothing else is stored.
	if e.Kind == KindGap {
		r.gap(e, t.gaps)
		return
	}
	r.add(e)
	if e.Kind != KindEnd {
		return
	}
	t.live.Delete(c)
	if t.done != nil {
		t.done(ctx, r.trace(c, false))
	}
}

// Live returns the traces of the calls that go on, oldest first.
func (t *Tracer) Live() []Trace {
	var list []Trace
	t.live.Range(func(call, found any) bool {
		c, r := call.(*Call), found.(*tracing) // Nothing else is stored.
		list = append(list, r.trace(c, true))
		return true
	})
	slices.SortFunc(list, func(a, b Trace) int { return a.Start.Compare(b.Start) })
	return list
}

// trace returns the trace of a call, with what the call can be asked for. What
// goes on needs a copy.
func (r *tracing) trace(c *Call, goesOn bool) Trace {
	r.mu.Lock()
	t := r.Trace
	if goesOn {
		t.Spans = slices.Clone(t.Spans)
	}
	t.Spans = with(t.Spans, r.gaps)
	r.mu.Unlock()
	t.Deadline, _ = c.Deadline()
	t.Attempts, t.Reason = c.Attempts(), c.Reason()
	return t
}

// with puts gaps in their places among spans.
func with(spans, gaps []Span) []Span {
	if len(gaps) > 0 {
		spans = append(spans, gaps...)
		slices.SortStableFunc(spans, func(a, b Span) int { return a.Start.Compare(b.Start) })
	}
	return spans
}

// gap notes a gap, if it is among the longest.
func (r *tracing) gap(e Event, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	length := func(s Span, d time.Duration) int { return cmp.Compare(s.End.Sub(s.Start), d) }
	switch {
	case len(r.gaps) < most:
	case most == 0 || length(r.gaps[0], e.Wait) >= 0:
		return
	default:
		r.gaps = slices.Delete(r.gaps, 0, 1)
	}
	at, _ := slices.BinarySearchFunc(r.gaps, e.Wait, length)
	r.gaps = slices.Insert(r.gaps, at, Span{Kind: KindGap, Attempt: e.Attempt, Phase: e.Phase, Start: e.At.Add(-e.Wait), End: e.At})
}

// add notes an event, unless the call has ended: a send that was outrun may tell
// of its own end while the call does.
func (r *tracing) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
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
		r.send(e, func(s *Span) { s.Status, s.Err, s.End = cmp.Or(e.Status, s.Status), e.Err, e.At })
	case KindEnd:
		r.cutOff(e)
		r.close(e, func(*Span) bool { return true })
		r.End, r.Status, r.Err, r.Abandoned, r.over = e.At, e.Status, e.Err, e.Abandoned, true
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

// cutOff says why the sends are over that go on at the end of a call, which tell of
// their own end too late: they were outrun, or ended with it.
func (r *tracing) cutOff(e Event) {
	for i := range r.Spans {
		if s := &r.Spans[i]; s.Kind == KindSend && s.End.IsZero() {
			s.Err = cmp.Or(e.Err, ErrOutrun)
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
