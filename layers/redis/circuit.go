package redis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

//go:embed circuit.lua
var circuitSource string

var steps = goredis.NewScript(circuitSource)

var errDown = errors.New("redis: down")

// circuit is a circuit in Redis. While it is closed, each process counts for
// itself what it sees, without asking: the first for which that is enough opens
// it for all. Once the open time is over, Redis is asked for each probe.
type circuit struct {
	s    *Store
	name string
	key  string

	mu      sync.Mutex
	set     policy.Breaker
	state   layers.State // closed or open
	era     string
	until   instant // it is open before this
	current *era
	opening bool // told, and not yet answered
	probed  bool // and seen to be
	news    []layers.Event
	telling bool
}

// era is a time between two changes of state.
type era struct {
	name  string
	local *layers.Breaker // counts, and stands in for Redis
}

func newCircuit(s *Store, name, key string, set policy.Breaker) *circuit {
	c := &circuit{s: s, name: name, key: key, set: set, state: layers.StateClosed, era: "0"}
	c.current = c.newEra()
	return c
}

func (c *circuit) newEra() *era { return &era{c.era, c.s.env.LocalCircuit(c.key, c.set)} }

// pass is the admission of a send by what counts locally.
type pass struct {
	c     *circuit
	era   *era
	inner layers.Pass
}

// Admit implements layers.Circuit.
func (c *circuit) Admit(ctx context.Context, extra bool, p *layers.Pass) (wait time.Duration, admitted bool) {
	down := c.s.down.Load()
	if down && c.s.opts.Fallback != Share {
		if c.s.opts.Fallback == Closed {
			return c.s.retry(), false
		}
		p.Grant(free{}, false)
		return 0, true
	}
	c.mu.Lock()
	state, left, era := c.state, c.until-c.s.now(), c.current
	c.mu.Unlock()
	switch {
	case state == layers.StateOpen && left > 0:
		return left, false
	case state == layers.StateOpen && !down:
		return c.probe(ctx, extra, p)
	}
	l := &pass{c: c, era: era}
	if wait, admitted = era.local.Admit(ctx, extra, &l.inner); admitted {
		p.Grant(l, era.local.State() == layers.StateHalfOpen)
	}
	return wait, admitted
}

// Settle implements layers.Settler.
func (l *pass) Settle(ctx context.Context, _ *layers.Pass, v layers.Verdict) {
	l.era.local.Settle(ctx, &l.inner, v)
	if wait, open := l.era.local.Open(); open {
		l.c.trip(l.era, wait)
	}
}

// Sent is told when a probe of the local circuit is sent.
func (l *pass) Sent(*layers.Pass) { l.era.local.Sent(&l.inner) }

// Stale implements layers.Settler.
func (l *pass) Stale(*layers.Pass) bool {
	l.c.mu.Lock()
	old := l.era != l.c.current || l.c.state == layers.StateOpen && l.c.until > l.c.s.now()
	l.c.mu.Unlock()
	return old || l.era.local.Stale(&l.inner)
}

// free is the admission of a send that counts for nothing.
type free struct{}

// Settle implements layers.Settler.
func (free) Settle(context.Context, *layers.Pass, layers.Verdict) {}

// Stale implements layers.Settler.
func (free) Stale(*layers.Pass) bool { return false }

// trip opens the circuit: here at once, and for all as soon as Redis knows.
func (c *circuit) trip(e *era, wait time.Duration) {
	c.mu.Lock()
	if e != c.current || c.opening || c.s.down.Load() {
		c.mu.Unlock()
		return
	}
	c.opening = true
	if c.state == layers.StateClosed {
		c.state, c.until = layers.StateOpen, after(c.s.now(), wait)
		c.show()
	}
	c.mu.Unlock()
	c.do("trip", "", e.name)
}

// probe is the lease of a probe of the fleet.
type probe struct {
	c       *circuit
	id, era string
	lease   instant
	settled atomic.Bool
}

