package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/stream"
	"github.com/weir-go/weir/transport"
)

// What a server of the openai-chat dialect says.
const (
	role    = `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}` + "\n\n"
	word    = `data: {"choices":[{"index":0,"delta":{"content":"word"}}]}` + "\n\n"
	thought = `data: {"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}` + "\n\n"
	toolArg = `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}}]}` + "\n\n"
	finish  = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	done    = "data: [DONE]\n\n"
	ping    = ": ping\n\n"
	limited = `data: {"error":{"message":"slower","type":"tokens","code":"rate_limit_exceeded"}}` + "\n\n"
	busy    = `data: {"error":{"message":"try later","type":"server_error"}}` + "\n\n"
	invalid = `data: {"error":{"message":"no such model","type":"invalid_request_error"}}` + "\n\n"
)

// streamed is a policy of a stream route, with an hour's deadline.
func streamed(s policy.Stream, r policy.Retry) policy.Policy {
	s.Enabled = policy.On
	return settings(policy.Settings{Deadline: time.Hour, Stream: s, Retry: r})
}

// limits are those of most tests. Each of them differs.
var limits = policy.Stream{
	FirstContent: 5 * time.Second, Gap: 10 * time.Second, PingedGap: 30 * time.Second,
	ThinkingGap: 20 * time.Second, ToolGap: 25 * time.Second, Linger: 2 * time.Second,
}

func held() policy.Stream {
	s := limits
	s.Hold = policy.On
	return s
}

// twice retries once, at once.
var twice = policy.Retry{MaxAttempts: 2, BaseDelay: policy.Off, Idempotent: policy.On}

var noRetry = policy.Retry{Enabled: policy.Off}

// events answers with a stream of these, all at once.
func events(list ...string) clocktest.Step {
	step := clocktest.Reply(200).Header("Content-Type", "text/event-stream")
	return step.Chunks(clocktest.Chunk{Data: strings.Join(list, "")})
}

// every goes on with an event n times.
func every(step clocktest.Step, d time.Duration, event string, n int) clocktest.Step {
	for range n {
		step = step.Chunks(clocktest.Chunk{After: d, Data: event})
	}
	return step
}

func post(t *testing.T, c *clocktest.Clock, rt http.RoundTripper) result {
	t.Helper()
	return do(c, rt, request(t, t.Context(), "POST", url, strings.NewReader(`{"stream":true}`)))
}

func wantStall(t *testing.T, err error, kind stream.StallKind, limit time.Duration) *layers.Error {
	t.Helper()
	phase := layers.PhaseGap
	if kind == stream.StallFirstContent {
		phase = layers.PhaseFirst
	}
	e := wantTimeout(t, err, phase)
	var stall *stream.StallError
	if !errors.As(err, &stall) || stall.Kind != kind || stall.Limit != limit {
		t.Errorf("got %v, want a stall of kind %s at %v", err, kind, limit)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v: must be os.ErrDeadlineExceeded", err)
	}
	equal(t, "the layer", e.Layer, "stream")
	equal(t, "the limit told", e.Limit, limit)
	return e
}

// TestGapOff: without a limit to gaps, there is none to those with keepalives or of
// thinking either, in a policy and in a layer alone.
func TestGapOff(t *testing.T) {
	for name, stack := range map[string]func(t *testing.T, c *clocktest.Clock, base http.RoundTripper) http.RoundTripper{
		"policy": func(t *testing.T, c *clocktest.Clock, base http.RoundTripper) http.RoundTripper {
			return newTransport(t, c, base, settings(policy.Settings{Stream: policy.Stream{Enabled: policy.On, Gap: policy.Off}}))
		},
		"layer": func(_ *testing.T, c *clocktest.Clock, base http.RoundTripper) http.RoundTripper {
			return layers.StreamGuard(&layers.Env{Clock: c}, policy.Stream{Gap: policy.Off})(base)
		},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				step := every(events(role, word), 100*time.Second, ping, 5)
				step = every(step, 0, thought, 1).Chunks(clocktest.Chunk{After: 500 * time.Second, Data: word + finish + done})
				r := get(t, c, stack(t, c, clocktest.NewUpstream(t, c, step)))
				wantStatus(t, r, 200)
				wantTook(t, r, 1000*time.Second)
			})
		})
	}
}

// TestPings: a keepalive never stands for content. It only selects a longer gap.
func TestPings(t *testing.T) {
	for _, hold := range []bool{false, true} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			l := limits
			if l.FirstContent = 12 * time.Second; hold {
				l.Hold = policy.On
			}
			up := clocktest.NewUpstream(t, c, every(events(role), 5*time.Second, ping, 100))
			fired := 0
			r := get(t, c, newTransport(t, c, up, streamed(l, noRetry), observer(func(_ context.Context, e layers.Event) {
				if e.Kind == layers.KindDone && e.Err != nil {
					fired++
				}
			})))
			wantStall(t, r.err, stream.StallFirstContent, 12*time.Second)
			wantTook(t, r, 12*time.Second)
			c.Add(time.Hour)
			equal(t, "the number of expiries", fired, 1)
			equal(t, "whether there is a response", r.resp != nil, !hold)
			if !hold {
				equal(t, "the body", r.body, role+ping+ping)
			}
		})
	}
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, every(events(role, word), 5*time.Second, ping, 100))
		r := get(t, c, newTransport(t, c, up, streamed(limits, noRetry)))
		wantStall(t, r.err, stream.StallPingedGap, 30*time.Second)
		wantTook(t, r, 30*time.Second)
		// The ping of the very instant has arrived, and is delivered.
		equal(t, "the body", r.body, role+word+strings.Repeat(ping, 6))
	})
}

// TestSilence: each kind of content has its gap, and what came before a stall
// is delivered before it.
func TestSilence(t *testing.T) {
	for name, test := range map[string]struct {
		events string
		kind   stream.StallKind
		limit  time.Duration
	}{
		"text":         {role + word, stream.StallGap, 10 * time.Second},
		"thinking":     {role + thought, stream.StallThinkingGap, 20 * time.Second},
		"tool":         {role + toolArg, stream.StallToolGap, 25 * time.Second},
		"role":         {role, stream.StallFirstContent, 5 * time.Second},
		"empty string": {`data: {"choices":[{"delta":{"content":""}}]}` + "\n\n", stream.StallFirstContent, 5 * time.Second},
		"null":         {`data: {"choices":[{"delta":{"content":null}}]}` + "\n\n", stream.StallFirstContent, 5 * time.Second},
		"usage":        {`data: {"choices":[],"usage":{"total_tokens":7}}` + "\n\n", stream.StallFirstContent, 5 * time.Second},
		"half":         {word[:len(word)-1], stream.StallFirstContent, 5 * time.Second},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					up := clocktest.NewUpstream(t, c, events(test.events).Silent())
					up.HTTP2 = http2
					l := limits
					l.Dialect = "openai-chat"
					r := get(t, c, newTransport(t, c, up, streamed(l, noRetry)))
					wantStall(t, r.err, test.kind, test.limit)
					wantTook(t, r, test.limit)
					equal(t, "the body", r.body, test.events)
					if _, err := r.resp.Body.Read(make([]byte, 1)); err != http.ErrBodyReadAfterClose && err != r.err {
						t.Errorf("the next Read got %v", err)
					}
					equal(t, "whether the server saw it", up.Requests()[0].Canceled, true)
				})
			})
		}
	}
}

