package transport_test

import (
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
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, clocktest.NoReply().Forever())
				s.Retry.Budget = policy.Off
				tr := newTransport(t, c, up, settings(s))
				var sends []time.Duration
				var end time.Duration
				timeline := tr.Explain(request(t, t.Context(), "GET", url, nil)).Timeline
				for _, step := range timeline {
					at, err := time.ParseDuration(step.At)
					if err != nil {
						t.Fatal(err)
					}
					if end = at; strings.HasPrefix(step.What, "send ") {
						sends = append(sends, at)
					}
				}
				r := get(t, c, tr)
				if got := times(c, up); r.took != end || !slices.Equal(got, sends) {
					t.Errorf("sends at %v, and an end after %v with %v; explained were %v", got, r.took, r.err, timeline)
				}
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
