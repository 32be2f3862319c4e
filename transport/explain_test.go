package transport_test

import (
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// TestTimelineIsWhatHappens: a server that never answers is asked when an
// explanation says so, and given up then.
func TestTimelineIsWhatHappens(t *testing.T) {
	second := time.Second
	steady := policy.Retry{MaxAttempts: 5, BaseDelay: 1500 * time.Millisecond, MaxDelay: 1500 * time.Millisecond}
	for name, s := range map[string]policy.Settings{
		"defaults":          {},
		"all attempts fit":  {Timeouts: policy.Timeouts{Read: 5 * second}},
		"attempt":           {Timeouts: policy.Timeouts{Attempt: 5 * second}},
		"no deadline":       {Deadline: policy.Off},
		"no room":           {Deadline: 12 * second, Timeouts: policy.Timeouts{Read: 5 * second}, Retry: policy.Retry{BaseDelay: 4 * second, MinAttempt: 4 * second}},
		"stream":            {Deadline: 12 * second, Stream: policy.Stream{Enabled: policy.On, FirstContent: 3 * second}},
		"hedge":             {Hedge: policy.Hedge{Delay: second}},
		"hedges, all fit":   {Timeouts: policy.Timeouts{Read: 5 * second}, Hedge: policy.Hedge{Delay: second, Max: 2}},
		"hedges, retry off": {Timeouts: policy.Timeouts{Read: 5 * second}, Hedge: policy.Hedge{Delay: second, Max: 4}, Retry: policy.Retry{Enabled: policy.Off}},
		"hedges after one":  {Timeouts: policy.Timeouts{Read: 5 * second}, Hedge: policy.Hedge{Delay: 3 * second, Max: 4}},
		"late hedges":       {Timeouts: policy.Timeouts{Read: 2 * second}, Hedge: policy.Hedge{Delay: 3 * second, Max: 3}},
		"hedges at the end": {Timeouts: policy.Timeouts{Read: 2 * second}, Hedge: policy.Hedge{Delay: 2 * second, Max: 2}},
		"hedges, cut":       {Deadline: 8 * second, Timeouts: policy.Timeouts{Read: 5 * second}, Hedge: policy.Hedge{Delay: 3 * second, Max: 2}},
		"hedges, cut later": {Deadline: 12 * second, Timeouts: policy.Timeouts{Read: 5 * second}, Hedge: policy.Hedge{Delay: 4 * second}},
		"hedges, no limit":  {Timeouts: policy.Timeouts{Read: policy.Off}, Hedge: policy.Hedge{Delay: 9 * second, Max: 4}},

		"stream, no first content": {Deadline: 40 * second, Stream: policy.Stream{Enabled: policy.On, FirstContent: policy.Off}},
		"stream, attempt":          {Timeouts: policy.Timeouts{Attempt: 5 * second}, Stream: policy.Stream{Enabled: policy.On, FirstContent: policy.Off}},

		"its own circuit":   {Breaker: policy.Breaker{Failures: 2}, Timeouts: policy.Timeouts{Read: second}},
		"its own window":    {Breaker: policy.Breaker{Ratio: 0.5, MinRequests: 2}, Timeouts: policy.Timeouts{Read: second}},
		"a window too long": {Breaker: policy.Breaker{Ratio: 0.5, MinRequests: 2, Window: second}, Timeouts: policy.Timeouts{Read: 3 * second}},
		"a probe":           {Breaker: policy.Breaker{Failures: 1, Open: 100 * time.Millisecond}, Timeouts: policy.Timeouts{Read: 50 * time.Millisecond}, Retry: policy.Retry{MaxAttempts: 5}},
		"a probe, given up": {Breaker: policy.Breaker{Failures: 1, Open: 100 * time.Millisecond}, Timeouts: policy.Timeouts{Read: second}},
		"opened for longer": {Breaker: policy.Breaker{Failures: 1, Open: second, OpenJitter: policy.Off}, Timeouts: policy.Timeouts{Read: second / 2}, Retry: steady},
		"but not for long":  {Breaker: policy.Breaker{Failures: 1, Open: second, OpenMax: 1400 * time.Millisecond, OpenJitter: policy.Off}, Timeouts: policy.Timeouts{Read: second / 2}, Retry: steady},
		"its jitter":        {Breaker: policy.Breaker{Failures: 1, Open: second, OpenMax: second, OpenJitter: 0.6}, Timeouts: policy.Timeouts{Read: second / 2}, Retry: steady},
		"no hedge probes":   {Breaker: policy.Breaker{Failures: 1, Open: 100 * time.Millisecond}, Timeouts: policy.Timeouts{Read: 5 * second}, Hedge: policy.Hedge{Delay: 2 * second}},

		"turns":                {Rate: policy.Rate{PerSecond: 0.25}, Timeouts: policy.Timeouts{Read: second}},
		"no turn in time":      {Deadline: 8 * second, Rate: policy.Rate{PerSecond: 0.1, Burst: 2}, Timeouts: policy.Timeouts{Read: second}},
		"no turn at once":      {Rate: policy.Rate{PerSecond: 0.1, Burst: 2, MaxWait: policy.Off}, Timeouts: policy.Timeouts{Read: second}},
		"two budgets":          {Rate: policy.Rate{PerSecond: 1}, Budgets: map[string]policy.Rate{"slow": {PerSecond: 0.1, Burst: 2}}, Timeouts: policy.Timeouts{Read: second}},
		"the sooner is late":   {Rate: policy.Rate{PerSecond: 0.25, MaxWait: second}, Budgets: map[string]policy.Rate{"slow": {PerSecond: 0.1}}, Timeouts: policy.Timeouts{Read: second}},
		"hedges wait":          {Rate: policy.Rate{PerSecond: 0.25}, Timeouts: policy.Timeouts{Read: 5 * second}, Hedge: policy.Hedge{Delay: second, Max: 2}},
		"a hedge has no turn":  {Rate: policy.Rate{PerSecond: 0.25, MaxWait: second}, Timeouts: policy.Timeouts{Read: 5 * second}, Hedge: policy.Hedge{Delay: second}},
		"a hedge has no slot":  {InFlight: policy.InFlight{Max: 1}, Timeouts: policy.Timeouts{Read: 5 * second}, Hedge: policy.Hedge{Delay: second, Max: 2}},
		"a hedge gets a slot":  {InFlight: policy.InFlight{Max: 1, MaxWait: 10 * second}, Timeouts: policy.Timeouts{Read: 5 * second}, Hedge: policy.Hedge{Delay: second}},
		"a hedge stops to ask": {InFlight: policy.InFlight{Max: 1, MaxWait: second}, Timeouts: policy.Timeouts{Read: 5 * second}, Hedge: policy.Hedge{Delay: second}},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				s.Retry.Budget = policy.Off
				wantExplained(t, c, s, request(t, t.Context(), "GET", url, nil))
			})
		})
	}
}

