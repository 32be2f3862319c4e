package derive

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// random returns a snapshot with a bit of everything.
func random(r *rand.Rand) *Snapshot {
	s := new(Snapshot)
	for range r.IntN(4) {
		g := Group{[]string{"", "chat", "GET /reports/"}[r.IntN(3)], []string{"", "short", "30k\n\""}[r.IntN(3)]}
		rec := s.record(g)
		rec.outcomes = Outcomes{r.Uint64N(9), r.Uint64N(9), r.Uint64N(9), r.Uint64N(9), r.Uint64N(9), r.Uint64N(9)}
		for range r.IntN(50) {
			rec.arrivals.add(time.Unix(1e9+r.Int64N(200_000), r.Int64N(1e9)))
		}
		for range r.IntN(5) {
			sample := s.Sample(g, quantities[r.IntN(len(quantities))])
			sample.Failed = r.Uint64N(3)
			for _, h := range []*Histogram{&sample.Done, &sample.Longest, &sample.Cut} {
				for range r.IntN(20) {
					h.Add(time.Duration(r.Uint64() >> (1 + r.IntN(60))))
				}
			}
		}
	}
	return s
}

func marshal(t *testing.T, s *Snapshot) string {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestJSON(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		s := random(r)
		text := marshal(t, s)
		var back Snapshot
		if err := json.Unmarshal([]byte(text), &back); err != nil {
			t.Fatalf("%v of %s", err, text)
		}
		if again := marshal(t, &back); again != text {
			t.Fatalf("%s comes back as %s", text, again)
		}
	}
}

// TestMerge: in any order, and with an empty one, the outcome is the same, and
// is that of having recorded all in one.
func TestMerge(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	merged := func(list ...*Snapshot) *Snapshot {
		s := new(Snapshot)
		for _, o := range list {
			s.Merge(o)
		}
		return s
	}
	for range 100 {
		a, b, c := random(r), random(r), random(r)
		before := marshal(t, a) + marshal(t, b) + marshal(t, c)
		want := marshal(t, merged(a, b, c))
		for name, s := range map[string]*Snapshot{
			"c, b, a":   merged(c, b, a),
			"b, a, c":   merged(b, a, c),
			"a, (b, c)": merged(a, merged(b, c)),
			"(a, b), c": merged(merged(a, b), c),
			"nothing":   merged(new(Snapshot), a, new(Snapshot), b, c),
		} {
			if got := marshal(t, s); got != want {
				t.Fatalf("%s is\n%s\nand a, b, c\n%s", name, got, want)
			}
		}
		if after := marshal(t, a) + marshal(t, b) + marshal(t, c); after != before {
			t.Fatal("merging has changed what was merged")
		}
	}
	var one, two, both Histogram
	for i := range time.Duration(1000) {
		h := &one
		if i%3 == 0 {
			h = &two
		}
		h.Add(i * i * time.Microsecond)
		both.Add(i * i * time.Microsecond)
	}
	one.Merge(&two)
	if one.Count() != 1000 || one.Max() != both.Max() || one.Quantile(0.9) != both.Quantile(0.9) {
		t.Error("two halves are not the whole")
	}
}

func group(rest string) string {
	return `{"version":1,"groups":[{"route":"chat","outcomes":{}` + rest + `}]}`
}

var refusals = map[string]struct{ in, want string }{
	"nothing":           {``, "unexpected end"},
	"null":              {`null`, "version 0 is not known"},
	"newer":             {`{"version":2,"groups":"another form"}`, "version 2 is not known, only 1 is"},
	"foreign":           {`{"version":1,"policies":[]}`, `unknown field "policies"`},
	"twice":             {`{"version":1,"groups":[{"route":"a"},{"route":"a"}]}`, "a is there twice"},
	"no such quantity":  {group(`,"samples":{"speed":{}}`), `there is no quantity "speed"`},
	"null sample":       {group(`,"samples":{"call":null}`), "call: null"},
	"bin out of range":  {group(`,"samples":{"call":{"done":{"max_ns":1,"bins":[[5248,1]]}}}`), "call, done: the bins"},
	"bins descend":      {group(`,"samples":{"call":{"cut":{"max_ns":1,"bins":[[2,1],[1,1]]}}}`), "call, cut: the bins"},
	"empty bin":         {group(`,"samples":{"call":{"done":{"max_ns":1,"bins":[[1,0]]}}}`), "one is empty"},
	"no bins":           {group(`,"samples":{"call":{"done":{"max_ns":1,"bins":[]}}}`), "the maximum is not in the last bin"},
	"maximum elsewhere": {group(`,"samples":{"call":{"done":{"max_ns":5,"bins":[[1,1]]}}}`), "the maximum is not in the last bin"},
	"negative count":    {group(`,"samples":{"call":{"failed":-1}}`), "cannot unmarshal"},
	"minutes descend":   {group(`,"arrivals":{"first":"2026-01-01T00:00:00Z","last":"2026-01-01T00:00:00Z","minutes":[[2,1],[1,1]]}`), "arrivals: the minutes"},
	"minutes of a week": {group(`,"arrivals":{"first":"2026-01-01T00:00:00Z","last":"2026-01-01T00:00:00Z","minutes":[[1,1],[10000,1]]}`), "more than a day"},
	"last before first": {group(`,"arrivals":{"first":"2026-01-02T00:00:00Z","last":"2026-01-01T00:00:00Z","minutes":[]}`), "not in order"},
	"not UTF-8":         {group(`,"bucket":"` + "\xff" + `"`), ""},
}

func TestRefused(t *testing.T) {
	for name, test := range refusals {
		s := new(Snapshot)
		s.Sample(chat, Call).Done.Add(time.Second)
		before := marshal(t, s)
		err := json.Unmarshal([]byte(test.in), s)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
		if marshal(t, s) != before {
			t.Errorf("%s: the snapshot has changed", name)
		}
	}
}

// FuzzSnapshot: whatever is accepted is what a snapshot writes, and can be
// merged, derived from, and written again.
func FuzzSnapshot(f *testing.F) {
	r := rand.New(rand.NewPCG(9, 9))
	for range 5 {
		b, err := json.Marshal(random(r))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	for _, test := range refusals {
		f.Add([]byte(test.in))
	}
	f.Add([]byte(`{"version":1,"groups":[{"route":"chat","bucket":"30k","outcomes":{"calls":7},"samples":{"gap":{"done":{"max_ns":99,"bins":[[9,400],[99,18446744073709551615]]},"longest":{"max_ns":99,"bins":[[99,400]]}}}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var s Snapshot
		if err := s.UnmarshalJSON(data); err != nil {
			return
		}
		text := marshal(t, &s)
		var back Snapshot
		if err := json.Unmarshal([]byte(text), &back); err != nil {
			t.Fatalf("%v of %s", err, text)
		}
		if again := marshal(t, &back); again != text {
			t.Fatalf("%s comes back as %s", text, again)
		}
		back.Merge(&s)
		p, err := Derive(&back, Options{})
		if p == nil {
			t.Fatal(err)
		}
		_ = p.String()
		for _, l := range p.Limits {
			if l.Value < 0 || l.Kills < 0 || l.Kills > 1 || l.Low > l.High {
				t.Errorf("%+v", l)
			}
		}
	})
}
