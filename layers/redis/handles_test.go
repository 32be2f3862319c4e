package redis_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/layers/redis"
	"github.com/weir-go/weir/policy"
)

// process makes handles as one process has them.
type process struct {
	bucket  func(key string, r policy.Rate) layers.Bucket
	circuit func(key string, b policy.Breaker) layers.Circuit
}

func of(s *redis.Store) process {
	return process{
		func(key string, r policy.Rate) layers.Bucket {
			return s.Bucket(policy.StateID{Section: "Rate"}, key, r)
		},
		func(key string, b policy.Breaker) layers.Circuit {
			return s.Circuit(policy.StateID{Section: "Breaker"}, key, b)
		},
	}
}

// TestHandles: what stands behind the interfaces behaves alike.
func TestHandles(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	env := new(layers.Env)
	for name, p := range map[string]process{
		"local": {
			func(_ string, r policy.Rate) layers.Bucket { return env.LocalBucket(r) },
			func(_ string, b policy.Breaker) layers.Circuit { return env.LocalCircuit(b) },
		},
		"redis": of(s.store()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testHandles(t, p)
		})
	}
}

// wait waits for a turn as a send does.
func wait(t testing.TB, turn layers.Turn) (refused time.Duration) {
	t.Helper()
	end := time.After(10 * time.Second)
	for {
		over, refused, again := turn.Due()
		if over {
			return refused
		}
		var timer <-chan time.Time
		if !again.IsZero() {
			timer = time.After(time.Until(again))
		}
		select {
		case <-timer:
		case <-turn.Signal():
		case <-end:
			t.Fatal("no turn in 10 s")
		}
	}
}

func granted(t testing.TB, turn layers.Turn) {
	t.Helper()
	if refused := wait(t, turn); refused != 0 {
		t.Fatalf("refused for %v", refused)
	}
	if !turn.Take() {
		t.Fatal("a turn that is there cannot be taken")
	}
}

func over(turn layers.Turn) bool { over, _, _ := turn.Due(); return over }

