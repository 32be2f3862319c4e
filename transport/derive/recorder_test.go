package derive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

const url = "http://api.example/v1"

// over makes a transport that r records.
func over(t *testing.T, c *clocktest.Clock, r *Recorder, base http.RoundTripper, s policy.Settings) *transport.Transport {
	t.Helper()
	tr, err := transport.New(transport.Config{
		Base: base, Clock: c, Observer: r,
		Policy: policy.Policy{Routes: []policy.Route{{Pattern: "/", Name: "chat", Settings: s}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// do makes a call and reads its body to the end.
func do(ctx context.Context, rt http.RoundTripper) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func event(text string) string { return `data: {"choices":[{"delta":` + text + `}]}` + "\n\n" }

var (
	word    = event(`{"content":"word"}`)
	thought = event(`{"reasoning":"hm"}`)
	ping    = ": ping\n\n"
	end     = "data: [DONE]\n\n"
)

func sse(chunks ...clocktest.Chunk) clocktest.Step {
	return clocktest.Reply(200).Header("Content-Type", "text/event-stream").Chunks(chunks...)
}

// want checks a sample: its durations in seconds, in ascending order.
func want(t *testing.T, s *Snapshot, g Group, q Quantity, done, cut []float64, failures uint64) {
	t.Helper()
	sample := s.look(g, q)
	for name, test := range map[string]struct {
		h    *Histogram
		want []float64
	}{"done": {&sample.Done, done}, "cut": {&sample.Cut, cut}} {
		var got []float64
		for i, n := range test.h.all {
			for range n {
				got = append(got, min(binAt(i).middle(), test.h.max).Seconds())
			}
		}
		ok := len(got) == len(test.want)
		for i := 0; ok && i < len(got); i++ {
			ok = near(time.Duration(got[i]*1e9), time.Duration(test.want[i]*1e9), 0.008)
		}
		if !ok {
			t.Errorf("%v, %s, %s: %.3g, want %v", g, q, name, got, test.want)
		}
	}
	if sample.Failed != failures {
		t.Errorf("%v, %s: %d failed, want %d", g, q, sample.Failed, failures)
	}
}

func list(seconds ...float64) []float64 { return seconds }

func TestPhases(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c,
			clocktest.Reply(200).Connect(300*time.Millisecond).After(2*time.Second).Chunks(clocktest.Drip("abcd", 1, time.Second)...),
			clocktest.Reply(200).Pool(time.Second).After(3*time.Second).Body("at once"),
			clocktest.Reply(200))
		r := new(Recorder)
		tr := over(t, c, r, up, policy.Settings{})
		for range 3 {
			if err := do(t.Context(), tr); err != nil {
				t.Fatal(err)
			}
		}
		s := r.Snapshot()
		want(t, s, chat, Connect, list(0.3), nil, 0)
		want(t, s, chat, Headers, list(0, 2, 3), nil, 0)
		want(t, s, chat, Body, list(1), nil, 0)
		want(t, s, chat, Call, list(0, 4, 6.3), nil, 0)
		want(t, s, chat, FirstContent, nil, nil, 0)
		if o := s.Outcomes(chat); o != (Outcomes{Calls: 3, Succeeded: 3}) {
			t.Errorf("%+v", o)
		}
	})
}

// TestStream: each gap counts under its limit, and what arrives at once has no
// gap.
func TestStream(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		s := time.Second
		up := clocktest.NewUpstream(t, c, sse(
			clocktest.Chunk{After: 4 * s, Data: word + word}, clocktest.Chunk{After: 1 * s, Data: word},
			clocktest.Chunk{After: 2 * s, Data: thought}, clocktest.Chunk{After: 7 * s, Data: word},
			clocktest.Chunk{After: 5 * s, Data: ping}, clocktest.Chunk{After: 6 * s, Data: word + end},
		).After(s))
		r := new(Recorder)
		tr := over(t, c, r, up, policy.Settings{Stream: policy.Stream{Enabled: policy.On}})
		if err := do(WithBucket(t.Context(), "30k"), tr); err != nil {
			t.Fatal(err)
		}
		snap := r.Snapshot()
		want(t, snap, chatLong, FirstContent, list(5), nil, 0)
		want(t, snap, chatLong, Gap, list(1, 2, 5), nil, 0)
		want(t, snap, chatLong, ThinkingGap, list(7), nil, 0)
		want(t, snap, chatLong, PingedGap, list(11), nil, 0)
		want(t, snap, chatLong, ToolGap, nil, nil, 0)
		want(t, snap, chatLong, Opening, list(5), nil, 0)
		want(t, snap, chatLong, Stream, list(26), nil, 0)
		want(t, snap, chatLong, Call, nil, nil, 0)
		want(t, snap, chatLong, Headers, nil, nil, 0)
		if got := snap.look(chatLong, Gap).Longest; got.Count() != 1 || got.Max() != 5*s {
			t.Errorf("the longest gap is %v", got.Max())
		}
	})
}

