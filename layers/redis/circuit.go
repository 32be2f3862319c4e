package redis

import (
	"cmp"
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

// circuit is a circuit in Redis. While it is closed, each process counts for
// itself what it sees, without asking: the first for which that is enough opens
// it for all. Once the open time is over, Redis is asked for each probe.
type circuit struct {
	s    *Store
	name string
	seen *layers.Breaker

	mu      sync.Mutex
	set     policy.Breaker
	state   layers.State // closed or open
	era     string
	until   instant // it is open before this
	heard   instant // of the last change: one that was published, or made here
	why     string  // it opened last
	current *era
	opening bool         // told, and not yet answered
	forced  layers.State // by hand; 0: it is not
	first   *step        // the state in Redis is not yet known
	probed  bool         // and seen to be
	news    []layers.Event
	telling bool
}

// era is a time between two changes of state.
type era struct {
	name  string
	local layers.Shown // counts, and stands in for Redis
}

func newCircuit(s *Store, name string, set policy.Breaker) *circuit {
	c := &circuit{s: s, name: name, set: set, state: layers.StateClosed, era: "0"}
	c.current = c.newEra()
	return c
}

func (c *circuit) newEra() *era { return &era{c.era, c.s.env.LocalCircuit(c.set)} }

// pass is the admission of a send by what counts locally.
type pass struct {
	c     *circuit
	era   *era
	inner layers.Pass
}

// Admit implements layers.Circuit.
func (c *circuit) Admit(ctx context.Context, extra bool, p *layers.Pass) (wait time.Duration, admitted bool) {
	switch c.byHand() {
	case layers.StateOpen:
		return 0, false
	case layers.StateClosed:
		p.Grant(free{c}, false)
		return 0, true
	}
	c.know(ctx)
	down := c.s.down.Load()
	if down && c.s.opts.Fallback != Share {
		if c.s.opts.Fallback == Closed {
			return c.s.retry(), false
		}
		p.Grant(free{c}, false)
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
		p.Grant(l, era.local.Status().State == layers.StateHalfOpen)
	}
	return wait, admitted
}

// Settle implements layers.Settler.
func (l *pass) Settle(ctx context.Context, _ *layers.Pass, v layers.Verdict) {
	if l.c.byHand() == layers.StateClosed {
		v = layers.VerdictNeutral // nothing counts
	}
	l.inner.Settle(ctx, v)
	if wait, open := l.era.local.Open(); open {
		l.c.trip(l.era, wait)
	}
}

// Sent is told when a probe of the local circuit is sent.
func (l *pass) Sent(*layers.Pass) { l.inner.Sent() }

// Stale implements layers.Settler.
func (l *pass) Stale(*layers.Pass) bool {
	l.c.mu.Lock()
	old := l.c.forced == layers.StateOpen || l.era != l.c.current || l.c.state == layers.StateOpen && l.c.until > l.c.s.now()
	l.c.mu.Unlock()
	return old || l.inner.Stale()
}

// free is the admission of a send that counts for nothing.
type free struct{ c *circuit }

// Settle implements layers.Settler.
func (free) Settle(context.Context, *layers.Pass, layers.Verdict) {}

// Stale implements layers.Settler.
func (f free) Stale(*layers.Pass) bool { return f.c.byHand() == layers.StateOpen }

// trip opens the circuit: here at once, and for all as soon as Redis knows.
func (c *circuit) trip(e *era, wait time.Duration) {
	c.mu.Lock()
	if e != c.current || c.opening || c.s.down.Load() {
		c.mu.Unlock()
		return
	}
	c.opening = true
	if c.state == layers.StateClosed {
		c.heard = c.s.now()
		c.state, c.until, c.why = layers.StateOpen, after(c.heard, wait), e.local.Status().Why
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
	r, err := c.ask("probe", id).await(ctx)
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
	return p.settled.Load() || p.c.forced == layers.StateOpen || p.era != p.c.era || p.c.s.now() >= p.lease
}

// Open implements layers.Circuit.
func (c *circuit) Open() (wait time.Duration, open bool) {
	if by := c.byHand(); by != 0 {
		return 0, by == layers.StateOpen
	}
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
	closed, local := c.state == layers.StateClosed && c.forced == 0, c.current.local
	c.mu.Unlock()
	idle, free = local.Rests()
	return idle && closed, free && closed
}

// show has the observer told of the state that is seen, on a goroutine of its
// own: a slow one delays neither a call nor the store.
func (c *circuit) show() {
	if c.s.opts.Observer == nil {
		return
	}
	e := layers.Event{Kind: layers.KindBreaker, Phase: layers.PhaseBreaker, At: c.s.clock.Now(), State: c.state, Breaker: c.seen, Forced: c.forced != 0}
	switch {
	case c.forced != 0:
		e.State = c.forced
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
	defer c.mu.Unlock()
	if newer(era, c.era) {
		c.heard = c.s.now()
		c.apply(stateOf(state), era, left)
	}
}

func stateOf(s string) layers.State {
	if s == "open" {
		return layers.StateOpen
	}
	return layers.StateClosed
}

// answer takes the state that a step found, if it is not from before what was
// published meanwhile.
func (c *circuit) answer(st *step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.asked > c.heard || st.r.era == c.era && st.r.state == c.state || later(st.r.era, c.era, 0) {
		c.apply(st.r.state, st.r.era, st.r.left)
	}
}

// apply takes a state that is no older than the present one. The mutex must be
// held, or what is newer could come in between.
func (c *circuit) apply(state layers.State, era string, left time.Duration) {
	if state == layers.StateOpen {
		c.until = after(c.s.now(), left)
	}
	if era != c.era || state != c.state {
		seen := c.state != state || state == layers.StateOpen && c.probed
		switch {
		case state == layers.StateOpen && c.probed:
			c.why = "a probe failed"
		case state == layers.StateOpen && c.state == layers.StateClosed:
			c.why = "it opened for the fleet"
		}
		c.state, c.era = state, era
		c.current = c.newEra()
		c.opening, c.probed = false, false
		if seen {
			c.show()
		}
	}
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

// look asks for the state of a circuit that is new here.
func (c *circuit) look() {
	if c.s.down.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.first = c.ask("look", "")
}

// know waits for that answer, as long as a send may.
func (c *circuit) know(ctx context.Context) {
	c.mu.Lock()
	first := c.first
	c.mu.Unlock()
	if first == nil || c.s.down.Load() {
		return
	}
	if _, err := first.await(ctx); err != nil && ctx.Err() != nil {
		return // others wait on
	}
	c.mu.Lock()
	c.first = nil
	c.mu.Unlock()
}

func (c *circuit) byHand() layers.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.forced
}

// Force implements layers.Shown.
func (c *circuit) Force(s layers.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s != c.forced {
		c.forced = s
		c.show()
	}
}

// Status implements layers.Shown.
func (c *circuit) Status() layers.BreakerStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.until - c.s.now()
	s := c.current.local.Status()
	s.Forced, s.Why = c.forced != 0, cmp.Or(s.Why, c.why)
	switch {
	case c.s.down.Load() && c.s.opts.Fallback == Open:
		s.State, s.Until = layers.StateClosed, time.Time{}
	case c.s.down.Load() && c.s.opts.Fallback == Closed:
		s.State, s.Until = layers.StateOpen, time.Time{}
	case c.state == layers.StateOpen && left > 0:
		s.State, s.Until = layers.StateOpen, c.s.epoch.Add(c.until)
	case c.state == layers.StateOpen && !c.s.down.Load():
		s.State, s.Until = layers.StateHalfOpen, time.Time{}
	}
	if c.forced != 0 {
		s.State = c.forced
	}
	if c.s.down.Load() && c.s.opts.Fallback == Closed {
		s.Why = "Redis is down"
	}
	return s
}
