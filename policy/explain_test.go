package policy

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", "explain", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}

func TestExplain(t *testing.T) {
	tests := []struct {
		name        string
		policy      Policy
		method, url string
		view        Settings
		call        *Override
		conns       int
	}{
		{name: "defaults"},
		{
			name: "levels", url: "https://user:secret@api.example.com:443/reports/7%2F8?token=secret#part",
			policy: Policy{
				Settings: Settings{Deadline: 20 * time.Second, Rate: Rate{PerSecond: 5, Key: ByRoute}},
				Routes: []Route{
					{Pattern: "GET /reports/", Name: "reports", Settings: Settings{Deadline: 5 * time.Minute, Timeouts: Timeouts{Read: Off, Connect: time.Second}}},
					{Pattern: "api.example.com/", Settings: Settings{
						Timeouts: Timeouts{Connect: 2 * time.Second},
						Budgets:  map[string]Rate{"tokens": {PerSecond: 1000, Burst: 30000, Cost: func(*http.Request) int { return 1 }}},
					}},
				},
			},
			view: Settings{Timeouts: Timeouts{Write: 3 * time.Second}},
			call: NewOverride(Settings{Deadline: 8 * time.Second}),
		},
		{
			name:   "never-answers",
			policy: Policy{Settings: Settings{Deadline: 10 * time.Second, Timeouts: Timeouts{Read: 4 * time.Second}, Retry: Retry{BaseDelay: Off}}},
		},
		{
			name:   "no-room-for-attempts",
			policy: Policy{Settings: Settings{Deadline: 5 * time.Second, Timeouts: Timeouts{Read: time.Second}, Retry: Retry{MaxAttempts: 5, BaseDelay: 2 * time.Second}}},
		},
		{
			name:   "wait-leaves-too-little",
			policy: Policy{Settings: Settings{Deadline: 3 * time.Second, Timeouts: Timeouts{Read: time.Second}, Retry: Retry{BaseDelay: 1960 * time.Millisecond}}},
		},
		{
			name:   "unbounded",
			policy: Policy{Settings: Settings{Deadline: Off, Timeouts: Timeouts{Read: Off}, Retry: Retry{Budget: Off}}},
		},
		{
			name: "post", method: "POST",
			policy: Policy{Settings: Settings{Hedge: Hedge{Delay: time.Second}}},
		},
		{
			name: "hedged-and-limited", conns: 100,
			policy: Policy{Settings: Settings{
				Deadline: 30 * time.Second,
				Timeouts: Timeouts{Attempt: 5 * time.Second},
				Hedge:    Hedge{Delay: time.Second, Max: 2},
				Breaker:  Breaker{Ratio: 0.5, Window: 100 * time.Millisecond},
				Rate:     Rate{PerSecond: 50, Burst: 10},
				InFlight: InFlight{Max: 200},
			}},
		},
		{
			name: "connections", conns: 10,
			policy: Policy{Settings: Settings{Rate: Rate{PerSecond: 50}}},
		},
		{
			name: "stream", method: "POST",
			policy: Policy{Settings: Interactive().With(Settings{Rate: Rate{PerSecond: 2}, InFlight: InFlight{Max: 20}})},
		},
		{
			name: "gap-off",
			policy: Policy{
				Settings: Interactive().With(Settings{Stream: Stream{Gap: Off}}),
				Routes:   []Route{{Pattern: "/", Settings: Settings{Stream: Stream{ToolGap: 10 * time.Minute}}}},
			},
		},
		{
			name: "asleep",
			policy: Policy{
				Settings: Settings{Breaker: Breaker{Open: time.Second}, Stream: Stream{Gap: 20 * time.Second, Hold: On}},
				Routes: []Route{
					{Pattern: "example.com/", Settings: Settings{Rate: Rate{Burst: 10}, InFlight: InFlight{Enabled: Off, MaxWait: time.Second}}},
					{Pattern: "POST example.org/", Settings: Settings{Breaker: Breaker{Failures: 3}, Rate: Rate{PerSecond: 1}}},
				},
			},
			view: Settings{Budgets: map[string]Rate{"tokens": {MaxWait: time.Second}}},
		},
		{
			name: "its-own-gates", // hold up a call that nobody else does
			policy: Policy{Settings: Settings{
				Deadline: 20 * time.Second,
				Timeouts: Timeouts{Read: 2 * time.Second},
				Retry:    Retry{MaxAttempts: 5},
				Hedge:    Hedge{Delay: time.Second},
				Breaker:  Breaker{Failures: 3},
				Rate:     Rate{PerSecond: 0.5, Burst: 2},
				InFlight: InFlight{Max: 1},
			}},
		},
		{
			name: "stream-cut", method: "POST",
			policy: Policy{
				Settings: Batch(),
				Routes: []Route{{Pattern: "/", Settings: Settings{
					Deadline: 20 * time.Second, Retry: Retry{Enabled: Off}, Stream: Stream{Enabled: On, FirstContent: Off, Hold: On},
				}}},
			},
		},
		{name: "shorter-than-an-attempt", policy: Policy{Settings: Settings{Deadline: 40 * time.Millisecond}}},
		{name: "batch", method: "POST", policy: Policy{Settings: Batch()}},
		{name: "local-model", method: "POST", policy: Policy{Settings: LocalModel()}},
		{
			name:   "refused",
			policy: Policy{Settings: Settings{Deadline: 20 * time.Second}},
			call:   NewOverride(Settings{Timeouts: Timeouts{Read: 5 * time.Minute}, Rate: Rate{PerSecond: 5}}),
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			url := test.url
			if url == "" {
				url = "https://example.com/"
			}
			r, err := http.NewRequestWithContext(t.Context(), test.method, url, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			chain := func(r *Resolved) []string {
				names := []string{"match", "deadline"}
				if r.Retry.Enabled == On {
					names = append(names, "retry")
				}
				return append(names, "timeouts", "base")
			}
			line := mustCompile(t, test.policy).Line(r.Method, r.URL.Host, r.URL.EscapedPath())
			e := line.Explain(r, test.view, test.call, chain, test.conns)
			golden(t, test.name+".txt", []byte(e.String()))
			data, err := json.MarshalIndent(e, "", "\t")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, test.name+".json", append(data, '\n'))
		})
	}
}

