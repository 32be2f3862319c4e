package layers

import (
	"testing"
	"time"
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
	for i, s := range r.Spans {
		if !s.End.Equal(time.Unix(1000, 0)) {
			t.Errorf("span %d ends at %v, want the end of the call", i, s.End)
		}
	}
}
