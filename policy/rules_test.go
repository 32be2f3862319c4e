package policy

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

// configErrors takes the error of Compile, Check or Resolve apart.
func configErrors(t *testing.T, err error) (found []*ConfigError) {
	t.Helper()
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("not a joined error: %v", err)
	}
	for _, e := range joined.Unwrap() {
		var c *ConfigError
		if !errors.As(e, &c) {
			t.Fatalf("not a ConfigError: %v", e)
		}
		if c.Route == "" || c.Field == "" || c.Value == "" || c.Reason == "" {
			t.Fatalf("incomplete: %#v", c)
		}
		found = append(found, c)
	}
	return found
}

// Each rule refuses what is just outside, and nothing at its edge.
func TestRules(t *testing.T) {
	const second, minute = time.Second, time.Minute
	retry := func(r Retry) Settings { return Settings{Retry: r} }
	hedge := func(h Hedge) Settings { return Settings{Hedge: h} }
	breaker := func(b Breaker) Settings { return Settings{Breaker: b} }
	rate := func(r Rate) Settings { return Settings{Rate: r} }
	inFlight := func(f InFlight) Settings { return Settings{InFlight: f} }
	stream := func(s Stream) Settings { s.Enabled = On; return Settings{Stream: s} }
	timeouts := func(t Timeouts) Settings { return Settings{Timeouts: t} }

	tests := []struct {
		good, bad           Settings
		field, value, limit string // of bad's one fault
	}{
		// 1: timeouts.
		{Settings{Deadline: 1}, Settings{Deadline: -2}, "Deadline", "-2ns", "1ns to a year, or Off"},
		{Settings{Deadline: Off}, Settings{Deadline: math.MaxInt64}, "Deadline", "2562047h47m16.854775807s", "1ns to a year, or Off"},
		{Settings{Deadline: maxDuration}, Settings{Deadline: maxDuration + 1}, "Deadline", "8760h0m0.000000001s", "1ns to a year, or Off"},
		{timeouts(Timeouts{Pool: minute}), timeouts(Timeouts{Pool: minute + 1}), "Timeouts.Pool", "1m0.000000001s", "1m0s"},
		{timeouts(Timeouts{Connect: Off}), timeouts(Timeouts{Connect: -3}), "Timeouts.Connect", "-3ns", "1ns to a year, or Off"},
		{timeouts(Timeouts{Connect: minute}), timeouts(Timeouts{Connect: minute + 1}), "Timeouts.Connect", "1m0.000000001s", "1m0s"},
		{timeouts(Timeouts{Write: minute}), timeouts(Timeouts{Write: minute + 1}), "Timeouts.Write", "1m0.000000001s", "1m0s"},
		{timeouts(Timeouts{Read: minute}), timeouts(Timeouts{Read: minute + 1}), "Timeouts.Read", "1m0.000000001s", "1m0s"},
		{timeouts(Timeouts{Attempt: minute}), timeouts(Timeouts{Attempt: minute + 1}), "Timeouts.Attempt", "1m0.000000001s", "1m0s"},

		// 2: retry.
		{retry(Retry{MaxAttempts: 1}), retry(Retry{MaxAttempts: -2}), "Retry.MaxAttempts", "-2", "1 to 10, or Off"},
		{retry(Retry{MaxAttempts: 10}), retry(Retry{MaxAttempts: 11}), "Retry.MaxAttempts", "11", "1 to 10, or Off"},
		{retry(Retry{MaxAttempts: Off}), retry(Retry{Enabled: 2}), "Retry.Enabled", "2", "On or Off"},
		{retry(Retry{BaseDelay: Off}), retry(Retry{BaseDelay: -2}), "Retry.BaseDelay", "-2ns", "1ns to a year, or Off"},
		{retry(Retry{BaseDelay: 5 * second}), retry(Retry{BaseDelay: 5*second + 1}), "Retry.BaseDelay", "5.000000001s", "5s"},
		{retry(Retry{MaxDelay: 250 * time.Millisecond}), retry(Retry{MaxDelay: 249 * time.Millisecond}), "Retry.MaxDelay", "249ms", "250ms"},
		{retry(Retry{BaseDelay: Off, MaxDelay: 1}), retry(Retry{MaxDelay: Off}), "Retry.MaxDelay", "off", "1ns to a year"},
		{retry(Retry{MinAttempt: minute - 1}), retry(Retry{MinAttempt: minute}), "Retry.MinAttempt", "1m0s", "1m0s"},
		{retry(Retry{MinAttempt: Off}), retry(Retry{MinAttempt: -2}), "Retry.MinAttempt", "-2ns", "1ns to a year, or Off"},
		{retry(Retry{MaxHint: Off}), retry(Retry{MaxHint: -2}), "Retry.MaxHint", "-2ns", "1ns to a year, or Off"},
		{retry(Retry{Buffer: Off}), retry(Retry{Buffer: -2}), "Retry.Buffer", "-2", "1 to 1099511627776, or Off"},
		{retry(Retry{Buffer: 1 << 40}), retry(Retry{Buffer: 1<<40 + 1}), "Retry.Buffer", "1099511627777", "1 to 1099511627776, or Off"},
		{retry(Retry{Budget: 1}), retry(Retry{Budget: 1.01}), "Retry.Budget", "1.01", "above 0, at most 1, or Off"},
		{retry(Retry{Budget: Off}), retry(Retry{Budget: -0.5}), "Retry.Budget", "-0.5", "above 0, at most 1, or Off"},
		{retry(Retry{Budget: 1e-300}), retry(Retry{Budget: math.NaN()}), "Retry.Budget", "NaN", "above 0, at most 1, or Off"},
		{retry(Retry{Statuses: []int{400, 599}}), retry(Retry{Statuses: []int{399, 500}}), "Retry.Statuses", "399 500", "400 to 599"},
		{retry(Retry{Statuses: []int{}}), retry(Retry{Statuses: []int{600}}), "Retry.Statuses", "600", "400 to 599"},

		// 3: hedge.
		{hedge(Hedge{Delay: time.Millisecond}), hedge(Hedge{Delay: time.Millisecond - 1}), "Hedge.Delay", "999.999µs", "1ms to a year, or Off"},
		{hedge(Hedge{Delay: minute - 1}), hedge(Hedge{Delay: minute}), "Hedge.Delay", "1m0s", "1m0s"},
		{hedge(Hedge{Delay: 15*second - 1, Max: 4}), hedge(Hedge{Delay: 15 * second, Max: 4}), "Hedge.Delay", "15s", "1m0s"},
		{hedge(Hedge{Delay: second, Max: 4}), hedge(Hedge{Delay: second, Max: 5}), "Hedge.Max", "5", "1 to 4"},
		{hedge(Hedge{Delay: Off}), hedge(Hedge{Delay: second, Max: Off}), "Hedge.Max", "off", "1 to 4"},
		{hedge(Hedge{Max: 2}), hedge(Hedge{Enabled: On}), "Hedge.Delay", "unset", "1ms to a year, or Off"},

		// 4: breaker.
		{breaker(Breaker{Enabled: On}), breaker(Breaker{Failures: 3, Ratio: 0.5}), "Breaker.Ratio", "0.5", "3"},
		{breaker(Breaker{Failures: 1}), breaker(Breaker{Failures: -2}), "Breaker.Failures", "-2", "1 to 2147483647, or Off"},
		{breaker(Breaker{Ratio: 1}), breaker(Breaker{Ratio: 1.1}), "Breaker.Ratio", "1.1", "above 0, at most 1, or Off"},
		{breaker(Breaker{Ratio: 0.1, MinRequests: 2}), breaker(Breaker{Ratio: 0.1, MinRequests: 1}), "Breaker.MinRequests", "1", "2 to 2147483647"},
		{breaker(Breaker{Ratio: 0.1, Window: 1}), breaker(Breaker{Ratio: 0.1, Window: Off}), "Breaker.Window", "off", "1ns to a year"},
		{breaker(Breaker{Enabled: On, Open: 1}), breaker(Breaker{Enabled: On, Open: Off}), "Breaker.Open", "off", "1ns to a year"},
		{breaker(Breaker{Enabled: On, Open: 2 * minute}), breaker(Breaker{Enabled: On, Open: 2*minute + 1}), "Breaker.Open", "2m0.000000001s", "2m0s"},
		{breaker(Breaker{Enabled: On, OpenMax: 10 * second}), breaker(Breaker{Enabled: On, OpenMax: 10*second - 1}), "Breaker.OpenMax", "9.999999999s", "10s"},
		{breaker(Breaker{Enabled: On, OpenJitter: Off}), breaker(Breaker{Enabled: On, OpenJitter: 1.5}), "Breaker.OpenJitter", "1.5", "above 0, at most 1, or Off"},
		{breaker(Breaker{Enabled: On, Probes: 1}), breaker(Breaker{Enabled: On, Probes: Off}), "Breaker.Probes", "off", "1 to 2147483647"},

		// 5: rate.
		{rate(Rate{PerSecond: 1e-7}), rate(Rate{PerSecond: 1e-8}), "Rate.PerSecond", "1e-08", "one a year to 1e9 a second, or Off"},
		{rate(Rate{PerSecond: 1e9}), rate(Rate{PerSecond: 2e9}), "Rate.PerSecond", "2e+09", "one a year to 1e9 a second, or Off"},
		{rate(Rate{PerSecond: Off}), rate(Rate{PerSecond: math.NaN()}), "Rate.PerSecond", "NaN", "one a year to 1e9 a second, or Off"},
		{rate(Rate{PerSecond: 0.5}), rate(Rate{PerSecond: math.Inf(1)}), "Rate.PerSecond", "+Inf", "one a year to 1e9 a second, or Off"},
		{rate(Rate{PerSecond: 1, Burst: 1}), rate(Rate{PerSecond: 1, Burst: Off}), "Rate.Burst", "off", "1 to 2147483647"},
		{rate(Rate{PerSecond: 1, MaxWait: minute}), rate(Rate{PerSecond: 1, MaxWait: minute + 1}), "Rate.MaxWait", "1m0.000000001s", "1m0s"},
		{rate(Rate{Burst: 1}), rate(Rate{Enabled: On}), "Rate.PerSecond", "unset", "one a year to 1e9 a second, or Off"},
		{
			Settings{Budgets: map[string]Rate{"a": {PerSecond: 1, MaxWait: minute}}},
			Settings{Budgets: map[string]Rate{"a": {PerSecond: 1, MaxWait: minute + 1}}},
			`Budgets["a"].MaxWait`, "1m0.000000001s", "1m0s",
		},
		{
			Settings{Budgets: map[string]Rate{"a": {Burst: 3}}},
			Settings{Budgets: map[string]Rate{"a": {Enabled: On}}},
			`Budgets["a"].PerSecond`, "unset", "one a year to 1e9 a second, or Off",
		},
		{Settings{}, Settings{Budgets: map[string]Rate{"": {PerSecond: 1}}}, "Budgets", `""`, ""},

		// 6: in-flight.
		{inFlight(InFlight{Max: 1}), inFlight(InFlight{Max: -2}), "InFlight.Max", "-2", "1 to 2147483647, or Off"},
		{inFlight(InFlight{Max: 1, MaxWait: minute}), inFlight(InFlight{Max: 1, MaxWait: minute + 1}), "InFlight.MaxWait", "1m0.000000001s", "1m0s"},
		{inFlight(InFlight{MaxWait: second}), inFlight(InFlight{Enabled: On}), "InFlight.Max", "unset", "1 to 2147483647, or Off"},

		// 7: stream.
		{stream(Stream{}), stream(Stream{FirstContent: minute + 1}), "Stream.FirstContent", "1m0.000000001s", "1m0s"},
		{stream(Stream{FirstContent: minute}), stream(Stream{FirstContent: -2}), "Stream.FirstContent", "-2ns", "1ns to a year, or Off"},
		{stream(Stream{Gap: 300 * second}), Settings{Stream: Stream{Enabled: On, Gap: 300*second + 1, PingedGap: Off, ThinkingGap: Off}}, "Stream.Gap", "5m0.000000001s", "5m0s"},
		{stream(Stream{PingedGap: 120 * second}), stream(Stream{PingedGap: 120*second - 1}), "Stream.PingedGap", "1m59.999999999s", "2m0s"},
		{stream(Stream{ThinkingGap: 120 * second}), stream(Stream{ThinkingGap: 120*second - 1}), "Stream.ThinkingGap", "1m59.999999999s", "2m0s"},
		{stream(Stream{ToolGap: Off}), stream(Stream{ToolGap: 120*second - 1}), "Stream.ToolGap", "1m59.999999999s", "2m0s"},
		{stream(Stream{Gap: Off}), stream(Stream{Gap: -2}), "Stream.Gap", "-2ns", "1ns to a year, or Off"},
		{stream(Stream{Hold: On, HoldLimit: 1}), stream(Stream{Hold: On, HoldLimit: Off}), "Stream.HoldLimit", "off", "1 to 1099511627776"},
		{stream(Stream{Linger: Off}), stream(Stream{Linger: -2}), "Stream.Linger", "-2ns", "1ns to a year, or Off"},
		{stream(Stream{MinRate: Off}), stream(Stream{MinRate: 1, MinRateWindow: Off}), "Stream.MinRateWindow", "off", "1ns to a year"},

		{stream(Stream{Dialect: "gemini"}), stream(Stream{Dialect: "openai"}), "Stream.Dialect", `"openai"`, "anthropic, bedrock, cohere, gemini, ollama, openai-chat, openai-responses"},

		// What is off contradicts nothing.
		{Settings{Retry: Retry{Enabled: Off, BaseDelay: minute}}, Settings{Retry: Retry{BaseDelay: minute}}, "Retry.BaseDelay", "1m0s", "5s"},
		{Settings{Stream: Stream{FirstContent: time.Hour}}, stream(Stream{FirstContent: time.Hour}), "Stream.FirstContent", "1h0m0s", "1m0s"},
		{Settings{Rate: Rate{MaxWait: time.Hour}}, rate(Rate{PerSecond: 1, MaxWait: time.Hour}), "Rate.MaxWait", "1h0m0s", "1m0s"},
		{Settings{Deadline: Off, Timeouts: Timeouts{Read: time.Hour}}, timeouts(Timeouts{Read: time.Hour}), "Timeouts.Read", "1h0m0s", "1m0s"},
	}
	for _, test := range tests {
		t.Run(test.field+"="+test.value, func(t *testing.T) {
			if _, err := Compile(Policy{Settings: test.good}); err != nil {
				t.Errorf("refused the edge: %v", err)
			}
			// A policy and a route are held to the same rules.
			for _, level := range []string{"policy", "/"} {
				p := Policy{Settings: test.bad}
				if level != "policy" {
					p = Policy{Routes: []Route{{Pattern: level, Settings: test.bad}}}
				}
				_, err := Compile(p)
				found := configErrors(t, err)
				if len(found) != 1 {
					t.Fatalf("%d faults, want 1: %v", len(found), err)
				}
				e := found[0]
				if e.Route != level || e.Field != test.field || e.Value != test.value || e.Limit != test.limit {
					t.Errorf("got %#v", e)
				}
				text := e.Error()
				for _, part := range []string{level, test.field, test.value, test.limit} {
					if !strings.Contains(text, part) {
						t.Errorf("%q does not mention %q", text, part)
					}
				}
			}
		})
	}
}

