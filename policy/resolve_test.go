package policy

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/route"
)

func mustCompile(t testing.TB, p Policy) *Table {
	t.Helper()
	table, err := Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func mustResolve(t testing.TB, table *Table, url string) *Resolved {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resolved, err := table.Line(r.Method, r.URL.Host, r.URL.EscapedPath()).Resolve(Settings{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return resolved
}

// What a line resolves to is what With makes of the routes that match, tried
// one by one and sorted by host, then path, then method.
func TestResolveAgainstOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	lines := 0
	for range 60 {
		p := Policy{Settings: soundSettings(rng)}
		for _, i := range rng.Perm(len(patternPool))[:6] {
			p.Routes = append(p.Routes, Route{Pattern: patternPool[i], Settings: soundSettings(rng)})
		}
		table, err := Compile(p)
		if err != nil {
			continue
		}
		for _, q := range requestPool {
			resolved, err := table.Line(q.method, q.host, q.path).Resolve(Settings{}, nil)
			if err != nil {
				continue // checked elsewhere
			}
			lines++
			want, name := Defaults().With(p.Settings), ""
			for _, r := range matching(t, p.Routes, q) {
				want, name = want.With(r.Settings), r.Pattern
			}
			for budget, rate := range want.Budgets {
				want.Budgets[budget] = Settings{Rate: defaultRate}.With(Settings{Rate: rate}).Rate
			}
			got := resolved.Settings
			got.Breaker.Key, got.Rate.Key, got.InFlight.Key = want.Breaker.Key, want.Rate.Key, want.InFlight.Key
			got.Budgets = maps.Clone(got.Budgets)
			for budget, rate := range got.Budgets {
				rate.Key = want.Budgets[budget].Key
				got.Budgets[budget] = rate
			}
			if !equal(got, want) || resolved.Route != name {
				t.Fatalf("%v under %v:\ngot  %q %v\nwant %q %v", q, p.Routes, resolved.Route, flattenRaw(got), name, flattenRaw(want))
			}
		}
	}
	if lines < 1000 {
		t.Errorf("only %d lines were compared", lines)
	}
}

// soundSettings sets few fields, to values that seldom contradict each other.
func soundSettings(rng *rand.Rand) Settings {
	return pick(rng,
		Settings{Deadline: time.Duration(1+rng.IntN(60)) * time.Minute},
		Settings{Timeouts: Timeouts{Connect: time.Duration(1 + rng.IntN(1000))}},
		Settings{Timeouts: Timeouts{Pool: Off, Read: time.Duration(1 + rng.IntN(1000))}},
		Settings{Retry: Retry{MaxAttempts: 1 + rng.IntN(10)}},
		Settings{Retry: Retry{Enabled: Off}},
		Settings{Rate: Rate{PerSecond: rng.Float64() + 1, Key: ByRoute}},
		Settings{Rate: Rate{Enabled: Off}},
		Settings{Budgets: map[string]Rate{pick(rng, "a", "b"): {PerSecond: rng.Float64() + 1}}},
		Settings{Breaker: Breaker{Failures: 1 + rng.IntN(10)}},
		Settings{Breaker: Breaker{Ratio: rng.Float64()/2 + 0.1}},
	)
}

func matching(t *testing.T, routes []Route, q request) (match []Route) {
	t.Helper()
	patterns := map[string]route.Pattern{}
	for _, r := range routes {
		p, err := route.Parse(r.Pattern)
		if err != nil {
			t.Fatal(err)
		}
		alone, err := route.NewTable(route.Entry[bool]{Pattern: p, Value: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(alone.Line(nil, q.method, q.host, q.path)) == 1 {
			match = append(match, r)
			patterns[r.Pattern] = p
		}
	}
	slices.SortFunc(match, func(a, b Route) int {
		p, q := patterns[a.Pattern], patterns[b.Pattern]
		if c := hostSpecificity(p.Host()) - hostSpecificity(q.Host()); c != 0 {
			return c
		}
		if c := specificity(p.Path()) - specificity(q.Path()); c != 0 {
			return c
		}
		return len(p.Method()) - len(q.Method())
	})
	return match
}

// hostSpecificity ranks the hosts of patternPool among those that match one
// request.
func hostSpecificity(host string) int {
	return slices.Index([]string{"", "*.example.com", "*.example.com:8080", "example.com", "api.example.com", "api.example.com:8080"}, host)
}

// specificity ranks the paths of patternPool among those that match one request.
func specificity(path string) int {
	return slices.Index([]string{"/", "/{x}/b", "/a/", "/a/{x...}", "/a/{x}", "/a/b", "/a/{$}"}, path)
}

func TestLineIsOnePerCombination(t *testing.T) {
	table := mustCompile(t, Policy{Routes: []Route{{Pattern: "/a/"}, {Pattern: "example.com/"}}})
	a, b := table.Line("GET", "example.com", "/a/1"), table.Line("PUT", "EXAMPLE.com:80", "/a/2")
	if a != b || !a.Kept {
		t.Error("one combination has two lines")
	}
	if c := table.Line("GET", "example.com", "/b"); c == a {
		t.Error("two combinations have one line")
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for _, q := range requestPool {
				line := table.Line(q.method, q.host, q.path)
				if table.Line(q.method, q.host, q.path) != line {
					t.Error("a line changed")
				}
			}
		})
	}
	wg.Wait()
}

func TestLineAllocatesNothing(t *testing.T) {
	table := mustCompile(t, Policy{Routes: []Route{{Pattern: "/a/"}, {Pattern: "example.com/"}, {Pattern: "GET /a/{x}"}}})
	if n := testing.AllocsPerRun(100, func() { table.Line("GET", "example.com", "/a/1") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Fourteen patterns that cross each other make 16,384 lines.
func TestLinesAreBounded(t *testing.T) {
	const n = 14
	var p Policy
	for i := range n {
		segments := make([]string, n)
		for j := range segments {
			segments[j] = fmt.Sprintf("{x%d}", j)
		}
		segments[i] = "a"
		p.Routes = append(p.Routes, Route{
			Pattern:  "/" + strings.Join(segments, "/"),
			Settings: Settings{Budgets: map[string]Rate{strconv.Itoa(i): {PerSecond: 1}}},
		})
	}
	table := mustCompile(t, p)
	kept := 0
	for i := range 1 << n {
		var path strings.Builder
		for j := range n {
			path.WriteByte('/')
			path.WriteByte("ab"[i>>j&1])
		}
		line := table.Line("GET", "x", path.String())
		if again := table.Line("GET", "x", path.String()); (again == line) != line.Kept {
			t.Fatalf("Kept is %v", line.Kept)
		}
		if line.Kept {
			kept++
		}
	}
	if kept != maxLines {
		t.Errorf("%d lines are kept", kept)
	}
}

func TestStates(t *testing.T) {
	limit := func(n int) Settings { return Settings{InFlight: InFlight{Max: n}} }
	tests := []struct {
		name   string
		policy Policy
		want   StateID // of InFlight on example.com/a
	}{
		{"of the policy", Policy{Settings: limit(1)}, StateID{Section: "InFlight"}},
		{"of a wide route", Policy{Settings: limit(1), Routes: []Route{
			{Pattern: "example.com/", Settings: limit(2)},
			{Pattern: "/a", Settings: read(1)},
		}}, StateID{Section: "InFlight", Pattern: "example.com/"}},
		{"of its own", Policy{Routes: []Route{
			{Pattern: "example.com/", Settings: limit(2)},
			{Pattern: "example.com/a", Settings: limit(2)},
		}}, StateID{Section: "InFlight", Pattern: "example.com/a"}},
		{"of the one that it is turned on again for", Policy{Routes: []Route{
			{Pattern: "example.com/", Settings: limit(2)},
			{Pattern: "GET example.com/", Settings: Settings{InFlight: InFlight{Max: Off}}},
			{Pattern: "example.com/a", Settings: Settings{InFlight: InFlight{Enabled: On}}},
		}}, StateID{Section: "InFlight", Pattern: "example.com/"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := mustResolve(t, mustCompile(t, test.policy), "http://example.com/a")
			if r.InFlightState != test.want || r.InFlight.Enabled != On {
				t.Errorf("got %+v, enabled %v", r.InFlightState, r.InFlight.Enabled)
			}
		})
	}
}

func TestStateOfBudgetsAndBreaker(t *testing.T) {
	table := mustCompile(t, Policy{
		Settings: Settings{
			Breaker: Breaker{Enabled: On, Open: time.Second},
			Budgets: map[string]Rate{"requests": {PerSecond: 5}, "tokens": {PerSecond: 1000}},
		},
		Routes: []Route{
			{Pattern: "/a", Settings: Settings{Budgets: map[string]Rate{"tokens": {PerSecond: 10}}}},
			{Pattern: "/b", Settings: Settings{Breaker: Breaker{Open: 2 * time.Second}}},
			{Pattern: "/c", Settings: Settings{Breaker: Breaker{Ratio: 0.5}}},
		},
	})
	a, b, c := mustResolve(t, table, "http://x/a"), mustResolve(t, table, "http://x/b"), mustResolve(t, table, "http://x/c")
	want := map[string]StateID{"requests": {Section: "Rate", Budget: "requests"}, "tokens": {Section: "Rate", Budget: "tokens", Pattern: "/a"}}
	if !maps.Equal(a.BudgetStates, want) {
		t.Errorf("got %v, want %v", a.BudgetStates, want)
	}
	if r := a.Budgets["tokens"]; r.Enabled != On || r.Burst != 1 || r.Key == nil {
		t.Errorf("a budget lacks its defaults: %+v", r)
	}
	// The default number of failures is nobody's: whose the circuit is, the
	// other numbers decide.
	if got := [3]string{a.BreakerState.Pattern, b.BreakerState.Pattern, c.BreakerState.Pattern}; got != [3]string{"", "/b", "/c"} {
		t.Errorf("got breakers of %q", got)
	}
}

// A state has one set of numbers.
func TestStateConflict(t *testing.T) {
	_, err := Compile(Policy{Routes: []Route{
		{Pattern: "example.com/", Settings: Settings{Rate: Rate{PerSecond: 5, Burst: 2}}},
		{Pattern: "example.com/a", Settings: Settings{Rate: Rate{Burst: 1}}},
	}})
	found := configErrors(t, err)
	if len(found) != 1 || found[0].Route != "example.com/a" || found[0].Field != "Rate.Burst" || found[0].Value != "1" || found[0].Limit != "2" {
		t.Errorf("got %v", err)
	}
	// With a rate of its own it has a bucket of its own; MaxWait and Cost are
	// each call's.
	mustCompile(t, Policy{Routes: []Route{
		{Pattern: "example.com/", Settings: Settings{Rate: Rate{PerSecond: 5, Burst: 2}}},
		{Pattern: "example.com/a", Settings: Settings{Rate: Rate{PerSecond: 5, Burst: 1}}},
		{Pattern: "example.com/b", Settings: Settings{Rate: Rate{MaxWait: time.Second, Cost: func(*http.Request) int { return 2 }, Key: ByRoute}}},
	}})
}

func TestViews(t *testing.T) {
	table := mustCompile(t, Policy{
		Settings: Settings{Deadline: 20 * time.Second},
		Routes: []Route{
			{Pattern: "/slow/", Settings: Settings{Deadline: 10 * time.Minute, Rate: Rate{PerSecond: 10}}},
		},
	})
	slow, fast := table.Line("GET", "x", "/slow/"), table.Line("GET", "x", "/fast")

	// Refused only if no route could use it, and then on the lines that cannot.
	view := read(5 * time.Minute)
	if err := table.Check(view); err != nil {
		t.Error(err)
	}
	if _, err := slow.Resolve(view, nil); err != nil {
		t.Error(err)
	}
	_, err := fast.Resolve(view, nil)
	if want := "view: Timeouts.Read is 5m0s, limit 20s: it outlasts Deadline (policy); shorten it, or set a longer Deadline beside it"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := table.Check(read(time.Hour)); err == nil {
		t.Error("a view that no route can use is accepted")
	}

	// Shortening a deadline is always allowed.
	for _, line := range []*Line{slow, fast} {
		for _, s := range []Settings{{Deadline: 1}, read(1)} {
			if _, err := line.Resolve(s, nil); err != nil {
				t.Error(err)
			}
			if _, err := line.Resolve(Settings{}, NewOverride(s)); err != nil {
				t.Error(err)
			}
		}
	}

	// The override goes before the view, and both before the route.
	r, err := slow.Resolve(Settings{Deadline: 2, Hedge: Hedge{Max: 2}}, NewOverride(Settings{Deadline: 1}))
	if err != nil || r.Deadline != 1 || r.Hedge.Max != 2 {
		t.Errorf("got %v and %v, %v", r.Deadline, r.Hedge.Max, err)
	}

	// Numbers of shared state are nobody's but the policy's and the routes'.
	cost := func(*http.Request) int { return 2 }
	if r, err = slow.Resolve(Settings{Rate: Rate{MaxWait: 1, Cost: cost}}, NewOverride(Settings{Rate: Rate{Enabled: Off}})); err != nil || r.Rate.Enabled != Off || r.Rate.Cost == nil {
		t.Errorf("got %+v, %v", r, err)
	}
	for _, s := range []Settings{
		{Rate: Rate{PerSecond: 3}},
		{Rate: Rate{Burst: 3}},
		{Rate: Rate{Key: ByRoute}},
		{Budgets: map[string]Rate{"a": {PerSecond: 3}}},
		{Breaker: Breaker{OpenMax: 3}},
		{InFlight: InFlight{Max: 3}},
	} {
		_, viewErr := slow.Resolve(s, nil)
		_, callErr := slow.Resolve(Settings{}, NewOverride(s))
		for level, err := range map[string]error{"view": viewErr, "call": callErr} {
			if e := configErrors(t, err); len(e) != 1 || e[0].Route != level {
				t.Errorf("%v: got %v", flattenRaw(s), err)
			}
		}
	}
}

// A view may turn on what is off in the policy, unless two routes would then
// disagree about one state.
func TestViewTurnsOn(t *testing.T) {
	table := mustCompile(t, Policy{
		Settings: Settings{InFlight: InFlight{Enabled: Off, Max: 3}, Rate: Rate{Enabled: Off, PerSecond: 3}},
		Routes:   []Route{{Pattern: "/a", Settings: Settings{Rate: Rate{Burst: 7}}}},
	})
	on := Settings{InFlight: InFlight{Enabled: On}, Rate: Rate{Enabled: On}}
	if r, err := table.Line("GET", "x", "/").Resolve(on, nil); err != nil || r.InFlight.Enabled != On || r.InFlightState != (StateID{Section: "InFlight"}) {
		t.Errorf("got %+v, %v", r, err)
	}
	_, err := table.Line("GET", "x", "/a").Resolve(on, nil)
	if e := configErrors(t, err); len(e) != 1 || e[0].Route != "/a" || e[0].Field != "Rate.Burst" {
		t.Errorf("got %v", err)
	}
}

// What three routes bring about is refused when they first meet.
// TestGapOffLiftsWhatIsInherited: no gap of one kind is shorter than Gap, so that
// one which has no limit leaves none to those that it finds, and only while it
// has none.
func TestGapOffLiftsWhatIsInherited(t *testing.T) {
	off := func(s Stream) Settings { s.Gap = Off; return Settings{Stream: s} }
	table := mustCompile(t, Policy{
		Settings: Settings{Stream: Stream{Enabled: On, PingedGap: 200 * time.Second}},
		Routes: []Route{
			{Pattern: "/a/", Settings: off(Stream{ToolGap: 400 * time.Second})},
			{Pattern: "/a/b/", Settings: Settings{Stream: Stream{ThinkingGap: 100 * time.Second}}},
			{Pattern: "/a/b/c/", Settings: Settings{Stream: Stream{Gap: 90 * time.Second}}},
		},
	})
	for url, want := range map[string]Stream{
		"/":       {Gap: 120 * time.Second, PingedGap: 200 * time.Second, ThinkingGap: 300 * time.Second, ToolGap: 300 * time.Second},
		"/a/":     {Gap: Off, PingedGap: Off, ThinkingGap: Off, ToolGap: 400 * time.Second},
		"/a/b/":   {Gap: Off, PingedGap: Off, ThinkingGap: 100 * time.Second, ToolGap: 400 * time.Second},
		"/a/b/c/": {Gap: 90 * time.Second, PingedGap: 200 * time.Second, ThinkingGap: 100 * time.Second, ToolGap: 400 * time.Second},
	} {
		r := mustResolve(t, table, "http://example.com"+url)
		if got := (Stream{Gap: r.Stream.Gap, PingedGap: r.Stream.PingedGap, ThinkingGap: r.Stream.ThinkingGap, ToolGap: r.Stream.ToolGap}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", url, got, want)
		}
	}
	r, err := table.Line("GET", "example.com", "/").Resolve(Settings{}, NewOverride(off(Stream{})))
	if err != nil {
		t.Fatal(err)
	}
	if r.Stream.PingedGap != Off || r.Source("Stream.PingedGap") != "call" {
		t.Errorf("under an override, PingedGap is %v by the %s", r.Stream.PingedGap, r.Source("Stream.PingedGap"))
	}
}

func TestLongLine(t *testing.T) {
	table := mustCompile(t, Policy{Routes: []Route{
		{Pattern: "/{x}/{y}/c", Settings: Settings{Stream: Stream{Enabled: On}}},
		{Pattern: "/{x}/b/{z}", Settings: Settings{Stream: Stream{Gap: 250 * time.Second}}},
		{Pattern: "/a/{y}/{z}", Settings: Settings{Stream: Stream{ToolGap: 130 * time.Second}}},
	}})
	if _, err := table.Line("GET", "x", "/a/b/d").Resolve(Settings{}, nil); err != nil {
		t.Error(err)
	}
	_, err := table.Line("GET", "x", "/a/b/c").Resolve(Settings{}, nil)
	if e := configErrors(t, err); len(e) != 1 || e[0].Field != "Stream.ToolGap" {
		t.Errorf("got %v", err)
	}
}

func TestSource(t *testing.T) {
	table := mustCompile(t, Policy{
		Settings: Settings{Deadline: time.Minute},
		Routes: []Route{
			{Pattern: "/a", Name: "first", Settings: read(time.Second)},
			{Pattern: "x/", Settings: Settings{Budgets: map[string]Rate{"n": {PerSecond: 1}}}},
		},
	})
	r, err := table.Line("GET", "x", "/a").Resolve(Settings{Retry: Retry{MaxAttempts: 2}}, NewOverride(Settings{Hedge: Hedge{Max: 2}}))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"Deadline": "policy", "Timeouts.Read": `route "first"`, `Budgets["n"].PerSecond`: `route "x/"`, `Budgets["n"].Burst`: "default",
		"Retry.MaxAttempts": "view", "Retry.Enabled": "view", "Hedge.Max": "call", "Timeouts.Pool": "default", "Timeouts": "",
	} {
		if got := r.Source(path); got != want {
			t.Errorf("%s is from %q, want %q", path, got, want)
		}
	}
}

func TestByRoute(t *testing.T) {
	table := mustCompile(t, Policy{
		Settings: Settings{Rate: Rate{PerSecond: 1, Key: ByRoute}, Budgets: map[string]Rate{"n": {PerSecond: 1, Key: ByRoute}}},
		Routes:   []Route{{Pattern: "/a", Name: "first"}, {Pattern: "GET x/b"}},
	})
	for url, want := range map[string]string{"http://x/a": "/a", "http://y/a": "/a", "http://x/b": "GET x/b", "http://x/": ""} {
		r := mustResolve(t, table, url)
		if r.Rate.Key(nil) != want || r.Budgets["n"].Key(nil) != want {
			t.Errorf("%s has the key %q, want %q", url, r.Rate.Key(nil), want)
		}
	}
}

func TestByOrigin(t *testing.T) {
	for url, want := range map[string]string{
		"https://Example.COM/a":       "https://example.com",
		"https://example.com:443/b":   "https://example.com",
		"http://example.com:80/":      "http://example.com",
		"http://example.com:443/":     "http://example.com:443",
		"http://example.com:8080/":    "http://example.com:8080",
		"https://[2001:db8::443]/":    "https://[2001:db8::443]",
		"https://[2001:DB8::1]:443/":  "https://[2001:db8::1]",
		"https://u:p@example.com/?q=": "https://example.com",
		"http://example.com./":        "http://example.com",
		"http://example.com.:80/":     "http://example.com",
		"http://Example.com.:8080/":   "http://example.com:8080",
		"http://[::ffff:1.2.3.4]:80/": "http://[::ffff:1.2.3.4]",
		"http://example.com:/":        "http://example.com",
		"https://[::]:/":              "https://[::]",
		"http://example.com.:/":       "http://example.com",
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if got := ByOrigin(r); got != want {
			t.Errorf("%s is of %s, want %s", url, got, want)
		}
	}
}

func TestOverrideContext(t *testing.T) {
	if OverrideFrom(t.Context()) != nil {
		t.Error("an override from nowhere")
	}
	o := NewOverride(Settings{Deadline: 1})
	ctx := o.Context(t.Context())
	if OverrideFrom(ctx) != o {
		t.Error("the override is another one")
	}
	inner := OverrideFrom(WithOverride(ctx, Settings{Hedge: Hedge{Max: 2}}))
	if inner.settings.Deadline != 1 || inner.settings.Hedge.Max != 2 {
		t.Errorf("got %v", flattenRaw(inner.settings))
	}
	if o.settings.Hedge.Max != 0 {
		t.Error("the outer override has changed")
	}
	if OverrideFrom(context.WithoutCancel(ctx)) != o {
		t.Error("the override is lost")
	}
}

func TestOverrideChains(t *testing.T) {
	o := NewOverride(Settings{})
	owners := make([]*int, maxOwners+1)
	for i := range owners {
		owners[i] = new(int)
		o.Chains(owners[i]).Store("n", i)
	}
	if _, ok := o.Chains(owners[0]).Load("n"); ok {
		t.Error("the oldest is still there")
	}
	for i := 2; i < len(owners); i++ {
		if n, _ := o.Chains(owners[i]).Load("n"); n != i {
			t.Errorf("owner %d has %v", i, n)
		}
	}
	if n := testing.AllocsPerRun(100, func() { o.Chains(owners[5]) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