// TestFailures: nothing of a call that did not succeed is among the successes.
func TestFailures(t *testing.T) {
	s := time.Second
	streams := policy.Settings{Stream: policy.Stream{Enabled: policy.On, FirstContent: 20 * s, Gap: 9 * s}, Deadline: 30 * s}
	plain := policy.Settings{Deadline: 40 * s, Timeouts: policy.Timeouts{Read: 20 * s, Connect: 5 * s}}
	type sample struct {
		q         Quantity
		done, cut []float64
		failed    uint64
	}
	for name, test := range map[string]struct {
		step     clocktest.Step
		settings policy.Settings
		cancel   time.Duration
		outcome  Outcomes
		samples  []sample
	}{
		"status": {clocktest.Reply(500).After(s), plain, 0, Outcomes{Failed: 1},
			[]sample{{Headers, nil, nil, 1}, {Call, nil, nil, 1}}},
		"reset": {clocktest.Fail(clocktest.ErrReset), plain, 0, Outcomes{Failed: 1},
			[]sample{{Headers, nil, nil, 1}, {Call, nil, nil, 1}}},
		"refused connection": {clocktest.FailDial(clocktest.ErrRefused).Connect(s), plain, 0, Outcomes{Failed: 1},
			[]sample{{Connect, nil, nil, 1}, {Headers, nil, nil, 0}, {Call, nil, nil, 1}}},
		"connect timeout": {clocktest.Reply(200).Connect(time.Minute), plain, 0, Outcomes{Cut: 1},
			[]sample{{Connect, nil, list(5), 0}, {Headers, nil, nil, 0}, {Call, nil, list(5), 0}}},
		"read timeout": {clocktest.NoReply(), plain, 0, Outcomes{Cut: 1},
			[]sample{{Headers, nil, list(20), 0}, {Call, nil, list(20), 0}}},
		"body timeout": {clocktest.Reply(200).After(3 * s).Silent(), plain, 0, Outcomes{Cut: 1},
			[]sample{{Headers, nil, nil, 0}, {Body, nil, list(20), 0}, {Call, nil, list(23), 0}}},
		"body breaks": {clocktest.Reply(200).After(3 * s).Chunks(clocktest.Chunk{After: s, Data: "x"}).Reset(), plain, 0, Outcomes{Failed: 1},
			[]sample{{Headers, nil, nil, 0}, {Body, nil, nil, 1}, {Call, nil, nil, 1}}},
		"deadline": {clocktest.Reply(200).After(15 * s).Chunks(clocktest.Drip("abcdef", 1, 10*s)...), plain, 0, Outcomes{Cut: 1},
			[]sample{{Headers, nil, nil, 0}, {Body, nil, nil, 0}, {Call, nil, list(40), 0}}},
		"caller gives up": {clocktest.NoReply(), plain, 7 * s, Outcomes{GivenUp: 1},
			[]sample{{Headers, nil, list(7), 0}, {Call, nil, list(7), 0}}},
		"stall before content": {clocktest.NoReply(), streams, 0, Outcomes{Cut: 1},
			[]sample{{FirstContent, nil, list(20), 0}, {Headers, nil, nil, 0}, {Opening, nil, list(20), 0}}},
		"stall before content, after headers": {sse().After(s).Silent(), streams, 0, Outcomes{Cut: 1},
			[]sample{{FirstContent, nil, list(20), 0}, {Headers, nil, nil, 0}, {Opening, nil, list(20), 0}}},
		"stall in the middle": {sse(clocktest.Chunk{After: s, Data: word}, clocktest.Chunk{After: 2 * s, Data: word}).Silent(), streams, 0, Outcomes{Cut: 1},
			[]sample{{FirstContent, nil, nil, 0}, {Gap, nil, list(9), 0}, {Opening, nil, nil, 0}, {Stream, nil, list(12), 0}}},
		"truncated": {sse(clocktest.Chunk{After: s, Data: word}), streams, 0, Outcomes{Failed: 1},
			[]sample{{FirstContent, nil, nil, 0}, {Gap, nil, nil, 1}, {Stream, nil, nil, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, test.step)
				r := new(Recorder)
				test.settings.Retry.Enabled = policy.Off
				tr := over(t, c, r, up, test.settings)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.cancel > 0 {
					c.AfterFunc(test.cancel, cancel)
				}
				_ = do(ctx, tr)
				c.Add(0)
				s := r.Snapshot()
				test.outcome.Calls = 1
				if o := s.Outcomes(chat); o != test.outcome {
					t.Errorf("%+v, want %+v", o, test.outcome)
				}
				for _, w := range test.samples {
					want(t, s, chat, w.q, w.done, w.cut, w.failed)
				}
				for q, sample := range s.groups[chat].samples {
					if sample.Done.Count()+sample.Longest.Count() > 0 {
						t.Errorf("%s has successes", q)
					}
				}
				if n := r.nLive.Load(); n != 0 {
					t.Errorf("%d calls are still live", n)
				}
			})
		})
	}
}

