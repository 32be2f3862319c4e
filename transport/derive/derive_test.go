package derive

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/policy"
)

// exactly fills a histogram with n durations of an exponential distribution
// whose p99 is given.
func exactly(h *Histogram, n int, p99 time.Duration) {
	for i := range n {
		u := (float64(i) + 0.5) / float64(n)
		h.Add(time.Duration(math.Log(1-u) / math.Log(0.01) * float64(p99)))
	}
}

func plan(t *testing.T, s *Snapshot, o Options) *Plan {
	t.Helper()
	p, err := Derive(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func limitOf(t *testing.T, p *Plan, g Group, field string) Limit {
	t.Helper()
	i := slices.IndexFunc(p.Limits, func(l Limit) bool { return l.Group == g && l.Field == field })
	if i < 0 {
		t.Fatalf("there is no %s for %v in\n%v", field, g, p)
	}
	return p.Limits[i]
}

func hasNote(t *testing.T, notes []string, want string) {
	t.Helper()
	if !slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, want) }) {
		t.Errorf("no note has %q: %q", want, notes)
	}
}

var (
	chat      = Group{"chat", ""}
	chatShort = Group{"chat", "short"}
	chatLong  = Group{"chat", "30k"}
)

// TestTwoBuckets: p99 2.4 s and 9.1 s, safety 2.
func TestTwoBuckets(t *testing.T) {
	s := new(Snapshot)
	exactly(&s.Sample(chatShort, FirstContent).Done, 4_000, 2400*time.Millisecond)
	exactly(&s.Sample(chatLong, FirstContent).Done, 4_000, 9100*time.Millisecond)
	p := plan(t, s, Options{})
	for g, want := range map[Group]struct {
		value time.Duration
		note  string
	}{
		chatShort: {5 * time.Second, "2.39s x 2 = 4.78s"},
		chatLong:  {18 * time.Second, "9.09s x 2 = 18.2s"},
	} {
		l := limitOf(t, p, g, "Stream.FirstContent")
		if l.Value != want.value || l.Samples != 4_000 || l.Quantile != 0.99 || l.Safety != 2 {
			t.Errorf("%+v, want %v", l, want.value)
		}
		hasNote(t, l.Notes, want.note)
		hasNote(t, l.Notes, "rounded to "+want.value.String())
		if l.Low >= l.At || l.High <= l.At || l.Unbounded {
			t.Errorf("%v is not within %v and %v", l.At, l.Low, l.High)
		}
		if median := time.Duration(float64(l.At) * math.Log(0.5) / math.Log(0.01)); !near(l.Delay, l.Value-median, 0.01) {
			t.Errorf("%v: a delay of %v, and the median is %v", g, l.Delay, median)
		}
		if got := p.Settings(g).Stream.FirstContent; got != want.value {
			t.Errorf("%v: the settings have %v", g, got)
		}
	}
	// One limit for both is wrong for one of them, whichever.
	text := p.String()
	if !strings.Contains(text, `one limit for all buckets: Stream.FirstContent 15s is wrong for chat "short": a dead one is noticed 10s later than with its own 5s`) {
		t.Errorf("the plan does not say what is wrong with one limit for both:\n%s", text)
	}
	for limit, want := range map[time.Duration]string{
		5 * time.Second:  `Stream.FirstContent 5s is wrong for chat "30k": it ends 7.8`,
		18 * time.Second: `Stream.FirstContent 18s is wrong for chat "short": a dead one is noticed 13s later than with its own 5s`,
	} {
		faults := p.Judge("chat", policy.Settings{Stream: policy.Stream{FirstContent: limit}})
		if len(faults) != 1 || !strings.HasPrefix(faults[0], want) {
			t.Errorf("%v for both: %q, want %q", limit, faults, want)
		}
	}
	if faults := p.Judge("chat", policy.Settings{Deadline: time.Second}); faults != nil {
		t.Errorf("of the deadline, nothing is known: %q", faults)
	}
}