// TestStreamOutlivesTheDeadline: the deadline is for opening the stream.
func TestStreamOutlivesTheDeadline(t *testing.T) {
	const deadline = 10 * time.Second
	for name, l := range map[string]policy.Stream{
		"plain":             limits,
		"held":              held(),
		"FirstContent off":  {FirstContent: policy.Off, Gap: 10 * time.Second},
		"held and no first": {FirstContent: policy.Off, Gap: 10 * time.Second, Hold: policy.On},
	} {
		for layer, change := range map[string]func(*transport.Config){
			"alone": func(*transport.Config) {}, "outer": outer(passes), "inner": inner(passes),
		} {
			t.Run(name+"/"+layer, func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					p := streamed(l, noRetry)
					p.Deadline = deadline
					up := clocktest.NewUpstream(t, c, every(events(role), 5*time.Second-1, word, 20).Chunks(clocktest.Chunk{Data: done}))
					r := get(t, c, newTransport(t, c, up, p, change))
					wantStatus(t, r, 200)
					equal(t, "the body", r.body, role+strings.Repeat(word, 20)+done)
					wantTook(t, r, 20*(5*time.Second-1))
				})
			})
		}
	}
}

// TestStreamAfterARedirect: the opening is all hops together.
func TestStreamAfterARedirect(t *testing.T) {
	for wait, fits := range map[time.Duration]bool{7 * time.Second: true, 8 * time.Second: false} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c,
				clocktest.Reply(302).After(wait).Header("Location", "/stream"),
				every(events(role).After(2500*time.Millisecond), time.Second, word, 60).Chunks(clocktest.Chunk{Data: done}))
			p := policy.Policy{
				Settings: policy.Settings{Deadline: 10 * time.Second, Retry: noRetry},
				Routes:   []policy.Route{{Pattern: "/stream", Settings: policy.Settings{Deadline: time.Minute, Stream: limits}}},
			}
			p.Routes[0].Stream.Enabled = policy.On
			resp, err := newTransport(t, c, up, p).Client().Get(url)
			if !fits {
				wantTimeout(t, err, layers.PhaseDeadline)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if _, err := io.ReadAll(resp.Body); err != nil {
				t.Error(err)
			}
			equal(t, "the time", c.Elapsed(), wait+62500*time.Millisecond)
		})
	}
}

func passes(next http.RoundTripper) http.RoundTripper {
	return layers.RoundTripperFunc(next.RoundTrip)
}

// TestDeadlineOpens: how far the deadline reaches.
func TestDeadlineOpens(t *testing.T) {
	const deadline = 4 * time.Second
	silent := events(role).Silent()
	for name, test := range map[string]struct {
		stream policy.Stream
		step   clocktest.Step
		took   time.Duration // 0: by the guard
		during string
	}{
		"headers":                               {limits, clocktest.NoReply(), deadline, "first-content"},
		"first content, which the guard bounds": {limits, silent, 0, ""},
		"first content, held":                   {held(), silent, deadline, "first-content"},
		"first content, not bounded":            {policy.Stream{FirstContent: policy.Off}, silent, deadline, "first-content"},
		"no content any more":                   {held(), events(role, busy).Silent(), 2 * time.Second, ""},
		"finished without content":              {policy.Stream{FirstContent: policy.Off, Linger: 20 * time.Second}, events(role, done).Silent(), 20 * time.Second, ""},
		"another answer":                        {limits, clocktest.Reply(404).Silent(), deadline, "read"},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				p := policy.Policy{
					Settings: policy.Settings{Stream: test.stream, Retry: noRetry},
					Routes:   []policy.Route{{Pattern: "/", Settings: policy.Settings{Deadline: deadline}}},
				}
				p.Stream.Enabled = policy.On
				r := get(t, c, newTransport(t, c, clocktest.NewUpstream(t, c, test.step), p))
				switch test.took {
				case deadline:
					e := wantTimeout(t, r.err, layers.PhaseDeadline)
					wantTook(t, r, deadline)
					has(t, e.Error(), "in phase "+test.during+" of attempt 1")
				case 0:
					wantStall(t, r.err, stream.StallFirstContent, 5*time.Second)
					wantTook(t, r, 5*time.Second)
				default:
					wantStatus(t, r, 200)
					wantTook(t, r, test.took)
				}
			})
		})
	}
}

// TestCallersDeadlinesBoundReading: what the caller sets holds to the end.
func TestCallersDeadlinesBoundReading(t *testing.T) {
	steady := func() clocktest.Step { return every(events(role), time.Second, word, 100) }
	const at = 30*time.Second + 500*time.Millisecond
	t.Run("job", func(t *testing.T) {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			p := streamed(limits, noRetry)
			p.Deadline = 10 * time.Second
			job := layers.WithDeadline(t.Context(), c.Now().Add(at))
			r := do(c, newTransport(t, c, clocktest.NewUpstream(t, c, steady()), p), request(t, job, "GET", url, nil))
			e := wantTimeout(t, r.err, layers.PhaseDeadline)
			wantTook(t, r, at)
			equal(t, "the limit told", e.Limit, at)
			equal(t, "the body", r.body, role+strings.Repeat(word, 30))
		})
	})
	t.Run("context", func(t *testing.T) {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			ctx, cancel := c.WithTimeout(t.Context(), at)
			defer cancel()
			r := do(c, newTransport(t, c, clocktest.NewUpstream(t, c, steady()), streamed(limits, noRetry)), request(t, ctx, "GET", url, nil))
			wantTook(t, r, at)
			if r.err != context.DeadlineExceeded {
				t.Errorf("got %v (%T), want context.DeadlineExceeded itself", r.err, r.err)
			}
		})
	})
	t.Run("attempt", func(t *testing.T) {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			p := streamed(limits, noRetry)
			p.Timeouts.Attempt = at
			r := get(t, c, newTransport(t, c, clocktest.NewUpstream(t, c, steady()), p))
			wantTimeout(t, r.err, layers.PhaseAttempt)
			wantTook(t, r, at)
		})
	})
}

// TestStreamNotEnabled: nothing that a server sends lifts a deadline.
func TestStreamNotEnabled(t *testing.T) {
	for kind, stream := range map[string]bool{
		"text/event-stream":                   true,
		"Text/Event-Stream; charset=utf-8":    true,
		"application/x-ndjson":                true,
		"application/vnd.amazon.eventstream":  true,
		"application/json":                    false,
		"text/event-streams":                  false,
		"application/octet-stream":            false,
		"text/plain; note=text/event-stream ": false,
	} {
		t.Run(kind, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				step := every(clocktest.Reply(200).Header("Content-Type", kind), time.Second, word, 100)
				r := get(t, c, newTransport(t, c, clocktest.NewUpstream(t, c, step), settings(policy.Settings{Deadline: 20 * time.Second})))
				e := wantTimeout(t, r.err, layers.PhaseDeadline)
				wantTook(t, r, 20*time.Second)
				equal(t, "whether the error says what to change", strings.Contains(e.Error(), "Stream.Enabled"), stream)
			})
		})
	}
}

// TestReadIsNotForStreams: FirstContent takes the place of Read before the
// headers and after them, and gives it back for an answer that is no stream.
func TestReadIsNotForStreams(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		step := every(events().After(45*time.Second), 45*time.Second, word, 3).Chunks(clocktest.Chunk{Data: done})
		l := policy.Stream{FirstContent: 100 * time.Second, Gap: time.Minute}
		r := get(t, c, newTransport(t, c, clocktest.NewUpstream(t, c, step), streamed(l, noRetry)))
		wantStatus(t, r, 200)
		wantTook(t, r, 4*45*time.Second)
	})
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(404).After(45*time.Second).Header("Content-Type", "text/event-stream").Silent())
		r := get(t, c, newTransport(t, c, up, streamed(policy.Stream{FirstContent: time.Minute}, noRetry)))
		wantTimeout(t, r.err, layers.PhaseRead)
		wantTook(t, r, (45+30)*time.Second)
	})
	t.Run("by default", func(t *testing.T) {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, events().Silent())
			r := get(t, c, newTransport(t, c, up, settings(policy.Settings{Stream: policy.Stream{Enabled: policy.On}})))
			wantStall(t, r.err, stream.StallFirstContent, 120*time.Second)
			wantTook(t, r, 120*time.Second)
		})
	})
}

