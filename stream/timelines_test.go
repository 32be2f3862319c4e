package stream

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/weir-go/weir/clocktest"
)

type timelineCase struct {
	Name        string
	Dialect     string
	ContentType string `json:"content_type"`
	HeadersAt   *int   `json:"headers_at_ms"`
	Limits      struct {
		FirstContent int  `json:"first_content_ms"`
		Gap          int  `json:"gap_ms"`
		PingedGap    int  `json:"pinged_gap_ms"`
		ThinkingGap  int  `json:"thinking_gap_ms"`
		ToolGap      int  `json:"tool_gap_ms"`
		Linger       int  `json:"linger_ms"`
		Hold         bool `json:"hold"`
	}
	Pauses []struct {
		From int `json:"from_ms"`
		To   int `json:"to_ms"`
	} `json:"consumer_pauses"`
	Chunks []struct {
		At         int `json:"at_ms"`
		Wire       string
		WireBase64 []byte `json:"wire_base64"`
		Every      int    `json:"every_ms"`
		Count      int
		EOF, Reset bool
	}
	Expect struct {
		Outcome  string
		At       int  `json:"at_ms"`
		Returns  *int `json:"returns_at_ms"`
		Released bool
		Kind     string
		BodyEnds *int `json:"body_ends_at_ms"`
	}
}

// An ending says how a stream went, in the terms of the cases.
type ending struct {
	outcome, kind           string
	at, returned, bodyEnded time.Duration // -1: never
	released                bool
}

var errReset = errors.New("connection reset by peer")

// end notes how Read ended.
func (e *ending) end(err error, at time.Duration, f *FailureError) {
	e.bodyEnded = at
	if e.outcome != "" { // a failure event
		return
	}
	e.at = at
	var stall *StallError
	switch {
	case errors.As(err, &stall):
		e.outcome, e.kind = "stall-gap", string(stall.Kind)
		if stall.Kind == StallFirstContent {
			e.outcome = "stall-first-content"
		}
	case err == ErrTruncated:
		e.outcome = "truncated"
	case err == io.EOF:
		e.outcome, e.released = "clean", true
	default:
		e.outcome = "reset"
	}
}

// fail notes that the stream has reported a failure.
func (e *ending) fail(f *FailureError, at time.Duration) {
	if f == nil || e.outcome != "" {
		return
	}
	e.outcome, e.kind, e.at = "failure-event", f.Type, at
	if e.kind == "" {
		e.kind = f.Code
	}
}

func (c *timelineCase) limits() *Limits {
	l := &Limits{
		FirstContent: ms(c.Limits.FirstContent), Gap: ms(c.Limits.Gap), PingedGap: ms(c.Limits.PingedGap),
		ThinkingGap: ms(c.Limits.ThinkingGap), ToolGap: ms(c.Limits.ToolGap), Linger: ms(c.Limits.Linger),
		Dialect: c.Dialect,
	}
	if c.Limits.Hold {
		l.Hold = On
	}
	return l
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// An arrival is what arrives at an instant: bytes, or the end of the body.
type arrival struct {
	at   time.Duration
	data string
	err  error
}

func (c *timelineCase) arrivals() []arrival {
	var list []arrival
	for _, chunk := range c.Chunks {
		for i := range max(chunk.Count, 1) {
			a := arrival{ms(chunk.At + i*chunk.Every), chunk.Wire + string(chunk.WireBase64), nil}
			if chunk.EOF {
				a.err = io.EOF
			} else if chunk.Reset {
				a.err = errReset
			}
			list = append(list, a)
		}
	}
	slices.SortStableFunc(list, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	return list
}

// resume returns when a Read can start that the caller would start at t.
func (c *timelineCase) resume(t time.Duration) time.Duration {
	for _, p := range c.Pauses {
		if t >= ms(p.From) && t < ms(p.To) {
			return ms(p.To)
		}
	}
	return t
}

func (c *timelineCase) want() ending {
	x := c.Expect
	e := ending{x.Outcome, x.Kind, ms(x.At), -1, ms(x.At), x.Released}
	if x.Returns != nil {
		e.returned = ms(*x.Returns)
	}
	if x.BodyEnds != nil {
		e.bodyEnded = ms(*x.BodyEnds)
	}
	return e
}

func (c *timelineCase) header() http.Header {
	return http.Header{"Content-Type": {c.ContentType}}
}

// monitored plays a case to a Monitor, as a transport and its caller would.
func (c *timelineCase) monitored() (e ending) {
	e.returned = -1
	var m Monitor
	m.Start(c.limits())
	if due := m.Due(); c.HeadersAt == nil || due < ms(*c.HeadersAt) {
		e.end(m.Expire(due), due, nil)
		return e
	}
	now := ms(*c.HeadersAt)
	m.Answered(c.header(), now)
	held := false // bytes that the caller does not have yet
	for list := c.arrivals(); ; {
		if e.returned < 0 && !m.Holds() {
			e.returned = now
			e.released = e.released || held && m.Failure() == nil
		}
		e.fail(m.Failure(), now)
		if e.returned >= 0 {
			now = c.resume(now)
		}
		due := m.Wait(now)
		if len(list) == 0 || max(list[0].at, now) > due {
			e.end(m.Expire(due), due, m.Failure())
			return e
		}
		now = max(list[0].at, now)
		var data string
		for len(list) > 0 && list[0].at <= now && list[0].err == nil {
			data, list = data+list[0].data, list[1:]
		}
		switch {
		case data != "":
			m.Bytes([]byte(data), now)
			held = e.returned < 0
			e.released = e.released || !held
			continue
		case list[0].err == io.EOF:
			e.end(m.EOF(now), now, m.Failure())
		default:
			e.end(m.Fail(list[0].err, now), now, m.Failure())
		}
		if e.returned < 0 {
			e.returned = now
		}
		return e
	}
}

func TestTimelinesMonitor(t *testing.T) {
	for _, c := range load[timelineCase](t, "timelines.json") {
		t.Run(c.Name, func(t *testing.T) {
			if got, want := c.monitored(), c.want(); got != want {
				t.Errorf("\n got %+v,\nwant %+v", got, want)
			}
		})
	}
}

// A script is a body whose bytes arrive as a case has it.
type script struct {
	mu      sync.Mutex
	cond    *sync.Cond
	data    []byte
	err     error
	reading bool
	closed  int
}

func newScript() *script {
	s := new(script)
	s.cond = sync.NewCond(&s.mu)
	return s
}

func (s *script) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading {
		panic("two Reads at once")
	}
	s.reading = true
	defer func() { s.reading = false }()
	for len(s.data) == 0 && s.err == nil {
		s.cond.Wait()
	}
	if len(s.data) == 0 {
		return 0, s.err
	}
	n := copy(p, s.data)
	s.data = s.data[n:]
	return n, nil
}

func (s *script) Close() error {
	s.fail(errors.New("read on closed body"))
	s.mu.Lock()
	s.closed++
	s.mu.Unlock()
	return nil
}

func (s *script) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.cond.Broadcast()
}