// TestMissedBySlash: a route that a slash keeps from a request is pointed out.
func TestMissedBySlash(t *testing.T) {
	const (
		alone = `matches that path alone; end it in / for what lies below`
		below = `matches what lies below that path, not the path itself, for which it takes a route without the / at the end`
	)
	for _, test := range []struct {
		routes      []string
		method, url string
		want        string // the end of the first advice that is about a pattern
	}{
		{[]string{"a.test/v1"}, "GET", "http://a.test/v1/users", `"a.test/v1" ` + alone},
		{[]string{"a.test/", "POST a.test/v1"}, "POST", "http://a.test/v1/", `"POST a.test/v1" ` + alone},
		{[]string{"/v1/{user}"}, "GET", "http://a.test/v1/me/x", `"/v1/{user}" ` + alone},
		{[]string{"a.test/v1/"}, "GET", "http://a.test/v1", `"a.test/v1/" ` + below},
		{[]string{"POST a.test/v1"}, "GET", "http://a.test/v1/x", ""},
		{[]string{"a.test/v1"}, "GET", "http://b.test/v1/x", ""},
		{[]string{"a.test/v1", "a.test/v1/"}, "GET", "http://a.test/v1/x", ""},
		{[]string{"a.test/v1", "a.test/v1/{x}"}, "GET", "http://a.test/v1/x", ""},
		{[]string{"a.test/v1/{$}"}, "GET", "http://a.test/v1/x", ""},
		{[]string{"a.test/v1/{x...}"}, "GET", "http://a.test/v1", ""},
		{[]string{"a.test/"}, "GET", "http://a.test", ""},
	} {
		var p Policy
		for _, pattern := range test.routes {
			p.Routes = append(p.Routes, Route{Pattern: pattern})
		}
		r, err := http.NewRequestWithContext(t.Context(), test.method, test.url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, advice := range mustCompile(t, p).LineURL(r.Method, r.URL).Explain(r, Settings{}, nil, func(*Resolved) []string { return nil }, 0).Advice {
			if strings.Contains(advice, "matches") {
				got = advice
			}
		}
		if got != test.want {
			t.Errorf("%q for %s %s: got %q, want %q", test.routes, test.method, test.url, got, test.want)
		}
	}
}

// TestExplainsWhatIsSent: an opaque URL is matched, and shown, by the path that is sent.
func TestExplainsWhatIsSent(t *testing.T) {
	table := mustCompile(t, Policy{Routes: []Route{{Pattern: "a.test/v1"}, {Pattern: "a.test/v2/x%2Fy"}}})
	for _, test := range []struct{ opaque, shown, route, advice string }{
		{"//user:secret@other.test/v1?key=secret", "http://a.test/v1", "a.test/v1", ""},
		{"/v2/x%2Fy", "http://a.test/v2/x%2Fy", "a.test/v2/x%2Fy", ""},
		{"//a.test/v1/users", "http://a.test/v1/users", "", `"a.test/v1" matches that path alone`},
		{"//a.test/%zz", "http://a.test", "", ""},
	} {
		r := &http.Request{URL: &url.URL{Scheme: "http", Host: "a.test", Opaque: test.opaque}}
		e := table.LineURL("", r.URL).Explain(r, Settings{}, nil, func(*Resolved) []string { return nil }, 0)
		if e.URL != test.shown || e.Route != test.route || !strings.Contains(strings.Join(e.Advice, "\n"), test.advice) || strings.Contains(e.String(), "secret") {
			t.Errorf("%q: %v", test.opaque, e)
		}
	}
}

func TestAdviceOnOneAttempt(t *testing.T) {
	table := mustCompile(t, Policy{Settings: Settings{Retry: Retry{MaxAttempts: 1, Budget: Off}, Hedge: Hedge{Delay: time.Second}}})
	r := &http.Request{URL: &url.URL{Scheme: "http", Host: "a.test"}}
	got := table.LineURL("GET", r.URL).Explain(r, Settings{}, nil, func(*Resolved) []string { return nil }, 0).Advice
	if want := "2 sends: 1 attempt, each hedged by 1 more;"; !strings.Contains(strings.Join(got, "\n"), want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestExplainIsSettled: of several budgets that have no turn in time, it names the
// one that is to be waited for longest, as the call goes by, each time.
func TestExplainIsSettled(t *testing.T) {
	table := mustCompile(t, Policy{Settings: Settings{
		Timeouts: Timeouts{Read: time.Second},
		Budgets:  map[string]Rate{"a": {PerSecond: 0.01}, "b": {PerSecond: 0.002}, "c": {PerSecond: 0.004}, "d": {PerSecond: 0.005}},
	}})
	r := &http.Request{URL: &url.URL{Scheme: "http", Host: "a.test"}}
	explain := func() string {
		return table.LineURL("", r.URL).Explain(r, Settings{}, nil, func(*Resolved) []string { return nil }, 0).String()
	}
	first := explain()
	if !strings.Contains(first, `the call ends without send 2: Budgets["b"].PerSecond 0.002 has no turn`) {
		t.Error(first)
	}
	for range 20 {
		if again := explain(); again != first {
			t.Fatalf("%s\nand then\n%s", first, again)
		}
	}
}
