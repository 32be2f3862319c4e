package policy

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	tests := []struct {
		json string
		want Policy
	}{
		{`{}`, Policy{}},
		{" {\r\n\t} \n", Policy{}},
		{
			`{"deadline":"20s","routes":[{"pattern":"GET /reports/","deadline":"5m","timeouts":{"read":"off"}}]}`,
			Policy{
				Settings: Settings{Deadline: 20 * time.Second},
				Routes:   []Route{{Pattern: "GET /reports/", Settings: Settings{Deadline: 5 * time.Minute, Timeouts: Timeouts{Read: Off}}}},
			},
		},
		{
			`{"retry":{"enabled":false,"max_attempts":2,"buffer":"off","budget":0.5,"idempotent":true,"statuses":[429,503]}}`,
			Policy{Settings: Settings{Retry: Retry{Enabled: Off, MaxAttempts: 2, Buffer: Off, Budget: 0.5, Idempotent: On, Statuses: []int{429, 503}}}},
		},
		{`{"retry":{"statuses":[]}}`, Policy{Settings: Settings{Retry: Retry{Statuses: []int{}}}}},
		{`{"hedge":{"delay":"off"},"in_flight":{"max":"off"}}`, Policy{Settings: Settings{Hedge: Hedge{Delay: Off}, InFlight: InFlight{Max: Off}}}},
		{
			`{"rate":{"per_second":1e1,"key":"route"},"breaker":{"ratio":0.5,"key":"origin"}}`,
			Policy{Settings: Settings{Rate: Rate{PerSecond: 10, Key: ByRoute}, Breaker: Breaker{Ratio: 0.5, Key: ByOrigin}}},
		},
		{
			`{"budgets":{"tokens a minute":{"per_second":0.5,"max_wait":"off"},"":{"burst":2}}}`,
			Policy{Settings: Settings{Budgets: map[string]Rate{"tokens a minute": {PerSecond: 0.5, MaxWait: Off}, "": {Burst: 2}}}},
		},
		{
			`{"stream":{"enabled":true,"first_content":"1m30s","min_rate":1000,"dialect":"openai-chat"},"routes":[]}`,
			Policy{Settings: Settings{Stream: Stream{Enabled: On, FirstContent: 90 * time.Second, MinRate: 1000, Dialect: "openai-chat"}}},
		},
		{`{"routes":[{"pattern":"/","name":"all"}]}`, Policy{Routes: []Route{{Pattern: "/", Name: "all"}}}},
	}
	for _, test := range tests {
		got, err := Parse([]byte(test.json))
		if err != nil {
			t.Errorf("%s: %v", test.json, err)
		} else if !samePolicy(got, test.want) {
			t.Errorf("%s: got %+v", test.json, got)
		}
	}
}

func samePolicy(a, b Policy) bool {
	return equal(a.Settings, b.Settings) && slices.EqualFunc(a.Routes, b.Routes, func(a, b Route) bool {
		return a.Pattern == b.Pattern && a.Name == b.Name && equal(a.Settings, b.Settings)
	})
}