// TestGivenUpBeforeContent: where calls are streams, one without
// content is taken for one.
func TestGivenUpBeforeContent(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, sse(clocktest.Chunk{After: time.Second, Data: word + end}), clocktest.NoReply())
		r := new(Recorder)
		tr := over(t, c, r, up, policy.Settings{Stream: policy.Stream{Enabled: policy.On}})
		_ = do(t.Context(), tr)
		ctx, cancel := c.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		if err := do(ctx, tr); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		s := r.Snapshot()
		want(t, s, chat, FirstContent, list(1), list(7), 0)
		want(t, s, chat, Opening, list(1), list(7), 0)
		want(t, s, chat, Headers, nil, nil, 0)
		want(t, s, chat, Call, nil, nil, 0)
	})
}

// TestRetried: the failed attempt does not count, and the call takes all of it.
func TestRetried(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c,
			clocktest.Reply(503).After(5*time.Second), clocktest.NoReply(), clocktest.Reply(200).After(2*time.Second))
		r := new(Recorder)
		tr := over(t, c, r, up, policy.Settings{
			Timeouts: policy.Timeouts{Read: 20 * time.Second}, Retry: policy.Retry{BaseDelay: policy.Off, Budget: policy.Off},
		})
		if err := do(t.Context(), tr); err != nil {
			t.Fatal(err)
		}
		s := r.Snapshot()
		want(t, s, chat, Headers, list(2), list(20), 1)
		want(t, s, chat, Call, list(27), nil, 0)
		if o := s.Outcomes(chat); o != (Outcomes{Calls: 1, Succeeded: 1}) {
			t.Errorf("%+v", o)
		}
	})
}

// TestHedged: a send that another has outrun is cut short.
func TestHedged(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.NoReply(), clocktest.Reply(200).After(2*time.Second).Body("fast"))
		r := new(Recorder)
		tr := over(t, c, r, up, policy.Settings{Hedge: policy.Hedge{Delay: 3 * time.Second}})
		if err := do(t.Context(), tr); err != nil {
			t.Fatal(err)
		}
		c.Add(0)
		s := r.Snapshot()
		want(t, s, chat, Headers, list(2), list(5), 0)
		want(t, s, chat, Call, list(5), nil, 0)
		if o := s.Outcomes(chat); o != (Outcomes{Calls: 1, Succeeded: 1}) || r.nLive.Load() != 0 {
			t.Errorf("%+v, %d live", o, r.nLive.Load())
		}
	})
}

// TestHedgedRedirect: a hop whose redirect has outrun another send goes on.
func TestHedgedRedirect(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.NoReply(),
			clocktest.Reply(302).Header("Location", "/v2").After(time.Second), clocktest.Reply(200).After(2*time.Second))
		r := new(Recorder)
		resp, err := over(t, c, r, up, policy.Settings{Hedge: policy.Hedge{Delay: 3 * time.Second}}).Client().Get(url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		c.Add(0)
		want(t, r.Snapshot(), chat, Call, list(6), nil, 0)
		if o := r.Snapshot().Outcomes(chat); o != (Outcomes{Calls: 1, Succeeded: 1}) || r.nLive.Load() != 0 {
			t.Errorf("%+v, %d live", o, r.nLive.Load())
		}
	})
}

