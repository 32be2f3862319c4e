package stream

import (
	"io"
	"testing"
	"time"
)

// TestEnded: each gap is told once, under the limit that would have ended it.
func TestEnded(t *testing.T) {
	m := begun(&Limits{FirstContent: time.Minute, Gap: 10 * s, PingedGap: 30 * s, ThinkingGap: 20 * s})
	thought := `data: {"choices":[{"delta":{"reasoning":"hm"}}]}` + "\n\n"
	for _, step := range []struct {
		text  string
		after time.Duration
		gap   time.Duration
		under StallKind
	}{
		{role, s, 0, ""},
		{word, 2 * s, 0, ""}, // the wait for first content is no gap
		{word + word + word, 3 * s, 3 * s, StallGap},
		{word, 0, 0, StallGap},
		{role, s, 0, StallGap},
		{word, 2 * s, 3 * s, StallGap},
		{ping, 4 * s, 4 * s, StallGap}, // from here on PingedGap holds
		{ping, 5 * s, 0, StallGap},
		{word, 6 * s, 15 * s, StallPingedGap},
		{ping + word, 7 * s, 7 * s, StallGap},
		{thought, 8 * s, 8 * s, StallGap},
		{thought, 9 * s, 9 * s, StallThinkingGap},
		{done, 10 * s, 10 * s, StallThinkingGap},
		{word, 11 * s, 0, StallThinkingGap},
	} {
		come(m, step.text, step.after)
		gap, under := m.Ended()
		if gap != step.gap || gap > 0 && under != step.under {
			t.Errorf("%q after %v ended a gap of %v under %q, want %v under %q", step.text, step.after, gap, under, step.gap, step.under)
		}
		if again, _ := m.Ended(); again != 0 {
			t.Errorf("%q: told again", step.text)
		}
	}
}

// TestEndedByTheEnd: the end of a body that has no terminal ends a gap too.
func TestEndedByTheEnd(t *testing.T) {
	m := begun(&Limits{Gap: 10 * s, AllowTruncated: On})
	come(m, word, s)
	m.Wait(m.since)
	if err := m.EOF(m.since + 2*s); err != io.EOF {
		t.Fatal(err)
	}
	if gap, under := m.Ended(); gap != 2*s || under != StallGap {
		t.Errorf("a gap of %v under %q, want 2s under gap", gap, under)
	}
}