// TestKnownDistribution: the quantile is within 2 % of exact, and what was cut
// short beside it makes no difference.
func TestKnownDistribution(t *testing.T) {
	for name, exact := range map[string]func(q float64) time.Duration{
		"exponential": func(q float64) time.Duration { return time.Duration(-math.Log(1-q) * float64(time.Second)) },
		"uniform":     func(q float64) time.Duration { return time.Duration(q * float64(time.Second)) },
		"pareto": func(q float64) time.Duration {
			return time.Duration(math.Pow(1-q, -1/1.5) * float64(100*time.Millisecond))
		},
	} {
		for _, q := range []float64{UserFacing, Background} {
			s := new(Snapshot)
			sample := s.Sample(chat, Headers)
			for i := range 100_000 {
				sample.Done.Add(exact((float64(i) + 0.5) / 100_000))
			}
			before := limitOf(t, plan(t, s, Options{Quantile: q}), chat, "Timeouts.Read")
			if !near(before.At, exact(q), 0.02) {
				t.Errorf("%s: p%g is %v, want %v", name, q*100, before.At, exact(q))
			}
			for range 5_000 {
				sample.Cut.Add(time.Hour)
			}
			sample.Failed = 5_000
			after := limitOf(t, plan(t, s, Options{Quantile: q}), chat, "Timeouts.Read")
			if after.At != before.At || after.Value != before.Value || after.Kills != before.Kills {
				t.Errorf("%s: with timeouts it is %v, without %v", name, after.At, before.At)
			}
			if after.Cut != 5_000 || after.Failed != 5_000 || after.Censored != 0 {
				t.Errorf("%s: %+v", name, after)
			}
		}
	}
}

// TestNoRatchet: reviews of a system that runs under the limit of the review
// before do not shrink it, however thick the tail and whatever is dead.
func TestNoRatchet(t *testing.T) {
	for name, draw := range map[string]func(*rand.Rand) time.Duration{
		"log-normal":       logNormal(400*time.Millisecond, 0.7),
		"thick log-normal": logNormal(200*time.Millisecond, 1.3),
		"pareto":           pareto(100*time.Millisecond, 1.5),
		"exponential":      distributions["exponential"],
	} {
		for _, known := range []bool{true, false} {
			for seed := range uint64(2) {
				r := rand.New(rand.NewPCG(seed, 8))
				limit := 2 * time.Minute
				var all []time.Duration
				for range 11 {
					s := new(Snapshot)
					sample := s.Sample(chat, Call)
					for i := range 20_000 {
						d := draw(r)
						switch {
						case i%100 == 0 || d > limit: // dead, or too slow
							sample.Cut.Add(limit)
						default:
							sample.Done.Add(d)
						}
					}
					o := Options{}
					if known && all != nil {
						present := policy.Settings{Deadline: limit}
						o.Present = func(Group) policy.Settings { return present }
					}
					limit = limitOf(t, plan(t, s, o), chat, "Deadline").Value
					all = append(all, limit)
				}
				first, least := all[0], slices.Min(all)
				if least < first || slices.Max(all) > first*5/4 {
					t.Errorf("%s, the present limit known %v: the limits were %v", name, known, all)
				}
			}
		}
	}
}

// TestNoRatchetInDoubt: calls of another kind, so few that a sample of them may
// be on either side of the quantile, do not have the limit collapse.
func TestNoRatchetInDoubt(t *testing.T) {
	draw := func(r *rand.Rand) time.Duration {
		if r.Float64() < 0.012 {
			return 5*time.Second + time.Duration(r.Int64N(int64(time.Second)))
		}
		return 50*time.Millisecond + time.Duration(r.Int64N(int64(10*time.Millisecond)))
	}
	for _, n := range []int{350, 1000, 5000} {
		for seed := range uint64(5) {
			r := rand.New(rand.NewPCG(seed, uint64(n)))
			limit := 30 * time.Second
			all := []time.Duration{limit}
			for range 10 {
				s := new(Snapshot)
				for range n {
					s.Sample(chat, Call).Done.Add(draw(r))
				}
				o := Options{Present: func(Group) policy.Settings { return policy.Settings{Deadline: limit} }}
				limit = limitOf(t, plan(t, s, o), chat, "Deadline").Value
				all = append(all, limit)
			}
			if limit < 6*time.Second || all[1] > 15*time.Second {
				t.Errorf("%d samples: the limits were %v", n, all)
			}
		}
	}
}

