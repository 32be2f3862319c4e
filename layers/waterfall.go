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
// it took. What is called body is the time from the headers to the end of the
// body, that of the caller between two Reads included. No URL, header or body is
// in it.
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
	for _, s := range t.parts() {
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

// partBody is a phase of traces alone: no event tells of it, as it is what is
// left of a send when its headers have come.
const partBody Phase = "body"

// parts returns the spans, with the reading of each body as one more phase.
func (t *Trace) parts() []Span {
	parts := slices.Clone(t.Spans)
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
		if !from.IsZero() {
			parts = append(parts, Span{Kind: KindPhase, Attempt: send.Attempt, Phase: partBody, Start: from, End: send.End})
		}
	}
	slices.SortStableFunc(parts, func(a, b Span) int { return cmp.Compare(a.Start.Sub(t.Start), b.Start.Sub(t.Start)) })
	return parts
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
