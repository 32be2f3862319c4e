package layers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// String is the trace as text: how the call ended, and one line for each part of
// it that took a millisecond or more, or goes on, with when it began and how long
// it took: see [Trace.Parts]. What is called body is the time from the headers to the
// end of the body, that of the caller between two Reads included. No URL, header or
// body is in it.
func (t *Trace) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "route %q, %s, sends: %d", t.Route, lasted(t.Start, t.End), t.Attempts)
	switch {
	case t.Err != nil:
		b.WriteString(": " + t.Failure())
	case t.Status > 0:
		fmt.Fprintf(&b, ": %d", t.Status)
	}
	b.WriteByte('\n')
	for _, s := range t.Parts() {
		passing := s.Kind == KindPhase || s.Kind == KindWait
		if passing && !s.End.IsZero() && s.End.Sub(s.Start) < time.Millisecond {
			continue
		}
		what := string(cmp.Or(s.Phase, Phase(s.Kind)))
		if !passing && s.Phase != "" {
			what = fmt.Sprintf("%s %s", s.Kind, s.Phase)
		}
		fmt.Fprintf(&b, "%9s  %s", s.Start.Sub(t.Start).Round(time.Microsecond), what)
		if s.Attempt > 0 && s.Kind != KindWait {
			fmt.Fprintf(&b, " #%d", s.Attempt)
		}
		if passing || s.Kind == KindSend {
			b.WriteString(" " + lasted(s.Start, s.End))
		}
		if s.Status > 0 {
			fmt.Fprintf(&b, ", %d", s.Status)
		}
		if s.Err != nil {
			b.WriteString(": " + s.Failure())
		}
		b.WriteByte('\n')
	}
	if t.Dropped > 0 {
		fmt.Fprintf(&b, "and %d more\n", t.Dropped)
	}
	return b.String()
}

// lasted says how long something took that may go on.
func lasted(start, end time.Time) string {
	if end.IsZero() {
		return "goes on"
	}
	return brief(end.Sub(start)).String()
}

// What traces alone have, as no event tells of it.
const (
	partBody   Phase = "body"   // what is left of a send when its headers have come
	partLayers Phase = "layers" // what is neither a send nor a wait
)

// Parts returns the spans, and what no event tells of. The reading of each body is
// one more phase, "body". Where nothing was under way for a millisecond or more, the
// call waited for code that is not weir's, such as a layer that makes a token, or a
// [Store]: that is a wait for "layers".
func (t *Trace) Parts() []Span {
	parts := append(slices.Clone(t.Spans), t.gaps()...)
	for _, send := range t.Spans {
		if send.Kind != KindSend || send.Status == 0 {
			continue
		}
		var from time.Time
		for _, s := range t.Spans {
			if s.Kind == KindPhase && s.Attempt == send.Attempt {
				from = slices.MaxFunc([]time.Time{from, s.End}, time.Time.Compare)
			}
		}
		if !from.IsZero() && !from.Equal(send.End) {
			parts = append(parts, Span{Kind: KindPhase, Attempt: send.Attempt, Phase: partBody, Start: from, End: send.End})
		}
	}
	slices.SortStableFunc(parts, func(a, b Span) int { return cmp.Compare(a.Start.Sub(t.Start), b.Start.Sub(t.Start)) })
	return parts
}

// gaps returns the times in which the call neither sent nor waited, none if some of
// what it did is not in the trace.
func (t *Trace) gaps() (gaps []Span) {
	if t.Dropped > 0 {
		return nil
	}
	idle := t.Start // so far
	until := func(at time.Time) {
		if at.IsZero() || at.Sub(idle) >= time.Millisecond {
			gaps = append(gaps, Span{Kind: KindWait, Phase: partLayers, Start: idle, End: at})
		}
	}
	for _, s := range t.Spans { // in the order in which they began
		if s.Kind != KindSend && s.Kind != KindWait {
			continue
		}
		until(s.Start)
		if s.End.IsZero() {
			return gaps // it goes on
		}
		idle = slices.MaxFunc([]time.Time{idle, s.End}, time.Time.Compare)
	}
	until(t.End)
	return gaps
}

// sends counts those of the call itself.
func (t *Trace) sends() (n int) {
	for _, s := range t.Spans {
		if s.Kind == KindSend {
			n++
		}
	}
	return n
}

// total sums up how long the spans of a kind took, by phase.
func total(spans []Span, k Kind) map[Phase]time.Duration {
	sums := map[Phase]time.Duration{}
	for _, s := range spans {
		if s.Kind == k {
			sums[s.Phase] += s.End.Sub(s.Start)
		}
	}
	return sums
}
