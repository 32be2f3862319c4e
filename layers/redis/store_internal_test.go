package redis

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/layers"
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

// unanswered returns a store whose Redis says nothing, and is not down for that.
func unanswered(t *testing.T) *Store {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	client := goredis.NewClient(&goredis.Options{Addr: l.Addr().String(), ReadTimeout: -1})
	s := New(client, Options{Fallback: Share, Timeout: time.Hour})
	t.Cleanup(func() {
		l.Close() // first, and with it the connections that it has not accepted
		client.Close()
		s.Close()
	})
	return s
}

// TestOldAnswers: an answer from before a change that was published meanwhile
// undoes nothing.
func TestOldAnswers(t *testing.T) {
	t.Parallel()
	s := unanswered(t)
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

// TestWhy: a circuit says why it opened last, though what counted is counted anew since.
func TestWhy(t *testing.T) {
	t.Parallel()
	s := unanswered(t)
	c := newCircuit(s, "c", policy.Breaker{Failures: 1, Open: time.Minute, OpenMax: time.Minute, Probes: 1})
	want := func(want string) {
		t.Helper()
		if got := c.Status().Why; got != want {
			t.Errorf("it opened since %q, want %q", got, want)
		}
	}
	want("")
	c.hear("open", "2000000000", time.Minute)
	want("it opened for the fleet")
	c.mu.Lock()
	c.probed = true
	c.mu.Unlock()
	c.hear("open", "3000000000", time.Minute)
	want("a probe failed")
	c.hear("closed", "4000000000", 0)
	want("a probe failed")
	var p layers.Pass
	c.current.local.Admit(t.Context(), false, &p)
	p.Settle(t.Context(), layers.VerdictFailure)
	c.trip(c.current, time.Minute)
	c.hear("open", "5000000000", time.Minute)
	want("1 failures in a row")
}

// TestSeen: who were there lately count, whatever a Redis that was restarted says, and
// however long it was away.
func TestSeen(t *testing.T) {
	t.Parallel()
	at := clock.NewMock()
	s := &Store{opts: Options{Lease: time.Second}, clock: at, epoch: at.Now()}
	for i, c := range []struct {
		after      time.Duration
		seen, want int
	}{
		{0, 4, 4},
		{time.Second, 1, 4},
		{time.Second, 2, 4},
		{time.Second, 2, 4},
		{time.Second, 2, 2},
		{0, 3, 3},
		{0, 0, 3},
		{time.Minute, 1, 3},
		{time.Second, 1, 3},
		{time.Second, 1, 3},
		{time.Second, 1, 3},
		{time.Second, 1, 1},
	} {
		at.Add(c.after)
		if s.see(c.seen); s.alive.Load() != int64(c.want) {
			t.Errorf("%d: %d processes, want %d", i, s.alive.Load(), c.want)
		}
	}
}
