package redis_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/layers/redis"
	"github.com/weir-go/weir/policy"
)

// setClock is a client's hook that lets the clock of Redis be set: the scripts are
// sent with another reading of it, which is off by the key "clock" in seconds.
type setClock struct {
	t       testing.TB
	sources map[any]string // by the hash of the script as it is
}

func newSetClock(t testing.TB) *setClock {
	t.Helper()
	c := &setClock{t, map[any]string{}}
	for _, file := range []string{"turns.lua", "circuit.lua"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		const reading = "local clock = redis.call('TIME')\n"
		if strings.Count(string(source), "'TIME'") != 1 || !strings.Contains(string(source), reading) {
			t.Fatalf("%s reads the clock in another way", file)
		}
		c.sources[goredis.NewScript(string(source)).Hash()] = strings.Replace(string(source), reading,
			reading+"clock[1] = clock[1] + (redis.call('GET', 'clock') or 0)\n", 1)
	}
	return c
}

func (c *setClock) rewrite(cmd goredis.Cmder) {
	if cmd.Name() != "evalsha" {
		return
	}
	args := cmd.Args()
	source, ok := c.sources[args[1]]
	if !ok {
		c.t.Errorf("an unknown script %v", args[1])
	}
	args[0], args[1] = "eval", source
}

func (*setClock) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (c *setClock) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		c.rewrite(cmd)
		return next(ctx, cmd)
	}
}

func (c *setClock) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, list []goredis.Cmder) error {
		for _, cmd := range list {
			c.rewrite(cmd)
		}
		return next(ctx, list)
	}
}

// wrongClock is a server whose clock can be set, as somebody does by hand, or a
// failover to another machine.
type wrongClock struct {
	*server

	hook   *setClock
	client *goredis.Client
}

func startWrongClock(t testing.TB) *wrongClock {
	t.Helper()
	s := startServer(t)
	return &wrongClock{s, newSetClock(t), s.client()}
}

func (s *wrongClock) store(set ...func(*redis.Options)) *redis.Store {
	s.t.Helper()
	opts := redis.Options{Timeout: 2 * time.Second}
	for _, f := range set {
		f(&opts)
	}
	client := s.server.client()
	client.AddHook(s.hook)
	store := redis.New(client, opts)
	s.t.Cleanup(func() { store.Close() })
	return store
}

// jump sets the clock by so much. Where it goes ahead, keys expire that have less
// to live, unless they are to be kept.
func (s *wrongClock) jump(by time.Duration, keep bool) {
	s.t.Helper()
	ctx := context.Background()
	if err := s.client.IncrBy(ctx, "clock", int64(by/time.Second)).Err(); err != nil {
		s.t.Fatal(err)
	}
	keys, err := s.client.Keys(ctx, "weir:*").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, k := range keys {
		if left := s.client.PTTL(ctx, k).Val(); !keep {
			s.client.PExpire(ctx, k, left-by) // which deletes it if that is over
		}
	}
}

// jumps are what becomes of a clock.
var jumps = map[string]struct {
	by   time.Duration
	keep bool
}{
	"back":             {-time.Hour, false},
	"ahead":            {time.Hour, false},
	"ahead, all kept":  {time.Hour, true},
	"back by a minute": {-time.Minute, false},
}

