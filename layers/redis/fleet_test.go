package redis_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/layers/redis"
	"github.com/weir-go/weir/policy"
)

// pass waits for a turn as a send does, and for no longer than ctx. The turn did
// not come before since.
func pass(ctx context.Context, c clock.Clock, b layers.Bucket, n int, ticket uint64) (since time.Time, ok bool) {
	since = time.Now()
	if b.(layers.Joint).TakeAll(ctx, []layers.Claim{{Bucket: b, N: n}}) {
		return since, true
	}
	turn := b.Join(n, time.Time{}, ticket, false)
	since = time.Now()
	for {
		over, refused, again := turn.Due()
		if over {
			return since, refused == 0 && turn.Take()
		}
		var timer <-chan time.Time
		var due time.Time
		if !again.IsZero() {
			left := again.Sub(c.Now())
			timer, due = time.After(left), time.Now().Add(left)
		}
		select {
		case <-timer:
			since = due // however late it fired
		case <-turn.Signal():
			since = time.Now()
		case <-ctx.Done():
			turn.Leave()
			return since, false
		}
	}
}

// fleet are processes that work at what one budget allows.
type fleet struct {
	t      testing.TB
	client *goredis.Client
	rate   policy.Rate
	group  sync.WaitGroup

	mu    sync.Mutex
	turns []noted
	by    map[int]int
	late  time.Duration
}

// lasting is a fleet that takes 90 turns a second, whatever becomes of Redis, until end:
// a server of its own notes them.
func lasting(t testing.TB) (f *fleet, ctx context.Context, end func()) {
	timer := startServer(t)
	f = &fleet{t: t, client: timer.client(), rate: policy.Rate{PerSecond: 90, Burst: 9}, by: map[int]int{}, late: 40 * time.Millisecond}
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	return f, ctx, func() { stop(); f.group.Wait() }
}

// noted is a turn as it was noted: at a time of the server, which is late by up
// to so long.
type noted struct {
	at   time.Time
	late time.Duration
}

// work has workers of a process take turns until ctx ends.
func (f *fleet) work(ctx context.Context, c clock.Clock, process int, b layers.Bucket, workers, cost int) {
	for w := range workers {
		f.group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				began, ok := pass(ctx, c, b, cost, uint64(i*workers+w+1))
				if !ok {
					continue
				}
				at, err := f.client.Time(context.Background()).Result()
				if err != nil {
					continue
				}
				f.mu.Lock()
				for range cost {
					f.turns = append(f.turns, noted{at, time.Since(began)})
				}
				f.by[process] += cost
				f.mu.Unlock()
			}
		})
	}
}

// busy reports that the machine has little time for the fleet, which then uses less
// of a quota, and less evenly.
func (f *fleet) busy() bool {
	sum := time.Duration(0)
	for _, n := range f.turns {
		sum += n.late
	}
	mean := sum / time.Duration(max(1, len(f.turns)))
	f.t.Logf("a turn was noted %v after it was asked for", mean)
	return mean > time.Millisecond
}

// check holds what was seen to the quota.
func (f *fleet) check(least, busyLeast float64) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.SortFunc(f.turns, func(a, b noted) int { return a.at.Compare(b.at) })
	for _, window := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second} {
		most, from := 0, 0
		for to, last := range f.turns {
			for last.at.Sub(f.turns[from].at) > window {
				from++
			}
			n := to - from + 1
			most = max(most, n)
			// Only turns that were noted late can be too many.
			first := last.at
			for _, o := range f.turns[from:to] {
				if at := o.at.Add(-o.late); at.Before(first) {
					first = at
				}
			}
			if allowed := int(math.Ceil(f.rate.PerSecond*(f.late+last.at.Sub(first)).Seconds())) + f.rate.Burst; n > allowed {
				f.t.Errorf("%d turns in %v, of %d", n, window, allowed)
			}
		}
		f.t.Logf("at most %d turns in %v", most, window)
	}
	if len(f.turns) == 0 {
		f.t.Fatal("no turn at all")
	}
	span := f.turns[len(f.turns)-1].at.Sub(f.turns[0].at)
	used := float64(len(f.turns)) / (f.rate.PerSecond*span.Seconds() + float64(f.rate.Burst))
	f.t.Logf("%d turns in %v: %.1f%%; by process: %v", len(f.turns), span, 100*used, f.by)
	if used < least && !(f.busy() && used >= busyLeast) {
		f.t.Errorf("%.1f%% of the quota was used", 100*used)
	}
}