// TestFirstContentCoversEveryPhase: the clock starts with the send.
func TestFirstContentCoversEveryPhase(t *testing.T) {
	for name, test := range map[string]struct {
		step clocktest.Step
		sent layers.Sent
	}{
		"pool":    {clocktest.Reply(200).Pool(time.Hour), layers.Unsent},
		"connect": {clocktest.Reply(200).Connect(time.Hour), layers.Unsent},
		"headers": {clocktest.NoReply(), layers.MaybeSent},
		"body":    {events(role).After(4 * time.Second).Silent(), layers.Answered},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				r := get(t, c, newTransport(t, c, clocktest.NewUpstream(t, c, test.step), streamed(held(), noRetry)))
				e := wantStall(t, r.err, stream.StallFirstContent, 5*time.Second)
				wantTook(t, r, 5*time.Second)
				equal(t, "what was sent", e.Sent, test.sent)
			})
		})
	}
}

// TestSlowConsumer: only a Read that waits uses up a limit.
func TestSlowConsumer(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		step := every(events(role), time.Second, word, 5).Silent()
		tr := newTransport(t, c, clocktest.NewUpstream(t, c, step), streamed(limits, noRetry))
		resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		for _, want := range []string{role, word, word, word, word, word} {
			c.Add(time.Hour)
			buf := make([]byte, 1<<10)
			n, err := resp.Body.Read(buf)
			if string(buf[:n]) != want || err != nil {
				t.Fatalf("read %q, %v", buf[:n], err)
			}
		}
		before := c.Elapsed()
		_, err = io.ReadAll(resp.Body)
		wantStall(t, err, stream.StallGap, 10*time.Second)
		equal(t, "the silence", c.Elapsed()-before, 10*time.Second)
	})
}

// TestCancelAtExpiry: whichever of the two comes first at one instant, the
// caller gets its own error.
func TestCancelAtExpiry(t *testing.T) {
	cause := errors.New("the user went away")
	for _, step := range []clocktest.Step{clocktest.NoReply(), events(role).Silent()} {
		for _, l := range []policy.Stream{limits, held()} {
			for _, http2 := range []bool{false, true} {
				for _, before := range []bool{false, true} {
					clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
						up := clocktest.NewUpstream(t, c, step)
						up.HTTP2 = http2
						ctx, cancel := context.WithCancelCause(t.Context())
						if before {
							c.AfterFunc(l.FirstContent, func() { cancel(cause) })
						} else { // after that of the guard was set
							c.AfterFunc(0, func() { c.AfterFunc(l.FirstContent, func() { cancel(cause) }) })
						}
						tr := newTransport(t, c, up, streamed(l, twice))
						r := do(c, tr, request(t, ctx, "GET", url, nil))
						wantTook(t, r, l.FirstContent)
						if !errors.Is(r.err, context.Canceled) || !errors.Is(r.err, cause) {
							t.Errorf("got %v, want the caller's cancellation and its cause", r.err)
						}
						equal(t, "the number of sends", len(up.Requests()), 1)
					})
				}
			}
		}
	}
}

// TestContentAtExpiry: what arrives at the instant of the expiry is content.
func TestContentAtExpiry(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		step := events().Chunks(clocktest.Chunk{After: 5 * time.Second, Data: word}, clocktest.Chunk{After: 10 * time.Second, Data: word},
			clocktest.Chunk{After: 10 * time.Second, Data: done})
		r := get(t, c, newTransport(t, c, clocktest.NewUpstream(t, c, step), streamed(limits, noRetry)))
		wantStatus(t, r, 200)
		wantTook(t, r, 25*time.Second)
	})
}

// TestHeldRetry: what dies before its first content is sent again, and nothing
// of it is seen.
func TestHeldRetry(t *testing.T) {
	second := every(events(role, word), time.Second, word, 3).Chunks(clocktest.Chunk{Data: finish + done})
	const whole = role + word + word + word + word + finish + done
	for name, test := range map[string]struct {
		first clocktest.Step
		took  time.Duration // until it has failed
	}{
		"silent after 200":         {events().Silent(), 5 * time.Second},
		"silent after the role":    {events(role).Silent(), 5 * time.Second},
		"pings only":               {every(events(role), time.Second, ping, 100), 5 * time.Second},
		"no headers":               {clocktest.NoReply(), 5 * time.Second},
		"no connection":            {clocktest.Reply(200).Connect(time.Hour), 5 * time.Second},
		"503":                      {clocktest.Reply(503).Body("busy"), 0},
		"failure":                  {events(role, busy), 0},
		"failure, later":           {events(role).Chunks(clocktest.Chunk{After: 3 * time.Second, Data: busy}), 3 * time.Second},
		"failure, then silence":    {events(role, busy).Silent(), time.Second}, // to see its end
		"reset before content":     {events(role).Reset(), 0},
		"broken before content":    {events(role).Fail(io.ErrUnexpectedEOF), 0},
		"broken, after some time":  {events(role).Chunks(clocktest.Chunk{After: time.Second}).Reset(), time.Second},
		"connection refused":       {clocktest.FailDial(clocktest.ErrRefused), 0},
		"reset before the headers": {clocktest.Fail(clocktest.ErrReset), 0},
	} {
		for _, http2 := range []bool{false, true} {
			for layer, change := range map[string]func(*transport.Config){
				"alone": func(*transport.Config) {}, "outer": outer(passes), "inner": inner(passes),
			} {
				t.Run(fmt.Sprintf("%s/%s/http2=%v", name, layer, http2), func(t *testing.T) {
					clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
						up := clocktest.NewUpstream(t, c, test.first, second)
						up.HTTP2 = http2
						r := post(t, c, newTransport(t, c, up, streamed(held(), twice), change))
						wantStatus(t, r, 200)
						equal(t, "the body", r.body, whole)
						wantTook(t, r, test.took+3*time.Second)
						equalTimes(t, times(c, up), 0, test.took)
						equal(t, "the number of attempts", r.call(t).Attempts(), 2)
						for _, sent := range up.Requests() {
							if len(sent.Body) > 0 || name != "no connection" && name != "connection refused" {
								equal(t, "the body sent", string(sent.Body), `{"stream":true}`)
							}
						}
					})
				})
			}
		}
	}
}

// TestHeldRetryOfAPingTooLate: what is no content, and comes just as the stream is
// given up, releases nothing.
func TestHeldRetryOfAPingTooLate(t *testing.T) {
	for name, last := range map[string]struct {
		text string
		err  error
	}{"a ping": {text: ping}, "and an error": {ping, io.ErrUnexpectedEOF}, "half an event": {text: "data: {"}} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				sends := 0
				base := layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
					sends++
					text := strings.NewReader(role)
					body := readerFunc(func(p []byte) (int, error) {
						if text.Len() > 0 || sends > 1 {
							return text.Read(p)
						}
						<-req.Context().Done()
						return copy(p, last.text), last.err
					})
					if sends > 1 {
						text = strings.NewReader(word + done)
					}
					return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(body)}, nil
				})
				r := post(t, c, newTransport(t, c, base, streamed(held(), twice)))
				wantStatus(t, r, 200)
				equal(t, "the body", r.body, word+done)
				equal(t, "the number of sends", sends, 2)
			})
		})
	}
}

// TestHeldRetryOfARecordedBody: a body that cannot be had again is recorded.
func TestHeldRetryOfARecordedBody(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, events(role).Silent(), events(word, done))
		r := do(c, newTransport(t, c, up, streamed(held(), twice)), request(t, t.Context(), "POST", url, plain{strings.NewReader("prompt")}))
		wantStatus(t, r, 200)
		equal(t, "the body", r.body, word+done)
		for _, sent := range up.Requests() {
			equal(t, "the body sent", string(sent.Body), "prompt")
		}
	})
}