// TestOutcomesAddUp: whatever becomes of calls that every layer works on, each
// has one outcome, and nothing of it is kept.
func TestOutcomesAddUp(t *testing.T) {
	for seed := range uint64(5) {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			var mu sync.Mutex
			chance := rand.New(rand.NewPCG(seed, 3))
			draw := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return chance.IntN(n)
			}
			ms := func(n int) time.Duration { return time.Duration(draw(n)) * time.Millisecond }
			up := clocktest.NewUpstream(t, c, clocktest.Func(func(*http.Request) clocktest.Step {
				return [...]clocktest.Step{
					clocktest.NoReply(),
					clocktest.Reply(503).After(ms(200)),
					clocktest.Fail(clocktest.ErrReset).After(ms(200)),
					clocktest.FailDial(clocktest.ErrRefused),
					clocktest.Reply(302).Header("Location", url).After(ms(100)),
					clocktest.Reply(200).After(ms(100)).Chunks(clocktest.Chunk{After: ms(1500), Data: "slow"}),
					clocktest.Reply(200).After(ms(800)).Body("fast"),
				}[min(draw(12), 6)]
			}).Forever())
			r := new(Recorder)
			tr := over(t, c, r, up, policy.Settings{
				Deadline: 3 * time.Second, Timeouts: policy.Timeouts{Read: time.Second},
				Retry: policy.Retry{BaseDelay: 20 * time.Millisecond}, Hedge: policy.Hedge{Delay: 200 * time.Millisecond},
				Breaker:  policy.Breaker{Ratio: 0.7, Open: 500 * time.Millisecond},
				InFlight: policy.InFlight{Max: 6, MaxWait: time.Second}, Rate: policy.Rate{PerSecond: 50, Burst: 10},
			})
			view, err := tr.With(policy.Settings{Deadline: 2 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			var group sync.WaitGroup
			for i := range 10 {
				group.Go(func() {
					for range 30 {
						ctx, cancel := c.WithTimeout(t.Context(), 500*time.Millisecond+ms(9000))
						req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
						resp, err := []*transport.Transport{tr, view}[i%2].Client().Do(req)
						if err == nil {
							_, _ = io.CopyN(io.Discard, resp.Body, int64(draw(6)))
							resp.Body.Close()
						}
						cancel()
						c.Sleep(ms(400))
					}
				})
			}
			group.Wait()
			c.Sleep(time.Minute)
			o := r.Snapshot().Outcomes(chat)
			if o.Calls != 300 || o.Calls != o.Succeeded+o.Failed+o.Cut+o.GivenUp+o.Refused || r.nLive.Load() != 0 {
				t.Errorf("%+v, %d live", o, r.nLive.Load())
			}
		})
	}
}

// TestRedirected: the hops are one call, and take the time of all.
func TestRedirected(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c,
			clocktest.Reply(302).Header("Location", "/v2").After(time.Second), clocktest.Reply(200).After(2*time.Second))
		r := new(Recorder)
		resp, err := over(t, c, r, up, policy.Settings{}).Client().Get(url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		s := r.Snapshot()
		want(t, s, chat, Headers, list(1, 2), nil, 0)
		want(t, s, chat, Call, list(3), nil, 0)
		if o := s.Outcomes(chat); o != (Outcomes{Calls: 1, Succeeded: 1}) {
			t.Errorf("%+v", o)
		}
	})
}

