package transport_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// fleetStore stands for a store that several processes share. It counts turns
// and slots without a queue, and has one switch for all circuits. It is its own
// handle of everything.
type fleetStore struct {
	mu    sync.Mutex
	turns int
	open  bool
	keys  []string
	said  []layers.Verdict
}

func (s *fleetStore) key(k string) { s.keys = append(s.keys, k) }

func (s *fleetStore) Bucket(_ policy.StateID, key string, r policy.Rate) layers.Bucket {
	s.key(key)
	return fleetBucket{s}
}

func (s *fleetStore) Circuit(_ policy.StateID, key string, _ policy.Breaker) layers.Circuit {
	s.key(key)
	return fleetCircuit{s}
}

func (s *fleetStore) Slots(_ policy.StateID, key string, _ policy.InFlight) layers.Slots {
	s.key(key)
	return nil // left to the process
}

type fleetBucket struct{ s *fleetStore }

func (fleetBucket) Rests() (idle, free bool) { return true, true }
func (b fleetBucket) Take(n int) bool {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if b.s.turns < n {
		return false
	}
	b.s.turns -= n
	return true
}
func (fleetBucket) Predict(int) time.Duration { return time.Hour }
func (fleetBucket) Join(int, time.Time, uint64, bool) layers.Turn {
	panic("no turn is worth waiting for")
}
func (b fleetBucket) Refund(n int)  { b.s.turns += n }
func (fleetBucket) Pause(time.Time) {}
func (fleetBucket) Set(policy.Rate) {}

type fleetCircuit struct{ s *fleetStore }

func (fleetCircuit) Rests() (idle, free bool) { return true, true }
func (c fleetCircuit) Admit(_ context.Context, _ bool, p *layers.Pass) (time.Duration, bool) {
	if c.s.open {
		return 7 * time.Second, false
	}
	p.Grant(c, false)
	return 0, true
}
func (fleetCircuit) Set(policy.Breaker)            {}
func (c fleetCircuit) Open() (time.Duration, bool) { return 0, c.s.open }
func (c fleetCircuit) Settle(_ context.Context, _ *layers.Pass, v layers.Verdict) {
	c.s.said = append(c.s.said, v)
}
func (c fleetCircuit) Stale(*layers.Pass) bool { return c.s.open }

// TestStore: two transports over one store share what it keeps.
func TestStore(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		store := &fleetStore{turns: 3}
		p := settings(policy.Settings{
			Rate: policy.Rate{PerSecond: 1, Burst: 1}, Breaker: policy.Breaker{Failures: 1}, InFlight: policy.InFlight{Max: 1},
			Retry: policy.Retry{Enabled: policy.Off},
		})
		var fleet [2]*transport.Transport
		for i := range fleet {
			up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
			fleet[i] = newTransport(t, c, up, p, func(cfg *transport.Config) { cfg.Store = store })
		}
		for i := range 3 {
			wantStatus(t, get(t, c, fleet[i%2]), 200)
		}
		e := wantError(t, get(t, c, fleet[1]).err)
		equal(t, "the layer", e.Layer, "rate")
		equal(t, "the wait", e.RetryAfter, time.Hour)
		store.open = true
		wantOpen(t, get(t, c, fleet[0]), 7*time.Second)
		equal(t, "the number of verdicts", len(store.said), 4) // one on the send that got no turn
		equal(t, "the last verdict", store.said[3], layers.VerdictNeutral)
		for _, k := range store.keys {
			equal(t, "the key", k, "http://api.example")
		}
	})
}

// jointStore is one whose buckets are taken from at once.
type jointStore struct {
	fleetStore

	asked [][]int
	yes   bool
}

type jointBucket struct {
	fleetBucket

	joint *jointStore
}

func (s *jointStore) Bucket(policy.StateID, string, policy.Rate) layers.Bucket {
	return jointBucket{fleetBucket{&s.fleetStore}, s}
}

func (b jointBucket) Take(int) bool { panic("all are taken at once") }

func (b jointBucket) TakeAll(_ context.Context, claims []layers.Claim) bool {
	var asked []int
	for _, c := range claims {
		asked = append(asked, c.N)
	}
	b.joint.asked = append(b.joint.asked, asked)
	return b.joint.yes
}

// TestJoint: a store is asked once for the turns of a send in all its budgets.
func TestJoint(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		cost := func(n int) func(*http.Request) int { return func(*http.Request) int { return n } }
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		store := &jointStore{yes: true}
		tr := newTransport(t, c, up, settings(policy.Settings{
			Rate: policy.Rate{PerSecond: 1, Burst: 9}, Retry: policy.Retry{Enabled: policy.Off},
			Budgets: map[string]policy.Rate{"none": {PerSecond: 1, Burst: 9, Cost: cost(0)}, "tokens": {PerSecond: 1, Burst: 9, Cost: cost(7)}},
		}), func(cfg *transport.Config) { cfg.Store = store })
		wantStatus(t, get(t, c, tr), 200)
		slices.Sort(store.asked[0])
		equal(t, "what was asked", fmt.Sprint(store.asked), "[[1 7]]")
		store.yes = false
		equal(t, "the layer", wantError(t, get(t, c, tr).err).Layer, "rate")
		equal(t, "what was given back", store.turns, 0)
	})
}

