package layers

import (
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/policy"
)

// TestLateWaiters: waiters that come to their turns late, as on a busy machine,
// are granted or refused one by one, and nobody behind them is forgotten.
func TestLateWaiters(t *testing.T) {
	mock := clock.NewMock()
	env := (&Env{Clock: mock}).ready()
	b := env.newBucket(policy.Rate{PerSecond: 1, Burst: 1})
	if !b.Take(1) {
		t.Fatal("the first turn is not there")
	}
	at := func(d time.Duration) time.Time { return env.epoch.Add(d) }
	first := b.Join(1, time.Time{}, env.ticket(), false)
	hasty := b.Join(1, at(2500*time.Millisecond), env.ticket(), false)
	last := b.Join(1, time.Time{}, env.ticket(), false)
	mock.Set(at(3 * time.Second)) // and nobody has asked meanwhile
	for name, want := range map[string]struct {
		turn    Turn
		refused bool
	}{"first": {first, false}, "hasty": {hasty, true}, "last": {last, false}} {
		over, refused, _ := want.turn.Due()
		for range 3 { // until those before have asked too
			first.Due()
			over, refused, _ = want.turn.Due()
		}
		if !over || refused > 0 != want.refused {
			t.Errorf("the %s: over is %v, refused %v", name, over, refused)
		}
	}
}

// waiting returns a bucket of a turn a second, of which none is left, and who waits for
// the next.
func waiting(keeps bool) (*clock.Mock, *bucket, Turn) {
	mock := clock.NewMock()
	env := (&Env{Clock: mock}).ready()
	b := env.newBucket(policy.Rate{PerSecond: 1, Burst: 1})
	b.Take(1)
	return mock, b, b.Join(1, time.Time{}, env.ticket(), keeps)
}

// TestDueHeadIsNotChargedTwice: what touches a bucket between a turn and its
// waiter's coming for it costs nothing.
func TestDueHeadIsNotChargedTwice(t *testing.T) {
	for name, touch := range map[string]func(b *bucket){
		"refund":     func(b *bucket) { b.Refund(0) },
		"set":        func(b *bucket) { b.Set(policy.Rate{PerSecond: 1, Burst: 1}) },
		"join first": func(b *bucket) { b.Join(1, time.Time{}, 0, false).Leave() },
		"leave":      func(b *bucket) { b.Join(1, time.Time{}, b.env.ticket(), false).Leave() },
	} {
		for _, keeps := range []bool{false, true} {
			mock, b, turn := waiting(keeps)
			mock.Add(time.Second + time.Millisecond)
			touch(b)
			if over, refused, again := turn.Due(); !over || refused > 0 {
				t.Errorf("%s, keeps %v: the turn is put off to %v", name, keeps, again)
			}
			if !turn.Take() {
				t.Errorf("%s, keeps %v: the turn is lost", name, keeps)
			}
			if wait := b.Predict(1); wait > time.Second {
				t.Errorf("%s, keeps %v: the next turn comes in %v", name, keeps, wait)
			}
		}
	}
}

// TestTurnIsTakenOnce: once it has come, and not before.
func TestTurnIsTakenOnce(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		mock, _, turn := waiting(keeps)
		if turn.Take() {
			t.Errorf("keeps %v: it is taken before it came", keeps)
		}
		mock.Add(time.Second)
		turn.Due()
		if !turn.Take() {
			t.Errorf("keeps %v: it is lost", keeps)
		}
		if turn.Take() {
			t.Errorf("keeps %v: it is taken twice", keeps)
		}
	}
}

// TestRefundIsForTheHead: whoever waits first goes at once with a turn that is given
// back.
func TestRefundIsForTheHead(t *testing.T) {
	env := (&Env{Clock: clock.NewMock()}).ready()
	b := env.newBucket(policy.Rate{PerSecond: 1, Burst: 2})
	b.Take(2)
	turn := b.Join(2, time.Time{}, env.ticket(), false)
	b.Refund(1)
	if _, _, again := turn.Due(); !again.Equal(env.epoch.Add(time.Second)) {
		t.Errorf("with half of it back, it comes at %v", again)
	}
	for len(turn.Signal()) > 0 {
		<-turn.Signal()
	}
	b.Refund(1)
	if len(turn.Signal()) == 0 {
		t.Error("with all of it back, whoever waits is not told")
	}
	if over, _, _ := turn.Due(); !over {
		t.Error("with all of it back, it has not come")
	}
}

// TestRefundIsWhole: a turn that is given back is there, however much of one
// came meanwhile.
func TestRefundIsWhole(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		env := (&Env{Clock: c}).ready()
		b := env.newBucket(policy.Rate{PerSecond: 0.1, Burst: 1})
		for i := range 10_000 {
			if !b.Take(1) {
				t.Fatalf("it is not, the %dth time", i)
			}
			c.Add(time.Duration(i))
			b.Refund(1)
		}
	})
}