func (s *script) arrive(a arrival) {
	if a.err != nil {
		s.fail(a.err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.data = append(s.data, a.data...)
	}
	s.cond.Broadcast()
}

// play lets the arrivals happen. Each is scheduled at once, or by the one before,
// so that of two things at one instant either can be the first.
func (s *script) play(c clock.Clock, start time.Time, list []arrival, chained bool) {
	for i, a := range list {
		c.AfterFunc(a.at-c.Since(start), func() {
			s.arrive(a)
			if chained {
				s.play(c, start, list[i+1:], true)
			}
		})
		if chained {
			return
		}
	}
}

// guarded plays a case to a guarded body. What needs a RoundTrip is left to the
// Monitor.
func (c *timelineCase) guarded(t *testing.T, k *clocktest.Clock, chained bool) (e ending) {
	e.returned = ms(*c.HeadersAt)
	start := k.Now()
	now := func() time.Duration { return k.Since(start) }
	s := newScript()
	s.play(k, start, c.arrivals(), chained)
	k.Sleep(ms(*c.HeadersAt))
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	b := Guard(s, c.limits(), Options{
		Clock: k, Sent: start, Header: c.header(), Context: ctx,
		Cancel: func(err error) {
			cancel(err)
			s.fail(context.Canceled) // as HTTP/2 has it
		},
	})
	defer b.Close()
	buf := make([]byte, 64<<10)
	for {
		k.Sleep(c.resume(now()) - now())
		n, err := b.Read(buf)
		e.released = e.released || n > 0
		e.fail(b.Stats().Failure, now())
		if err == nil {
			continue
		}
		e.end(err, now(), nil)
		if _, again := b.Read(buf); again != err {
			t.Errorf("the next Read returns %v, not %v", again, err)
		}
		if stalled := errors.As(err, new(*StallError)); stalled && context.Cause(ctx) != err {
			t.Errorf("the request is cancelled with %v, not %v", context.Cause(ctx), err)
		}
		return e
	}
}

func TestTimelinesGuard(t *testing.T) {
	for _, c := range load[timelineCase](t, "timelines.json") {
		if c.HeadersAt == nil || c.Limits.Hold {
			continue
		}
		for _, chained := range []bool{false, true} {
			t.Run(c.Name, func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, k *clocktest.Clock) {
					if got, want := c.guarded(t, k, chained), c.want(); got != want {
						t.Errorf("\n got %+v,\nwant %+v", got, want)
					}
				})
			})
		}
	}
}