func (c *circuit) probe(ctx context.Context, extra bool, p *layers.Pass) (wait time.Duration, admitted bool) {
	if extra {
		return 0, false // a probe is worth more to a first send
	}
	began := c.s.now()
	id := c.s.proc + ":" + strconv.FormatUint(rand.Uint64(), 36)
	r, err := c.do("probe", id, "").await(ctx)
	switch {
	case err != nil && ctx.Err() == nil && c.s.down.Load():
		return c.Admit(ctx, extra, p) // by the fallback
	case err != nil:
		return 0, false
	case r.granted:
		c.mu.Lock()
		pr := &probe{c: c, id: id, era: r.era, lease: after(began, c.set.Open)}
		if !c.probed {
			c.probed = true
			c.show()
		}
		c.mu.Unlock()
		p.Grant(pr, true)
		return 0, true
	case r.state == layers.StateClosed:
		return c.Admit(ctx, extra, p)
	}
	return max(r.left, r.wait), false
}

// Settle implements layers.Settler.
func (p *probe) Settle(_ context.Context, _ *layers.Pass, v layers.Verdict) {
	if p.settled.Swap(true) {
		return
	}
	switch v {
	case layers.VerdictSuccess:
		p.c.do("success", p.id, p.era)
	case layers.VerdictFailure:
		p.c.do("failure", p.id, p.era)
	default:
		p.c.do("neutral", p.id, p.era)
	}
}

// Sent begins the lease of the probe anew: it may have waited at the gates.
func (p *probe) Sent(*layers.Pass) {
	p.c.mu.Lock()
	p.lease = after(p.c.s.now(), p.c.set.Open)
	p.c.mu.Unlock()
	p.c.do("sent", p.id, p.era)
}

// Stale implements layers.Settler.
func (p *probe) Stale(*layers.Pass) bool {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.settled.Load() || p.era != p.c.era || p.c.s.now() >= p.lease
}

// Open implements layers.Circuit.
func (c *circuit) Open() (wait time.Duration, open bool) {
	if c.s.down.Load() && c.s.opts.Fallback != Share {
		return 0, c.s.opts.Fallback == Closed
	}
	c.mu.Lock()
	state, left, local := c.state, c.until-c.s.now(), c.current.local
	c.mu.Unlock()
	if state == layers.StateOpen {
		return max(0, left), left > 0
	}
	return local.Open()
}

// Set implements layers.Circuit.
func (c *circuit) Set(set policy.Breaker) {
	c.mu.Lock()
	c.set = set
	local := c.current.local
	c.mu.Unlock()
	local.Set(set)
}

// Rests implements layers.Handle.
func (c *circuit) Rests() (idle, free bool) {
	c.mu.Lock()
	state, local := c.state, c.current.local
	c.mu.Unlock()
	idle, free = local.Rests()
	return idle && state == layers.StateClosed, free && state == layers.StateClosed
}

// show has the observer told of the state that is seen, on a goroutine of its
// own: a slow one delays neither a call nor the store.
func (c *circuit) show() {
	if c.s.opts.Observer == nil {
		return
	}
	e := layers.Event{Kind: layers.KindBreaker, Phase: layers.PhaseBreaker, At: c.s.clock.Now(), State: c.state}
	switch {
	case c.state == layers.StateOpen && c.probed:
		e.State = layers.StateHalfOpen
	case c.state == layers.StateOpen:
		e.Wait = max(0, c.until-c.s.now())
	}
	c.news = append(c.news, e)
	if !c.telling {
		c.telling = true
		go c.tell()
	}
}

// tell tells the observer, in order.
func (c *circuit) tell() {
	for {
		c.mu.Lock()
		if len(c.news) == 0 {
			c.telling = false
			c.mu.Unlock()
			return
		}
		e := c.news[0]
		c.news = c.news[1:]
		c.mu.Unlock()
		c.s.opts.Observer.Observe(context.Background(), e)
	}
}