// TestQuota: four processes share a quota, all of it, evenly, and no more. The
// clock of one is an hour ahead.
func TestQuota(t *testing.T) {
	for _, c := range []struct {
		rate  policy.Rate
		cost  int
		least float64       // that is used
		busy  float64       // that is used on a machine that others keep busy
		late  time.Duration // that a busy machine may make of a turn
	}{
		{policy.Rate{PerSecond: 100, Burst: 10}, 1, 0.9, 0.8, 10 * time.Millisecond},
		{policy.Rate{PerSecond: 300, Burst: 20}, 5, 0.85, 0.7, 10 * time.Millisecond},
		{policy.Rate{PerSecond: 100, Burst: 1}, 1, 0.8, 0.4, 30 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%v a second, burst %d, cost %d", c.rate.PerSecond, c.rate.Burst, c.cost), func(t *testing.T) {
			s := startServer(t)
			f := &fleet{t: t, client: s.client(), rate: c.rate, by: map[int]int{}, late: c.late}
			ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
			defer stop()
			for i := range 4 {
				at := clock.New()
				if i == 3 {
					at = hourAhead{at}
				}
				store := s.store(func(o *redis.Options) { o.Clock = at })
				f.work(ctx, at, i, of(store).bucket("shared", c.rate), 8, c.cost)
			}
			f.group.Wait()
			f.check(c.least, c.busy)
			for i, n := range f.by {
				part := 3 // tenths of an even share
				if f.busy() {
					part = 4
				}
				if even := len(f.turns) / 4; n < even*(10-part)/10 || n > even*(10+part)/10 {
					t.Errorf("process %d had %d turns of %d", i, n, len(f.turns))
				}
			}
		})
	}
}

// hourAhead is a clock that is wrong.
type hourAhead struct{ clock.Clock }

func (h hourAhead) Now() time.Time                  { return h.Clock.Now().Add(time.Hour) }
func (h hourAhead) Since(t time.Time) time.Duration { return h.Now().Sub(t) }

// TestTogether: turns in several budgets are taken in all or none, also by
// several processes at once.
func TestTogether(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	var group sync.WaitGroup
	var mu sync.Mutex
	all := 0
	for i := range 4 {
		p := of(s.store())
		first := p.bucket("first", policy.Rate{PerSecond: 0.001, Burst: 40})
		second := p.bucket("second", policy.Rate{PerSecond: 0.001, Burst: 25})
		claims := []layers.Claim{{Bucket: first, N: 2}, {Bucket: second, N: 1}}
		if i%2 == 1 {
			slices.Reverse(claims)
		}
		for range 10 {
			group.Go(func() {
				if first.(layers.Joint).TakeAll(t.Context(), claims) {
					mu.Lock()
					all++
					mu.Unlock()
				}
			})
		}
	}
	group.Wait()
	equal(t, "both were taken", all, 20)
	p := of(s.store())
	equal(t, "what is left of the first", p.bucket("first", policy.Rate{PerSecond: 0.001, Burst: 40}).Take(1), false)
	left := p.bucket("second", policy.Rate{PerSecond: 0.001, Burst: 25})
	equal(t, "what is left of the second", left.Take(5), true)
	equal(t, "and no more", left.Take(1), false)
}

// TestPauseReaches: a pause that one process was asked for holds in another,
// which had leased turns, and for who waits there.
func TestPauseReaches(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	rate := policy.Rate{PerSecond: 100, Burst: 10}
	a, b := of(s.store()).bucket("k", rate), of(s.store()).bucket("k", rate)
	f := &fleet{t: t, client: s.client(), rate: rate, by: map[int]int{}}
	ctx, stop := context.WithCancel(t.Context())
	f.work(ctx, clock.New(), 0, b, 4, 1)
	eventually(t, "the other process works", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.turns) > 20 })
	began := time.Now()
	a.Pause(began.Add(700 * time.Millisecond))
	a.Take(1) // once the answer is here, Redis knows
	paused := now(t, f.client)
	most := 600*time.Millisecond - time.Since(began) // of what is left of it, whatever the clocks are
	time.Sleep(900 * time.Millisecond)
	stop()
	f.group.Wait()
	passed := now(t, f.client).Sub(paused)
	early, later := 0, 0
	for _, turn := range f.turns {
		switch after := turn.at.Sub(paused); {
		case after-turn.late > 200*time.Millisecond && after < most:
			early++
		case after > most:
			later++
		}
	}
	equal(t, "turns within the pause", early, 0)
	if allowed := rate.PerSecond*(passed-most).Seconds() + float64(rate.Burst); later == 0 || float64(later) > allowed {
		t.Errorf("%d turns after it, of %.0f", later, allowed)
	}
	eventually(t, "a new process hears of the pause, too, or it is over", func() bool { return of(s.store()).bucket("k", rate).Predict(1) < time.Second })
}

