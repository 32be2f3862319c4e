package derive

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir/policy"
)

// arrive has calls begin at a rate for a while.
func arrive(s *Snapshot, g Group, from time.Time, perSecond int, span time.Duration) {
	a := &s.record(g).arrivals
	for d := time.Duration(0); d < span; d += time.Second / time.Duration(perSecond) {
		a.add(from.Add(d))
	}
}

var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// TestLoads: 50/s x 30 s = 1500 in flight, against InFlight.Max 200.
func TestLoads(t *testing.T) {
	s := new(Snapshot)
	arrive(s, chatShort, midnight, 10, 3*time.Minute)
	arrive(s, chatLong, midnight, 40, 2*time.Minute)
	arrive(s, Group{"search", ""}, midnight, 25, 2*time.Minute)
	exactly(&s.Sample(Group{"quiet", ""}, Call).Done, 10, time.Second) // saved without arrivals
	settings := func(g Group) policy.Settings {
		if g.Route == "chat" {
			return policy.Settings{Deadline: 30 * time.Second, InFlight: policy.InFlight{Enabled: policy.On, Max: 200}}
		}
		return policy.Settings{Deadline: 4 * time.Second, Rate: policy.Rate{PerSecond: 20}}
	}
	loads := s.Loads(settings, policy.Room{Files: 1024, MaxConnsPerHost: 1000, Memory: 1 << 30, PerCall: 1 << 10})
	want := []Load{
		{
			Route: "chat", Occupancy: policy.Occupancy{PerSecond: 50, Stay: 30 * time.Second},
			Excess: []string{
				"50/s x 30s = 1500 in flight at worst, against InFlight.Max 200; a deadline of 4s would fit",
				"50/s x 30s = 1500 in flight at worst, against the base's MaxConnsPerHost 1000; a deadline of 20s would fit",
				"50/s x 30s = 1500 in flight at worst, against a file descriptor limit of 1024; a deadline of 20.48s would fit",
			},
		},
		{Route: "search", Occupancy: policy.Occupancy{PerSecond: 20, Stay: 4 * time.Second}},
		{
			All: true, Occupancy: policy.Occupancy{PerSecond: 70, Stay: 22600 * time.Millisecond},
			Excess: []string{"70/s x 22.6s = 1582 in flight at worst, against a file descriptor limit of 1024; a deadline of 14.628s would fit"},
		},
	}
	if !slices.EqualFunc(loads, want, func(a, b Load) bool {
		return a.Route == b.Route && a.All == b.All && a.Occupancy == b.Occupancy && slices.Equal(a.Excess, b.Excess)
	}) {
		t.Errorf("got\n%+v\nwant\n%+v", loads, want)
	}
}

// TestLoadOfStreams: the deadline of a stream bounds only its opening.
func TestLoadOfStreams(t *testing.T) {
	s := new(Snapshot)
	arrive(s, chat, midnight, 10, 2*time.Minute)
	s.Sample(chat, Stream).Done.Add(90 * time.Second)
	s.Sample(chat, Stream).Cut.Add(time.Minute)
	got := s.Loads(func(Group) policy.Settings { return policy.Settings{Deadline: time.Second} }, policy.Room{})
	if want := (policy.Occupancy{PerSecond: 10, Stay: 90 * time.Second}); got[0].Occupancy != want {
		t.Errorf("got %+v, want %+v", got[0].Occupancy, want)
	}
}

func TestArrivals(t *testing.T) {
	for name, test := range map[string]struct {
		fill func(*arrivals)
		want float64
	}{
		"none":        {func(*arrivals) {}, 0},
		"one":         {func(a *arrivals) { a.add(midnight) }, 0},
		"one instant": {func(a *arrivals) { a.add(midnight); a.add(midnight) }, 0},
		"less than a minute": {func(a *arrivals) {
			for i := range 101 {
				a.add(midnight.Add(time.Duration(i) * 100 * time.Millisecond))
			}
		}, 10},
		"a burst in a quiet day": {func(a *arrivals) {
			for i := range 24 * 60 {
				a.add(midnight.Add(time.Duration(i) * time.Minute))
			}
			for range 599 {
				a.add(midnight.Add(12*time.Hour + 30*time.Second))
			}
		}, 10},
		"a burst long ago": {func(a *arrivals) {
			for range 600 {
				a.add(midnight)
			}
			for i := range 26 * 60 {
				a.add(midnight.Add(time.Duration(i) * time.Minute))
			}
		}, 1.0 / 60},
	} {
		var a arrivals
		test.fill(&a)
		if got := a.perSecond(); got != test.want {
			t.Errorf("%s: %g a second, want %g", name, got, test.want)
		}
	}
}

// TestArrivalsAreBounded: also where events come out of order.
func TestArrivalsAreBounded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var a arrivals
	for i := range 100_000 {
		a.add(midnight.Add(time.Duration(i)*time.Minute - time.Duration(r.Int64N(int64(time.Hour)))))
	}
	if n := len(a.minutes); n > keptMinutes {
		t.Errorf("%d minutes are kept", n)
	}
	if !slices.IsSortedFunc(a.minutes, func(a, b arrived) int { return cmp.Compare(a.minute, b.minute) }) {
		t.Error("they are not in order")
	}
}

func TestFiles(t *testing.T) {
	if n := Files(); n < 0 {
		t.Errorf("%d descriptors", n)
	}
}