// slowCircuit is one that says nothing for as long as a send waits.
type slowCircuit struct{ fleetCircuit }

func (slowCircuit) Admit(ctx context.Context, _ bool, _ *layers.Pass) (time.Duration, bool) {
	<-ctx.Done()
	return 0, false
}

type slowStore struct{ fleetStore }

func (s *slowStore) Circuit(policy.StateID, string, policy.Breaker) layers.Circuit {
	return slowCircuit{fleetCircuit{&s.fleetStore}}
}

// TestSlowCircuit: a deadline that passes while a store is asked for a circuit is not
// taken for a circuit that is open.
func TestSlowCircuit(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		tr := newTransport(t, c, clocktest.NewUpstream(t, c), settings(policy.Settings{
			Deadline: 3 * time.Second, Breaker: policy.Breaker{Failures: 1}, Timeouts: policy.Timeouts{Pool: time.Second, Connect: time.Second, Write: time.Second, Read: time.Second},
		}), func(cfg *transport.Config) { cfg.Store = new(slowStore) })
		got := get(t, c, tr)
		e := wantError(t, got.err)
		equal(t, "the phase", e.Phase, layers.PhaseDeadline)
		equal(t, "it is the deadline", errors.Is(got.err, context.DeadlineExceeded), true)
		equal(t, "it took", c.Elapsed(), 3*time.Second)
	})
}

// tardyStore is one of which a budget and a circuit note the numbers that they are
// told, and take their time for some.
type tardyStore struct {
	rate     atomic.Pointer[policy.Rate]
	breaker  atomic.Pointer[policy.Breaker]
	entered  chan bool
	released chan bool
}

type tardyBucket struct {
	fleetBucket

	s *tardyStore
}

type tardyCircuit struct {
	fleetCircuit

	s *tardyStore
}

func (s *tardyStore) Bucket(policy.StateID, string, policy.Rate) layers.Bucket {
	return tardyBucket{fleetBucket{&fleetStore{turns: 9}}, s}
}

func (s *tardyStore) Circuit(policy.StateID, string, policy.Breaker) layers.Circuit {
	return tardyCircuit{fleetCircuit{new(fleetStore)}, s}
}

func (*tardyStore) Slots(policy.StateID, string, policy.InFlight) layers.Slots { return nil }

const tardy = 13 // is what they take their time for

func (s *tardyStore) hold(number int) {
	if number == tardy {
		s.entered <- true
		<-s.released
	}
}

func (b tardyBucket) Set(r policy.Rate) {
	b.s.hold(r.Burst)
	b.s.rate.Store(&r)
}

func (c tardyCircuit) Set(b policy.Breaker) {
	c.s.hold(b.Failures)
	c.s.breaker.Store(&b)
}

// TestUpdatesOvertake: of two updates at once, a store has the numbers of the one that
// the transport has, also if it is told of the other's last.
func TestUpdatesOvertake(t *testing.T) {
	numbers := func(rate, breaker int) policy.Policy {
		return settings(policy.Settings{Rate: policy.Rate{PerSecond: 1, Burst: rate}, Breaker: policy.Breaker{Failures: breaker}})
	}
	for what, first := range map[string]policy.Policy{"a budget": numbers(tardy, 2), "a circuit": numbers(2, tardy)} {
		t.Run(what, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				store := &tardyStore{entered: make(chan bool), released: make(chan bool)}
				tr := newTransport(t, c, clocktest.NewUpstream(t, c, clocktest.Reply(200)), numbers(1, 1), func(cfg *transport.Config) { cfg.Store = store })
				wantStatus(t, get(t, c, tr), 200)
				updated := make(chan error)
				go func() { updated <- tr.Update(first) }()
				<-store.entered
				if err := tr.Update(numbers(3, 3)); err != nil {
					t.Fatal(err)
				}
				close(store.released)
				if err := <-updated; err != nil {
					t.Fatal(err)
				}
				equal(t, "the burst", store.rate.Load().Burst, 3)
				equal(t, "the failures", store.breaker.Load().Failures, 3)
			})
		})
	}
}

// localStore has circuits that are those of the process.
type localStore struct {
	fleetStore

	env *layers.Env
}

func (s *localStore) Circuit(_ policy.StateID, _ string, b policy.Breaker) layers.Circuit {
	return s.env.LocalCircuit(b)
}

// TestLocalCircuitIsSeen: a circuit that a store has left to the process is shown with
// what it is for.
func TestLocalCircuitIsSeen(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		store := &localStore{env: &layers.Env{Clock: c}}
		tr := newTransport(t, c, clocktest.NewUpstream(t, c, clocktest.Reply(200)), settings(policy.Settings{Breaker: policy.Breaker{Failures: 1}}),
			func(cfg *transport.Config) { cfg.Store = store })
		get(t, c, tr)
		b := tr.Breakers()[0]
		equal(t, "the key", b.Key(), "http://api.example")
		equal(t, "the section", b.Status().ID.Section, "Breaker")
	})
}