// asked is how many scripts a server has run.
func asked(client *goredis.Client) int { return ran(client, "evalsha") }

// ran is how often a server has run a command.
func ran(client *goredis.Client, command string) (n int) {
	text, _ := client.Info(context.Background(), "commandstats").Result()
	if _, rest, ok := strings.Cut(text, "cmdstat_"+command+":calls="); ok {
		fmt.Sscan(strings.Split(rest, ",")[0], &n)
	}
	return n
}

// TestLease: a busy process asks once for many turns, and gives back what it
// does not use.
func TestLease(t *testing.T) {
	s := startServer(t)
	client := s.client()
	rate := policy.Rate{PerSecond: 1000, Burst: 200}
	b := of(s.store()).bucket("k", rate)
	before, n := asked(client), 0
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if b.Take(1) {
			n++
		}
	}
	exchanges := asked(client) - before
	t.Logf("%d turns, %d exchanges", n, exchanges)
	if exchanges > n/2 {
		t.Errorf("%d turns took %d exchanges", n, exchanges)
	}
	slow := policy.Rate{PerSecond: 1, Burst: 30}
	p, other := of(s.store()), of(s.store())
	idle := p.bucket("idle", slow)
	turn := idle.Join(25, time.Time{}, 1, false)
	equal(t, "refused for", wait(t, turn), 0)
	turn.Leave() // what it had is there for others, once it is not used
	eventually(t, "it comes back", func() bool { return other.bucket("idle", slow).Take(25) })
}

// TestRefundElsewhere: what one process gives back, another can take.
func TestRefundElsewhere(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	rate := policy.Rate{PerSecond: 0.01, Burst: 3}
	a, b := of(s.store()).bucket("k", rate), of(s.store()).bucket("k", rate)
	equal(t, "there are three", a.Take(3), true)
	a.Refund(2)
	eventually(t, "two are back", func() bool { return b.Take(2) })
	equal(t, "and no more", b.Take(1), false)
}

