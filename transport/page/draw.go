package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

func sorted[T any](list []T, name func(T) string) []T {
	slices.SortFunc(list, func(a, b T) int { return cmp.Compare(name(a), name(b)) })
	return list
}

// brief leaves three figures of a duration.
func brief(d time.Duration) string {
	digits := time.Duration(1)
	for d/digits >= 1000 {
		digits *= 10
	}
	return d.Round(digits).String()
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// until says how long it is to a time, or nothing if it is past.
func until(now, t time.Time) string {
	if d := t.Sub(now); d > 0 {
		return brief(d)
	}
	return ""
}

// label is what a route is called in events.
func label(r policy.Route) string { return cmp.Or(r.Name, r.Pattern) }

// sparkline is how a number went, as a line from left to right.
type sparkline struct {
	Points   string
	From, To float64
	Samples  int
}

// spark returns nil if there is nothing to draw yet. The picture is 160 by 24.
func spark(went []float64, top float64) *sparkline {
	const w, h = 160.0, 24.0
	if len(went) < 2 {
		return nil
	}
	top = max(top, slices.Max(went), 1)
	low := min(0, slices.Min(went))
	var points []string
	for i, v := range went {
		points = append(points, fmt.Sprintf("%.1f,%.1f", float64(i)/float64(mostSamples-1)*w, h-1-(v-low)/(top-low)*(h-2)))
	}
	return &sparkline{strings.Join(points, " "), went[0], went[len(went)-1], len(went)}
}

// bar is one row of a waterfall.
type bar struct {
	Label, Kind, Note string
	X, W              float64 // in percent of the time shown
	Took              string
}

// fall is a waterfall.
type fall struct {
	Bars     []bar
	Deadline float64 // in percent; beyond 100: not shown
	Length   string  // of time shown
	Dropped  int
}

// waterfall lays out the spans of a call. One under way is shown up to now.
func waterfall(c *Call, now time.Time) fall {
	end := c.End
	if end.IsZero() {
		end = now
	}
	length := max(end.Sub(c.Start), time.Microsecond)
	if left := c.Trace.Deadline.Sub(c.Start); left > 0 && left < 2*length { // near enough to be shown
		length = max(length, left)
	}
	part := func(d time.Duration) float64 { return min(100, max(0, 100*float64(d)/float64(length))) }
	f := fall{Deadline: 101, Length: brief(length), Dropped: c.Dropped}
	if left := c.Trace.Deadline.Sub(c.Start); left > 0 && left <= length {
		f.Deadline = part(left)
	}
	for i := range c.Spans {
		s := &c.Spans[i]
		to := s.End
		if to.IsZero() {
			to = end
		}
		b := bar{Kind: string(s.Kind), Label: fmt.Sprintf("%s %s", s.Kind, s.Phase), Note: s.Failure()}
		if s.Kind == layers.KindSend {
			b.Label = fmt.Sprintf("send %d", s.Attempt)
			if s.Status > 0 {
				b.Label += fmt.Sprintf(", %d", s.Status)
			}
		}
		b.X, b.W = part(s.Start.Sub(c.Start)), max(part(to.Sub(s.Start)), 0.4)
		if to.After(s.Start) {
			b.Took = brief(to.Sub(s.Start))
		}
		f.Bars = append(f.Bars, b)
	}
	return f
}