// TestTooTight: a limit that ends many healthy calls is found out, and grows.
func TestTooTight(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	draw := logNormal(400*time.Millisecond, 0.7) // p99 2.04 s
	limit := 500 * time.Millisecond
	for round := range 6 {
		s := new(Snapshot)
		sample := s.Sample(chat, Call)
		for range 5_000 {
			if d := draw(r); d > limit {
				sample.Cut.Add(limit)
			} else {
				sample.Done.Add(d)
			}
		}
		o := Options{Present: func(Group) policy.Settings { return policy.Settings{Deadline: limit} }}
		l := limitOf(t, plan(t, s, o), chat, "Deadline")
		if round == 0 {
			hasNote(t, l.Notes, "the quantile is above")
			hasNote(t, l.Notes, "the limit in force, 500ms, ends 37")
		}
		if l.Value < limit {
			t.Fatalf("%v was too tight, and becomes %v", limit, l.Value)
		}
		limit = l.Value
	}
	if limit < 3500*time.Millisecond || limit > 6*time.Second {
		t.Errorf("it ends at %v, want about 4 s", limit)
	}
}

// TestFasterServer: what has become faster gets a shorter limit.
func TestFasterServer(t *testing.T) {
	s := new(Snapshot)
	sample := s.Sample(chat, Call)
	exactly(&sample.Done, 5_000, 2*time.Second)
	for range 50 {
		sample.Cut.Add(10 * time.Second)
	}
	o := Options{Present: func(Group) policy.Settings { return policy.Settings{Deadline: 10 * time.Second} }}
	if l := limitOf(t, plan(t, s, o), chat, "Deadline"); l.Value != 4*time.Second || l.Present != 10*time.Second {
		t.Errorf("10s becomes %v: %q", l.Value, l.Notes)
	}
}

// TestKept: a limit in force that is as good as the one derived stays.
func TestKept(t *testing.T) {
	s := new(Snapshot)
	exactly(&s.Sample(chat, Call).Done, 1_000, 2*time.Second)
	o := Options{Present: func(Group) policy.Settings { return policy.Settings{Deadline: 4100 * time.Millisecond} }}
	l := limitOf(t, plan(t, s, o), chat, "Deadline")
	if l.Value != 4100*time.Millisecond {
		t.Errorf("got %v, want the 4.1s in force", l.Value)
	}
	hasNote(t, l.Notes, "the samples cannot tell whether 4s is better than the 4.1s in force")
}

func TestTooFew(t *testing.T) {
	t.Run("all cut short", func(t *testing.T) {
		s := new(Snapshot)
		for range 5_000 {
			s.Sample(chat, Headers).Cut.Add(2 * time.Second)
		}
		_, err := Derive(s, Options{})
		want := "derive: chat: headers: 0 samples, and it takes 299 to know a p99 at 95 % confidence; 5000 were cut short, so the limit in force may be why"
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	})
	s := new(Snapshot)
	exactly(&s.Sample(chatShort, FirstContent).Done, 298, time.Second)
	exactly(&s.Sample(chatLong, FirstContent).Done, 299, time.Second)
	exactly(&s.Sample(chatLong, Gap).Done, 10_000, time.Second)
	exactly(&s.Sample(chatLong, Gap).Longest, 100, time.Second)
	p, err := Derive(s, Options{})
	var few *TooFewError
	if !errors.As(err, &few) || few.Need != 299 {
		t.Fatalf("got %v", err)
	}
	const want = `derive: chat "30k": gap: 100 streams, and it takes 299 to know a p99 at 95 % confidence
derive: chat "short": first-content: 298 samples, and it takes 299 to know a p99 at 95 % confidence`
	if err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if len(p.Limits) != 1 || limitOf(t, p, chatLong, "Stream.FirstContent").Value != 2*time.Second {
		t.Errorf("the rest is\n%v", p)
	}
	// A limit for the whole route would be a guess about the other bucket.
	applied, err := p.Apply(policy.Policy{Routes: []policy.Route{{Pattern: "/chat", Name: "chat"}}})
	if err != nil || applied.Routes[0].Stream.FirstContent != 0 {
		t.Errorf("applied: %+v, %v", applied, err)
	}
	if _, err := Derive(s, Options{Quantile: Background}); !strings.Contains(err.Error(), "it takes 2995") {
		t.Errorf("for a background path: %v", err)
	}
}