// TestClockIsSet: whatever happens to the server's clock, a budget goes on as if
// nothing had, and nobody waits for longer.
func TestClockIsSet(t *testing.T) {
	t.Parallel()
	in := func(d time.Duration) time.Time { return time.Now().Add(d) }
	for _, c := range []struct {
		what string
		rate policy.Rate
		do   func(t *testing.T, jump func(), b, other layers.Bucket)
	}{
		{"a burst that is spent is not there again", policy.Rate{PerSecond: 0.05, Burst: 3}, func(t *testing.T, jump func(), b, _ layers.Bucket) {
			equal(t, "there are 3", b.Take(3), true)
			jump()
			time.Sleep(60 * time.Millisecond) // what is known grows old
			equal(t, "there is one", b.Take(1), false)
			within(t, "the wait", b.Predict(1), 15*time.Second, 21*time.Second)
		}},
		{"nor for another process", policy.Rate{PerSecond: 0.05, Burst: 3}, func(t *testing.T, jump func(), b, other layers.Bucket) {
			equal(t, "there are 2", b.Take(2), true)
			equal(t, "there is another", other.Take(1), true)
			jump()
			time.Sleep(60 * time.Millisecond)
			equal(t, "there is one elsewhere", other.Take(1), false)
			equal(t, "there is one", b.Take(1), false)
		}},
		{"those who wait have their turns", policy.Rate{PerSecond: 10, Burst: 1}, func(t *testing.T, jump func(), b, other layers.Bucket) {
			b.Take(1)
			began := time.Now()
			var list []layers.Turn
			for i := range 6 {
				list = append(list, b.Join(1, time.Time{}, uint64(2*i+1), false), other.Join(1, time.Time{}, uint64(2*i+2), false))
			}
			time.Sleep(150 * time.Millisecond)
			jump()
			for _, turn := range list {
				granted(t, turn)
			}
			within(t, "they took", time.Since(began), 1000*time.Millisecond, 5*time.Second)
		}},
		{"a pause that is over does not come back", policy.Rate{PerSecond: 10, Burst: 1}, func(t *testing.T, jump func(), b, other layers.Bucket) {
			b.Pause(in(200 * time.Millisecond))
			granted(t, b.Join(1, time.Time{}, 1, false))
			jump()
			granted(t, b.Join(1, time.Time{}, 2, false))
			granted(t, other.Join(1, time.Time{}, 3, false))
		}},
		{"a pause lasts", policy.Rate{PerSecond: 10, Burst: 1}, func(t *testing.T, jump func(), b, _ layers.Bucket) {
			b.Take(1)
			b.Pause(in(2 * time.Hour))
			eventually(t, "it is told", func() bool { return b.Predict(1) > time.Hour })
			time.Sleep(100 * time.Millisecond)
			jump()
			refused := wait(t, b.Join(1, in(time.Minute), 1, false))
			within(t, "refused for", refused, 119*time.Minute, 121*time.Minute)
		}},
		{"what is given back is in nobody's way", policy.Rate{PerSecond: 10, Burst: 10}, func(t *testing.T, jump func(), b, other layers.Bucket) {
			b.Take(10)
			list := []layers.Turn{b.Join(1, time.Time{}, 1, false), b.Join(1, time.Time{}, 2, false), b.Join(1, time.Time{}, 3, false)}
			granted(t, other.Join(1, time.Time{}, 4, false))
			jump()
			for _, turn := range list {
				turn.Leave()
			}
			b.Refund(3)
			time.Sleep(100 * time.Millisecond)
			for i := range 5 {
				granted(t, other.Join(1, time.Time{}, uint64(i+10), false))
				granted(t, b.Join(1, time.Time{}, uint64(i+10), false))
			}
		}},
	} {
		for name, j := range jumps {
			t.Run(c.what+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := startWrongClock(t)
				b, other := of(s.store()).bucket("k", c.rate), of(s.store()).bucket("k", c.rate)
				other.Take(0)
				c.do(t, func() { s.jump(j.by, j.keep) }, b, other)
			})
		}
	}
}

// TestClockIsSetInAFleet: a fleet at work has its quota meanwhile, and no more. Where
// what Redis knows expires, it goes by what the first to ask has seen, and so may
// have a burst once more.
func TestClockIsSetInAFleet(t *testing.T) {
	for name, j := range jumps {
		t.Run(name, func(t *testing.T) {
			s := startWrongClock(t)
			f := &fleet{t: t, client: s.client, rate: policy.Rate{PerSecond: 100, Burst: 10}, by: map[int]int{}, late: 10 * time.Millisecond}
			if j.by > 0 && !j.keep {
				f.late += 100 * time.Millisecond
			}
			ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
			defer stop()
			for i := range 3 {
				f.work(ctx, clock.New(), i, of(s.store()).bucket("shared", f.rate), 4, 1)
			}
			time.Sleep(time.Second)
			s.jump(j.by, j.keep)
			f.group.Wait()
			f.check(0.8, 0.5)
		})
	}
}

// TestClockIsSetForCircuits: neither the open time nor a probe that nobody answers
// for lasts longer.
func TestClockIsSetForCircuits(t *testing.T) {
	t.Parallel()
	set := policy.Breaker{Failures: 1, Open: 300 * time.Millisecond, OpenMax: time.Minute, OpenJitter: policy.Off, Probes: 1}
	for name, j := range jumps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startWrongClock(t)
			c, other := of(s.store()).circuit("k", set), of(s.store()).circuit("k", set)
			tell(t, c, bad)
			eventually(t, "it is open for all", func() bool { return isOpen(other) })
			s.jump(j.by, j.keep)
			hung := admitted(t, c)
			s.jump(j.by, j.keep)
			admitted(t, other).Settle(context.Background(), good)
			eventually(t, "sends pass", func() bool { _, ok := send(c, new(layers.Pass)); return ok })
			hung.Settle(context.Background(), bad)
		})
	}
}

// TestClockIsSetDuringFallback: the end of one does not last as long as the clock went
// back, and is not that of an earlier one.
func TestClockIsSetDuringFallback(t *testing.T) {
	t.Parallel()
	for what, ends := range map[string]time.Duration{"to come": time.Hour, "over": -time.Second} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := startWrongClock(t)
			var said changes
			b := of(s.store(said.note, func(o *redis.Options) { o.Timeout = 500 * time.Millisecond })).bucket("k", policy.Rate{PerSecond: 100, Burst: 10})
			equal(t, "there is one", b.Take(1), true)
			// As a fallback left it that ended then.
			ctx := context.Background()
			end := (time.Since(time.Unix(1767225600, 0)) + ends).Microseconds()
			if err := s.client.Set(ctx, "weir:{weir}:rest", end, time.Hour).Err(); err != nil {
				t.Fatal(err)
			}
			if err := s.client.Do(ctx, "CLIENT", "PAUSE", "1500", "ALL").Err(); err != nil {
				t.Fatal(err)
			}
			b.Take(9)
			said.wait(t, "down up")
			if now, err := s.client.Get(ctx, "weir:{weir}:rest").Int64(); err == nil && now == end {
				t.Error("it went by the end of another")
			}
		})
	}
}