// TestNotFollowed: a redirect that goes to the caller is the outcome of its call,
// however many of them there are.
func TestNotFollowed(t *testing.T) {
	for name, client := range map[string]func(*transport.Transport) func(*http.Request) (*http.Response, error){
		"by a client that wants to see it": func(tr *transport.Transport) func(*http.Request) (*http.Response, error) {
			c := tr.Client()
			c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			return c.Do
		},
		"without a client": func(tr *transport.Transport) func(*http.Request) (*http.Response, error) { return tr.RoundTrip },
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				const calls = maxRedirects + 10
				up := clocktest.NewUpstream(t, c, clocktest.Reply(302).Header("Location", "/v2").After(time.Second).
					Chunks(clocktest.Chunk{After: 2 * time.Second, Data: "moved"}).Times(calls))
				r := new(Recorder)
				do := client(over(t, c, r, up, policy.Settings{}))
				for i := range uint64(calls) {
					req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
					resp, err := do(req)
					if err != nil {
						t.Fatal(err)
					}
					if o := r.Snapshot().Outcomes(chat); o != (Outcomes{Calls: i + 1, Succeeded: i}) {
						t.Fatalf("%+v before the body ends", o)
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				s := r.Snapshot()
				want(t, s, chat, Headers, slices.Repeat(list(1), calls), nil, 0)
				want(t, s, chat, Call, slices.Repeat(list(3), calls), nil, 0)
				if o := s.Outcomes(chat); o != (Outcomes{Calls: calls, Succeeded: calls}) || r.nLive.Load() != 0 || len(r.redirects.list) > maxRedirects {
					t.Errorf("%+v, %d live, %d redirects", o, r.nLive.Load(), len(r.redirects.list))
				}
			})
		})
	}
}

// TestUpgraded: a connection that was upgraded is no part of its call.
func TestUpgraded(t *testing.T) {
	r := new(Recorder)
	c := &call{group: new(slot), result: redirected}
	r.end(c, layers.Event{Kind: layers.KindEnd, Status: http.StatusSwitchingProtocols})
	if len(r.redirects.list) > 0 || c.group.samples != nil {
		t.Error("it counts")
	}
}

// TestClosedEarly: a caller that closes the body has had what it wanted.
func TestClosedEarly(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(time.Second).Silent())
		r := new(Recorder)
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		resp, err := over(t, c, r, up, policy.Settings{}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		c.Add(2 * time.Second)
		resp.Body.Close()
		want(t, r.Snapshot(), chat, Call, list(3), nil, 0)
	})
}

// TestRefusedBeforeItIsSent: a call that a limit of ours refuses has no duration.
func TestRefusedBeforeItIsSent(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200))
		r := new(Recorder)
		tr := over(t, c, r, up, policy.Settings{Rate: policy.Rate{PerSecond: 0.001, MaxWait: policy.Off}})
		_, _ = do(t.Context(), tr), do(t.Context(), tr)
		s := r.Snapshot()
		if o := s.Outcomes(chat); o != (Outcomes{Calls: 2, Succeeded: 1, Refused: 1}) {
			t.Errorf("%+v", o)
		}
		want(t, s, chat, Call, list(0), nil, 0)
	})
}

// TestNoTimeouts: without phases, the headers count from the sending.
// TestNothingSent: the outcome of a call that a layer of the user's ends by itself. It
// says nothing of how long the server takes.
func TestNothingSent(t *testing.T) {
	replies := func(status int) func(*http.Request) (*http.Response, error) {
		return func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("kept")), Request: r}, nil
		}
	}
	waits := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	for name, test := range map[string]struct {
		answer func(*http.Request) (*http.Response, error)
		cancel bool
		want   Outcomes
	}{
		"no token":         {func(*http.Request) (*http.Response, error) { return nil, errors.New("no token") }, false, Outcomes{Calls: 1, Refused: 1}},
		"none in time":     {waits, false, Outcomes{Calls: 1, Refused: 1}},
		"given up":         {waits, true, Outcomes{Calls: 1, GivenUp: 1}},
		"an answer":        {replies(200), false, Outcomes{Calls: 1, Succeeded: 1}},
		"another answer":   {replies(404), false, Outcomes{Calls: 1, Failed: 1}},
		"an answer, a 301": {replies(301), false, Outcomes{Calls: 1, Succeeded: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				r := new(Recorder)
				tr, err := transport.New(transport.Config{
					Base: clocktest.NewUpstream(t, c), Clock: c, Observer: r,
					Policy: policy.Policy{Routes: []policy.Route{{Pattern: "/", Name: "chat", Settings: policy.Settings{Deadline: time.Minute}}}},
					Inner:  []layers.Layer{func(http.RoundTripper) http.RoundTripper { return layers.RoundTripperFunc(test.answer) }},
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.cancel {
					c.AfterFunc(time.Second, cancel)
				}
				_ = do(ctx, tr)
				if o := r.Snapshot().Outcomes(chat); o != test.want {
					t.Errorf("%+v, want %+v", o, test.want)
				}
				want(t, r.Snapshot(), chat, Call, nil, nil, 0)
			})
		})
	}
}