// TestTwoKinds: Timeouts.Read bounds the headers and each Read of the body. It
// is the larger of the two, and not known unless both are.
func TestTwoKinds(t *testing.T) {
	for name, test := range map[string]struct {
		bodies int
		want   time.Duration
		fails  bool
	}{
		"no bodies":           {0, 2 * time.Second, false},
		"a few in a thousand": {4, 2 * time.Second, false},
		"too few":             {40, 0, true},
		"as many":             {1_000, 6 * time.Second, false},
	} {
		s := new(Snapshot)
		exactly(&s.Sample(chat, Headers).Done, 1_000, time.Second)
		exactly(&s.Sample(chat, Body).Done, test.bodies, 3*time.Second)
		p, err := Derive(s, Options{})
		if got := p.Settings(chat).Timeouts.Read; got != test.want || (err != nil) != test.fails {
			t.Errorf("%s: %v, %v; want %v", name, got, err, test.want)
		}
	}
}

// TestGaps: p99 1.8 s x 5 = 9 s.
func TestGaps(t *testing.T) {
	s := new(Snapshot)
	sample := s.Sample(chat, Gap)
	exactly(&sample.Done, 100_000, 1800*time.Millisecond)
	exactly(&sample.Longest, 1_000, 4*time.Second)
	l := limitOf(t, plan(t, s, Options{}), chat, "Stream.Gap")
	if l.Value != 9*time.Second || l.Safety != 5 || l.Samples != 1_000 {
		t.Errorf("got %+v, want 9s", l)
	}
	// The share is that of streams: of these, exp(-ln(100) 9/4).
	if want := math.Pow(0.01, 9.0/4); l.Kills > 1e-3 || l.KillsAtMost < want {
		t.Errorf("it ends %g to %g of the streams, want %g", l.Kills, l.KillsAtMost, want)
	}
}

// TestTwoPopulations: tokens every 30 ms, and one gap in 250 a pause of
// seconds, which a quantile of all does not see.
func TestTwoPopulations(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	tokens, pauses := logNormal(30*time.Millisecond, 0.4), logNormal(3*time.Second, 0.3)
	s := new(Snapshot)
	sample := s.Sample(chat, Gap)
	for range 600 {
		longest := time.Duration(0)
		for i := range 250 {
			d := tokens(r)
			if i == 100 {
				d = pauses(r)
			}
			sample.Done.Add(d)
			longest = max(longest, d)
		}
		sample.Longest.Add(longest)
	}
	if naive := 5 * sample.Done.Quantile(0.99); naive > time.Second {
		t.Fatalf("a quantile of all would do: %v", naive)
	}
	l := limitOf(t, plan(t, s, Options{}), chat, "Stream.Gap")
	if l.Value < 10*time.Second || l.Value > 16*time.Second || l.Safety != 2 || l.Kills > 0 {
		t.Errorf("got %+v, want twice the p99 of the pauses, 12s", l)
	}
	hasNote(t, l.Notes, "two populations, parted at")
	hasNote(t, l.Notes, "99.6 % of the gaps space tokens, p99 7")
}

// TestOnePopulation: a thick tail is not taken for a second population.
func TestOnePopulation(t *testing.T) {
	for name, draw := range distributions {
		for seed := range uint64(20) {
			r := rand.New(rand.NewPCG(seed, 3))
			for _, n := range []int{100, 1_000, 20_000} {
				if bin, two := parted(histogramOf(n, draw, r)); two {
					t.Errorf("%d of %s are parted at %v", n, name, binAt(bin).From)
				}
			}
		}
	}
}

// TestRarePauses: too few to be a population, they still count as those that a
// stream in so many has.
func TestRarePauses(t *testing.T) {
	s := new(Snapshot)
	sample := s.Sample(chat, Gap)
	exactly(&sample.Done, 50_000, 60*time.Millisecond)
	for range 480 {
		sample.Longest.Add(100 * time.Millisecond)
	}
	for range 20 {
		sample.Done.Add(2 * time.Second)
		sample.Longest.Add(2 * time.Second)
	}
	l := limitOf(t, plan(t, s, Options{}), chat, "Stream.Gap")
	if l.Value < 2*time.Second || l.Kills > 0 {
		t.Errorf("got %+v", l)
	}
}

