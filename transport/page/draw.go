package page

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

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

// mostShown bounds, in bytes, what is shown of a name.
const mostShown = 200

func shown(s string) string { return cut(s, mostShown) }

// cut leaves the first bytes of a text.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for !utf8.RuneStart(s[most]) && most > 0 {
		most--
	}
	return strings.Clone(s[:most]) + "…" // not to hold on to the rest
}

// visible writes out the characters that cannot be seen, or would change how
// what is around them is seen, but for the space that the templates have.
func visible(html []byte) []byte {
	hidden := func(r rune) bool {
		return r != '\n' && r != '\t' && (r == utf8.RuneError || r != ' ' && !unicode.IsGraphic(r) || unicode.In(r, unicode.Zl, unicode.Zp))
	}
	if !bytes.ContainsFunc(html, hidden) {
		return html
	}
	var b bytes.Buffer
	for _, r := range string(html) {
		switch {
		case r == utf8.RuneError:
			b.WriteRune(r)
		case hidden(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.Bytes()
}

// sparkline is how a number went, as a line from left to right.
type sparkline struct {
	Path                string
	From, To, Low, High float64
}

// spark returns nil if there is nothing to draw. The picture is 160 by 24, and
// has a step for each sample: where there is none, there is a gap.
func spark(went []sample, top float64) *sparkline {
	const w, h = 160.0, 24.0
	if len(went) == 0 {
		return nil
	}
	s := &sparkline{From: went[0].Value, To: went[len(went)-1].Value, Low: went[0].Value, High: went[0].Value}
	for _, v := range went {
		s.Low, s.High = min(s.Low, v.Value), max(s.High, v.Value)
	}
	top, low := max(top, s.High), min(0, s.Low)
	if top <= low {
		top = low + 1
	}
	const step = w / mostSamples
	var path strings.Builder
	for i, v := range went {
		y := h - 1 - (v.Value-low)/(top-low)*(h-2)
		if i > 0 && went[i-1].At == v.At-1 {
			fmt.Fprintf(&path, "V%.1f", y)
		} else {
			fmt.Fprintf(&path, "M%.1f %.1f", float64(v.At)*step, y)
		}
		fmt.Fprintf(&path, "H%.1f", float64(v.At+1)*step)
	}
	s.Path = path.String()
	return s
}

// bar is one row of a waterfall.
type bar struct {
	Label, Kind, Note string
	X, W              float64 // in percent of the time shown
	At, Took          string
}

// fall is a waterfall.
type fall struct {
	Bars     []bar
	Deadline float64 // in percent; beyond 100: not shown
	Due      string  // since the call began; empty: there is no deadline
	Length   string  // of time shown
	Dropped  int
}

// waterfall lays out the spans of a call. One under way is shown up to now.
func waterfall(c *call, now time.Time) fall {
	end := c.End
	if end.IsZero() {
		end = now
	}
	length := max(end.Sub(c.Start), time.Microsecond)
	left := c.Trace.Deadline.Sub(c.Start)
	if c.Trace.Deadline.IsZero() {
		left = 0
	}
	if left > 0 && left < 2*length { // near enough to be shown
		length = max(length, left)
	}
	part := func(d time.Duration) float64 { return min(100, max(0, 100*float64(d)/float64(length))) }
	f := fall{Deadline: 101, Length: brief(length), Dropped: c.Dropped}
	if left > 0 {
		f.Due = brief(left)
	}
	if left > 0 && left <= length {
		f.Deadline = part(left)
	}
	parts := c.Parts()
	for i := range parts {
		if len(f.Bars) == mostSpans {
			f.Dropped += len(parts) - i
			break
		}
		s := &parts[i]
		to := s.End
		if to.IsZero() {
			to = end
		}
		b := bar{Kind: string(s.Kind), Label: spanLabel(s), Note: cut(s.Failure(), mostText), At: brief(s.Start.Sub(c.Start))}
		b.X = part(s.Start.Sub(c.Start))
		b.W = max(part(to.Sub(s.Start)), 0.4)
		if to.After(s.Start) {
			b.Took = brief(to.Sub(s.Start))
		}
		f.Bars = append(f.Bars, b)
	}
	return f
}

func spanLabel(s *layers.Span) string {
	switch {
	case s.Kind == layers.KindSend && s.Status > 0:
		return fmt.Sprintf("send %d, %d", s.Attempt, s.Status)
	case s.Kind == layers.KindSend:
		return fmt.Sprintf("send %d", s.Attempt)
	case s.Kind == layers.KindContent:
		return "first content"
	case s.Kind == layers.KindGap:
		return "gap"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s", s.Kind, s.Phase))
}
