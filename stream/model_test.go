package stream

import (
	"errors"
	"io"
	"testing"
	"time"
)

// The events of the timelines that the model knows, and what it takes them for.
var modelEvents = []struct {
	wire  string
	class Class
	kind  kind
}{
	{"data: {\"type\":\"message_start\"}\n\n", Lifecycle, noKind},
	{": ping\n", Keepalive, noKind},
	{"event: ping\ndata: {}\n\n", Keepalive, noKind},
	{"data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"thinking\"}}\n\n", Progress, thinking},
	{"data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"tool_use\"}}\n\n", Progress, tool},
	{"data: {\"type\":\"content_block_stop\"}\n\n", Progress, noKind},
	{"data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a\"}}\n\n", Content, text},
	{"data: {\"type\":\"content_block_delta\",\"delta\":{\"thinking\":\"a\"}}\n\n", Content, thinking},
	{"data: {\"type\":\"content_block_delta\",\"delta\":{\"partial_json\":\"a\"}}\n\n", Content, tool},
	{"data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"x\"}}\n\n", Finish, noKind},
	{"data: {\"type\":\"message_stop\"}\n\n", Terminal, noKind},
	{"data: {\"type\":\"error\"}\n\n", Failure, noKind},
}

// A modelStep is an event, the time that the caller lets pass before it reads, and
// how long the event then takes to come.
type modelStep struct{ event, pause, delay int }

// An outcome is how a timeline ends.
type outcome struct {
	kind                 StallKind // "" without a stall
	err                  error
	at                   int
	contents, keepalives int
	first                int
	gap                  [tool + 1]int
}

// model runs a timeline second by second. Between any two seconds it asks of each
// rule whether it ends the stream.
func model(l *Limits, headers int, steps []modelStep) (o outcome) {
	now, charged := 0, 0 // the time, and the part of it that was spent waiting
	mark, kind := 0, text
	began, pinged, finished, over := false, false, false, false
	seconds := func(d time.Duration) int { return int(d / time.Second) }
	stalled := func() bool {
		gap := charged - mark
		var limit int
		var name StallKind
		switch {
		case over:
			if limit = seconds(l.Linger); limit > 0 && gap >= limit {
				o.err = io.EOF
				return true
			}
			return false
		case !began:
			if limit = seconds(l.FirstContent); limit <= 0 || charged < limit {
				return false
			}
			name = StallFirstContent
		default:
			own, ownName := map[int]time.Duration{1: l.ThinkingGap, 3: l.ToolGap}[int(kind)], StallThinkingGap
			if kind == tool {
				ownName = StallToolGap
			}
			switch {
			case own == 0 && (!pinged || l.PingedGap == 0):
				limit, name = seconds(l.Gap), StallGap
			case own < 0, pinged && l.PingedGap < 0:
				return false
			case pinged && l.PingedGap > own:
				limit, name = seconds(l.PingedGap), StallPingedGap
			default:
				limit, name = seconds(own), ownName
			}
			if limit <= 0 || gap < limit {
				return false
			}
		}
		switch {
		case finished:
			o.err = io.EOF
		case began:
			o.gap[kind] = max(o.gap[kind], gap)
			fallthrough
		default:
			o.kind = name
		}
		return true
	}
	wait := func(n int) bool {
		for range n {
			if stalled() {
				return false
			}
			now++
			charged++
		}
		return true
	}
	o.at = -1
	if !wait(headers) {
		o.at = now
		return o
	}
	mark = charged
	for _, s := range steps {
		now += s.pause
		if !wait(s.delay) {
			o.at = now
			return o
		}
		e := modelEvents[s.event]
		if over {
			continue
		}
		if e.class == Content || e.class == Progress {
			if began {
				o.gap[kind] = max(o.gap[kind], charged-mark)
			}
			mark, pinged = charged, false
			if e.kind != noKind {
				kind = e.kind
			}
		}
		switch e.class {
		case Content:
			o.contents++
			if !began {
				began, o.first = true, now
			}
		case Keepalive:
			o.keepalives++
			pinged = true
		case Finish:
			finished = true
		case Terminal, Failure:
			over, mark = true, charged
		}
	}
	for range 100 { // nothing more comes
		if !wait(1) {
			o.at = now
			return o
		}
	}
	return o
}

// monitored plays the same timeline to a Monitor.
func monitored(l *Limits, headers int, steps []modelStep) (o outcome) {
	var m Monitor
	now := time.Duration(0)
	second := func(n int) time.Duration { return time.Duration(n) * time.Second }
	finish := func(err error) outcome {
		s := m.Stats()
		o.contents, o.keepalives, o.first = s.Contents, s.Keepalives, int(s.FirstContent/time.Second)
		for i, gap := range m.gaps {
			o.gap[i+1] = int(gap / time.Second)
		}
		if stall, ok := errors.AsType[*StallError](err); ok {
			o.kind = stall.Kind
		} else {
			o.err = err
		}
		o.at = int(now / time.Second)
		if err == nil {
			o.at = -1
		}
		return o
	}
	m.Start(l)
	if due := m.Due(); due < second(headers) {
		now = due
		return finish(m.Expire(due))
	}
	now = second(headers)
	m.Answered(header("sse"), now)
	for _, s := range steps {
		now += second(s.pause)
		due := max(m.Wait(now), now)
		if due < now+second(s.delay) {
			now = due
			return finish(m.Expire(due))
		}
		now += second(s.delay)
		m.Bytes([]byte(modelEvents[s.event].wire), now)
	}
	due := max(m.Wait(now), now)
	if due >= now+100*time.Second {
		return finish(nil)
	}
	now = due
	return finish(m.Expire(due))
}

// FuzzMonitor holds the Monitor to the model, which is naive enough to be right.
func FuzzMonitor(f *testing.F) {
	f.Add([]byte{10, 5, 15, 8, 8, 2, 3, 0, 1, 6, 0, 4, 1, 2, 3, 6, 0, 14})
	f.Add([]byte{10, 5, 15, 0, 0, 2, 0, 7, 0, 4, 1, 9, 9, 10, 3, 3})
	f.Add([]byte{0, 5, 0, 31, 31, 2, 1, 8, 0, 1, 1, 0, 4})
	f.Fuzz(func(t *testing.T, b []byte) {
		next := func() (n int) {
			if len(b) > 0 {
				n, b = int(b[0]), b[1:]
			}
			return n
		}
		limit := func() time.Duration { // 0 to 30 s, or off
			n := next() % 32
			if n == 31 {
				n = -1
			}
			return time.Duration(n) * time.Second
		}
		l := &Limits{Dialect: "anthropic"}
		for _, d := range []*time.Duration{&l.FirstContent, &l.Gap, &l.PingedGap, &l.ThinkingGap, &l.ToolGap, &l.Linger} {
			*d = limit()
		}
		headers := next() % 32
		var steps []modelStep
		for len(b) > 0 && len(steps) < 50 {
			steps = append(steps, modelStep{next() % len(modelEvents), next() % 32, next() % 32})
		}
		got, want := monitored(l, headers, steps), model(l, headers, steps)
		if got != want {
			t.Errorf("limits %+v, headers at %d, steps %v:\n got %+v\nwant %+v", *l, headers, steps, got, want)
		}
	})
}
