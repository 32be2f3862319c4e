package redis_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/layers/redis"
	"github.com/weir-go/weir/policy"
)

// pass waits for a turn as a send does, and for no longer than ctx.
func pass(ctx context.Context, b layers.Bucket, n int, ticket uint64) bool {
	if b.(layers.Joint).TakeAll(ctx, []layers.Claim{{Bucket: b, N: n}}) {
		return true
	}
	turn := b.Join(n, time.Time{}, ticket, false)
	for {
		over, refused, again := turn.Due()
		if over {
			return refused == 0 && turn.Take()
		}
		var timer <-chan time.Time
		if !again.IsZero() {
			timer = time.After(time.Until(again))
		}
		select {
		case <-timer:
		case <-turn.Signal():
		case <-ctx.Done():
			turn.Leave()
			return false
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

// noted is a turn as it was noted: at a time of the server, which is late by up
// to so long.
type noted struct {
	at   time.Time
	late time.Duration
}

// work has workers of a process take turns until ctx ends.
func (f *fleet) work(ctx context.Context, process int, b layers.Bucket, workers, cost int) {
	for w := range workers {
		f.group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if !pass(ctx, b, cost, uint64(i*workers+w+1)) {
					continue
				}
				began := time.Now()
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

// check holds what was seen to the quota.
func (f *fleet) check(least float64) {
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
	if used < least {
		f.t.Errorf("%.1f%% of the quota was used", 100*used)
	}
}

// TestQuota: four processes share a quota, all of it, evenly, and no more. The
// clock of one is an hour ahead, and jumps.
func TestQuota(t *testing.T) {
	for _, c := range []struct {
		rate  policy.Rate
		cost  int
		least float64       // that is used
		late  time.Duration // turns may be, on a busy machine: see lateness
	}{
		{policy.Rate{PerSecond: 100, Burst: 10}, 1, 0.95, 0},
		{policy.Rate{PerSecond: 300, Burst: 20}, 5, 0.95, 0},
		{policy.Rate{PerSecond: 100, Burst: 1}, 1, 0.6, 15 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%v a second, burst %d, cost %d", c.rate.PerSecond, c.rate.Burst, c.cost), func(t *testing.T) {
			s := startServer(t)
			f := &fleet{t: t, client: s.client(), rate: c.rate, by: map[int]int{}, late: c.late}
			ctx, stop := context.WithTimeout(t.Context(), 4*time.Second)
			defer stop()
			for i := range 4 {
				store := s.store(func(o *redis.Options) {
					if i == 3 {
						o.Clock = hourAhead{clock.New()}
					}
				})
				f.work(ctx, i, of(store).bucket("shared", c.rate), 8, c.cost)
			}
			f.group.Wait()
			f.check(c.least)
			for i, n := range f.by {
				if even := len(f.turns) / 4; n < even*8/10 || n > even*12/10 {
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