// TestNotRetried: what stands in the way of another attempt, and what the
// caller has then.
func TestNotRetried(t *testing.T) {
	unsafe := twice
	unsafe.Idempotent = policy.Off
	for name, test := range map[string]struct {
		stream policy.Stream
		retry  policy.Retry
		step   clocktest.Step
		body   string
		err    string
		reason string
		took   time.Duration
	}{
		"a POST that stalls":          {held(), unsafe, events(role).Silent(), "", "no first content", layers.ReasonNotSafe, 5 * time.Second},
		"a POST that fails":           {held(), unsafe, events(role, busy), role + busy, "", layers.ReasonNotSafe, 0},
		"no retry":                    {held(), noRetry, events(role, busy), role + busy, "", "", 0},
		"not retryable":               {held(), twice, events(role, invalid), role + invalid, "", "", 0},
		"a stall after content":       {held(), twice, events(role, word).Silent(), role + word, "no content", "", 10 * time.Second},
		"a failure after content":     {held(), twice, events(role, word, busy), role + word + busy, "", "", 0},
		"content and failure at once": {held(), twice, events(word + busy), word + busy, "", "", 0},
		"a reset after content":       {held(), twice, events(role, word).Reset(), role + word, "connection reset", "", 0},
		"truncated after content":     {held(), twice, events(role, word), role + word, "before it was finished", "", 0},
		"truncated before content":    {held(), twice, events(role), role, "before it was finished", "", 0},
		"truncated, which is allowed": {policy.Stream{AllowTruncated: policy.On}, twice, events(role, word), role + word, "", "", 0},
		"a stall, not held":           {limits, twice, events(role).Silent(), role, "no first content", "", 5 * time.Second},
		"a failure, not held":         {limits, twice, events(role, busy), role + busy, "", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, test.step)
				tr := newTransport(t, c, up, streamed(test.stream, test.retry))
				r := post(t, c, tr)
				if test.err == "" {
					wantStatus(t, r, 200)
					equal(t, "the reason", r.call(t).Reason(), test.reason)
				} else {
					has(t, fmt.Sprint(r.err), test.err)
					if e := new(layers.Error); errors.As(r.err, &e) {
						equal(t, "the reason", e.Reason, test.reason)
					}
				}
				equal(t, "the body", r.body, test.body)
				wantTook(t, r, test.took)
				equal(t, "the number of sends", len(up.Requests()), 1)
			})
		})
	}
}

// TestHeldExhaustion: the last answer comes back, whatever it is.
func TestHeldExhaustion(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, events(role).Silent(), events(role, busy))
		r := post(t, c, newTransport(t, c, up, streamed(held(), twice)))
		wantStatus(t, r, 200)
		equal(t, "the body", r.body, role+busy)
		equal(t, "the reason", r.call(t).Reason(), layers.ReasonAttempts)
		stats, ok := stream.StatsOf(r.resp)
		if !ok || stats.Failure == nil || stats.Failure.Type != "server_error" {
			t.Errorf("got %+v", stats)
		}
	})
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, events(role, busy), events(role).Silent())
		r := post(t, c, newTransport(t, c, up, streamed(held(), twice)))
		e := wantStall(t, r.err, stream.StallFirstContent, 5*time.Second)
		equal(t, "the number of attempts", e.Attempts, 2)
		equal(t, "the reason", e.Reason, layers.ReasonAttempts)
		equal(t, "whether it can be repeated", e.Retryable, true)
		var stall *stream.StallError
		errors.As(e, &stall)
		equal(t, "the attempt told", stall.Attempt, 2)
		if r.resp != nil {
			t.Error("a response too")
		}
	})
	t.Run("a gate refuses the second send", func(t *testing.T) {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			p := streamed(held(), twice)
			p.Breaker = policy.Breaker{Failures: 1}
			r := post(t, c, newTransport(t, c, clocktest.NewUpstream(t, c, events(role, busy)), p))
			wantStatus(t, r, 200)
			equal(t, "the body", r.body, role+busy)
			equal(t, "the reason", r.call(t).Reason(), layers.ReasonCircuit)
			stats, ok := stream.StatsOf(r.resp)
			if !ok || stats.Failure == nil || stats.Bytes != int64(len(r.body)) {
				t.Errorf("got %+v", stats)
			}
		})
	})
	t.Run("the retry budget is empty", func(t *testing.T) {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, events(role, busy).Times(8))
			tr := newTransport(t, c, up, streamed(held(), policy.Retry{MaxAttempts: 10, BaseDelay: policy.Off, Idempotent: policy.On, Budget: 0.01}))
			for range 5 {
				wantStatus(t, post(t, c, tr), 200)
			}
			equal(t, "the number of sends", len(up.Requests()), 5+3)
		})
	})
}

// TestTooLateForAnotherStream: an attempt that cannot have its first content in
// the time left is not made, and the failure is told at once.
func TestTooLateForAnotherStream(t *testing.T) {
	for _, test := range []struct {
		deadline time.Duration
		first    clocktest.Step
		sends    int
		took     time.Duration
	}{
		{10*time.Second - 1, events(role).Silent(), 1, 5 * time.Second},
		{10 * time.Second, events(role).Silent(), 2, 5 * time.Second},
		{10*time.Second - 1, clocktest.Reply(503).After(5 * time.Second), 1, 5 * time.Second},
		{10 * time.Second, clocktest.Reply(503).After(5 * time.Second), 2, 5 * time.Second},
		{8 * time.Second, events(role).Chunks(clocktest.Chunk{After: 4 * time.Second, Data: busy}), 1, 4 * time.Second},
		{5 * time.Second, clocktest.Reply(503).After(time.Second), 2, time.Second}, // which FirstContent is cut to
	} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			steps := []clocktest.Step{test.first}
			if test.sends == 2 {
				steps = append(steps, events(word, done))
			}
			up := clocktest.NewUpstream(t, c, steps...)
			p := streamed(held(), twice)
			p.Deadline = test.deadline
			r := post(t, c, newTransport(t, c, up, p))
			wantTook(t, r, test.took)
			equal(t, "the number of sends", len(up.Requests()), test.sends)
			switch {
			case test.sends == 2:
				wantStatus(t, r, 200)
				equal(t, "the body", r.body, word+done)
			case r.resp != nil:
				equal(t, "the reason", r.call(t).Reason(), layers.ReasonDeadline)
			default:
				equal(t, "the reason", wantStall(t, r.err, stream.StallFirstContent, 5*time.Second).Reason, layers.ReasonDeadline)
			}
		})
	}
}

// TestFailureLiftsNothing: the deadline of a call is not over because a server
// has failed it: it bounds the attempts that follow.
func TestFailureLiftsNothing(t *testing.T) {
	for layer, change := range map[string]func(*transport.Config){
		"alone": func(*transport.Config) {}, "outer": outer(passes), "inner": inner(passes),
	} {
		t.Run(layer, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, events(role, busy), events(role).Silent())
				p := streamed(policy.Stream{FirstContent: policy.Off, Gap: time.Minute, Hold: policy.On}, twice)
				p.Deadline = 10 * time.Second
				r := post(t, c, newTransport(t, c, up, p, change))
				wantTimeout(t, r.err, layers.PhaseDeadline)
				wantTook(t, r, 10*time.Second)
			})
		})
	}
}

