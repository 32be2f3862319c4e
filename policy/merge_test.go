package policy

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestWithLaws(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		a, b, c := randomSettings(rng, 4), randomSettings(rng, 4), randomSettings(rng, 4)
		if x, y := a.With(b).With(c), a.With(b.With(c)); !equal(x, y) {
			t.Fatalf("not associative:\na %v\nb %v\nc %v\n(ab)c %v\na(bc) %v", flattenRaw(a), flattenRaw(b), flattenRaw(c), flattenRaw(x), flattenRaw(y))
		}
		// Zero changes nothing, on either side; With only writes out switches.
		x := Settings{}.With(a)
		if y := a.With(Settings{}); !equal(x, y) {
			t.Fatalf("zero is no identity:\n0a %v\na0 %v", flattenRaw(x), flattenRaw(y))
		}
		if y := x.With(Settings{}); !equal(x, y) {
			t.Fatalf("not canonical:\n%v\n%v", flattenRaw(x), flattenRaw(y))
		}
		if y := a.With(a); !equal(x, y) {
			t.Fatalf("not idempotent:\n%v\n%v", flattenRaw(x), flattenRaw(y))
		}
	}
}

func TestWith(t *testing.T) {
	tests := []struct {
		name             string
		under, over, sum Settings
	}{
		{
			"a field at a time",
			Settings{Deadline: 1, Timeouts: Timeouts{Read: 2}},
			Settings{Timeouts: Timeouts{Write: 3, Read: 4}},
			Settings{Deadline: 1, Timeouts: Timeouts{Read: 4, Write: 3}},
		},
		{
			"Off is a value like others",
			Settings{Deadline: 1},
			Settings{Deadline: Off},
			Settings{Deadline: Off},
		},
		{
			"a main number enables",
			Settings{InFlight: InFlight{Enabled: Off}},
			Settings{InFlight: InFlight{Max: 3}},
			Settings{InFlight: InFlight{Enabled: On, Max: 3}},
		},
		{
			"unless it is switched off beside it",
			Settings{},
			Settings{Rate: Rate{Enabled: Off, PerSecond: 3}},
			Settings{Rate: Rate{Enabled: Off, PerSecond: 3}},
		},
		{
			"another number does not",
			Settings{Rate: Rate{Enabled: Off}},
			Settings{Rate: Rate{Burst: 3}},
			Settings{Rate: Rate{Enabled: Off, Burst: 3}},
		},
		{
			"a main number that is Off keeps the inherited one for later",
			Settings{Hedge: Hedge{Delay: 5}},
			Settings{Hedge: Hedge{Delay: Off}},
			Settings{Hedge: Hedge{Enabled: Off, Delay: 5}},
		},
		{
			"off, and on again",
			Settings{Retry: Retry{MaxAttempts: 4}}.With(Settings{Retry: Retry{Enabled: Off}}),
			Settings{Retry: Retry{Enabled: On}},
			Settings{Retry: Retry{Enabled: On, MaxAttempts: 4}},
		},
		{
			"Ratio drops Failures",
			Settings{Breaker: Breaker{Failures: 5, Open: 7}},
			Settings{Breaker: Breaker{Ratio: 0.5}},
			Settings{Breaker: Breaker{Enabled: On, Ratio: 0.5, Open: 7}},
		},
		{
			"Failures drops Ratio",
			Settings{Breaker: Breaker{Ratio: 0.5}},
			Settings{Breaker: Breaker{Failures: 5}},
			Settings{Breaker: Breaker{Enabled: On, Failures: 5}},
		},
		{
			"one of them Off beside the other means the other",
			Settings{Breaker: Breaker{Ratio: 0.5}},
			Settings{Breaker: Breaker{Failures: 5, Ratio: Off}},
			Settings{Breaker: Breaker{Enabled: On, Failures: 5}},
		},
		{
			"in either way",
			Settings{Breaker: Breaker{Failures: 5}},
			Settings{Breaker: Breaker{Failures: Off, Ratio: 0.5}},
			Settings{Breaker: Breaker{Enabled: On, Ratio: 0.5}},
		},
		{
			"both at once are kept, to be refused",
			Settings{},
			Settings{Breaker: Breaker{Failures: 5, Ratio: 0.5}},
			Settings{Breaker: Breaker{Enabled: On, Failures: 5, Ratio: 0.5}},
		},
		{
			"budgets merge by name",
			Settings{Budgets: map[string]Rate{"a": {PerSecond: 1, Burst: 2}, "b": {PerSecond: 3}}},
			Settings{Budgets: map[string]Rate{"a": {Burst: 4}, "c": {PerSecond: 5}}},
			Settings{Budgets: map[string]Rate{"a": {Enabled: On, PerSecond: 1, Burst: 4}, "b": {Enabled: On, PerSecond: 3}, "c": {Enabled: On, PerSecond: 5}}},
		},
		{
			"a nil function inherits",
			Settings{Rate: Rate{Key: ByRoute}},
			Settings{Rate: Rate{Burst: 1}},
			Settings{Rate: Rate{Key: ByRoute, Burst: 1}},
		},
		{
			"statuses are replaced as a whole",
			Settings{Retry: Retry{Statuses: []int{500, 503}}},
			Settings{Retry: Retry{Statuses: []int{}}},
			Settings{Retry: Retry{Statuses: []int{}}},
		},
		{
			"a stream is enabled by its switch alone",
			Settings{},
			Settings{Stream: Stream{FirstContent: time.Second}},
			Settings{Stream: Stream{FirstContent: time.Second}},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := test.under.With(test.over); !equal(got, test.sum) {
				t.Errorf("got %v\nwant %v", flattenRaw(got), flattenRaw(test.sum))
			}
		})
	}
}

func TestWithSharesNothing(t *testing.T) {
	a := Settings{Retry: Retry{Statuses: []int{500}}, Budgets: map[string]Rate{"a": {Burst: 1}}}
	b := a.With(Settings{Budgets: map[string]Rate{"b": {Burst: 1}}})
	b.Retry.Statuses[0] = 501
	b.Budgets["a"] = Rate{Burst: 2}
	if a.Retry.Statuses[0] != 500 || len(a.Budgets) != 1 || a.Budgets["a"].Burst != 1 {
		t.Errorf("With changed its receiver to %v", flattenRaw(a))
	}
}