func TestNoTimeouts(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Connect(time.Second).After(2*time.Second))
		r := new(Recorder)
		off := time.Duration(policy.Off)
		tr := over(t, c, r, up, policy.Settings{Timeouts: policy.Timeouts{Pool: off, Connect: off, Write: off, Read: off}})
		if err := do(t.Context(), tr); err != nil {
			t.Fatal(err)
		}
		s := r.Snapshot()
		want(t, s, chat, Connect, nil, nil, 0)
		want(t, s, chat, Headers, list(3), nil, 0)
	})
}

// TestBuckets: they are few, whatever the caller calls them.
func TestBuckets(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		type size struct{}
		r := &Recorder{MaxBuckets: 3, Bucket: func(ctx context.Context) string { return fmt.Sprint(ctx.Value(size{})) }}
		tr := over(t, c, r, up, policy.Settings{})
		for i := range 10 {
			_ = do(context.WithValue(t.Context(), size{}, i), tr)
		}
		_ = do(context.WithValue(t.Context(), size{}, "bad \xff"), tr)
		_ = do(context.WithValue(t.Context(), size{}, strings.Repeat("long", 1000)), tr)
		s := r.Snapshot()
		got := fmt.Sprint(s.Groups())
		if got != `[chat "0" chat "1" chat "2" chat "other"]` {
			t.Errorf("the groups are %s", got)
		}
		if o := s.Outcomes(Group{"chat", Other}); o.Calls != 9 || o.Succeeded != 9 {
			t.Errorf("%+v", o)
		}
	})
	r := new(Recorder)
	for i := range 1_000 {
		r.slots(fmt.Sprint(i), "")
	}
	for i := range 1_000 {
		r.slots("7", fmt.Sprint(i))
	}
	if r.nGroups != maxGroups+2 || r.groups[Other][""] == nil || r.groups["7"][Other] == nil {
		t.Errorf("there are %d groups", r.nGroups)
	}
}

// TestManyAtOnce: calls and snapshots at the same time.
func TestManyAtOnce(t *testing.T) {
	base := layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		body := io.NopCloser(strings.NewReader(word + word + end))
		return &http.Response{StatusCode: 200, Request: req, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body}, nil
	})
	r := new(Recorder)
	tr, err := transport.New(transport.Config{Base: base, Observer: r, Policy: policy.Policy{Settings: policy.Settings{Stream: policy.Stream{Enabled: policy.On}}}})
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			ctx := WithBucket(t.Context(), fmt.Sprint(i%3))
			for range 200 {
				if err := do(ctx, tr); err != nil {
					t.Error(err)
				}
				_ = r.Snapshot()
			}
		})
	}
	group.Wait()
	var n uint64
	s := r.Snapshot()
	for _, g := range s.Groups() {
		n += s.Outcomes(g).Succeeded
		if got := s.look(g, FirstContent).Done.Count(); got != s.Outcomes(g).Calls {
			t.Errorf("%v: %d first contents of %d calls", g, got, s.Outcomes(g).Calls)
		}
	}
	if n != 1600 || r.nLive.Load() != 0 || r.Skipped() != 0 {
		t.Errorf("%d of 1600 succeeded, %d live, %d skipped", n, r.nLive.Load(), r.Skipped())
	}
}

// TestTooManyUnderWay: calls that never end do not take all memory.
func TestTooManyUnderWay(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		r := new(Recorder)
		r.nLive.Store(maxLive)
		tr := over(t, c, r, up, policy.Settings{})
		if err := do(t.Context(), tr); err != nil {
			t.Fatal(err)
		}
		if o := r.Snapshot().Outcomes(chat); o != (Outcomes{Calls: 1}) || r.Skipped() != 1 || r.nLive.Load() != maxLive {
			t.Errorf("%+v, %d skipped", o, r.Skipped())
		}
	})
}

// TestUnrelatedEvents: events of no call, or of one that began before, change
// nothing.
func TestUnrelatedEvents(t *testing.T) {
	r := new(Recorder)
	for _, k := range []layers.Kind{layers.KindBreaker, layers.KindStart, layers.KindDone, layers.KindEnd} {
		r.Observe(t.Context(), layers.Event{Kind: k})
	}
	if n := len(r.Snapshot().Groups()); n != 0 {
		t.Errorf("%d groups", n)
	}
	if !r.Wants(layers.KindGap) || r.Wants(layers.KindPhase) {
		t.Error("it wants the gaps, and only those are asked for")
	}
}