// TestHoldLimit: what is held is bounded, and then the response is released as
// it is; the wait for content goes on.
func TestHoldLimit(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		const limit = 10_000
		read := 0
		endless := strings.Repeat(ping, 1000)
		base := layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			body := readerFunc(func(p []byte) (int, error) {
				if read > 4*limit {
					<-req.Context().Done()
					return 0, context.Cause(req.Context())
				}
				n := copy(p, endless[read%len(ping):])
				read += n
				return n, nil
			})
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(body)}, nil
		})
		l := held()
		l.HoldLimit = limit
		tr := newTransport(t, c, base, streamed(l, twice))
		resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if read <= limit || read > limit+4096 {
			t.Errorf("%d bytes are held, want little more than %d", read, limit)
		}
		text, err := io.ReadAll(resp.Body)
		equal(t, "whether it is what was sent", string(text) == strings.Repeat(ping, read/len(ping)+1)[:read], true)
		wantStall(t, err, stream.StallFirstContent, 5*time.Second)
		equal(t, "the time", c.Elapsed(), 5*time.Second)
	})
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestCheckSeesStreamFailures: a policy of go-retryablehttp decides on them as
// on any error.
func TestCheckSeesStreamFailures(t *testing.T) {
	for _, again := range []bool{false, true} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			retry := twice
			retry.Check = func(_ context.Context, resp *http.Response, err error) (bool, error) {
				if err == nil {
					return false, nil
				}
				if f := new(stream.FailureError); !errors.As(err, &f) || resp.StatusCode != 200 {
					t.Errorf("Check got %v, %v", resp, err)
				}
				return again, nil
			}
			up := clocktest.NewUpstream(t, c, events(role, busy), events(word, done))
			r := post(t, c, newTransport(t, c, up, streamed(held(), retry)))
			wantStatus(t, r, 200)
			equal(t, "the body", r.body, map[bool]string{true: word + done, false: role + busy}[again])
		})
	}
}

// TestCheckReadsAStream: what it has read of one is put back, with the
// statistics, which it may ask for too.
func TestCheckReadsAStream(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		retry := twice
		retry.Check = func(_ context.Context, resp *http.Response, _ error) (bool, error) {
			io.ReadFull(resp.Body, make([]byte, 10))
			if s, ok := stream.StatsOf(resp); !ok || s.Contents != 1 {
				t.Errorf("Check got %+v", s)
			}
			return false, nil
		}
		up := clocktest.NewUpstream(t, c, events(word, done))
		resp, err := newTransport(t, c, up, streamed(held(), retry)).RoundTrip(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		equal(t, "the body", string(text), word+done)
		equal(t, "its end", err, nil)
		if s, ok := stream.StatsOf(&http.Response{Body: resp.Body}); !ok || s.Contents != 1 || !s.Finished {
			t.Errorf("got %+v", s)
		}
	})
}

// TestUntouched: what is no stream passes as it is, and no clock of the guard
// runs on.
func TestUntouched(t *testing.T) {
	for name, test := range map[string]struct {
		method string
		step   clocktest.Step
	}{
		"HEAD":           {"HEAD", clocktest.Reply(200).Header("Content-Type", "text/event-stream")},
		"204":            {"GET", clocktest.Reply(204)},
		"304":            {"GET", clocktest.Reply(304)},
		"404":            {"GET", clocktest.Reply(404).Header("Content-Type", "text/event-stream").Body(word)},
		"a 404 of pings": {"GET", every(clocktest.Reply(404).Header("Content-Type", "text/event-stream"), 20*time.Second, ping, 5)},
		"empty":          {"GET", clocktest.Reply(200).Header("Content-Type", "text/event-stream").Body("")},
	} {
		for _, l := range []policy.Stream{limits, held()} {
			t.Run(name, func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					up := clocktest.NewUpstream(t, c, test.step)
					// An inner layer that takes its time afterwards.
					tr := newTransport(t, c, up, streamed(l, noRetry), inner(func(next http.RoundTripper) http.RoundTripper {
						return layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
							resp, err := next.RoundTrip(req)
							c.Sleep(10 * time.Second)
							return resp, err
						})
					}))
					resp, err := tr.RoundTrip(request(t, t.Context(), test.method, url, nil))
					if err != nil {
						t.Fatal(err)
					}
					if _, ok := stream.StatsOf(resp); ok {
						t.Error("the body is guarded")
					}
					if _, err := io.ReadAll(resp.Body); err != nil {
						t.Error(err)
					}
					resp.Body.Close()
				})
			})
		}
	}
	t.Run("empty, of a known dialect", func(t *testing.T) {
		for _, l := range []policy.Stream{limits, held()} {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				l.Dialect = "openai-chat"
				empty := clocktest.Reply(200).Body("")
				up := clocktest.NewUpstream(t, c, empty.Header("Content-Type", "text/event-stream").Times(2), empty, clocktest.Reply(204))
				tr := newTransport(t, c, up, streamed(l, noRetry))
				if r := get(t, c, tr); !errors.Is(r.err, stream.ErrTruncated) {
					t.Errorf("a stream without an event: got %v", r.err)
				}
				for _, method := range []string{"HEAD", "GET", "GET"} { // and what is no stream, and a 204
					if r := do(c, tr, request(t, t.Context(), method, url, nil)); r.err != nil {
						t.Errorf("%s: got %v", method, r.err)
					}
				}
			})
		}
	})
	t.Run("101", func(t *testing.T) {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			conn := &duplex{Reader: strings.NewReader("hello")}
			canceled := false
			base := layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				context.AfterFunc(req.Context(), func() { canceled = true })
				return &http.Response{StatusCode: 101, Header: http.Header{}, Body: conn}, nil
			})
			resp, err := newTransport(t, c, base, streamed(held(), noRetry)).RoundTrip(request(t, t.Context(), "GET", url, nil))
			if err != nil {
				t.Fatal(err)
			}
			c.Add(10 * time.Hour)
			if canceled {
				t.Error("the connection was given up")
			}
			if _, ok := resp.Body.(io.ReadWriteCloser); !ok {
				t.Errorf("the body is a %T", resp.Body)
			}
			resp.Body.Close()
		})
	})
}

type duplex struct {
	io.Reader
	io.Writer
}

func (*duplex) Close() error { return nil }

// TestFailedSendOfAnInnerLayer: the clock of a send that has failed does not
// run on while a layer of the user's waits to send again.
func TestFailedSendOfAnInnerLayer(t *testing.T) {
	for name, step := range map[string]clocktest.Step{
		"error": clocktest.Fail(clocktest.ErrReset), "401": clocktest.Reply(401).Body("who?"), "204": clocktest.Reply(204),
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, step, events(word, done))
				r := get(t, c, newTransport(t, c, up, streamed(held(), noRetry), inner(func(next http.RoundTripper) http.RoundTripper {
					return layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
						if resp, err := next.RoundTrip(req); err == nil {
							resp.Body.Close()
						}
						c.Sleep(time.Minute)
						return next.RoundTrip(req)
					})
				})))
				wantStatus(t, r, 200)
				equal(t, "the body", r.body, word+done)
				wantTook(t, r, time.Minute)
			})
		})
	}
}

// TestResponseIsKept: of the response nothing changes but the body's type.
func TestResponseIsKept(t *testing.T) {
	for _, l := range []policy.Stream{limits, held()} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, events(role, word, done).Trailer("Checksum", "abc"))
			r := get(t, c, newTransport(t, c, up, streamed(l, noRetry)))
			wantStatus(t, r, 200)
			equal(t, "the trailer", r.resp.Trailer.Get("Checksum"), "abc")
			equal(t, "the length", r.resp.ContentLength, -1)
		})
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			base := layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				return &http.Response{
					StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Uncompressed: true,
					ContentLength: int64(len(word + done)), Body: io.NopCloser(strings.NewReader(word + done)),
				}, nil
			})
			r := get(t, c, newTransport(t, c, base, streamed(l, noRetry)))
			wantStatus(t, r, 200)
			equal(t, "the length", r.resp.ContentLength, int64(len(r.body)))
			equal(t, "whether it was compressed", r.resp.Uncompressed, true)
		})
	}
}