func TestParseErrors(t *testing.T) {
	deep := strings.Repeat("[", 100_000)
	tests := []struct {
		name, json string
		want       []string
	}{
		// JSON that is none.
		{"empty", "", []string{"line 1, column 1: the JSON ends too early"}},
		{"white space", " \n ", []string{"line 2, column 2: the JSON ends too early"}},
		{"cut off", "{\n\"deadline\": \"1s\",", []string{"line 2, column 18: the JSON ends too early"}},
		{"cut off in a text", `{"dead`, []string{"line 1, column 2: the JSON ends too early"}},
		{"broken", "{\n  \"retry\": {\"budget\": 0..1}\n}", []string{`line 2, column 23: retry.budget: not JSON: invalid character '.' after decimal point in numeric literal`}},
		{"a comma too many", `{"deadline":"1s",}`, []string{"line 1, column 18: a comma before the end, where JSON has none"}},
		{"a comma too many in a list", "{\"routes\": [\n  {\"pattern\": \"/\"},\n]}", []string{"line 3, column 1: routes[1]: a comma before the end, where JSON has none"}},
		{"trailing data", "{}\n{}", []string{"line 2, column 1: data after the end of the policy"}},
		{"trailing comma", "{},", []string{"line 1, column 3: data after the end of the policy"}},
		{"byte order mark", "\ufeff{}", []string{"line 1, column 1: a byte order mark; save the file as UTF-8 without one"}},
		{"UTF-16", "\xff\xfe{\x00}\x00", []string{"line 1, column 1: not UTF-8"}},
		{"not UTF-8", "{\n\"\ufffd\":\"\x80\"}", []string{"line 2, column 6: not UTF-8"}},
		{"comment", "{\n  // why\n}", []string{"line 2, column 3: JSON has no comments"}},
		{"comment after a value", "{\"deadline\": \"1s\" /* why */}", []string{"line 1, column 19: JSON has no comments"}},
		{"comment after a number", "{\"retry\": {\"max_attempts\": 2# why\n}}", []string{"line 1, column 29: retry: JSON has no comments"}},
		{"comment before a value", "{\"deadline\": # why\n \"1s\"}", []string{"line 1, column 14: deadline: JSON has no comments"}},
		{"deep", deep, []string{"line 1, column 1: an array; want an object", "line 1, column 66: nested too deep"}},
		{"deep in an unknown key", `{"x":` + deep, []string{`line 1, column 2: x: unknown key`, "line 1, column 71: x: nested too deep"}},

		// The wrong kind.
		{"an array", `[1,{"a":[]}]`, []string{"line 1, column 1: an array; want an object"}},
		{"null", `null`, []string{"line 1, column 1: null; want an object"}},
		{"section", `{"retry": null, "hedge": 3, "breaker": true, "stream": false, "timeouts": true}`, []string{
			"line 1, column 11: retry: null; want an object",
			"line 1, column 26: hedge: 3; want an object",
			`line 1, column 40: breaker: true; want {"enabled": true}`,
			`line 1, column 56: stream: false; want {"enabled": false}`,
			"line 1, column 75: timeouts: true; want an object",
		}},
		{"routes", `{"routes": {"pattern": "/"}}`, []string{"line 1, column 12: routes: an object; want an array"}},
		{"route", `{"routes": ["/"]}`, []string{`line 1, column 13: routes[0]: "/"; want an object`}},
		{"no pattern", "{\"routes\": [\n {\"pattern\": \"/\"},\n {\"deadline\": \"1s\"}]}", []string{`line 3, column 2: routes[1]: no "pattern"; a route needs one`}},
		{"pattern", `{"routes": [{"pattern": 3}]}`, []string{"line 1, column 25: routes[0].pattern: 3; want a text"}},
		{"text", `{"stream": {"dialect": 3}, "deadline_header": "", "routes": [{"pattern": "", "name": ""}]}`, []string{
			"line 1, column 24: stream.dialect: 3; want a text",
			`line 1, column 47: deadline_header: ""; want a text`,
			`line 1, column 74: routes[0].pattern: ""; want a text`,
			`line 1, column 86: routes[0].name: ""; want a text`,
		}},
		{"duration", `{"deadline": 20, "timeouts": {"read": "20", "write": "-1ns", "pool": "0s", "connect": ["1s"]}}`, []string{
			`line 1, column 14: deadline: 20; want a duration above zero such as "1m30s" or "off"`,
			`line 1, column 39: timeouts.read: "20"; want a duration above zero such as "1m30s" or "off"`,
			`line 1, column 54: timeouts.write: "-1ns"; want a duration above zero such as "1m30s" or "off"`,
			`line 1, column 70: timeouts.pool: "0s"; want a duration above zero such as "1m30s" or "off"`,
			`line 1, column 87: timeouts.connect: an array; want a duration above zero such as "1m30s" or "off"`,
		}},
		{"off where it means nothing", `{"retry": {"max_delay": "off"}, "rate": {"burst": "off"}}`, []string{
			`line 1, column 25: retry.max_delay: "off"; want a duration above zero such as "1m30s"`,
			`line 1, column 51: rate.burst: "off"; want a whole number above zero`,
		}},
		{"whole number", `{"retry": {"max_attempts": 1.5, "buffer": -1}, "in_flight": {"max": 99999999999999999999}}`, []string{
			`line 1, column 28: retry.max_attempts: 1.5; want a whole number above zero or "off"`,
			`line 1, column 43: retry.buffer: -1; want a whole number above zero or "off"`,
			`line 1, column 69: in_flight.max: 99999999999999999999; want a smaller number or "off"`,
		}},
		{"number", `{"rate": {"per_second": "5"}, "retry": {"budget": 1e999, "buffer": -99999999999999999999}, "hedge": {"max": 99999999999999999999}}`, []string{
			`line 1, column 25: rate.per_second: "5"; want a number above zero or "off"`,
			`line 1, column 51: retry.budget: 1e999; want a smaller number or "off"`,
			`line 1, column 68: retry.buffer: -99999999999999999999; want a whole number above zero or "off"`,
			`line 1, column 109: hedge.max: 99999999999999999999; want a smaller number`,
		}},
		{"switch", `{"hedge": {"enabled": "on"}}`, []string{`line 1, column 23: hedge.enabled: "on"; want true or false`}},
		{"statuses", `{"retry": {"statuses": [503, "off", 4e2]}}`, []string{
			`line 1, column 30: retry.statuses[1]: "off"; want a whole number above zero`,
			`line 1, column 37: retry.statuses[2]: 4e2; want a whole number above zero`,
		}},
		{"key", `{"rate": {"key": "host"}}`, []string{`line 1, column 18: rate.key: "host"; want "origin" or "route"; any other key function is set in Go`}},
		{"function", `{"rate": {"cost": {"a": 1}}, "retry": {"check": null}}`, []string{
			`line 1, column 19: rate.cost: a function cannot be written in JSON; set it in Go`,
			`line 1, column 49: retry.check: a function cannot be written in JSON; set it in Go`,
		}},

		// Keys.
		{"unknown", "{\n \"timeout\": {\"read\": \"1s\"}, \"zzz\": 1,\n \"routes\": [{\"pattern\": \"/\", \"retry\": {\"attempts\": 3}}]}", []string{
			`line 2, column 2: timeout: unknown key; do you mean "timeouts"?`,
			`line 2, column 29: zzz: unknown key; known here: breaker, budgets, deadline, deadline_header, hedge, in_flight, rate, retry, routes, stream, timeouts`,
			`line 3, column 40: routes[0].retry.attempts: unknown key; do you mean "max_attempts"?`,
		}},
		{"short", `{"routes": [{"path": "/", "pattern": "/"}]}`, []string{
			`line 1, column 14: routes[0].path: unknown key; known here: breaker, budgets, deadline, deadline_header, hedge, in_flight, name, pattern, rate, retry, stream, timeouts`,
		}},
		{"swapped", `{"rate": {"brust": 2}, "stream": {"gpa": "1s"}}`, []string{
			`line 1, column 11: rate.brust: unknown key; do you mean "burst"?`,
			`line 1, column 35: stream.gpa: unknown key; do you mean "gap"?`,
		}},
		{"unlike in Go", `{"Deadline": "1s", "retry": {"MaxAttempts": 2, "max-delay": "1s"}}`, []string{
			`line 1, column 2: Deadline: unknown key; do you mean "deadline"?`,
			`line 1, column 30: retry.MaxAttempts: unknown key; do you mean "max_attempts"?`,
			`line 1, column 48: retry.max-delay: unknown key; do you mean "max_delay"?`,
		}},
		{"in the wrong place", `{"maxAttempts": 2, "read": "1s", "burst": 1, "budget": 0.5, "timeouts": {"deadline": "1s"}, "hedge": {"max_wait": "1s"}}`, []string{
			`line 1, column 2: maxAttempts: unknown key; it belongs in "retry"`,
			`line 1, column 20: read: unknown key; it belongs in "timeouts"`,
			`line 1, column 34: burst: unknown key; it belongs in "rate"`,
			`line 1, column 46: budget: unknown key; do you mean "budgets"?`,
			`line 1, column 74: timeouts.deadline: unknown key; it belongs in the policy or the route itself`,
			`line 1, column 103: hedge.max_wait: unknown key; it belongs in "in_flight" or "rate"`,
		}},
		{"routes in a route", `{"routes": [{"pattern": "/", "routes": []}]}`, []string{`line 1, column 30: routes[0].routes: unknown key; known here: breaker, budgets, deadline, deadline_header, hedge, in_flight, name, pattern, rate, retry, stream, timeouts`}},
		{"twice", "{\"deadline\": \"1s\",\n\"d\\u0065adline\": \"2s\", \"budgets\": {\"a\": {}, \"a\": {\"burst\": 1}}}", []string{
			`line 2, column 1: deadline: the key is there twice`,
			`line 2, column 45: budgets.a: the key is there twice`,
		}},
		{"strange keys", `{"budgets": {"a b": {"x": 1}, "": 3}, "` + strings.Repeat("k", 100) + `": 1}`, []string{
			`line 1, column 22: budgets["a b"].x: unknown key`,
			`line 1, column 35: budgets[""]: 3; want an object`,
			`line 1, column 39: ["` + strings.Repeat("k", 40) + `…"]: unknown key`,
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Parse([]byte(test.json))
			if err == nil {
				t.Fatal("accepted")
			}
			got := strings.Split(err.Error(), "\n")
			if !slices.EqualFunc(got, test.want, strings.HasPrefix) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
			if _, ok := errors.AsType[*ParseError](err); !ok {
				t.Errorf("%T is no ParseError", err)
			}
		})
	}
}

