package transport_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/stream"
)

// msec is a time of a case in milliseconds; a negative one is Off as a limit.
type msec int

func (m msec) duration() time.Duration {
	if m < 0 {
		return policy.Off
	}
	return time.Duration(m) * time.Millisecond
}

// timeline is a case of the stream package: a whole stream with its times and
// limits, and how it ends when.
type timeline struct {
	Name        string `json:"name"`
	Dialect     string `json:"dialect"`
	ContentType string `json:"content_type"`
	HeadersAt   *msec  `json:"headers_at_ms"`
	Limits      struct {
		FirstContent msec `json:"first_content_ms"`
		Gap          msec `json:"gap_ms"`
		PingedGap    msec `json:"pinged_gap_ms"`
		ThinkingGap  msec `json:"thinking_gap_ms"`
		ToolGap      msec `json:"tool_gap_ms"`
		Linger       msec `json:"linger_ms"`
		Hold         bool `json:"hold"`
	} `json:"limits"`
	Pauses []struct {
		From msec `json:"from_ms"`
		To   msec `json:"to_ms"`
	} `json:"consumer_pauses"`
	Chunks []struct {
		At         msec   `json:"at_ms"`
		Wire       string `json:"wire"`
		WireBase64 []byte `json:"wire_base64"`
		Every      msec   `json:"every_ms"`
		Count      int    `json:"count"`
		EOF        bool   `json:"eof"`
		Reset      bool   `json:"reset"`
	} `json:"chunks"`
	Expect struct {
		Outcome  string `json:"outcome"`
		At       msec   `json:"at_ms"`
		Returns  *msec  `json:"returns_at_ms"`
		Released bool   `json:"released"`
		Kind     string `json:"kind"`
		BodyEnds *msec  `json:"body_ends_at_ms"`
	} `json:"expect"`
}