// TestKilledProcess: what a process had reserved when it was killed comes back
// within its lease, and so does the probe that it was making.
func TestKilledProcess(t *testing.T) {
	rate := policy.Rate{PerSecond: 0.02, Burst: 1}
	probed := func(p process) layers.Circuit {
		return p.circuit("k", policy.Breaker{Failures: 1, Open: 400 * time.Millisecond, OpenMax: time.Minute, OpenJitter: policy.Off, Probes: 1})
	}
	if addr := os.Getenv("WEIR_TEST_REDIS"); addr != "" {
		store := redis.New(goredis.NewClient(&goredis.Options{Addr: addr}), redis.Options{Timeout: 2 * time.Second, Lease: time.Second})
		b := of(store).bucket("k", rate)
		b.Take(1)
		b.Join(1, time.Time{}, 1, false)
		c := probed(of(store))
		tell(t, c, bad)
		admitted(t, c) // for a probe
		time.Sleep(time.Minute)
	}
	t.Parallel()
	s := startServer(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledProcess$")
	cmd.Env = append(os.Environ(), "WEIR_TEST_REDIS="+s.addr)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	client := s.client()
	p := of(s.store(func(o *redis.Options) { o.Lease = time.Second }))
	c := probed(p)
	for _, what := range []string{"held", "probes"} {
		eventually(t, "there is what it "+what, func() bool {
			keys, _ := client.Keys(context.Background(), "*:"+what).Result()
			return len(keys) == 1
		})
	}
	b := p.bucket("k", rate)
	b.Take(1) // to know how things stand
	within(t, "the wait behind it", b.Predict(1), 70*time.Second, 100*time.Second)
	cmd.Process.Kill()
	cmd.Wait()
	admitted(t, c)
	eventually(t, "its turn is there for others", func() bool { b.Take(1); return b.Predict(1) < 50*time.Second })
}

// standstill is the clock of a process that is stopped: time passes, and no timer
// fires.
type standstill struct{ *clock.Mock }

func (standstill) Now() time.Time                  { return time.Now() }
func (standstill) Since(t time.Time) time.Duration { return time.Since(t) }

// TestStandstill: a process that was stopped for longer than its lease uses nothing
// of what others have by then, and gives nothing of it back.
func TestStandstill(t *testing.T) {
	t.Parallel()
	rate := policy.Rate{PerSecond: 0.02, Burst: 1}
	for what, wakes := range map[string]func(t *testing.T, turn layers.Turn){
		"uses": func(t *testing.T, turn layers.Turn) {
			eventually(t, "it has a later turn", func() bool { _, _, again := turn.Due(); return time.Until(again) > 50*time.Second })
		},
		"gives back": func(_ *testing.T, turn layers.Turn) { turn.Leave() },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			lease := func(o *redis.Options) { o.Lease = time.Second }
			stopped := of(s.store(lease, func(o *redis.Options) { o.Clock = standstill{clock.NewMock()} })).bucket("k", rate)
			other, third := of(s.store(lease)).bucket("k", rate), of(s.store(lease)).bucket("k", rate)
			equal(t, "there is one", stopped.Take(1), true)
			turn := stopped.Join(1, time.Time{}, 1, false)
			next := func(turn layers.Turn) bool {
				_, _, again := turn.Due()
				left := time.Until(again)
				return left > 25*time.Second && left < 50*time.Second // and not when an answer is late
			}
			eventually(t, "the next is reserved", func() bool { return next(turn) })
			time.Sleep(1300 * time.Millisecond)
			other.Take(1) // and so it is reclaimed
			reclaimed := other.Join(1, time.Time{}, 1, false)
			defer reclaimed.Leave()
			eventually(t, "another has it", func() bool { return next(reclaimed) })
			wakes(t, turn)
			time.Sleep(100 * time.Millisecond)
			third.Take(1) // to know how things stand
			if left := third.Predict(1); left < 50*time.Second {
				t.Errorf("a third waits for %v", left)
			}
		})
	}
}

// TestClose: what a process had reserved comes back at once when it ends in
// good order, and no goroutine is left.
func TestClose(t *testing.T) {
	s := startServer(t)
	rate := policy.Rate{PerSecond: 0.02, Burst: 1}
	goroutines := runtime.NumGoroutine()
	client := goredis.NewClient(&goredis.Options{Addr: s.addr})
	store := redis.New(client, redis.Options{Timeout: 2 * time.Second, Lease: 15 * time.Second})
	b := of(store).bucket("k", rate)
	b.Take(1)
	turn := b.Join(1, time.Time{}, 1, false)
	eventually(t, "it has reserved a turn", func() bool { _, _, again := turn.Due(); return time.Until(again) > 25*time.Second })
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	if err := store.Close(); err != nil {
		t.Error("again:", err)
	}
	client.Close()
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= goroutines })
	equal(t, "a closed store acts as if Redis were down", b.Take(1), false)
	other := of(s.store()).bucket("k", rate)
	eventually(t, "its turn is there for others", func() bool { other.Take(1); return other.Predict(1) < 50*time.Second })
}

// TestKeys: keys expire, and tell nothing of what they were made from.
func TestKeys(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := s.client()
	p := of(s.store(func(o *redis.Options) { o.Namespace = "payments" }))
	b := p.bucket("https://user:hunter2@api.example/?token=hunter2", policy.Rate{PerSecond: 1, Burst: 1})
	b.Take(1)
	b.Join(1, time.Time{}, 1, false)
	tell(t, p.circuit("hunter2", policy.Breaker{Failures: 1, Open: time.Minute, OpenMax: time.Minute, Probes: 1}), bad)
	var keys []string
	eventually(t, "the circuit is kept", func() bool {
		keys, _ = client.Keys(context.Background(), "*").Result()
		return len(keys) >= 5
	})
	for _, key := range keys {
		if !strings.HasPrefix(key, "weir:{payments}:") || strings.Contains(key, "hunter2") || strings.Contains(key, "api.example") {
			t.Errorf("the key %q", key)
		}
		if ttl := client.PTTL(context.Background(), key).Val(); ttl <= 0 {
			t.Errorf("%q expires in %v", key, ttl)
		}
	}
}