func TestParseStopsSomewhere(t *testing.T) {
	_, err := Parse([]byte("{" + strings.Repeat(`"x":1,`, 1_000_000) + `"y":2}`))
	if n := strings.Count(err.Error(), "\n") + 1; n != maxFaults {
		t.Errorf("%d faults", n)
	}
}

func TestMarshal(t *testing.T) {
	p := Policy{
		Settings: Settings{
			Deadline: Off,
			Timeouts: Timeouts{Read: 90 * time.Second},
			Retry:    Retry{MaxAttempts: Off, Budget: Off, Statuses: []int{}, Idempotent: Off},
			Rate:     Rate{PerSecond: 2.5, Key: ByRoute},
			Budgets:  map[string]Rate{"a": {Burst: 3}},
		},
		Routes: []Route{{Pattern: "/", Name: "all", Settings: Settings{Stream: Stream{Enabled: On, Dialect: "gemini"}}}},
	}
	got, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"budgets":{"a":{"burst":3}},"deadline":"off","rate":{"key":"route","per_second":2.5},` +
		`"retry":{"budget":"off","idempotent":false,"max_attempts":"off","statuses":[]},` +
		`"routes":[{"name":"all","pattern":"/","stream":{"dialect":"gemini","enabled":true}}],"timeouts":{"read":"1m30s"}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var back Policy
	if err := json.Unmarshal(got, &back); err != nil || !samePolicy(back, p) {
		t.Errorf("read back as %+v, %v", back, err)
	}
	for _, s := range []Settings{
		{Rate: Rate{Cost: func(*http.Request) int { return 1 }}},
		{Rate: Rate{Key: func(*http.Request) string { return "" }}},
	} {
		if got, err := json.Marshal(Policy{Routes: []Route{{Pattern: "/", Settings: s}}}); err == nil {
			t.Errorf("a function became %s", got)
		}
	}
}