// TestSoundSettings: what is derived is not refused, even where the quantities
// contradict one another.
func TestSoundSettings(t *testing.T) {
	s := new(Snapshot)
	exactly(&s.Sample(chat, Connect).Done, 500, 3*time.Second) // few calls connect
	exactly(&s.Sample(chat, Call).Done, 5_000, time.Second)
	exactly(&s.Sample(chat, Gap).Done, 5_000, 100*time.Second)
	exactly(&s.Sample(chat, Gap).Longest, 500, 100*time.Second)
	exactly(&s.Sample(chat, ToolGap).Done, 5_000, time.Second)
	exactly(&s.Sample(chat, ToolGap).Longest, 500, time.Second)
	p := plan(t, s, Options{})
	got := p.Settings(chat)
	want := policy.Settings{
		Deadline: 6 * time.Second,
		Timeouts: policy.Timeouts{Connect: 6 * time.Second},
		Stream:   policy.Stream{Gap: 500 * time.Second, PingedGap: 500 * time.Second, ThinkingGap: 500 * time.Second, ToolGap: 500 * time.Second},
	}
	want.Stream.Gap = sensible(want.Stream.Gap)
	want.Stream.PingedGap, want.Stream.ThinkingGap, want.Stream.ToolGap = want.Stream.Gap, want.Stream.Gap, want.Stream.Gap
	if got.Deadline != want.Deadline || got.Timeouts != want.Timeouts || got.Stream.Gap != want.Stream.Gap ||
		got.Stream.PingedGap != want.Stream.PingedGap || got.Stream.ThinkingGap != want.Stream.ThinkingGap || got.Stream.ToolGap != want.Stream.ToolGap {
		t.Errorf("got %+v", got)
	}
	hasNote(t, limitOf(t, p, chat, "Deadline").Notes, "raised from 2s to 6s: it is to leave the time for Timeouts.Connect")
	hasNote(t, p.Advice, "chat: Stream.ThinkingGap is set to 8m30s")
	applied, err := p.Apply(policy.Policy{Routes: []policy.Route{{Pattern: "/chat", Name: "chat"}}})
	if err != nil {
		t.Fatal(err)
	}
	table, err := policy.Compile(applied)
	if err != nil {
		t.Fatal(err)
	}
	line := table.Line("POST", "api.example.com", "/chat")
	if r, err := line.Resolve(policy.Settings{}, p.Override(chat)); err != nil || r.Deadline != want.Deadline {
		t.Errorf("resolved to %+v, %v", r, err)
	}
	if _, err := p.Apply(policy.Policy{}); err == nil || err.Error() != `derive: the policy has no route "chat"` {
		t.Errorf("without the route: %v", err)
	}
}

// TestApplyTakesTheLargest: a route's own settings serve all of its buckets.
func TestApplyTakesTheLargest(t *testing.T) {
	s := new(Snapshot)
	exactly(&s.Sample(chatShort, Headers).Done, 4_000, 2400*time.Millisecond)
	exactly(&s.Sample(chatLong, Headers).Done, 4_000, 9100*time.Millisecond)
	exactly(&s.Sample(Group{}, Headers).Done, 4_000, 20*time.Second)
	old := policy.Policy{Routes: []policy.Route{{Pattern: "/chat", Name: "chat", Settings: policy.Settings{Deadline: 10 * time.Second, Retry: policy.Retry{MaxAttempts: 2}}}}}
	p, err := plan(t, s, Options{}).Apply(old)
	if err != nil {
		t.Fatal(err)
	}
	chat := p.Routes[0]
	if chat.Timeouts.Read != 18*time.Second || chat.Deadline != 18*time.Second || chat.Retry.MaxAttempts != 2 || p.Timeouts.Read != 40*time.Second {
		t.Errorf("got %+v", p)
	}
	if old.Routes[0].Deadline != 10*time.Second {
		t.Error("the policy that was handed in has changed")
	}
}