// TestCircuits: a trip in one process opens the circuit in all, without being
// asked for; its probes are counted over all.
func TestCircuits(t *testing.T) {
	s := startServer(t)
	set := policy.Breaker{Failures: 2, Open: 700 * time.Millisecond, OpenMax: time.Minute, OpenJitter: policy.Off, Probes: 2}
	var list []layers.Circuit
	var mu sync.Mutex
	var seen []string
	for i := range 4 {
		store := s.store(func(o *redis.Options) {
			if i == 3 {
				o.Clock = hourAhead{clock.New()}
			}
			o.Namespace = "a fleet"
			o.Observer = layers.ObserverFunc(func(_ context.Context, e layers.Event) {
				mu.Lock()
				defer mu.Unlock()
				if i == 2 {
					seen = append(seen, e.State.String())
				}
			})
		})
		list = append(list, of(store).circuit("k", set))
	}
	client := s.client()
	eventually(t, "all are subscribed", func() bool {
		return client.PubSubNumSub(context.Background(), "weir:{a%20fleet}:news").Val()["weir:{a%20fleet}:news"] == 4
	})
	tell(t, list[0], bad)
	tell(t, list[1], bad)
	equal(t, "one failure each opens it", isOpen(list[0]), false)
	tell(t, list[0], bad)
	for i, c := range list {
		eventually(t, fmt.Sprint("it is open in process ", i), func() bool { return isOpen(c) })
	}
	for i, c := range list {
		eventually(t, fmt.Sprint("the open time is over in process ", i), func() bool { return !isOpen(c) })
	}
	var probes []*layers.Pass
	for range 3 {
		for _, c := range list {
			p := new(layers.Pass)
			if _, ok := send(c, p); ok {
				probes = append(probes, p)
			}
		}
	}
	equal(t, "the number of probes", len(probes), 2)
	for _, p := range probes {
		p.Settle(context.Background(), good)
	}
	for i, c := range list {
		eventually(t, fmt.Sprint("it is closed in process ", i), func() bool {
			var a, b, d layers.Pass
			_, one := send(c, &a)
			_, two := send(c, &b)
			_, three := send(c, &d)
			return one && two && three
		})
	}
	eventually(t, "the observer was told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) >= 2 && seen[0] == "open" && seen[len(seen)-1] == "closed"
	})
}

// TestMany: what a process does with many circuits and budgets at once takes few
// round trips, none of which holds Redis up for long.
func TestMany(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	var answers atomic.Int64
	proxy := startProxy(t, s.addr, func([]byte) bool { answers.Add(1); time.Sleep(time.Millisecond); return true })
	client := goredis.NewClient(&goredis.Options{Addr: proxy.addr})
	defer client.Close()
	store := redis.New(client, redis.Options{Timeout: 5 * time.Second})
	defer store.Close()
	p := of(store)
	const many = 1000
	before := answers.Load()
	circuits := make([]layers.Circuit, many)
	for i := range circuits {
		circuits[i] = p.circuit(name(), policy.Breaker{Failures: 1, Open: time.Minute, OpenMax: time.Minute, Probes: 1})
	}
	admin := s.client()
	send(circuits[many-1], new(layers.Pass)) // their states are known
	admin.ScriptFlush(context.Background())
	brought := ran(admin, "eval")
	for _, c := range circuits {
		tell(t, c, bad)
	}
	eventually(t, "all are told", func() bool {
		keys, _ := admin.Keys(context.Background(), "*").Result()
		return len(keys) >= many
	})
	if n := answers.Load() - before; n > many/2 {
		t.Errorf("%d answers for %d circuits that opened", n, many)
	}
	if n := ran(admin, "eval") - brought; n > 4 {
		t.Errorf("the scripts were brought %d times", n)
	}
	var group sync.WaitGroup
	scripts := asked(admin)
	for range many {
		b := p.bucket(name(), policy.Rate{PerSecond: 1, Burst: 1})
		group.Go(func() { equal(t, "there is a turn", b.Take(1), true) })
	}
	group.Wait()
	if n := asked(admin) - scripts; n < many/100 {
		t.Errorf("%d budgets in %d exchanges", many, n)
	}
}