func timelines(t *testing.T) []timeline {
	t.Helper()
	text, err := os.ReadFile("../stream/testdata/timelines.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []timeline
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

// ending is how a stream went, in the terms of the cases. A time of -1 is never.
type ending struct {
	outcome, kind           string
	at, returned, bodyEnded time.Duration
	released                bool
}

func (l *timeline) want() ending {
	x := l.Expect
	e := ending{x.Outcome, x.Kind, x.At.duration(), -1, x.At.duration(), x.Released}
	if x.Returns != nil {
		e.returned = x.Returns.duration()
	}
	if x.BodyEnds != nil {
		e.bodyEnded = x.BodyEnds.duration()
	}
	return e
}

// step is the upstream's part.
func (l *timeline) step() clocktest.Step {
	if l.HeadersAt == nil {
		return clocktest.NoReply()
	}
	type arrival struct {
		at         time.Duration
		data       string
		eof, reset bool
	}
	var list []arrival
	for _, c := range l.Chunks {
		for i := range max(c.Count, 1) {
			list = append(list, arrival{(c.At + msec(i)*c.Every).duration(), c.Wire + string(c.WireBase64), c.EOF, c.Reset})
		}
	}
	slices.SortStableFunc(list, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	last := l.HeadersAt.duration()
	step := clocktest.Reply(200).After(last).Header("Content-Type", l.ContentType)
	for _, a := range list {
		step = step.Chunks(clocktest.Chunk{After: a.at - last, Data: a.data})
		last = a.at
		switch {
		case a.eof:
			return step
		case a.reset:
			return step.Reset()
		}
	}
	return step.Silent()
}

func (l *timeline) stream() policy.Stream {
	s := policy.Stream{
		Enabled: policy.On, Dialect: l.Dialect, Hold: policy.Off,
		FirstContent: l.Limits.FirstContent.duration(), Gap: l.Limits.Gap.duration(), PingedGap: l.Limits.PingedGap.duration(),
		ThinkingGap: l.Limits.ThinkingGap.duration(), ToolGap: l.Limits.ToolGap.duration(), Linger: l.Limits.Linger.duration(),
	}
	if l.Limits.Hold {
		s.Hold = policy.On
	}
	return s
}

// resume returns when the caller begins a Read that it could begin at now.
func (l *timeline) resume(now time.Duration) time.Duration {
	for _, p := range l.Pauses {
		if p.From.duration() <= now && now < p.To.duration() {
			return p.To.duration()
		}
	}
	return now
}

// play is the caller's part.
func (l *timeline) play(t *testing.T, c *clocktest.Clock, up *clocktest.Upstream, deadline time.Duration) ending {
	e := ending{returned: -1, at: -1, bodyEnded: -1}
	p := policy.Policy{
		Settings: policy.Settings{Stream: l.stream(), Retry: policy.Retry{Enabled: policy.Off}},
		Routes:   []policy.Route{{Pattern: "/", Settings: policy.Settings{Deadline: deadline}}},
	}
	tr := newTransport(t, c, up, p, observer(func(_ context.Context, ev layers.Event) {
		var f *stream.FailureError
		if ev.Kind == layers.KindFailure && errors.As(ev.Err, &f) {
			e.outcome, e.kind, e.at = "failure-event", f.Type, c.Elapsed()
			if e.kind == "" {
				e.kind = f.Code
			}
		}
	}))
	end := func(err error) {
		e.bodyEnded = c.Elapsed()
		if e.outcome != "" {
			return
		}
		e.at = c.Elapsed()
		var stall *stream.StallError
		switch {
		case errors.As(err, &stall):
			wantTimeout(t, err, map[bool]layers.Phase{true: layers.PhaseFirst, false: layers.PhaseGap}[stall.Kind == stream.StallFirstContent])
			equal(t, "the attempt told", stall.Attempt, 1)
			e.outcome, e.kind = "stall-gap", string(stall.Kind)
			if stall.Kind == stream.StallFirstContent {
				e.outcome = "stall-first-content"
			}
		case errors.Is(err, stream.ErrTruncated):
			e.outcome = "truncated"
		case errors.Is(err, clocktest.ErrReset):
			e.outcome = "reset"
		case err == io.EOF:
			e.outcome, e.released = "clean", true
		default:
			t.Errorf("got %v", err)
		}
	}
	resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
	if err != nil {
		end(err)
		return e
	}
	defer resp.Body.Close()
	e.returned = c.Elapsed()
	buf := make([]byte, 64<<10)
	for {
		c.Sleep(l.resume(c.Elapsed()) - c.Elapsed())
		known := e.outcome != ""
		n, err := resp.Body.Read(buf)
		e.released = e.released || n > 0 && !known
		if err == nil {
			continue
		}
		end(err)
		if n, again := resp.Body.Read(buf); n != 0 || again != err {
			t.Errorf("the next Read got %d, %v", n, again)
		}
		return e
	}
}

// TestTimelines plays every case through the whole stack. A deadline that the
// headers just make must change nothing, unless the response is held beyond it.
func TestTimelines(t *testing.T) {
	for _, l := range timelines(t) {
		deadlines := []time.Duration{policy.Off}
		if l.HeadersAt != nil && !l.Limits.Hold {
			deadlines = append(deadlines, l.HeadersAt.duration()+time.Nanosecond)
		}
		for _, deadline := range deadlines {
			for _, http2 := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/deadline=%v/http2=%v", l.Name, deadline, http2), func(t *testing.T) {
					clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
						up := clocktest.NewUpstream(t, c, l.step())
						up.HTTP2 = http2
						got, want := l.play(t, c, up, deadline), l.want()
						if got != want {
							t.Errorf("\n got %+v,\nwant %+v", got, want)
						}
						if sent := up.Requests()[0]; sent.End.Sub(sent.At) != want.bodyEnded {
							t.Errorf("the exchange ended after %v", sent.End.Sub(sent.At))
						}
						c.Add(time.Hour)
					})
				})
			}
		}
	}
}