// TestAdviceOnBase: what the policy cannot know of the base is said.
func TestAdviceOnBase(t *testing.T) {
	inner, err := transport.New(transport.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		base http.RoundTripper
		want string // part of an advice; empty: there is none
	}{
		"weir's own":    {nil, ""},
		"net/http's":    {http.DefaultTransport, ""},
		"its own dials": {&http.Transport{MaxConnsPerHost: 2}, "the base dials without layers.DialContext"},
		"another weir":  {inner, "the base is a weir of its own"},
	} {
		t.Run(name, func(t *testing.T) {
			off := policy.Settings{Retry: policy.Retry{Enabled: policy.Off}}
			tr := newTransport(t, nil, tc.base, settings(off))
			got := tr.Explain(request(t, t.Context(), "GET", url, nil)).Advice
			if tc.want == "" && got != nil || tc.want != "" && (len(got) != 1 || !strings.Contains(got[0], tc.want)) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			off.Retry.MaxAttempts = 99
			req := request(t, policy.WithOverride(t.Context(), off), "GET", url, nil)
			equal(t, "the advice on what is refused", len(tr.Explain(req).Advice), 0)
		})
	}
}

// wantExplained holds the call of a request that is never answered to what was said of
// it before.
func wantExplained(t *testing.T, c *clocktest.Clock, s policy.Settings, req *http.Request) {
	t.Helper()
	up := clocktest.NewUpstream(t, c, clocktest.NoReply().Forever())
	tr := newTransport(t, c, up, settings(s))
	var sends []time.Duration
	var end time.Duration
	timeline := tr.Explain(req).Timeline
	for _, step := range timeline {
		at, err := time.ParseDuration(step.At)
		if err != nil {
			t.Fatal(err)
		}
		if end = at; strings.HasPrefix(step.What, "send ") {
			sends = append(sends, at)
		}
	}
	if timeline[len(timeline)-1].What == "nothing ends the wait" {
		end = 100 * time.Hour
	}
	ctx, cancel := c.WithTimeout(req.Context(), 100*time.Hour)
	defer cancel()
	r := do(c, tr, req.WithContext(ctx))
	near := func(a, b time.Duration) bool { return (a - b).Abs() < time.Microsecond } // the rounding of tokens
	if got := times(c, up); !near(r.took, end) || !slices.EqualFunc(got, sends, near) {
		t.Errorf("%+v: sends at %v, and an end after %v with %v; explained were %v", s, got, r.took, r.err, timeline)
	}
}