// TestStatsThroughTheStack: how a stream went can be asked at any time.
func TestStatsThroughTheStack(t *testing.T) {
	for layer, change := range map[string]func(*transport.Config){
		"alone": func(*transport.Config) {}, "outer": outer(passes), "inner": inner(passes),
	} {
		t.Run(layer, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				step := events(role, ping).After(time.Second).Chunks(
					clocktest.Chunk{After: time.Second, Data: thought}, clocktest.Chunk{After: 4 * time.Second, Data: word}, clocktest.Chunk{After: 3 * time.Second, Data: word + finish + done})
				client := &http.Client{Transport: newTransport(t, c, clocktest.NewUpstream(t, c, step), streamed(held(), noRetry), change)}
				resp, err := client.Get(url)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				before, ok := stream.StatsOf(resp)
				if !ok || before.Contents != 1 || before.Finished || before.FirstContent != 2*time.Second {
					t.Errorf("at first %+v", before)
				}
				if _, err := io.ReadAll(resp.Body); err != nil {
					t.Fatal(err)
				}
				want := stream.Stats{
					Dialect: "openai-chat", Framing: "sse", FirstContent: 2 * time.Second, ThinkingGap: 4 * time.Second, Gap: 3 * time.Second,
					Contents: 3, Lifecycles: 1, Keepalives: 1, Bytes: int64(len(role + ping + thought + word + word + finish + done)), Finished: true,
				}
				if got, _ := stream.StatsOf(resp); got != want {
					t.Errorf("got %+v,\nwant %+v", got, want)
				}
			})
		})
	}
}

// TestStreamEvents: an observer is told of first content, of failures, and when
// there is nothing to go by but bytes.
func TestStreamEvents(t *testing.T) {
	for name, test := range map[string]struct {
		step clocktest.Step
		l    policy.Stream
		want string
	}{
		"content": {events(role).Chunks(clocktest.Chunk{After: time.Second, Data: word + done}), limits, `
       0s  start
       0s  send #1
       0s  response #1 200
       1s  content #1 first-content 1s
       1s  done #1 200
       1s  end #1`},
		"failure": {events(role, busy), limits, `
       0s  start
       0s  send #1
       0s  response #1 200
       0s  failure #1: stream reports a failure: server_error
       0s  done #1 200: stream reports a failure: server_error
       0s  end #1`},
		"stall": {events(role).Silent(), limits, `
       0s  start
       0s  send #1
       0s  response #1 200
       5s  done #1 200: stream stalled: no first content in 5s (first-content limit 5s; before: 0 contents, 0 keepalives, 75 bytes, the last 5s ago; openai-chat; attempt 1)
       5s  end #1`},
		"unknown": {events("data: tick\n\n"), limits, `
       0s  start
       0s  send #1
       0s  response #1 200
       0s  opaque #1
       0s  content #1 first-content
       0s  done #1 200
       0s  end #1`},
		"a classifier of the caller's": {events("data: tick\n\n"), policy.Stream{Classify: func(stream.Event) stream.Class { return stream.Content }}, `
       0s  start
       0s  send #1
       0s  response #1 200
       0s  content #1 first-content
       0s  done #1 200
       0s  end #1`},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				timeline := new(layers.Timeline)
				p := streamed(test.l, noRetry)
				p.Timeouts = policy.Timeouts{Pool: policy.Off, Connect: policy.Off, Write: policy.Off, Read: policy.Off} // no phases
				get(t, c, newTransport(t, c, clocktest.NewUpstream(t, c, test.step), p, func(cfg *transport.Config) { cfg.Observer = timeline }))
				equal(t, "the timeline", "\n"+strings.TrimRight(timeline.String(), "\n"), test.want)
			})
		})
	}
}

// TestDropKeepalivesInTheStack: what a client would fail on does not reach it.
func TestDropKeepalivesInTheStack(t *testing.T) {
	for _, l := range []policy.Stream{limits, held()} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			l.DropKeepalives = policy.On
			step := every(every(events(ping, role, ping, word), time.Second, ping, 15), time.Second, word, 1).Chunks(clocktest.Chunk{Data: done})
			r := get(t, c, newTransport(t, c, clocktest.NewUpstream(t, c, step), streamed(l, noRetry)))
			wantStatus(t, r, 200)
			equal(t, "the body", r.body, role+word+word+done)
			wantTook(t, r, 16*time.Second)
		})
	}
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		step := clocktest.Reply(200).Header("Content-Type", "text/event-stream").Body(ping + word + done)
		r := get(t, c, newTransport(t, c, clocktest.NewUpstream(t, c, step), streamed(policy.Stream{DropKeepalives: policy.On}, noRetry)))
		wantStatus(t, r, 200)
		equal(t, "the body", r.body, word+done)
		equal(t, "the length", r.resp.ContentLength, -1)
		equal(t, "the header", r.resp.Header.Get("Content-Length"), "")
	})
}

// TestMinRate: a drip is no download, a burst after a pause is.
func TestMinRate(t *testing.T) {
	l := policy.Stream{FirstContent: policy.Off, Gap: policy.Off, PingedGap: policy.Off, ThinkingGap: policy.Off, ToolGap: policy.Off, MinRate: 100, MinRateWindow: 10 * time.Second}
	file := func() clocktest.Step { return clocktest.Reply(200).Header("Content-Type", "application/octet-stream") }
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, every(file(), time.Second, strings.Repeat("x", 99), 1000))
		r := get(t, c, newTransport(t, c, up, streamed(l, noRetry)))
		wantStall(t, r.err, stream.StallMinRate, 10*time.Second)
		wantTook(t, r, 10*time.Second)
	})
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, every(file(), 9*time.Second, strings.Repeat("x", 1000), 100))
		wantStatus(t, get(t, c, newTransport(t, c, up, streamed(l, noRetry))), 200)
	})
}

// TestBreakerSeesStreams: what a stream says of its server.
func TestBreakerSeesStreams(t *testing.T) {
	readSome := func(c *clocktest.Clock, body io.ReadCloser) {
		body.Read(make([]byte, 4096))
		body.Close()
	}
	whole := func(c *clocktest.Clock, body io.ReadCloser) {
		io.ReadAll(body)
		body.Close()
	}
	duringRead := func(c *clocktest.Clock, body io.ReadCloser) {
		body.Read(make([]byte, 4096))
		c.AfterFunc(time.Second, func() { body.Close() })
		io.ReadAll(body)
	}
	for name, test := range map[string]struct {
		step clocktest.Step
		use  func(*clocktest.Clock, io.ReadCloser)
		// What five such streams between two failures make of a circuit that
		// two of those in a row open.
		good, bad bool
	}{
		"complete":                  {events(word, done), whole, true, false},
		"finished":                  {events(word, finish), whole, true, false},
		"lingers":                   {events(word, done).Silent(), whole, true, false},
		"stall":                     {events(word).Silent(), whole, false, true},
		"stall before content":      {events(role).Silent(), whole, false, true},
		"truncated":                 {events(word), whole, false, true},
		"reset":                     {events(word).Reset(), whole, false, true},
		"failure":                   {events(word, busy), whole, false, true},
		"failure, then silence":     {events(word, busy).Silent(), whole, false, true},
		"failure, then reset":       {events(word, busy).Reset(), whole, false, true},
		"closed after the failure":  {events(word, busy).Silent(), readSome, false, true},
		"failure of the request":    {events(word, invalid), whole, false, false},
		"failure of the rate":       {events(word, limited), readSome, false, false},
		"closed after the terminal": {events(word, done).Silent(), readSome, true, false},
		"closed after the finish":   {events(word, finish).Silent(), readSome, true, false},
		"closed before":             {events(word).Silent(), readSome, false, false},
		"closed during a Read":      {events(word).Silent(), duringRead, false, false},
	} {
		for _, l := range []policy.Stream{limits, held()} {
			t.Run(name, func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					up := clocktest.NewUpstream(t, c, clocktest.Reply(500), test.step, clocktest.Reply(500).Forever())
					p := streamed(l, noRetry)
					p.Breaker = policy.Breaker{Failures: 2, OpenJitter: policy.Off, Open: time.Hour, OpenMax: time.Hour}
					tr := newTransport(t, c, up, p)
					get(t, c, tr)
					if resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil)); err == nil {
						test.use(c, resp.Body)
					}
					b := tr.Breakers()[0]
					equal(t, "whether it counts as a failure", b.State() == layers.StateOpen, test.bad)
					if !test.bad {
						get(t, c, tr)
						equal(t, "whether it counts as a success", b.State() == layers.StateClosed, test.good)
					}
				})
			})
		}
	}
}