// hear is told of a change of state.
func (c *circuit) hear(state, era string, left time.Duration) {
	c.mu.Lock()
	news := newer(era, c.era)
	c.mu.Unlock()
	if news {
		c.apply(stateOf(state), era, left)
	}
}

func stateOf(s string) layers.State {
	if s == "open" {
		return layers.StateOpen
	}
	return layers.StateClosed
}

func (c *circuit) apply(state layers.State, era string, left time.Duration) {
	c.mu.Lock()
	if state == layers.StateOpen {
		c.until = after(c.s.now(), left)
	}
	if era != c.era || state != c.state {
		seen := c.state != state || state == layers.StateOpen && c.probed
		c.state, c.era = state, era
		c.current = c.newEra()
		c.opening, c.probed = false, false
		if seen {
			c.show()
		}
	}
	c.mu.Unlock()
}

// moved implements handle. What has opened meanwhile opens for all.
func (c *circuit) moved(bool) {
	c.mu.Lock()
	c.opening = false
	c.mu.Unlock()
	if !c.s.down.Load() {
		c.resync()
	}
}

// resync implements handle.
func (c *circuit) resync() {
	c.mu.Lock()
	e := c.current
	c.mu.Unlock()
	if wait, open := e.local.Open(); open {
		c.trip(e, wait)
		return
	}
	c.do("look", "", "")
}

// look asks for the state, and waits for the answer if it may.
func (c *circuit) look(ctx context.Context) {
	if !c.s.down.Load() {
		_, _ = c.do("look", "", "").await(ctx)
	}
}

// step is one question about a circuit.
type step struct {
	c             *circuit
	what, id, era string
	done          chan struct{}
	gone          atomic.Bool // nobody waits for the answer any more
	r             stepReply
	err           error
}

type stepReply struct {
	state      layers.State
	era        string
	left, wait time.Duration
	granted    bool
}

// do asks soon, and does not wait for the answer.
func (c *circuit) do(what, id, era string) *step {
	st := &step{c: c, what: what, id: id, era: era, done: make(chan struct{}), err: errDown}
	select {
	case c.s.steps <- st:
	default: // too much at once
		close(st.done)
	}
	return st
}

// await waits for the answer as long as a send may.
func (st *step) await(ctx context.Context) (stepReply, error) {
	s := st.c.s
	timer := s.clock.Timer(s.opts.Timeout)
	defer timer.Stop()
	select {
	case <-st.done:
		return st.r, st.err
	case <-ctx.Done():
		st.gone.Store(true)
		return stepReply{}, ctx.Err()
	case <-timer.C:
		st.gone.Store(true)
		s.fail(errSlow)
		return stepReply{}, errSlow
	}
}

// stepping takes the steps, one after the other.
func (s *Store) stepping() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case st := <-s.steps:
			st.take()
			if st.gone.Load() && st.r.granted {
				st.c.do("neutral", st.id, st.r.era) // nobody makes that probe
			}
			close(st.done)
		}
	}
}

func (st *step) take() {
	c := st.c
	s := c.s
	if s.down.Load() || st.gone.Load() {
		return
	}
	c.mu.Lock()
	set, known := c.set, c.until-s.now()
	if c.state != layers.StateOpen {
		known = 0
	}
	c.mu.Unlock()
	spread := 1 + max(0, set.OpenJitter)*rand.Float64()
	text, err := steps.Run(s.ctx, s.client, []string{c.name, c.name + ":probes"},
		st.what, st.id, st.era, set.Open.Microseconds(), set.OpenMax.Microseconds(), spread, max(1, set.Probes), s.channel(), max(0, known.Microseconds()),
	).Text()
	var state string
	var left, wait float64
	var granted int
	if err == nil {
		_, err = fmt.Sscan(text, &state, &st.r.era, &left, &granted, &wait)
	}
	if st.err = err; err != nil {
		s.fail(err)
		return
	}
	st.r.state, st.r.left, st.r.wait, st.r.granted = stateOf(state), micros(left), micros(wait), granted == 1
	c.apply(st.r.state, st.r.era, st.r.left)
}