// TestTimelineOfRetryBudget: a hedge that the retry budget has nothing for is not given
// up, but sent once a send has failed, if one does.
func TestTimelineOfRetryBudget(t *testing.T) {
	for read, missing := range map[time.Duration]bool{time.Second: false, policy.Off: true} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			s := policy.Settings{
				Retry:    policy.Retry{Enabled: policy.Off},
				Timeouts: policy.Timeouts{Read: read},
				Hedge:    policy.Hedge{Delay: 10 * time.Millisecond, Max: 4},
			}
			req := request(t, t.Context(), "GET", url, nil)
			wantExplained(t, c, s, req)
			text := newTransport(t, c, nil, settings(s)).Explain(req).String()
			equal(t, "the advice", strings.Contains(text, "a hedge is not sent: Retry.Budget is used up"), missing)
		})
	}
}

// TestExplainWithoutURL: a request that no pattern can match is explained as refused, as
// it would be.
func TestExplainWithoutURL(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		e := newTransport(t, c, clocktest.NewUpstream(t, c), policy.Policy{}).Explain(&http.Request{Method: "GET"})
		equal(t, "the method", e.Method, "GET")
		equal(t, "why it is refused", strings.Join(e.Refused, ", "), "the request has no URL")
	})
}

// TestTimelinesOfRandomPolicies is TestTimelineIsWhatHappens for any settings and
// requests. What happens at the very instant of something else is left out: no two
// times are multiples, and there are no more hedges than come at different ones.
func TestTimelinesOfRandomPolicies(t *testing.T) {
	for seed := range uint64(500) {
		d := dice{rand.New(rand.NewPCG(seed, 0))}
		s := randomCall(d)
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			req := request(t, t.Context(), pick(d, "GET", "PUT", "POST", "get", ""), url, nil)
			if key := pick(d, "", "", "Idempotency-Key", "X-Idempotency-Key"); key != "" {
				req.Header.Set(key, pick(d, "", "1"))
			}
			if length := pick(d, 0, 0, 5, 100_000); length > 0 {
				body := strings.NewReader(strings.Repeat("x", length))
				req.Body, req.ContentLength = io.NopCloser(body), int64(length)
				if d.oneIn(2) {
					req.GetBody = func() (io.ReadCloser, error) {
						return io.NopCloser(strings.NewReader(strings.Repeat("x", length))), nil
					}
				}
			}
			wantExplained(t, c, s, req)
			if t.Failed() {
				t.Fatalf("seed %d: %s %v, %d bytes", seed, req.Method, req.Header, req.ContentLength)
			}
		})
	}
}

func pick[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

// randomCall draws settings for a call that is never answered.
func randomCall(d dice) (s policy.Settings) {
	span := func(ms int) time.Duration {
		return pick(d, 0, d.upTo(ms)+time.Duration(d.IntN(1000)), d.upTo(ms), policy.Off)
	}
	toggle := func() policy.Toggle { return pick[policy.Toggle](d, 0, 0, 0, policy.On, policy.Off) }
	s.Deadline = pick(d, 0, 20*time.Second+d.upTo(20_000), policy.Off)
	s.Timeouts = policy.Timeouts{Read: span(10_000), Attempt: span(10_000)}
	s.Retry = policy.Retry{
		Enabled: toggle(), MaxAttempts: d.IntN(11), BaseDelay: span(2_000), MaxDelay: 2*time.Second + d.upTo(10_000), MinAttempt: span(5_000),
		Idempotent: toggle(), Budget: pick(d, 0, 0.5, policy.Off),
	}
	if d.oneIn(2) {
		s.Hedge = policy.Hedge{Delay: 100*time.Millisecond + d.upTo(5_000), Max: 1 + d.IntN(2)}
	}
	switch d.IntN(4) {
	case 0:
		s.Breaker = policy.Breaker{Failures: 1 + d.IntN(8), Open: 10*time.Millisecond + d.upTo(5_000)}
	case 1:
		s.Breaker = policy.Breaker{Ratio: 0.1 + d.Float64()*0.9, MinRequests: 2 + d.IntN(6), Window: time.Hour}
	}
	if d.oneIn(3) {
		s.Rate = policy.Rate{PerSecond: 0.05 + d.Float64(), Burst: 1 + d.IntN(4), MaxWait: span(20_000)}
	}
	if d.oneIn(3) {
		s.Budgets = map[string]policy.Rate{"more": {PerSecond: 0.05 + d.Float64(), Burst: 1 + d.IntN(4), MaxWait: span(20_000)}}
		s.Hedge.Max = min(s.Hedge.Max, 1) // of two that wait for both, Explain looks at one after the other
	}
	if d.oneIn(3) {
		s.InFlight = policy.InFlight{Max: 1 + d.IntN(3), MaxWait: span(5_000)}
		if s.Hedge.Max > 0 { // likewise; and one that has the slot of a failure may go before that opens the circuit
			s.Hedge.Max, s.Breaker = 1, policy.Breaker{}
		}
	}
	if d.oneIn(4) {
		s.Stream = policy.Stream{Enabled: policy.On, FirstContent: span(10_000), Hold: toggle()}
	}
	return s
}
