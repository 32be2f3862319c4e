package redis

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"net/url"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/benbjohnson/clock"
	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

// Fallback is what holds while Redis cannot be asked.
type Fallback uint8

// What may hold while Redis cannot be asked.
const (
	// Share gives each process its share of a budget: the rate and the burst,
	// each by the number of processes seen lately. A circuit goes by what its own
	// process sees.
	Share Fallback = iota
	// Open lets every send pass.
	Open
	// Closed refuses every send.
	Closed
)

// Options are how a [Store] works. The zero value is ready to use.
type Options struct {
	// Namespace is part of every key, escaped as in the path of a URL. Processes
	// with the same one share what they keep. A cluster keeps a namespace on one of
	// its nodes. Empty: "weir".
	Namespace string
	// Timeout is how long a send waits for an answer of Redis at a time, within
	// its deadline. An answer that takes longer makes the Fallback hold, until
	// answers take less than half of it. 0: 50 ms.
	Timeout time.Duration
	// Fallback is what holds while Redis cannot be asked.
	Fallback Fallback
	// Lease is for how long Redis believes a process to be alive that has not
	// been heard of. The turns that a dead one had reserved come back then, and one
	// that only stood still asks for others. 0: 2 s.
	Lease time.Duration
	// Processes is how many there are at least, for their shares: one that starts
	// without Redis has seen none but itself. 0: 1.
	Processes int
	// OnChange is told when the Fallback begins to hold, and when it ends: once
	// a change, in order, on a goroutine of its own. Nil: nobody is.
	OnChange func(Change)
	// Observer is told of changes of circuits, as an Env's is by local ones,
	// outside of any call. Nil: nobody is.
	Observer layers.Observer
	// Clock is that of the stack which uses the store. Only differences of its
	// times count. Nil: the real clock.
	Clock clock.Clock
}

// Change says whether Redis can be asked.
type Change struct {
	Up        bool
	Err       error // why not
	Processes int   // seen lately, this one included
}

// Store keeps budgets and circuits in Redis. It is safe for concurrent use.
type Store struct {
	opts   Options
	client goredis.Cmdable // for commands, with the user's hooks
	news   subscriber
	clock  clock.Clock
	epoch  time.Time
	prefix string
	proc   string
	env    layers.Env // of what is local
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
	kick   chan struct{}
	step   chan struct{}
	anew   chan struct{} // for who is to hear of news
	down   atomic.Bool
	alive  atomic.Int64 // processes seen lately
	fell   atomic.Int64 // when the fallback began
	ends   atomic.Int64 // when it may be over for others; never: not soon
	late   atomic.Int64 // when the answer is late that says whether it is
	beat   atomic.Int64 // when the last exchange that was answered began
	hears  atomic.Bool  // news, or so it seems
	deaf   atomic.Bool  // what was last published to this process has not been heard

	// Of the goroutine that talks of budgets.
	suspects []*bucket     // of the exchange that failed
	failing  time.Duration // how long that took
	seen     instant       // when as many processes were seen as alive says, or more
	heard    instant       // when Redis said last how many there are
	called   instant       // when something was last published to this process

	mu      sync.Mutex
	handles map[string]weakHandle
	dirty   map[*bucket]struct{}
	takes   []*joint
	urgent  []*step // that somebody waits for
	later   []*step
	ill     map[*circuit]struct{} // of which Redis has something else
	changes []Change
	telling bool
}

// weakHandle finds a handle for as long as somebody uses it.
type weakHandle interface{ handle() handle }

// handle is what the store has to tell its handles.
type handle interface {
	// moved says that the store has gone up or down.
	moved(down bool)
	// resync says that news may have been missed.
	resync()
}

type weakPointer[T any, P interface {
	*T
	handle
}] struct{ weak.Pointer[T] }

func (w weakPointer[T, P]) handle() handle {
	if p := w.Value(); p != nil {
		return P(p)
	}
	return nil
}

// New returns a store on a client, which it does not close. The hooks that the
// client has by then see the store's commands. It starts a few goroutines, which
// end with Close.
//
// A connection that hangs is given up after twice Options.Timeout, but not before
// 100 ms, if the client is go-redis's *Client, as that of Sentinel is. Another client,
// such as that of a cluster or one around it, has its own timeouts: make them short,
// since Redis is not asked anew before, or set its ContextTimeoutEnabled, and that is
// after four times Options.Timeout, but not before 2 s.
func New(client goredis.UniversalClient, opts Options) *Store {
	opts.Namespace = cmp.Or(opts.Namespace, "weir")
	opts.Timeout = cmp.Or(opts.Timeout, 50*time.Millisecond)
	opts.Lease = cmp.Or(opts.Lease, 2*time.Second)
	s := &Store{
		opts: opts, client: client, news: client, clock: opts.Clock, prefix: "weir:{" + url.PathEscape(opts.Namespace) + "}:", proc: rand.Text(),
		kick: make(chan struct{}, 1), step: make(chan struct{}, 1), anew: make(chan struct{}, 1),
		handles: map[string]weakHandle{}, dirty: map[*bucket]struct{}{}, ill: map[*circuit]struct{}{},
	}
	if s.clock == nil {
		s.clock = clock.New()
	}
	if c, ok := client.(*goredis.Client); ok { // no wrapper, which would be left out
		s.news, s.client = timed(c, max(2*opts.Timeout, 100*time.Millisecond))
	}
	s.env.Clock = s.clock
	s.epoch = s.clock.Now()
	s.ends.Store(int64(never))
	s.see(1)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.done.Go(s.exchanges)
	s.done.Go(s.stepping)
	s.done.Go(s.listen)
	s.wake()
	return s
}

