package policy

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

// What Parse accepts is JSON, is read back as it was from what Marshal makes of
// it, and is judged by Compile. What it refuses has a place.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"deadline":"20s","routes":[{"pattern":"GET /reports/","deadline":"5m","timeouts":{"read":"off"}}]}`,
		`{"retry":{"enabled":false,"statuses":[429,503],"budget":0.5}}`, `{"budgets":{"tokens":{"per_second":1e3,"key":"route"}}}`,
		`{"stream":{"enabled":true,"dialect":"gemini","min_rate":"off"}}`, `[{"a":[1,null,"x"]}]`, "\ufeff{}", "{//\n}", `{"a":1,"a":2}`,
		`{"routes":[{"pattern":"/a/{x}","rate":{"per_second":1}},{"pattern":"/{y}/b","rate":{"burst":2}}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse(data)
		if err != nil {
			joined, ok := err.(interface{ Unwrap() []error })
			if !ok {
				t.Fatalf("%v is not joined", err)
			}
			for _, err := range joined.Unwrap() {
				var e *ParseError
				if !errors.As(err, &e) || e.Line < 1 || e.Column < 1 || e.Reason == "" {
					t.Fatalf("%#v", err)
				}
			}
			return
		}
		if !json.Valid(data) {
			t.Fatal("accepted what is not JSON")
		}
		written, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Parse(written); err != nil || !samePolicy(back, p) {
			t.Fatalf("%s is read back as %+v, %v", written, back, err)
		}
		compileAny(t, p)
	})
}

// Compile refuses or resolves any policy, and shuffled routes change nothing.
func FuzzCompile(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, "/a/{x}", uint8(20))
	}
	f.Fuzz(func(t *testing.T, seed uint64, pattern string, sparse uint8) {
		rng := rand.New(rand.NewPCG(seed, 0))
		settings := func() Settings { return randomSettings(rng, 1+int(sparse)) }
		p := Policy{Settings: settings(), Routes: []Route{{Pattern: pattern, Settings: settings()}}}
		for range rng.IntN(4) {
			p.Routes = append(p.Routes, Route{Pattern: pick(rng, patternPool...), Name: pick(rng, "", "a", "b"), Settings: settings()})
		}
		compileAny(t, p)
	})
}

func compileAny(t *testing.T, p Policy) {
	t.Helper()
	table, err := Compile(p)
	reversed := Policy{Settings: p.Settings, Routes: slices.Clone(p.Routes)}
	slices.Reverse(reversed.Routes)
	_, err2 := Compile(reversed)
	if (err == nil) != (err2 == nil) {
		t.Fatalf("the order of the routes matters: %v, then %v", err, err2)
	}
	if err != nil {
		configErrors(t, err)
		return
	}
	for _, q := range requestPool[:20] {
		line := table.Line(q.method, q.host, q.path)
		r, err := line.Resolve(Settings{}, nil)
		if err != nil {
			configErrors(t, err)
			if len(line.routes) < 3 {
				t.Fatalf("a line of %d routes is refused late: %v", len(line.routes), err)
			}
			continue
		}
		for ref, v := range r.all() {
			optional := withoutDefault[ref.path()] && !slices.Contains(required, ref.field) || ref == failures
			if v.IsZero() && ref.enabled(&r.Settings) && !optional {
				t.Fatalf("%s is not settled", ref)
			}
		}
		// Shortening a deadline is always allowed.
		if _, err := line.Resolve(Settings{}, NewOverride(Settings{Deadline: 1})); err != nil {
			t.Fatal(err)
		}
		_ = table.Check(Settings{Deadline: 1})
	}
}