// TestDeadlineHeaderNeedsAHost: how long a caller waits is told to hosts that the
// policy names, and to no other.
func TestDeadlineHeaderNeedsAHost(t *testing.T) {
	told := Settings{DeadlineHeader: "X-Left"}
	for name, tc := range map[string]struct {
		p  Policy
		ok bool
	}{
		"a host":           {Policy{Routes: []Route{{Pattern: "api.example/", Settings: told}}}, true},
		"hosts of a name":  {Policy{Routes: []Route{{Pattern: "*.example/", Settings: told}}}, true},
		"no host":          {Policy{Routes: []Route{{Pattern: "/api/", Settings: told}}}, false},
		"the policy":       {Policy{Settings: told}, false},
		"no header's name": {Policy{Routes: []Route{{Pattern: "api.example/", Settings: Settings{DeadlineHeader: "X Left"}}}}, false},
		"another's header": {Policy{Routes: []Route{{Pattern: "api.example/", Settings: Settings{DeadlineHeader: "content-length"}}}}, false},
	} {
		_, err := Compile(tc.p)
		e, refused := errors.AsType[*ConfigError](err)
		if refused == tc.ok || refused && e.Field != "DeadlineHeader" {
			t.Errorf("%s: %v", name, err)
		}
	}
	table, err := Compile(Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if table.Check(told) == nil {
		t.Error("a view tells every host")
	}
	p, err := Parse([]byte(`{"routes":[{"pattern":"api.example/","deadline_header":"grpc-timeout"},{"pattern":"api.example/x","deadline_header":"off"}]}`))
	if err != nil || p.Routes[0].DeadlineHeader != "grpc-timeout" {
		t.Fatalf("%+v, %v", p, err)
	}
	if table, err = Compile(p); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/": "grpc-timeout", "/x": ""} {
		if r, err := table.Line("GET", "api.example", path).Resolve(Settings{}, nil); err != nil || r.DeadlineHeader != want {
			t.Errorf("%s: %q, %v, want %q", path, r.DeadlineHeader, err, want)
		}
	}
}