func testHandles(t *testing.T, p process) {
	in := func(d time.Duration) time.Time { return time.Now().Add(d) }
	for _, c := range []struct {
		what string
		rate policy.Rate
		do   func(t *testing.T, b layers.Bucket)
	}{
		{"the burst and no more", policy.Rate{PerSecond: 0.1, Burst: 3}, func(t *testing.T, b layers.Bucket) {
			for i := range 4 {
				equal(t, "there is one", b.Take(1), i < 3)
			}
			within(t, "the wait", b.Predict(1), 9*time.Second, 10*time.Second)
			within(t, "the wait of two", b.Predict(2), 19*time.Second, 20*time.Second)
		}},
		{"a cost", policy.Rate{PerSecond: 0.1, Burst: 10}, func(t *testing.T, b layers.Bucket) {
			equal(t, "7 of 10", b.Take(7), true)
			equal(t, "7 of 3", b.Take(7), false)
			equal(t, "3 of 3", b.Take(3), true)
			within(t, "the wait of 5", b.Predict(5), 49*time.Second, 50*time.Second)
		}},
		{"a cost of thousands", policy.Rate{PerSecond: 100_000, Burst: 50_000}, func(t *testing.T, b layers.Bucket) {
			equal(t, "there are 30,000", b.Take(30_000), true)
			b.Refund(10_000)
			granted(t, b.Join(50_000, time.Time{}, 1, false))
			b.Refund(20_000)
			granted(t, b.Join(50_000, time.Time{}, 2, false))
			equal(t, "there are as many", b.Take(50_000), false)
		}},
		{"a refund", policy.Rate{PerSecond: 0.1, Burst: 1}, func(t *testing.T, b layers.Bucket) {
			for range 3 {
				equal(t, "there is one", b.Take(1), true)
				b.Refund(1)
			}
			equal(t, "there is one", b.Take(1), true)
			equal(t, "there is another", b.Take(1), false)
		}},
		{"a refund swells no burst", policy.Rate{PerSecond: 1000, Burst: 2}, func(t *testing.T, b layers.Bucket) {
			equal(t, "there are two", b.Take(2), true)
			time.Sleep(20 * time.Millisecond)
			b.Set(policy.Rate{PerSecond: 0.1, Burst: 2})
			b.Refund(2)
			n := 0
			for range 3 {
				if b.Take(1) {
					n++
				}
			}
			equal(t, "there are", n, 2)
		}},
		{"more than the burst", policy.Rate{PerSecond: 1, Burst: 3}, func(t *testing.T, b layers.Bucket) {
			equal(t, "there are 4", b.Take(4), false)
			equal(t, "refused for", wait(t, b.Join(4, time.Time{}, 1, false)), time.Duration(math.MaxInt64))
		}},
		{"refused at once", policy.Rate{PerSecond: 0.1, Burst: 1}, func(t *testing.T, b layers.Bucket) {
			b.Take(1)
			within(t, "refused for", wait(t, b.Join(1, in(time.Second), 1, false)), 9*time.Second, 10*time.Second)
			first := b.Join(1, in(15*time.Second), 2, false)
			within(t, "the next is refused for", wait(t, b.Join(1, in(15*time.Second), 3, false)), 19*time.Second, 20*time.Second)
			equal(t, "the first has its turn", over(first), false)
			first.Leave()
			b.Join(1, in(15*time.Second), 4, false).Leave()
		}},
		{"no wait for what is there", policy.Rate{PerSecond: 0.1, Burst: 1}, func(t *testing.T, b layers.Bucket) {
			granted(t, b.Join(1, in(time.Millisecond), 1, false))
			equal(t, "there is another", b.Take(1), false)
		}},
		{"first come, first served", policy.Rate{PerSecond: 50, Burst: 1}, func(t *testing.T, b layers.Bucket) {
			b.Take(1)
			var list []layers.Turn
			for i := range 8 {
				list = append(list, b.Join(1, time.Time{}, uint64(i+10), false))
			}
			old := b.Join(1, time.Time{}, 5, false) // its place was kept
			equal(t, "there is one for who does not wait", b.Take(1), false)
			granted(t, old)
			list[3].Leave()
			for i, turn := range list {
				if i == 3 {
					continue
				}
				if last := list[len(list)-1]; i < len(list)-2 && over(last) {
					t.Errorf("turn %d was overtaken", i)
				}
				granted(t, turn)
			}
		}},
		{"who waits is not woken for nothing", policy.Rate{PerSecond: 5, Burst: 1}, func(t *testing.T, b layers.Bucket) {
			b.Take(1)
			turn, asked := b.Join(1, time.Time{}, 1, false), 0
			for done := false; !done; asked++ {
				over, _, again := turn.Due()
				timer := time.After(time.Minute)
				if !again.IsZero() {
					timer = time.After(time.Until(again))
				}
				if done = over; !done {
					select {
					case <-timer:
					case <-turn.Signal():
					}
				}
			}
			if asked > 8 {
				t.Errorf("it was asked %d times whether the turn is due", asked)
			}
		}},
		{"one that leaves costs nobody", policy.Rate{PerSecond: 1, Burst: 1}, func(t *testing.T, b layers.Bucket) {
			b.Take(1)
			began := time.Now()
			list := []layers.Turn{b.Join(1, time.Time{}, 1, false), b.Join(1, time.Time{}, 2, false), b.Join(1, time.Time{}, 3, false)}
			list[0].Leave()
			list[1].Leave()
			granted(t, list[2])
			if took := time.Since(began); took > 1900*time.Millisecond {
				t.Errorf("it waited for %v", took)
			}
		}},
		{"a place that is kept", policy.Rate{PerSecond: 20, Burst: 2}, func(t *testing.T, b layers.Bucket) {
			b.Take(2)
			kept, next := b.Join(1, time.Time{}, 1, true), b.Join(1, time.Time{}, 2, false)
			equal(t, "refused for", wait(t, kept), 0)
			equal(t, "the next has a turn", over(next), false)
			equal(t, "it is taken", kept.Take(), true)
			granted(t, next)
		}},
		{"a pause", policy.Rate{PerSecond: 5, Burst: 5}, func(t *testing.T, b layers.Bucket) {
			end := in(600 * time.Millisecond)
			b.Pause(end)
			b.Pause(in(100 * time.Millisecond)) // never shortened
			equal(t, "there is one", b.Take(1), false)
			within(t, "refused for", wait(t, b.Join(1, in(50*time.Millisecond), 1, false)), 300*time.Millisecond, 600*time.Millisecond)
			turn := b.Join(1, time.Time{}, 2, false)
			granted(t, turn)
			if time.Now().Before(end) {
				t.Error("a turn came before the end of the pause")
			}
			equal(t, "there is a burst", b.Take(3), false)
		}},
		{"those who wait are paused", policy.Rate{PerSecond: 2, Burst: 1}, func(t *testing.T, b layers.Bucket) {
			b.Take(1)
			tired, patient := b.Join(1, in(time.Second), 1, false), b.Join(1, time.Time{}, 2, false)
			end := in(1200 * time.Millisecond)
			b.Pause(end)
			if wait(t, tired) == 0 {
				t.Error("a turn that comes too late was not refused")
			}
			granted(t, patient)
			if time.Now().Before(end) {
				t.Error("a turn came before the end of the pause")
			}
		}},
		{"new numbers", policy.Rate{PerSecond: 0.1, Burst: 5}, func(t *testing.T, b layers.Bucket) {
			b.Take(5)
			dear, cheap := b.Join(5, time.Time{}, 1, false), b.Join(1, time.Time{}, 2, false)
			b.Set(policy.Rate{PerSecond: 20, Burst: 2})
			equal(t, "refused for", wait(t, dear), time.Duration(math.MaxInt64))
			granted(t, cheap)
		}},
		{"a new rate owes as many turns", policy.Rate{PerSecond: 0.1, Burst: 4}, func(t *testing.T, b layers.Bucket) {
			began := time.Now()
			b.Take(4)
			within(t, "the wait", b.Predict(1), 9*time.Second, 10*time.Second)
			b.Set(policy.Rate{PerSecond: 1, Burst: 4})
			granted(t, b.Join(1, time.Time{}, 1, false))
			b.Set(policy.Rate{PerSecond: 0.1, Burst: 4})
			equal(t, "there is another", b.Take(1), false)
			refused := wait(t, b.Join(1, in(time.Second), 2, false))
			late := time.Since(began) - time.Second // each second of it is ten of the new rate
			within(t, "refused for", refused, 10*time.Second-10*late, 10*time.Second)
		}},
		{"nothing is forgotten that matters", policy.Rate{PerSecond: 0.1, Burst: 1}, func(t *testing.T, b layers.Bucket) {
			b.Take(1)
			turn := b.Join(1, time.Time{}, 1, false)
			_, free := b.Rests()
			equal(t, "it is free while somebody waits", free, false)
			turn.Leave()
			_, free = b.Rests()
			equal(t, "it is free", free, true)
		}},
	} {
		t.Run(c.what, func(t *testing.T) { t.Parallel(); c.do(t, p.bucket(name(), c.rate)) })
	}
	testCircuits(t, p)
}

