package layers

import (
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/weir-go/weir/policy"
)

// TestProbeReadmitted: a probe that asks again, though nothing changed after all, is no
// second one.
func TestProbeReadmitted(t *testing.T) {
	c := clock.NewMock()
	e := (&Env{Clock: c}).ready()
	b := newCircuit(e, policy.StateID{}, stateKey{}, policy.Breaker{Failures: 1, Open: 10 * time.Second, OpenMax: time.Minute, Probes: 1, OpenJitter: -1})
	ctx := t.Context()
	var p Pass
	b.Admit(ctx, false, &p)
	b.Settle(ctx, &p, VerdictFailure)
	c.Add(10 * time.Second)
	var probe Pass
	if _, ok := b.Admit(ctx, false, &probe); !ok {
		t.Fatal("no probe")
	}
	b.Force(StateOpen)
	if !b.Stale(&probe) {
		t.Fatal("not stale")
	}
	b.Force(0) // before the probe asks again
	b.Admit(ctx, false, &probe)
	b.Settle(ctx, &probe, VerdictNeutral) // it is refused, and gives back what it has
	for range 5 {
		c.Add(time.Hour)
		var next Pass
		if _, ok := b.Admit(ctx, false, &next); ok {
			return
		}
	}
	t.Error("no probe is ever admitted again")
}

// TestResultOfAnEarlierState: a circuit that made room passes on no more than it would
// have counted.
func TestResultOfAnEarlierState(t *testing.T) {
	c := clock.NewMock()
	e := (&Env{Clock: c}).ready()
	set := policy.Breaker{Failures: 1, Open: time.Second, OpenMax: time.Second, Probes: 1, OpenJitter: -1}
	b, heir := newCircuit(e, policy.StateID{}, stateKey{}, set), newCircuit(e, policy.StateID{}, stateKey{}, set)
	ctx := t.Context()
	var old, trips, probe, last Pass
	for _, p := range []*Pass{&old, &trips} {
		b.Admit(ctx, false, p)
	}
	b.Settle(ctx, &trips, VerdictFailure)
	c.Add(time.Second)
	b.Admit(ctx, false, &probe)
	b.Settle(ctx, &probe, VerdictSuccess)
	b.Admit(ctx, false, &last)
	b.madeRoom(func(bool) Circuit { return heir })
	b.Settle(ctx, &old, VerdictFailure)
	if _, open := heir.Open(); open {
		t.Error("what was sent before the circuit opened and closed opens the next")
	}
	b.Settle(ctx, &last, VerdictFailure)
	if _, open := heir.Open(); !open {
		t.Error("what was sent since does not open it")
	}
}

// TestProbeThatLostItsPlace: a probe whose lease is over, and whose place another took at
// that very instant, does not open the circuit any more.
func TestProbeThatLostItsPlace(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		c := clock.NewMock()
		e := (&Env{Clock: c}).ready()
		b := newCircuit(e, policy.StateID{}, stateKey{}, policy.Breaker{Failures: 1, Open: time.Second, OpenMax: time.Minute, Probes: 1, OpenJitter: -1})
		ctx := t.Context()
		var trips, probe, next Pass
		b.Admit(ctx, false, &trips)
		b.Settle(ctx, &trips, VerdictFailure)
		c.Add(time.Second)
		b.Admit(ctx, false, &probe)
		b.Sent(&probe)
		c.Add(time.Second)
		if replaced {
			if _, ok := b.Admit(ctx, false, &next); !ok {
				t.Fatal("no other probe after the lease")
			}
		}
		b.Settle(ctx, &probe, VerdictFailure)
		if _, open := b.Open(); open == replaced {
			t.Errorf("replaced %v: open is %v", replaced, open)
		}
	}
}

// TestForcedClosed: what comes back while a circuit is forced closed counts for nothing,
// also if it was sent before.
func TestForcedClosed(t *testing.T) {
	e := (&Env{Clock: clock.NewMock()}).ready()
	b := newCircuit(e, policy.StateID{}, stateKey{}, policy.Breaker{Failures: 1, Open: time.Second, OpenMax: time.Minute, Probes: 1, OpenJitter: -1})
	ctx := t.Context()
	var before, after Pass
	b.Admit(ctx, false, &before)
	b.Force(StateClosed)
	b.Settle(ctx, &before, VerdictFailure)
	b.Force(0)
	if _, open := b.Open(); open {
		t.Error("a failure while it was forced closed opens it")
	}
	b.Admit(ctx, false, &after)
	b.Settle(ctx, &after, VerdictFailure)
	if _, open := b.Open(); !open {
		t.Error("a failure afterwards does not")
	}
}

// TestCircuitRests: a circuit that has counted something is not idle, and one that is
// open, or forced, must be kept.
func TestCircuitRests(t *testing.T) {
	e := (&Env{Clock: clock.NewMock()}).ready()
	b := newCircuit(e, policy.StateID{}, stateKey{}, policy.Breaker{Failures: 2, Open: time.Second, OpenMax: time.Minute, Probes: 1, OpenJitter: -1})
	fail := func() {
		var p Pass
		b.Admit(t.Context(), false, &p)
		b.Settle(t.Context(), &p, VerdictFailure)
	}
	for _, step := range []struct {
		name       string
		do         func()
		idle, free bool
	}{
		{"new", func() {}, true, true},
		{"forced closed", func() { b.Force(StateClosed) }, false, false},
		{"left to itself", func() { b.Force(0) }, true, true},
		{"after a failure", fail, false, true},
		{"open", fail, false, false},
	} {
		step.do()
		if idle, free := b.Rests(); idle != step.idle || free != step.free {
			t.Errorf("%s: idle %v, free %v", step.name, idle, free)
		}
	}
}

// TestBreakerOfKey: the key of a circuit of a store is the one that the store was asked for.
func TestBreakerOfKey(t *testing.T) {
	for _, key := range []string{"http://a.test:81", "a tenant"} {
		if got := BreakerOf(nil, policy.StateID{}, key, policy.Breaker{}).Key(); got != key {
			t.Errorf("got %q, want %q", got, key)
		}
	}
}