// TestOpaqueIsTold: that events cannot be told apart is told, also if that is why a
// classifier is never asked.
func TestOpaqueIsTold(t *testing.T) {
	content := func(stream.Event) stream.Class { return stream.Content }
	for _, test := range []struct {
		typ, body string
		classify  func(stream.Event) stream.Class
		want      bool
	}{
		{"text/plain", "tick\n", nil, true},
		{"text/plain", "tick\n", content, true},
		{"text/event-stream", "data: tick\n\n", nil, true},
		{"text/event-stream", "data: tick\n\n", content, false},
		{"text/event-stream", word + done, nil, false},
	} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			opaque := false
			l := limits
			l.Classify = test.classify
			up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Header("Content-Type", test.typ).Body(test.body))
			wantStatus(t, get(t, c, newTransport(t, c, up, streamed(l, noRetry), observer(func(_ context.Context, e layers.Event) {
				opaque = opaque || e.Kind == layers.KindOpaque
			}))), 200)
			equal(t, "whether it was told of "+test.typ, opaque, test.want)
		})
	}
}

// TestPanicInAClassifier: nothing is held for ever because of it.
func TestPanicInAClassifier(t *testing.T) {
	for _, hold := range []policy.Toggle{policy.Off, policy.On} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, events(word).Times(2), events(word, done))
			calls := 0
			p := streamed(policy.Stream{Hold: hold, Classify: func(stream.Event) stream.Class {
				if calls++; calls <= 2 {
					panic("in a classifier")
				}
				return stream.Unknown
			}}, noRetry)
			p.InFlight = policy.InFlight{Max: 1}
			tr := newTransport(t, c, up, p)
			for range 2 {
				func() {
					defer func() {
						if recover() == nil {
							t.Error("no panic")
						}
					}()
					resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
					if err != nil {
						t.Error(err)
						return
					}
					defer resp.Body.Close()
					io.ReadAll(resp.Body)
				}()
			}
			wantStatus(t, get(t, c, tr), 200)
		})
	}
}

// TestCloseDuringAReadIsNeutral: that a Read fails because its body is closed
// says nothing of the server, stream or not.
func TestCloseDuringAReadIsNeutral(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Silent())
		tr := newTransport(t, c, up, circuit(policy.Breaker{Failures: 1}))
		resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		c.AfterFunc(time.Second, func() { resp.Body.Close() })
		io.ReadAll(resp.Body)
		equal(t, "the state", tr.Breakers()[0].State(), layers.StateClosed)
	})
}

// TestFirstContentSettlesAProbe: a long stream need not end before the next is
// let through, but bytes that are not content prove nothing.
func TestFirstContentSettlesAProbe(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		step := events(role).Chunks(clocktest.Chunk{After: 3 * time.Second, Data: word}).Silent()
		up := clocktest.NewUpstream(t, c, clocktest.Reply(500), step, events(word, done))
		p := streamed(limits, noRetry)
		p.Breaker = policy.Breaker{Failures: 1, OpenJitter: policy.Off}
		tr := newTransport(t, c, up, p)
		get(t, c, tr)
		c.Add(10 * time.Second)
		resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		buf := make([]byte, 1<<10)
		resp.Body.Read(buf)
		equal(t, "the state", tr.Breakers()[0].State(), layers.StateHalfOpen)
		wantOpen(t, get(t, c, tr), 10*time.Second)
		resp.Body.Read(buf)
		equal(t, "the state", tr.Breakers()[0].State(), layers.StateClosed)
		wantStatus(t, get(t, c, tr), 200)
	})
}

// TestSlotIsHeldToTheEndOfTheStream: and not a moment longer, however it ends.
func TestSlotIsHeldToTheEndOfTheStream(t *testing.T) {
	for name, test := range map[string]struct {
		step clocktest.Step
		ends time.Duration
	}{
		"complete":  {every(events(word), 5*time.Second, word, 4).Chunks(clocktest.Chunk{Data: done}), 20 * time.Second},
		"stall":     {events(word).Silent(), 10 * time.Second},
		"lingering": {events(word, done).Silent(), 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, test.step, events(word, done))
				p := streamed(held(), noRetry)
				p.InFlight = policy.InFlight{Max: 1}
				tr := newTransport(t, c, up, p)
				over := make(chan struct{})
				c.AfterFunc(0, func() {
					get(t, c, tr)
					equal(t, "the end", c.Elapsed(), test.ends)
					close(over)
				})
				c.Add(test.ends - 1)
				equal(t, "the layer", wantError(t, get(t, c, tr).err).Layer, "in-flight")
				c.Add(1)
				<-over
				wantStatus(t, get(t, c, tr), 200)
			})
		})
	}
}

// TestCloseOfAStream: twice, during a Read, and with bytes left to read.
func TestCloseOfAStream(t *testing.T) {
	for _, l := range []policy.Stream{limits, held(), {DropKeepalives: policy.On}} {
		for _, http2 := range []bool{false, true} {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, events(role, word).Silent())
				up.HTTP2 = http2
				tr := newTransport(t, c, up, streamed(l, noRetry))
				resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
				if err != nil {
					t.Fatal(err)
				}
				failed := make(chan error, 1)
				c.AfterFunc(0, func() {
					_, err := io.Copy(io.Discard, resp.Body)
					failed <- err
				})
				c.Add(time.Second)
				for range 3 {
					if err := resp.Body.Close(); err != nil {
						t.Error(err)
					}
				}
				if err := <-failed; err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the Read got %v", err)
				}
				if n, err := resp.Body.Read(make([]byte, 100)); n != 0 || err == nil {
					t.Errorf("a Read after Close got %d, %v", n, err)
				}
				c.Add(time.Hour)
			})
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, events(role, word).Silent())
				up.HTTP2 = http2
				resp, err := newTransport(t, c, up, streamed(l, noRetry)).RoundTrip(request(t, t.Context(), "GET", url, nil))
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Read(make([]byte, 3))
				resp.Body.Close()
				if n, err := resp.Body.Read(make([]byte, 100)); n != 0 || err == nil {
					t.Errorf("a Read after Close got %d, %v", n, err)
				}
				equal(t, "the time", up.Requests()[0].End.IsZero(), false)
			})
		}
	}
}

// TestReadsFollowOneAnother: whatever the caller does at once, the body below
// is read by one at a time, and every byte goes to one of them.
func TestReadsFollowOneAnother(t *testing.T) {
	for _, l := range []policy.Stream{limits, held(), {DropKeepalives: policy.On}} {
		text := role + strings.Repeat(word, 2000) + done
		source := strings.NewReader(text)
		var inside atomic.Int32
		body := readerFunc(func(p []byte) (int, error) {
			if inside.Add(1) > 1 {
				t.Error("two Reads at once")
			}
			defer inside.Add(-1)
			return source.Read(p[:min(len(p), 100)])
		})
		base := layers.RoundTripperFunc(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(body)}, nil
		})
		resp, err := newTransport(t, nil, base, streamed(l, noRetry)).RoundTrip(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		var total atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				n, err := io.Copy(io.Discard, struct{ io.Reader }{resp.Body})
				total.Add(n)
				if err != nil {
					t.Error(err)
				}
				stream.StatsOf(resp)
			})
		}
		wg.Wait()
		resp.Body.Close()
		equal(t, "the number of bytes", total.Load(), int64(len(text)))
	}
}