// Close gives back what this process has reserved, and ends the store's
// goroutines. Its handles act as if Redis were down from then on. A command
// under way is waited for, as long as the client's timeouts let it.
func (s *Store) Close() error {
	down := s.down.Load()
	s.cancel()
	s.done.Wait()
	s.fail(errClosed)
	if down {
		return nil
	}
	return s.leave()
}

// instant is a time as the store counts it: since its epoch, and monotonic.
type instant = time.Duration

const never instant = math.MaxInt64

func (s *Store) now() instant { return s.clock.Since(s.epoch) }

// after adds a duration to an instant and saturates at never.
func after(i instant, d time.Duration) instant {
	if d > never-i {
		return never
	}
	return i + d
}

// micros converts what scripts count in, or more than fits to the longest.
func micros(us float64) time.Duration {
	if us >= float64(never)/1000 {
		return never
	}
	return time.Duration(us * 1000)
}

// name returns the Redis key of a state. What it was made from may be a URL or
// a header, and is not to be seen.
func (s *Store) name(id policy.StateID, key string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q", id.Section, id.Budget, id.Pattern, key))
	return s.prefix + hex.EncodeToString(sum[:16])
}

// Bucket implements layers.Store.
func (s *Store) Bucket(id policy.StateID, key string, r policy.Rate) layers.Bucket {
	b := keep(s, s.name(id, key), func(name string) *bucket { return newBucket(s, name, r) })
	b.Set(r)
	return b
}

// Circuit implements layers.Store.
func (s *Store) Circuit(id policy.StateID, key string, set policy.Breaker) layers.Circuit {
	made := false
	c := keep(s, s.name(id, key), func(name string) *circuit {
		made = true
		c := newCircuit(s, name, set)
		c.seen = layers.BreakerOf(c, id, key, set)
		return c
	})
	c.Set(set)
	if made {
		c.look()
	}
	return c
}

// Slots implements layers.Store. What is in flight is left to the process: a
// slot is held for as long as a body, and no lease is right for both a
// stream and a process that died.
func (*Store) Slots(policy.StateID, string, policy.InFlight) layers.Slots { return nil }

// keep returns the handle of a name, and makes it if nobody uses one.
func keep[T any, P interface {
	*T
	handle
}](s *Store, name string, create func(name string) P) P {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w, ok := s.handles[name]; ok {
		if p, ok := w.handle().(P); ok {
			return p
		}
	}
	p := create(name)
	w := weakPointer[T, P]{weak.Make((*T)(p))}
	s.handles[name] = w
	runtime.AddCleanup((*T)(p), func(name string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.handles[name] == weakHandle(w) {
			delete(s.handles, name)
		}
	}, name)
	return p
}

// find returns the handle of a name, nil if nobody uses one.
func (s *Store) find(name string) handle {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w, ok := s.handles[name]; ok {
		return w.handle()
	}
	return nil
}

// all returns the handles that are in use.
func (s *Store) all() (list []handle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.handles {
		if h := w.handle(); h != nil {
			list = append(list, h)
		}
	}
	return list
}

func (s *Store) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// see notes how many processes there are. Fewer than there were may only be those
// that a Redis which was restarted has heard of already, and so that takes a while,
// which begins when it answers again.
func (s *Store) see(n int) {
	now := s.now()
	if now-s.heard > s.opts.Lease {
		s.seen = now
	}
	s.heard = now
	if n = max(1, n, s.opts.Processes); int64(n) >= s.alive.Load() || now-s.seen > 3*s.opts.Lease {
		s.seen = now
		if s.alive.Swap(int64(n)) == int64(n) {
			return
		}
		s.reshare()
	}
}

func (s *Store) reshare() {
	for _, h := range s.all() {
		if b, ok := h.(*bucket); ok {
			b.reshare()
		}
	}
}

// lapsed reports that others may take the process for dead, since it has been at a
// standstill: what it had reserved may be theirs by now.
func (s *Store) lapsed(now instant) bool { return now-instant(s.beat.Load()) > s.opts.Lease }

// forget has the buckets forget what others may have.
func (s *Store) forget() {
	if s.down.Load() || !s.lapsed(s.now()) {
		return
	}
	for _, h := range s.all() {
		if b, ok := h.(*bucket); ok {
			b.forget()
		}
	}
}

// fail says that Redis cannot be asked, if there is an error. No lock may be held.
func (s *Store) fail(err error) {
	if err != nil && !s.down.Swap(true) {
		s.fell.Store(int64(s.now()))
		s.moved(Change{Err: err})
	}
}

// recover says that Redis can be asked again.
func (s *Store) recover() {
	if s.ctx.Err() == nil && s.down.Swap(false) {
		s.ends.Store(int64(never))
		s.moved(Change{Up: true})
	}
}

func (s *Store) moved(c Change) {
	c.Processes = int(s.alive.Load())
	for _, h := range s.all() {
		h.moved(!c.Up)
	}
	s.wake()
	if s.opts.OnChange == nil || s.ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes = append(s.changes, c)
	if !s.telling {
		s.telling = true
		go s.tell()
	}
}

// tell tells of the changes, in order.
func (s *Store) tell() {
	for {
		s.mu.Lock()
		if len(s.changes) == 0 {
			s.telling = false
			s.mu.Unlock()
			return
		}
		c := s.changes[0]
		s.changes = s.changes[1:]
		s.mu.Unlock()
		s.opts.OnChange(c)
	}
}