// send asks for admission.
func send(c layers.Circuit, p *layers.Pass) (wait time.Duration, admitted bool) {
	return c.Admit(context.Background(), false, p)
}

// tell gives verdicts on sends that have to be admitted.
func tell(t testing.TB, c layers.Circuit, verdicts ...layers.Verdict) {
	t.Helper()
	for i, v := range verdicts {
		p := new(layers.Pass)
		if wait, ok := send(c, p); !ok {
			t.Fatalf("send %d is not admitted, for %v", i+1, wait)
		}
		p.Settle(context.Background(), v)
	}
}

// admitted waits until a send is admitted.
func admitted(t testing.TB, c layers.Circuit) *layers.Pass {
	t.Helper()
	p := new(layers.Pass)
	eventually(t, "a send is admitted", func() bool { _, ok := send(c, p); return ok })
	return p
}

func isOpen(c layers.Circuit) bool { _, open := c.Open(); return open }

const (
	good    = layers.VerdictSuccess
	bad     = layers.VerdictFailure
	neutral = layers.VerdictNeutral
)

func testCircuits(t *testing.T, p process) {
	numbers := policy.Breaker{Failures: 2, Open: 300 * time.Millisecond, OpenMax: 10 * time.Second, OpenJitter: policy.Off, Probes: 1}
	with := func(f func(*policy.Breaker)) policy.Breaker { b := numbers; f(&b); return b }
	for _, c := range []struct {
		what string
		set  policy.Breaker
		do   func(t *testing.T, c layers.Circuit)
	}{
		{"failures in a row", numbers, func(t *testing.T, c layers.Circuit) {
			tell(t, c, bad, good, bad, neutral)
			equal(t, "it is open", isOpen(c), false)
			tell(t, c, bad)
			wait, open := c.Open()
			equal(t, "it is open", open, true)
			within(t, "for", wait, 100*time.Millisecond, 300*time.Millisecond)
			s := c.(interface{ Status() layers.BreakerStatus }).Status()
			equal(t, "the state that is shown", s.State, layers.StateOpen)
			equal(t, "it says why, and until when", s.Why != "" && !s.Until.IsZero(), true)
			_, ok := send(c, new(layers.Pass))
			equal(t, "a send is admitted", ok, false)
		}},
		{"a ratio", with(func(b *policy.Breaker) { b.Failures, b.Ratio, b.MinRequests, b.Window = 0, 0.5, 4, time.Minute }), func(t *testing.T, c layers.Circuit) {
			tell(t, c, bad, bad, good)
			equal(t, "it is open", isOpen(c), false)
			tell(t, c, good)
			equal(t, "it is open", isOpen(c), true)
		}},
		{"one probe, that succeeds", numbers, func(t *testing.T, c layers.Circuit) {
			tell(t, c, bad, bad)
			probe := admitted(t, c)
			_, ok := send(c, new(layers.Pass))
			equal(t, "another is admitted", ok, false)
			probe.Settle(context.Background(), good)
			eventually(t, "sends pass", func() bool { _, ok := send(c, new(layers.Pass)); return ok })
			tell(t, c, good, bad, good)
		}},
		{"one probe, that fails", numbers, func(t *testing.T, c layers.Circuit) {
			tell(t, c, bad, bad)
			probe := admitted(t, c)
			probe.Settle(context.Background(), bad)
			eventually(t, "it is open", func() bool { return isOpen(c) })
			wait, _ := c.Open()
			within(t, "for twice as long", wait, 310*time.Millisecond, 600*time.Millisecond)
		}},
		{"a probe that says nothing", numbers, func(t *testing.T, c layers.Circuit) {
			tell(t, c, bad, bad)
			admitted(t, c).Settle(context.Background(), neutral)
			admitted(t, c).Settle(context.Background(), good)
			eventually(t, "sends pass", func() bool {
				var a, b layers.Pass
				_, first := send(c, &a)
				_, second := send(c, &b)
				return first && second
			})
		}},
		{"a probe that hangs", with(func(b *policy.Breaker) { b.Open = 700 * time.Millisecond }), func(t *testing.T, c layers.Circuit) {
			tell(t, c, bad, bad)
			hung := admitted(t, c)
			if local, ok := c.(interface{ Sent(p *layers.Pass) }); ok {
				local.Sent(hung) // its lease begins only then
			}
			next := admitted(t, c)
			equal(t, "the first has its lease", hung.Stale(), true)
			hung.Settle(context.Background(), bad) // and so counts for nothing
			equal(t, "the second is stale", next.Stale(), false)
			next.Settle(context.Background(), good)
			eventually(t, "sends pass", func() bool { return !isOpen(c) && func() bool { _, ok := send(c, new(layers.Pass)); return ok }() })
		}},
		{"a probe that is slow", numbers, func(t *testing.T, c layers.Circuit) {
			tell(t, c, bad, bad)
			slow := admitted(t, c)
			if local, ok := c.(interface{ Sent(p *layers.Pass) }); ok {
				local.Sent(slow)
			}
			admitted(t, c)
			equal(t, "the first has its lease", slow.Stale(), true)
			slow.Settle(context.Background(), good) // and so is well
			eventually(t, "sends pass", func() bool { return !isOpen(c) && func() bool { _, ok := send(c, new(layers.Pass)); return ok }() })
		}},
		{"no probe for a hedge", numbers, func(t *testing.T, c layers.Circuit) {
			tell(t, c, bad, bad)
			eventually(t, "the open time is over", func() bool { return !isOpen(c) })
			_, ok := c.Admit(context.Background(), true, new(layers.Pass))
			equal(t, "a hedge is admitted", ok, false)
			admitted(t, c)
		}},
		{"as many successes as probes", with(func(b *policy.Breaker) { b.Probes, b.Open = 2, time.Second }), func(t *testing.T, c layers.Circuit) {
			tell(t, c, bad, bad)
			one, two := admitted(t, c), admitted(t, c)
			_, ok := send(c, new(layers.Pass))
			equal(t, "a third is admitted", ok, false)
			one.Settle(context.Background(), good)
			_, ok = send(c, new(layers.Pass))
			equal(t, "a third is admitted", ok, false)
			two.Settle(context.Background(), good)
			eventually(t, "sends pass", func() bool { _, ok := send(c, new(layers.Pass)); return ok })
		}},
		{"an old result", numbers, func(t *testing.T, c layers.Circuit) {
			late := admitted(t, c)
			tell(t, c, bad, bad)
			equal(t, "it is stale", late.Stale(), true)
			admitted(t, c).Settle(context.Background(), good)
			eventually(t, "sends pass", func() bool { _, ok := send(c, new(layers.Pass)); return ok })
			tell(t, c, bad)
			late.Settle(context.Background(), bad)
			equal(t, "it is open", isOpen(c), false)
		}},
	} {
		t.Run(c.what, func(t *testing.T) { t.Parallel(); c.do(t, p.circuit(name(), c.set)) })
	}
}
