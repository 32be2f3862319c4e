package prom_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers/prom"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

func newTransport(t *testing.T, c *clocktest.Clock, base http.RoundTripper, p policy.Policy) (*prom.Metrics, func(method, path string)) {
	t.Helper()
	m := prom.New()
	tr, err := transport.New(transport.Config{Base: base, Policy: p, Clock: c, Observer: m, Rand: func() float64 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	m.Watch(tr)
	m.Watch(tr) // is no second one
	return m, func(method, path string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if path == "/cancel" {
			c.AfterFunc(time.Second, cancel)
		}
		req, err := http.NewRequestWithContext(ctx, method, "http://api.example"+path+"?key=s3cret", nil)
		if err != nil {
			t.Error(err)
			return
		}
		resp, err := tr.RoundTrip(req)
		if err == nil {
			_, _ = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
	}
}

func want(t *testing.T, m *prom.Metrics, text string, names ...string) {
	t.Helper()
	for i, n := range names {
		names[i] = "weir_" + n
	}
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	if err := testutil.CollectAndCompare(m, strings.NewReader(strings.Join(lines, "\n")+"\n"), names...); err != nil {
		t.Error(err)
	}
}

// TestMetrics: calls by outcome, sends, waits, phases and refusals.
func TestMetrics(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c,
			clocktest.Reply(503).After(time.Second), clocktest.Reply(200), // a retry
			clocktest.Reply(404),
			clocktest.Fail(clocktest.ErrReset),
			clocktest.NoReply(), // until the deadline
			clocktest.NoReply(), // until the caller gives up
			clocktest.Reply(200))
		m, call := newTransport(t, c, up, policy.Policy{Routes: []policy.Route{{Pattern: "/", Name: "all", Settings: policy.Settings{
			Deadline: 10 * time.Second, Rate: policy.Rate{PerSecond: 0.01, Burst: 7, Cost: func(r *http.Request) int {
				if r.URL.Path == "/dear" {
					return 2
				}
				return 1
			}},
			Breaker: policy.Breaker{Failures: 2},
		}}}})
		for _, c := range [][2]string{{"GET", "/"}, {"GET", "/"}, {"POST", "/"}, {"POST", "/"}} {
			call(c[0], c[1])
		}
		c.Add(15 * time.Second) // the circuit is half-open
		call("GET", "/cancel")
		call("GET", "/dear") // there is one turn left
		call("GET", "/")
		want(t, m, `
			# HELP weir_calls_total Calls that ended, their bodies included.
			# TYPE weir_calls_total counter
			weir_calls_total{outcome="2xx",route="all"} 2
			weir_calls_total{outcome="4xx",route="all"} 1
			weir_calls_total{outcome="canceled",route="all"} 1
			weir_calls_total{outcome="deadline",route="all"} 1
			weir_calls_total{outcome="error",route="all"} 1
			weir_calls_total{outcome="refused",route="all"} 1
			# HELP weir_sends_total Sends: first ones, retries, hedges and redirects.
			# TYPE weir_sends_total counter
			weir_sends_total{outcome="2xx",route="all"} 2
			weir_sends_total{outcome="4xx",route="all"} 1
			weir_sends_total{outcome="5xx",route="all"} 1
			weir_sends_total{outcome="canceled",route="all"} 1
			weir_sends_total{outcome="deadline",route="all"} 1
			weir_sends_total{outcome="error",route="all"} 1
			# HELP weir_refusals_total Calls and sends that a limit refused.
			# TYPE weir_refusals_total counter
			weir_refusals_total{reason="deadline exhausted",route="all"} 1
			# HELP weir_breaker_changes_total Changes of the state of circuits.
			# TYPE weir_breaker_changes_total counter
			weir_breaker_changes_total{route="all",state="closed"} 1
			weir_breaker_changes_total{route="all",state="half-open"} 1
			weir_breaker_changes_total{route="all",state="open"} 1
			# HELP weir_calls_in_flight Calls under way, their bodies included.
			# TYPE weir_calls_in_flight gauge
			weir_calls_in_flight{route="all"} 0
			# HELP weir_breakers Circuits in use, by state.
			# TYPE weir_breakers gauge
			weir_breakers{state="closed"} 1
		`, "calls_total", "sends_total", "refusals_total", "breaker_changes_total", "calls_in_flight", "breakers")
		if n := testutil.CollectAndCount(m, "weir_phase_seconds"); n != 3 { // pool, write and read, of the scripted upstream
			t.Errorf("%d phases, want 3", n)
		}
		if problems, err := testutil.CollectAndLint(m); err != nil || len(problems) > 0 {
			t.Errorf("%v %v", problems, err)
		}
	})
}

