package redis

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/policy"
)

// TestHandlesAreLetGo: a handle that nobody uses is not kept, and one that
// somebody uses is given to all who ask.
func TestHandlesAreLetGo(t *testing.T) {
	t.Parallel()
	client := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	s := New(client, Options{})
	defer s.Close()
	rate := policy.Rate{PerSecond: 1, Burst: 1}
	used := s.Bucket(policy.StateID{}, "used", rate)
	for i := range 1000 {
		s.Bucket(policy.StateID{}, fmt.Sprint(i), rate)
		s.Circuit(policy.StateID{}, fmt.Sprint("c", i), policy.Breaker{Failures: 1})
	}
	handles := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.handles)
	}
	for end := time.Now().Add(10 * time.Second); handles() > 1; time.Sleep(time.Millisecond) {
		runtime.GC()
		if time.Now().After(end) {
			t.Fatalf("%d handles are kept", handles())
		}
	}
	if s.Bucket(policy.StateID{}, "used", rate) != used {
		t.Error("the handle in use was not found")
	}
	runtime.KeepAlive(used)
}

// TestOldAnswers: an answer from before a change that was published meanwhile
// undoes nothing.
func TestOldAnswers(t *testing.T) {
	t.Parallel()
	client := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	s := New(client, Options{Fallback: Share})
	defer s.Close()
	set := policy.Breaker{Failures: 1, Open: time.Minute, OpenMax: time.Minute, Probes: 1}
	c := newCircuit(s, "c", set)
	old, fresh := newStep(c, "look", "", ""), newStep(c, "look", "", "")
	old.asked = s.now()
	c.hear("open", "2000000000", time.Minute)
	if err := old.read("closed 0 0 0 0", nil); err != nil {
		t.Error(err)
	}
	if _, open := c.Open(); !open {
		t.Error("an old answer closed the circuit")
	}
	fresh.asked = s.now() + 1
	if err := fresh.read("closed 3000000000 0 0 0", nil); err != nil {
		t.Error(err)
	}
	if _, open := c.Open(); open {
		t.Error("a fresh answer did not close it")
	}
	own := newStep(c, "look", "", "")
	own.asked = s.now()
	c.trip(c.current, time.Minute)
	if err := own.read("closed 3000000000 0 0 0", nil); err != nil {
		t.Error(err)
	}
	if _, open := c.Open(); !open {
		t.Error("an answer from before it opened here closed the circuit")
	}

	b := newBucket(s, "b", policy.Rate{PerSecond: 10, Burst: 2})
	q := budgetRequest{Period: b.period(), Burst: 2}
	began := s.now()
	b.hearPause("2000000000", time.Minute)
	r := &reply{began: began, ended: s.now(), words: strings.Fields("1 0 0 0 0 1 1 5*1")}
	b.answer(r, q)
	if r.err != nil || b.era != "2000000000" || b.slots.turns() != 0 {
		t.Errorf("%v, era %s, %d turns after an answer from before the pause", r.err, b.era, b.slots.turns())
	}
}

// TestSeen: who were there lately count, whatever a Redis that was restarted says.
func TestSeen(t *testing.T) {
	t.Parallel()
	at := clock.NewMock()
	s := &Store{opts: Options{Lease: time.Second}, clock: at, epoch: at.Now()}
	for i, c := range []struct {
		after      time.Duration
		seen, want int
	}{{0, 4, 4}, {time.Second, 1, 4}, {time.Second, 2, 4}, {2 * time.Second, 2, 2}, {0, 3, 3}, {0, 0, 3}} {
		at.Add(c.after)
		if s.see(c.seen); s.alive.Load() != int64(c.want) {
			t.Errorf("%d: %d processes, want %d", i, s.alive.Load(), c.want)
		}
	}
}