// TestPresets: what each of them does with a server in each mood.
func TestPresets(t *testing.T) {
	thinker := func(d time.Duration) clocktest.Step {
		return every(events(role).Chunks(clocktest.Chunk{After: d}), 0, word, 1).Chunks(clocktest.Chunk{Data: finish + done})
	}
	for name, test := range map[string]struct {
		preset policy.Settings
		steps  []clocktest.Step
		took   time.Duration
		err    layers.Phase
		sends  int
	}{
		"interactive, healthy":             {policy.Interactive(), []clocktest.Step{every(events(role, word), 500*time.Millisecond, word, 240).Chunks(clocktest.Chunk{Data: done})}, 2 * time.Minute, "", 1},
		"interactive, silent once":         {policy.Interactive(), []clocktest.Step{events().Silent(), thinker(time.Second)}, 5*time.Second + 2*time.Second + time.Second, "", 2},
		"interactive, silent for ever":     {policy.Interactive(), []clocktest.Step{events().Silent().Forever()}, 12 * time.Second, layers.PhaseFirst, 2},
		"interactive, silence in between":  {policy.Interactive(), []clocktest.Step{events(word).Silent()}, 10 * time.Second, layers.PhaseGap, 1},
		"interactive, thinks behind pings": {policy.Interactive(), []clocktest.Step{every(every(events(word), 5*time.Second, ping, 11), 4*time.Second, word+done, 1)}, 59 * time.Second, "", 1},
		"interactive, dies behind pings":   {policy.Interactive(), []clocktest.Step{every(events(word), 5*time.Second, ping, 100)}, time.Minute, layers.PhaseGap, 1},
		"interactive, busy":                {policy.Interactive(), []clocktest.Step{clocktest.Reply(529).Forever()}, 0, "", 1},
		"interactive, overloaded":          {policy.Interactive(), []clocktest.Step{clocktest.Reply(503), thinker(0)}, 2 * time.Second, "", 2},
		"batch, slow":                      {policy.Batch(), []clocktest.Step{clocktest.Reply(200).After(179 * time.Second).Body("{}")}, 179 * time.Second, "", 1},
		"batch, hangs":                     {policy.Batch(), []clocktest.Step{clocktest.NoReply().Forever()}, 5*180*time.Second + (5+10+20+40)*time.Second, layers.PhaseAttempt, 5},
		"batch, overloaded":                {policy.Batch(), []clocktest.Step{clocktest.Reply(429).Header("Retry-After", "150").Times(4), clocktest.Reply(200).Body("{}")}, 10 * time.Minute, "", 5},
		"local, loads for long":            {policy.LocalModel(), []clocktest.Step{clocktest.Reply(200).After(14*time.Minute).Header("Content-Type", "text/event-stream").Chunks(clocktest.Chunk{After: 30 * time.Second, Data: word + done})}, 14*time.Minute + 30*time.Second, "", 1},
		"local, hangs":                     {policy.LocalModel(), []clocktest.Step{clocktest.NoReply()}, 15 * time.Minute, layers.PhaseFirst, 1},
		"local, generates for long":        {policy.LocalModel(), []clocktest.Step{every(events(role), time.Minute, word, 60).Chunks(clocktest.Chunk{Data: done})}, time.Hour, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, test.steps...)
				r := post(t, c, newTransport(t, c, up, settings(test.preset)))
				if test.err == "" {
					if r.err != nil {
						t.Error(r.err)
					}
				} else {
					wantTimeout(t, r.err, test.err)
				}
				wantTook(t, r, test.took)
				equal(t, "the number of sends", len(up.Requests()), test.sends)
			})
		})
	}
}

// TestContradictingLimits: what could not work is refused when it is made.
func TestContradictingLimits(t *testing.T) {
	for _, test := range []struct {
		field  string
		stream policy.Stream
	}{
		{"Stream.FirstContent", policy.Stream{FirstContent: 2 * time.Minute}},
		{"Stream.Gap", policy.Stream{Gap: 20 * time.Second, PingedGap: 10 * time.Second}},
		{"Stream.Gap", policy.Stream{Gap: 10 * time.Minute}},
		{"Stream.HoldLimit", policy.Stream{Hold: policy.On, HoldLimit: -5}},
		{"Stream.Dialect", policy.Stream{Dialect: "klingon"}},
	} {
		test.stream.Enabled = policy.On
		_, err := transport.New(transport.Config{Policy: settings(policy.Settings{Deadline: time.Minute, Stream: test.stream})})
		if e := new(policy.ConfigError); !errors.As(err, &e) || e.Field != test.field {
			t.Errorf("%s: got %v", test.field, err)
		}
	}
}

// TestIdleStreams: many streams that wait cost no goroutine, and little memory:
// what a call holds anyway, and the guard with no buffer.
func TestIdleStreams(t *testing.T) {
	n := 10_000
	if racing {
		n = 500 // and what memory they hold says nothing
	}
	silent := layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		body := &oneChunk{data: role + word, ctx: req.Context()}
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body, Request: req}, nil
	})
	// measure returns what each of n streams over rt holds between two events.
	measure := func(rt http.RoundTripper) int64 {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		requests, responses := make([]*http.Request, n), make([]*http.Response, n)
		for i := range requests {
			requests[i] = request(t, ctx, "GET", url, nil)
		}
		buf := make([]byte, 4096)
		before, others := heap(), goleak.IgnoreCurrent()
		for i := range responses {
			resp, err := rt.RoundTrip(requests[i])
			if err == nil {
				_, err = resp.Body.Read(buf)
			}
			if err != nil {
				t.Fatal(err)
			}
			responses[i] = resp
		}
		each := (heap() - before) / int64(n)
		if err := goleak.Find(others); err != nil {
			t.Error(err)
		}
		for _, resp := range responses {
			resp.Body.Close()
		}
		runtime.KeepAlive(requests)
		return each
	}
	// No limit is due however slow the machine.
	p := settings(policy.Settings{
		Deadline: time.Hour,
		Timeouts: policy.Timeouts{Pool: time.Hour, Connect: time.Hour, Write: time.Hour, Read: time.Hour},
	})
	bare := measure(silent)
	call := measure(newTransport(t, nil, silent, p)) - bare
	p.Stream = policy.Stream{Enabled: policy.On, FirstContent: time.Hour, Gap: time.Hour, PingedGap: time.Hour, ThinkingGap: time.Hour, ToolGap: time.Hour}
	for name, hold := range map[string]policy.Toggle{"plain": policy.Off, "held": policy.On} {
		p.Stream.Hold = hold
		guard := measure(newTransport(t, nil, silent, p)) - bare - call
		t.Logf("%s: a call holds %d bytes, and its guard %d more", name, call, guard)
		if guard > 700 && !racing {
			t.Errorf("%s: a guard holds %d bytes, want 700 at most", name, guard)
		}
	}
}

// oneChunk is a body with one chunk and then nothing until its request ends.
type oneChunk struct {
	data string
	ctx  context.Context
}

func (b *oneChunk) Read(p []byte) (int, error) {
	if b.data == "" {
		<-b.ctx.Done()
		return 0, context.Cause(b.ctx)
	}
	n := copy(p, b.data)
	b.data = b.data[n:]
	return n, nil
}

func (*oneChunk) Close() error { return nil }

// heap returns the bytes on the heap that are in use.
func heap() int64 {
	var m runtime.MemStats
	for range 2 { // what a sync.Pool holds goes with the second
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