// TestApplyToNestedRoutes: a route inherits from one that is more general, but
// for what it has too few samples for: that stays what it was.
func TestApplyToNestedRoutes(t *testing.T) {
	s := new(Snapshot)
	exactly(&s.Sample(Group{"all", ""}, Call).Done, 4_000, 500*time.Millisecond)
	exactly(&s.Sample(Group{"slow", ""}, Headers).Done, 4_000, 20*time.Second)
	exactly(&s.Sample(Group{"slow", ""}, Call).Done, 10, 20*time.Second) // too few
	p, err := Derive(s, Options{})
	if few := new(TooFewError); !errors.As(err, &few) {
		t.Fatal(err)
	}
	routes := []policy.Route{{Pattern: "/slow/", Name: "slow"}, {Pattern: "/", Name: "all"}, {Pattern: "GET /slow/x"}}
	applied, err := p.Apply(policy.Policy{Routes: routes})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := policy.Compile(applied); err != nil {
		t.Error(err)
	}
	for i, want := range []time.Duration{time.Minute, time.Second, 0} { // the last inherits
		if got := applied.Routes[i].Deadline; got != want {
			t.Errorf("%s: got %v, want %v", applied.Routes[i].Pattern, got, want)
		}
	}
}

// TestApplyLeavesTheRest: a route with too few samples is not given what others
// need, and a deadline leaves the time for what is not derived.
func TestApplyLeavesTheRest(t *testing.T) {
	s := new(Snapshot)
	for _, name := range []string{"", "quota"} {
		exactly(&s.Sample(Group{name, ""}, Call).Done, 4_000, 50*time.Millisecond)
		exactly(&s.Sample(Group{name, ""}, Headers).Done, 4_000, 50*time.Millisecond)
	}
	exactly(&s.Sample(Group{"reports", ""}, Call).Done, 50, 40*time.Second)
	exactly(&s.Sample(Group{"reports", ""}, Headers).Done, 50, 40*time.Second)
	exactly(&s.Sample(Group{"hasty", ""}, Call).Done, 4_000, 2*time.Second)
	exactly(&s.Sample(Group{"hasty", ""}, Headers).Done, 50, 2*time.Second)
	p, err := Derive(s, Options{})
	if few := new(TooFewError); !errors.As(err, &few) {
		t.Fatal(err)
	}
	applied, err := p.Apply(policy.Policy{
		Settings: policy.Settings{Deadline: 2 * time.Minute},
		Routes: []policy.Route{
			{Pattern: "/reports/", Name: "reports"},
			{Pattern: "/quota/", Name: "quota", Settings: policy.Settings{Rate: policy.Rate{PerSecond: 5, MaxWait: 20 * time.Second}}},
			{Pattern: "/hasty/", Name: "hasty"},
			{Pattern: "/slow/", Name: "slow", Settings: policy.Settings{Timeouts: policy.Timeouts{Attempt: 10 * time.Second}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := policy.Compile(applied); err != nil {
		t.Fatal(err)
	}
	type limits struct{ deadline, read time.Duration }
	of := func(s policy.Settings) limits { return limits{s.Deadline, s.Timeouts.Read} }
	if got, want := of(applied.Settings), (limits{250 * time.Millisecond, 250 * time.Millisecond}); got != want {
		t.Errorf("the policy's own: got %v, want %v", got, want)
	}
	for i, want := range []limits{
		{2 * time.Minute, 30 * time.Second},        // as before
		{20 * time.Second, 250 * time.Millisecond}, // for its MaxWait
		{4 * time.Second, 4 * time.Second},         // the Read of before, which the deadline cuts
		{10 * time.Second, 0},                      // for its Attempt
	} {
		if got := of(applied.Routes[i].Settings); got != want {
			t.Errorf("%s: got %v, want %v", applied.Routes[i].Name, got, want)
		}
	}
}

// TestApplyIsSound: of a policy that compiles, with routes each more special than
// the last, comes one that compiles, and that every bucket's override suits.
func TestApplyIsSound(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	patterns := []string{"/", "/a/", "GET /a/", "GET h.example/a/", "GET h.example/a/b"}
	requests := map[string][3]string{
		"": {"PUT", "h.test", "/z"}, "/": {"PUT", "h.test", "/z"}, "/a/": {"PUT", "h.test", "/a/z"}, "GET /a/": {"GET", "h.test", "/a/z"},
		"GET h.example/a/": {"GET", "h.example", "/a/z"}, "GET h.example/a/b": {"GET", "h.example", "/a/b"},
	}
	some := func(d *time.Duration, most time.Duration) {
		if r.IntN(4) == 0 {
			*d = sensible(time.Duration(r.Int64N(int64(most)))) + 50*time.Millisecond
		}
	}
	settings := func() (s policy.Settings) {
		some(&s.Deadline, time.Minute)
		for _, d := range []*time.Duration{
			&s.Timeouts.Pool, &s.Timeouts.Connect, &s.Timeouts.Write, &s.Timeouts.Read, &s.Timeouts.Attempt,
			&s.Stream.FirstContent, &s.Rate.MaxWait, &s.InFlight.MaxWait,
		} {
			some(d, 30*time.Second)
		}
		some(&s.Retry.MinAttempt, 4*time.Second)
		some(&s.Hedge.Delay, 4*time.Second)
		for _, d := range []*time.Duration{&s.Stream.Gap, &s.Stream.PingedGap, &s.Stream.ThinkingGap, &s.Stream.ToolGap} {
			some(d, 2*time.Minute)
		}
		s.Stream.Enabled = policy.Toggle(r.IntN(2))
		s.Rate.PerSecond, s.InFlight.Max = float64(r.IntN(2)), r.IntN(2)
		return s
	}
	var samples []*Histogram
	for _, p99 := range []time.Duration{1, 100, 2_000, 30_000} {
		h := new(Histogram)
		exactly(h, 300, p99*time.Millisecond)
		samples = append(samples, h)
	}
	few := new(Histogram)
	exactly(few, 20, time.Second)
	for tried := 0; tried < 10; {
		p := policy.Policy{Settings: settings()}
		for _, pattern := range patterns {
			p.Routes = append(p.Routes, policy.Route{Pattern: pattern, Settings: settings()})
		}
		table, err := policy.Compile(p)
		if err != nil {
			continue
		}
		tried++
		s := new(Snapshot)
		for _, route := range append([]string{""}, patterns...) {
			for _, bucket := range []string{"", "b"} {
				for _, q := range quantities {
					h := append(samples, few, new(Histogram), new(Histogram))[r.IntN(len(samples)+3)]
					if slices.Contains(gaps, q) {
						h = samples[r.IntN(len(samples))]
					}
					sample := s.Sample(Group{route, bucket}, q)
					sample.Done.Merge(h)
					sample.Longest.Merge(h)
				}
			}
		}
		resolve := func(t *policy.Table, route string, o *policy.Override) (policy.Settings, error) {
			of := requests[route]
			got, err := t.Line(of[0], of[1], of[2]).Resolve(policy.Settings{}, o)
			if err != nil {
				return policy.Settings{}, err
			}
			return got.Settings, nil
		}
		plan, _ := Derive(s, Options{Present: func(g Group) policy.Settings {
			present, err := resolve(table, g.Route, nil)
			if err != nil {
				t.Fatal(err)
			}
			return present
		}})
		applied, err := plan.Apply(p)
		if err != nil {
			t.Fatal(err)
		}
		sound, err := policy.Compile(applied)
		if err != nil {
			t.Errorf("of %+v: %v", p, err)
			continue
		}
		for g := range plan.settings {
			if _, err := resolve(sound, g.Route, plan.Override(g)); g.Route != "" && err != nil {
				t.Errorf("%v: %v", g, err)
			}
		}
	}
}

// TestSecondAttempt: a deadline that retries cannot use says so.
func TestSecondAttempt(t *testing.T) {
	s := new(Snapshot)
	exactly(&s.Sample(chat, Headers).Done, 4_000, 2*time.Second)
	exactly(&s.Sample(chat, Call).Done, 4_000, 2*time.Second)
	o := Options{Present: func(Group) policy.Settings { return policy.Defaults() }}
	l := limitOf(t, plan(t, s, o), chat, "Deadline")
	hasNote(t, l.Notes, "it leaves no time for a second attempt after Timeouts.Read; 8s would")
	o.Present = nil
	if l := limitOf(t, plan(t, s, o), chat, "Deadline"); slices.ContainsFunc(l.Notes, func(n string) bool { return strings.Contains(n, "attempt") }) {
		t.Errorf("nothing is known of retries: %q", l.Notes)
	}
	delete(s.groups[chat].samples, Headers)
	exactly(&s.Sample(Group{Other, ""}, Call).Done, 4_000, 2*time.Second)
	if _, err := plan(t, s, Options{}).Apply(policy.Policy{Routes: []policy.Route{{Pattern: "/", Name: "chat"}}}); err != nil {
		t.Errorf("routes beyond those kept apart: %v", err)
	}
}

func TestLeast(t *testing.T) {
	s := new(Snapshot)
	exactly(&s.Sample(chat, Headers).Done, 1_000, time.Millisecond)
	o := Options{Present: func(Group) policy.Settings {
		return policy.Settings{Timeouts: policy.Timeouts{Read: 2100 * time.Microsecond}}
	}}
	if l := limitOf(t, plan(t, s, o), chat, "Timeouts.Read"); l.Value != 250*time.Millisecond {
		t.Errorf("got %v", l.Value)
	}
	if l := limitOf(t, plan(t, s, Options{Least: policy.Off}), chat, "Timeouts.Read"); l.Value != 2*time.Millisecond {
		t.Errorf("got %v", l.Value)
	}
}

// TestLeastIsKept: what is in force is lowered no further than is certain, and not
// further than the least either.
func TestLeastIsKept(t *testing.T) {
	o := Options{Present: func(Group) policy.Settings {
		return policy.Settings{Timeouts: policy.Timeouts{Connect: 10 * time.Second}}
	}}
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		s := new(Snapshot)
		for range 500 {
			s.Sample(chat, Connect).Done.Add(time.Duration(1e5 * math.Exp(2*random.NormFloat64())))
		}
		if l := limitOf(t, plan(t, s, o), chat, "Timeouts.Connect"); l.Value < 250*time.Millisecond {
			t.Fatalf("seed %d: the limit is %v: %v", seed, l.Value, l.Notes)
		}
	}
}

// TestPicture: each limit has its panel, with the quantile that it was built on.
func TestPicture(t *testing.T) {
	s := new(Snapshot)
	for _, q := range []Quantity{Connect, Body, FirstContent, PingedGap, Opening} {
		exactly(&s.Sample(chat, q).Done, 4_000, time.Second)
		exactly(&s.Sample(chat, q).Longest, 4_000, time.Second)
	}
	p := plan(t, s, Options{Quantile: Background})
	svg, err := p.Draw(s)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(svg), ">p99.9 "); n != len(p.Limits) || n != 5 {
		t.Errorf("%d panels of %d limits have the quantile", n, len(p.Limits))
	}
}

// TestInvisibleNames: what a name has that is not to be seen does nothing to a
// terminal, a table or a picture.
func TestInvisibleNames(t *testing.T) {
	s := new(Snapshot)
	exactly(&s.Sample(Group{"a\x1b[2J\n<b>\ufffe", ""}, Call).Done, 4_000, time.Second)
	p := plan(t, s, Options{})
	if text := p.String(); !strings.Contains(text, `"a\x1b[2J\n<b>\ufffe"  Deadline`) {
		t.Errorf("got\n%q", text)
	}
	svg, err := p.Draw(s)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(svg)); err == nil; {
		_, err = d.Token()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("the picture is none: %v", err)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{Quantile: 1}, {Quantile: 0.4}, {Quantile: math.NaN()}, {Safety: 0.5}, {Safety: 11}, {GapSafety: -1}, {Confidence: 1},
		{Least: -2}, {Least: math.MinInt64}, {Least: 2 * time.Hour},
	} {
		if p, err := Derive(new(Snapshot), o); err == nil || p != nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	if p, err := Derive(new(Snapshot), Options{}); err != nil || len(p.Limits) != 0 {
		t.Errorf("of nothing: %v, %v", p, err)
	}
}
