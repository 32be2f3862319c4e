package layers

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
)

// TestTraceIsBounded: however much happens to a call, its trace keeps 256 spans,
// and counts the others.
func TestTraceIsBounded(t *testing.T) {
	var r tracing
	for i := range 1000 {
		r.add(Event{Kind: KindWait, Attempt: i, At: time.Unix(int64(i), 0)})
	}
	r.add(Event{Kind: KindEnd, At: time.Unix(1000, 0)})
	if len(r.Spans) != 256 || r.Dropped != 744 {
		t.Errorf("%d spans are kept and %d are not, want 256 and 744", len(r.Spans), r.Dropped)
	}
	if text := r.String(); !strings.HasSuffix(text, "\nand 744 more\n") {
		t.Errorf("its text ends in %q", text[max(0, len(text)-40):])
	}
	for i, s := range r.Spans {
		if !s.End.Equal(time.Unix(1000, 0)) {
			t.Errorf("span %d ends at %v, want the end of the call", i, s.End)
		}
	}
}

// TestLongestGaps: of the gaps of a call the longest are kept, in their order
// among the other spans.
func TestLongestGaps(t *testing.T) {
	var r tracing
	at := time.Unix(0, 0)
	r.add(Event{Kind: KindSend, Attempt: 1, At: at})
	for _, wait := range []time.Duration{3, 9, 1, 7, 5, 9, 2} {
		at = at.Add(wait * time.Second)
		r.gap(Event{Kind: KindGap, Phase: PhaseGap, Attempt: 1, At: at, Wait: wait * time.Second}, 3)
	}
	r.add(Event{Kind: KindEnd, At: at})
	spans := with(r.Spans, r.gaps)
	want := []time.Duration{36, 9, 7, 9}
	for i, s := range spans {
		if i >= len(want) || s.End.Sub(s.Start) != want[i]*time.Second || (s.Kind == KindGap) != (i > 0) {
			t.Errorf("span %d is %v of %v", i, s.Kind, s.End.Sub(s.Start))
		}
	}
	if len(spans) != len(want) {
		t.Errorf("%d spans, want %d", len(spans), len(want))
	}
}

// TestTraceIsHandedOver: what a send that was outrun tells after the end of its
// call does not change the trace that somebody has by now.
func TestTraceIsHandedOver(t *testing.T) {
	var got Trace
	tracer := NewTracer(func(_ context.Context, t Trace) { got = t })
	env := (&Env{Clock: clock.NewMock(), Observer: tracer}).ready()
	c := &Call{env: env, opener: new(stage), ctxEnd: never, end: never}
	c.first.Context = t.Context()
	c.first.init(c, t.Context())
	tracer.Observe(&c.first, Event{Kind: KindStart})
	tracer.Observe(&c.first, Event{Kind: KindSend, Attempt: 1})
	found, _ := tracer.live.Load(c) // as one does who is about to tell
	tracer.Observe(&c.first, Event{Kind: KindEnd})
	found.(*tracing).add(Event{Kind: KindDone, Attempt: 1, Status: 503})
	if len(got.Spans) != 1 || got.Spans[0].Status != 0 {
		t.Errorf("the trace is %+v", got)
	}
}
