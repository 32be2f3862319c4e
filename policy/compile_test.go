package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func read(d time.Duration) Settings { return Settings{Timeouts: Timeouts{Read: d}} }

func TestCompileZero(t *testing.T) {
	table, err := Compile(Policy{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := table.Line("GET", "example.com", "/").Resolve(Settings{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !equal(r.Settings, Defaults()) || r.Route != "" || r.Pattern != "" {
		t.Errorf("got %v of route %q", flattenRaw(r.Settings), r.Route)
	}
}

// A deadline refuses what is set where it is set, and below; it cuts the rest.
func TestDeadlineAndLevels(t *testing.T) {
	const own, wide, reports = "own", "example.com/", "GET example.com/reports/"
	type levels map[string]Settings
	with := func(s Settings, deadline time.Duration) Settings {
		s.Deadline = deadline
		return s
	}
	tests := []struct {
		name   string
		levels levels
		want   string // Route, Value, Limit
	}{
		{"inherited from the defaults", levels{own: {Deadline: 20 * time.Second}}, ""},
		{"the defaults themselves", levels{own: {Stream: Stream{Enabled: On}}}, ""},
		{"inherited from the policy", levels{own: read(50 * time.Second), reports: {Deadline: time.Second}}, ""},
		{"inherited from a wider route", levels{wide: read(50 * time.Second), reports: {Deadline: time.Second}}, ""},
		{"beside it", levels{own: with(read(30*time.Second), 20*time.Second)}, "policy 30s 20s"},
		{"below it", levels{own: {Deadline: 20 * time.Second}, reports: read(5 * time.Minute)}, reports + " 5m0s 20s"},
		{"below the default", levels{reports: read(5 * time.Minute)}, reports + " 5m0s 1m0s"},
		{"a longer one beside it", levels{own: {Deadline: 20 * time.Second}, reports: with(read(5*time.Minute), 10*time.Minute)}, ""},
		{"a longer one between", levels{own: {Deadline: 20 * time.Second}, wide: {Deadline: 10 * time.Minute}, reports: read(5 * time.Minute)}, ""},
		{"none beside it", levels{reports: with(read(5*time.Minute), Off)}, ""},
		{"below a wider route's", levels{wide: {Deadline: 20 * time.Second}, reports: read(time.Minute)}, reports + " 1m0s 20s"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := Policy{Settings: test.levels[own]}
			for pattern, s := range test.levels {
				if pattern != own {
					p.Routes = append(p.Routes, Route{Pattern: pattern, Settings: s})
				}
			}
			_, err := Compile(p)
			got := ""
			for _, e := range configErrors(t, err) {
				got += fmt.Sprintf("%s %s %s", e.Route, e.Value, e.Limit)
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestCompilePatterns(t *testing.T) {
	tests := []struct {
		name   string
		routes []Route
		want   []string // the parts of each error, sorted
	}{
		{"malformed", []Route{{Pattern: "reports"}, {Pattern: "", Name: "empty"}}, []string{
			`route "empty": Pattern is "": `,
			`route "reports": Pattern is "reports": `,
		}},
		{"a method that no client sends", []Route{{Pattern: "get /a"}, {Pattern: "Post /b"}, {Pattern: "purge /c"}}, []string{
			`route "Post /b": Pattern is Post /b: a method is compared by case, and this one is POST; write that`,
			`route "get /a": Pattern is get /a: a method is compared by case, and this one is GET; write that`,
		}},
		{"the same twice", []Route{{Pattern: "/a/{x}", Name: "one"}, {Pattern: "/a/{y}", Name: "two"}}, []string{
			`route "two": Pattern is /a/{y}, beside /a/{x}: both match the same requests`,
		}},
		{"the same in other words", []Route{{Pattern: "A.com:443/a"}, {Pattern: "a.com./a"}}, []string{
			`route "a.com./a": Pattern is a.com./a, beside A.com:443/a: both match the same requests`,
		}},
		{"the same name", []Route{{Pattern: "/a", Name: "one"}, {Pattern: "/b", Name: "one"}}, []string{
			`route "/a": Name is "one": the name is taken`,
			`route "/b": Name is "one": the name is taken`,
		}},
		{"the name of a level", []Route{{Pattern: "/a", Name: "policy"}}, []string{`route "/a": Name is "policy": the name is taken`}},
		{"the pattern of another as name", []Route{{Pattern: "/a", Name: "/b"}, {Pattern: "/b"}}, []string{`route "/a": Name is "/b": the name is taken`}},
		{"crossing with a field in common", []Route{
			{Pattern: "/a/{x}", Settings: read(time.Second)},
			{Pattern: "/{y}/b", Settings: read(2 * time.Second)},
		}, []string{`route "/a/{x}": Pattern is /a/{x}, beside /{y}/b: GET /a/b matches both, neither is more specific, and both set Timeouts.Read`}},
		{"crossing with a switch in common", []Route{
			{Pattern: "/a/{x}", Settings: Settings{Rate: Rate{PerSecond: 1}}},
			{Pattern: "/{y}/b", Settings: Settings{Rate: Rate{Enabled: Off}}},
		}, []string{`both set Rate.Enabled`}},
		{"crossing with a budget in common", []Route{
			{Pattern: "/a/{x}", Settings: Settings{Budgets: map[string]Rate{"n": {Burst: 1}}}},
			{Pattern: "/{y}/b", Settings: Settings{Budgets: map[string]Rate{"n": {Burst: 2}, "m": {Burst: 1}}}},
		}, []string{`both set Budgets["n"].Burst`}},
		{"crossing with nothing in common", []Route{
			{Pattern: "/a/{x}", Settings: read(time.Second)},
			{Pattern: "/{y}/b", Settings: Settings{Deadline: 2 * time.Second}},
		}, nil},
		{"crossing on different hosts", []Route{
			{Pattern: "/a/{x}", Settings: read(time.Second)},
			{Pattern: "example.com/{y}/b", Settings: read(2 * time.Second)},
		}, nil},
		{"crossing paths of different methods", []Route{
			{Pattern: "GET /a/{x}", Settings: read(time.Second)},
			{Pattern: "POST /{y}/b", Settings: read(2 * time.Second)},
		}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Compile(Policy{Routes: test.routes})
			var got []string
			for _, e := range configErrors(t, err) {
				got = append(got, e.Error())
			}
			slices.Sort(got)
			if !slices.EqualFunc(got, test.want, strings.Contains) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

// Two routes that are sound, but not where one request matches both.
func TestCompilePairs(t *testing.T) {
	p := Policy{Routes: []Route{
		{Pattern: "/reports/", Name: "reports", Settings: Settings{Deadline: 10 * time.Minute, Retry: Retry{BaseDelay: 4 * time.Second}}},
		{Pattern: "example.com/", Name: "example", Settings: Settings{Deadline: time.Minute, Retry: Retry{MaxDelay: 3 * time.Second}}},
		{Pattern: "example.org/", Name: "other", Settings: Settings{Deadline: time.Minute}},
	}}
	_, err := Compile(p)
	want := `route "example": Retry.MaxDelay is 3s, limit 4s: it is below Retry.BaseDelay (route "reports"); raise it, or lower that too`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestCompileReportsAllFaults(t *testing.T) {
	_, err := Compile(Policy{
		Settings: Settings{Deadline: 20 * time.Second, Retry: Retry{MaxAttempts: 11}, Breaker: Breaker{Failures: 1, Ratio: 1}},
		Routes: []Route{
			{Pattern: "GET /reports/", Settings: read(5 * time.Minute)},
			{Pattern: "GET /reports", Settings: Settings{Stream: Stream{Gap: -5}, Hedge: Hedge{Enabled: On}}},
			{Pattern: "nonsense"},
		},
	})
	var got []string
	for _, e := range configErrors(t, err) {
		got = append(got, e.Route+" "+e.Field)
	}
	slices.Sort(got)
	want := []string{
		"GET /reports Hedge.Delay", "GET /reports Stream.Gap", "GET /reports/ Timeouts.Read",
		"nonsense Pattern", "policy Breaker.Ratio", "policy Retry.MaxAttempts",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestOrderOfRoutesDoesNotMatter(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		p := Policy{Settings: randomSettings(rng, 20)}
		for _, i := range rng.Perm(len(patternPool))[:5] {
			p.Routes = append(p.Routes, Route{Pattern: patternPool[i], Settings: randomSettings(rng, 20)})
		}
		table, err := Compile(p)
		shuffled := Policy{Settings: p.Settings, Routes: slices.Clone(p.Routes)}
		rng.Shuffle(len(p.Routes), func(i, j int) { shuffled.Routes[i], shuffled.Routes[j] = shuffled.Routes[j], shuffled.Routes[i] })
		table2, err2 := Compile(shuffled)
		if fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Fatalf("before: %v\nafter: %v", err, err2)
		}
		if err != nil {
			continue
		}
		for _, q := range requestPool {
			r, err := table.Line(q.method, q.host, q.path).Resolve(Settings{}, nil)
			r2, err2 := table2.Line(q.method, q.host, q.path).Resolve(Settings{}, nil)
			if fmt.Sprint(err) != fmt.Sprint(err2) {
				t.Fatalf("before: %v\nafter: %v", err, err2)
			}
			if err == nil && (r.Route != r2.Route || !equal(r.Settings, r2.Settings)) {
				t.Fatalf("%v: before %v\nafter %v", q, flattenRaw(r.Settings), flattenRaw(r2.Settings))
			}
		}
	}
}

var patternPool = []string{
	"/", "/a/", "/a/b", "/a/{x}", "/{x}/b", "/a/{$}", "GET /", "POST /a/", "HEAD /a/b",
	"example.com/", "example.com/a/", "GET example.com/a/{x...}", "*.example.com/", "api.example.com/a/b",
	"api.example.com:8080/", "*.example.com:8080/a/", "GET *.example.com/{x}/b",
}

type request struct{ method, host, path string }

var requestPool = func() (pool []request) {
	for _, method := range []string{"GET", "HEAD", "POST"} {
		for _, host := range []string{"example.com", "API.example.com", "api.example.com:8080", "api.example.com:443", "other.org"} {
			for _, path := range []string{"/", "/a", "/a/", "/a/b", "/c/b", "/a/b/c", "/a%2Fb"} {
				pool = append(pool, request{method, host, path})
			}
		}
	}
	return pool
}()