// TestOutcomes: a send is never refused, and one that was outrun no error; a caller
// that wants no more than a status does not hide it, and a hop may be refused.
func TestOutcomes(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c,
			clocktest.FailDial(clocktest.ErrRefused),
			clocktest.Reply(200).Connect(time.Minute),
			clocktest.Reply(503).Body("unread"),
			clocktest.Reply(200).Body("unread"),
			clocktest.Reply(200).After(9*time.Second), clocktest.Reply(200).After(time.Second), // hedged
			clocktest.Reply(302).Header("Location", "/dear"))
		m := prom.New()
		tr, err := transport.New(transport.Config{Base: up, Clock: c, Observer: m, Policy: policy.Policy{
			Settings: policy.Settings{
				Timeouts: policy.Timeouts{Connect: time.Second}, Retry: policy.Retry{Enabled: policy.Off}, Hedge: policy.Hedge{Delay: 5 * time.Second},
			},
			Routes: []policy.Route{
				{Pattern: "api.example/", Name: "all"},
				{Pattern: "api.example/dear", Name: "dear", Settings: policy.Settings{
					Rate: policy.Rate{PerSecond: 1, Cost: func(*http.Request) int { return 2 }},
				}},
			},
		}})
		if err != nil {
			t.Fatal(err)
		}
		for _, method := range []string{"POST", "POST", "POST", "POST", "GET", "GET"} {
			req, err := http.NewRequestWithContext(t.Context(), method, "http://api.example/", nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := tr.Client().Do(req); err == nil {
				resp.Body.Close()
			}
		}
		want(t, m, `
			# HELP weir_calls_total Calls that ended, their bodies included.
			# TYPE weir_calls_total counter
			weir_calls_total{outcome="2xx",route="all"} 1
			weir_calls_total{outcome="3xx",route="all"} 1
			weir_calls_total{outcome="5xx",route="all"} 1
			weir_calls_total{outcome="abandoned",route="all"} 1
			weir_calls_total{outcome="error",route="all"} 1
			weir_calls_total{outcome="refused",route="dear"} 1
			weir_calls_total{outcome="timeout",route="all"} 1
			# HELP weir_sends_total Sends: first ones, retries, hedges and redirects.
			# TYPE weir_sends_total counter
			weir_sends_total{outcome="2xx",route="all"} 2
			weir_sends_total{outcome="3xx",route="all"} 1
			weir_sends_total{outcome="5xx",route="all"} 1
			weir_sends_total{outcome="abandoned",route="all"} 1
			weir_sends_total{outcome="error",route="all"} 1
			weir_sends_total{outcome="timeout",route="all"} 1
			`, "calls_total", "sends_total")
	})
}

// TestSharedState: the gauges of what calls share, while they share it.
func TestSharedState(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(429).After(time.Second).Header("Retry-After", "5"), clocktest.Reply(200).After(time.Second).Forever())
		m, call := newTransport(t, c, up, policy.Policy{Routes: []policy.Route{{Pattern: "api.example/", Settings: policy.Settings{
			Budgets: map[string]policy.Rate{"requests": {PerSecond: 1, Burst: 1}}, Retry: policy.Retry{Enabled: policy.Off},
			InFlight: policy.InFlight{Max: 3},
		}}}})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { call("GET", "/") })
			c.Add(0)
		}
		c.Add(1500 * time.Millisecond)
		want(t, m, `
			# HELP weir_budget_level Turns that are there, of the key that has the fewest.
			# TYPE weir_budget_level gauge
			weir_budget_level{budget="requests",pattern="api.example/"} 0
			# HELP weir_budget_waiting Sends that wait for a turn.
			# TYPE weir_budget_waiting gauge
			weir_budget_waiting{budget="requests",pattern="api.example/"} 1
			# HELP weir_budgets_paused Keys of a budget that a server has paused.
			# TYPE weir_budgets_paused gauge
			weir_budgets_paused{budget="requests",pattern="api.example/"} 1
			# HELP weir_slots_max Slots of the in-flight limits in use.
			# TYPE weir_slots_max gauge
			weir_slots_max{pattern="api.example/"} 3
			# HELP weir_slots_used Slots that are taken.
			# TYPE weir_slots_used gauge
			weir_slots_used{pattern="api.example/"} 1
			# HELP weir_slots_waiting Sends that wait for a slot.
			# TYPE weir_slots_waiting gauge
			weir_slots_waiting{pattern="api.example/"} 0
			# HELP weir_calls_in_flight Calls under way, their bodies included.
			# TYPE weir_calls_in_flight gauge
			weir_calls_in_flight{route="api.example/"} 2
		`, "budget_level", "budget_waiting", "budgets_paused", "slots_max", "slots_used", "slots_waiting", "calls_in_flight")
		wg.Wait()
		want(t, m, `
			# HELP weir_budgets_paused Keys of a budget that a server has paused.
			# TYPE weir_budgets_paused gauge
			weir_budgets_paused{budget="requests",pattern="api.example/"} 0
			# HELP weir_calls_in_flight Calls under way, their bodies included.
			# TYPE weir_calls_in_flight gauge
			weir_calls_in_flight{route="api.example/"} 0
		`, "budgets_paused", "calls_in_flight")
		if n := testutil.CollectAndCount(m, "weir_wait_seconds"); n != 1 {
			t.Errorf("%d things were waited for, want the budget alone", n)
		}
	})
}

// TestLabelsAreBounded: a thousand hosts and paths make no more series than one,
// and none of them is in a label.
func TestLabelsAreBounded(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		m := prom.New()
		tr, err := transport.New(transport.Config{
			Base: clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever()), Clock: c, Observer: m,
			Policy: policy.Policy{Settings: policy.Settings{Rate: policy.Rate{PerSecond: 100, Burst: 10}, Breaker: policy.Breaker{Failures: 5}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		m.Watch(tr)
		series := func() int { return testutil.CollectAndCount(m) }
		call := func(host string) {
			req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+host+"/s3cret?s3cret", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		for range 100 {
			call("one.example")
		}
		one := series()
		for i := range 1000 {
			call(fmt.Sprintf("host%d.s3cret.example", i))
		}
		if n := series(); n != one {
			t.Errorf("%d series after 1,000 hosts, and %d after one", n, one)
		}
		r := prometheus.NewPedanticRegistry()
		r.MustRegister(m)
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if regexp.MustCompile(`s3cret|example`).MatchString(f.String()) {
				t.Errorf("%s", f)
			}
		}
	})
}
