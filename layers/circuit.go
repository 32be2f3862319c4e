package layers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/weir-go/weir/policy"
)

// circuit is that of one key, in this process. gobreaker's two-step breaker is its
// state machine. It reads the real clock and cannot be told otherwise, so it is
// given the smallest open time that it takes, and how long the circuit stays open,
// and the window of the ratio, are kept in front of it on the injected clock.
type circuit struct {
	env  *Env
	seen *Breaker
	calm atomic.Int64 // the era, while the circuit is closed by itself; else -1

	mu     sync.Mutex
	set    policy.Breaker
	core   *gobreaker.TwoStepCircuitBreaker[struct{}]
	inner  gobreaker.State
	until  instant // the circuit is open before this
	opens  int     // in a row, without closing
	why    string  // it opened last
	era    int     // counts changes of state; results of an earlier one count for nothing
	forced State   // 0: none
	trip   bool    // what is reported next opens the circuit
	draw   float64 // that spreads the next open time, drawn ahead; negative: used up
	failed bool    // the engine counts a failure
	window window
	done   func(error)             // ends the half-open state
	probes []*Pass                 // under way
	good   int                     // that succeeded
	again  func(anew bool) Circuit // in its place, since it made room for others; nil: it has not

	said    State // what was told last
	changes []change
	telling bool
}

// change is a change of state to be told.
type change struct {
	ctx   context.Context
	event Event
}

// errFailed is a failure, as gobreaker takes it.
var errFailed = errors.New("failed")

var circuits = kind[Circuit]{
	numbers: func(s policy.Settings) any {
		b := s.Breaker
		return struct {
			failures, least, probes   int
			ratio, jitter             float64
			window, open, openLongest time.Duration
		}{b.Failures, b.MinRequests, b.Probes, b.Ratio, b.OpenJitter, b.Window, b.Open, b.OpenMax}
	},
	make: func(e *Env, id policy.StateID, key stateKey, s policy.Settings) Circuit {
		if e.Store != nil {
			if c := e.Store.Circuit(id, key.String(), s.Breaker); c != nil {
				return c
			}
		}
		return newCircuit(e, id, key, s.Breaker)
	},
	apply: func(c Circuit, s policy.Settings) func() {
		if own, ok := c.(*circuit); ok {
			return own.apply(s.Breaker)
		}
		return func() { c.Set(s.Breaker) }
	},
	// There is no pool. A limit holds for keys that share it, but a circuit would
	// refuse the sends to those that are well for the failures of others. One that
	// is not kept lets a failing server be asked, for no longer than a deadline.
}

func newCircuit(e *Env, id policy.StateID, key stateKey, set policy.Breaker) *circuit {
	c := &circuit{env: e, set: set, said: StateClosed, draw: e.Rand()}
	c.seen = &Breaker{c, id, key}
	c.core = c.engine()
	return c
}

// engine returns a state machine in the closed state. One success closes it
// again: how many probes make one is counted in front of it.
func (c *circuit) engine() *gobreaker.TwoStepCircuitBreaker[struct{}] {
	c.inner = gobreaker.StateClosed
	return gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1,
		Timeout:     1, // 0 would be a minute
		ReadyToTrip: func(n gobreaker.Counts) bool {
			return c.trip || c.set.Failures > 0 && int64(n.ConsecutiveFailures) >= int64(c.set.Failures)
		},
		IsSuccessful: func(err error) bool { return err == nil },
		// All calls of the engine are under the mutex, and so is this.
		OnStateChange: func(_ string, _, to gobreaker.State) { c.moved(to) },
	})
}

// moved follows the engine. That it leaves the open state at once is for
// nobody to see.
func (c *circuit) moved(to gobreaker.State) {
	if to == gobreaker.StateOpen {
		c.why = c.reason()
	}
	c.inner = to
	c.era++
	c.window = window{}
	c.probes, c.good, c.failed = c.probes[:0], 0, false
	c.settleCalm()
	switch to {
	case gobreaker.StateOpen:
		open := c.set.Open
		for i := 0; i < c.opens && open < c.set.OpenMax; i++ {
			open *= 2
		}
		open = min(open, max(c.set.Open, c.set.OpenMax))
		open += time.Duration(max(0, c.set.OpenJitter) * max(0, c.draw) * float64(open))
		c.draw = -1
		c.until = after(c.env.now(), open)
		c.opens++
	case gobreaker.StateClosed:
		c.opens, c.until = 0, 0
	}
}

// settleCalm notes whether the circuit lets all pass, and will until it moves.
// The mutex must be held.
func (c *circuit) settleCalm() {
	if c.inner == gobreaker.StateClosed && c.forced == 0 {
		c.calm.Store(int64(c.era))
	} else {
		c.calm.Store(-1)
	}
}

// reason says why the circuit opens now.
func (c *circuit) reason() string {
	switch {
	case c.inner == gobreaker.StateHalfOpen:
		return "a probe failed"
	case c.trip:
		return fmt.Sprintf("%d of %d sends failed within %v", c.window.failed, c.window.n, c.set.Window)
	}
	return fmt.Sprintf("%d failures in a row", c.set.Failures)
}

// Set implements Circuit.
func (c *circuit) Set(set policy.Breaker) {
	c.apply(set)()
}

// apply applies numbers. What it returns tells the observer, who may call back.
func (c *circuit) apply(set policy.Breaker) (tell func()) {
	c.mu.Lock()
	now := c.env.now()
	if set.Window != c.set.Window {
		c.window = c.window.over(now, c.set.Window, set.Window)
	}
	c.set = set
	c.closeIfGood()
	c.show(context.Background(), now)
	c.mu.Unlock()
	return c.tell
}

// Rests implements Handle.
func (c *circuit) Rests() (idle, free bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	free = c.inner == gobreaker.StateClosed && c.forced == 0
	return free && !c.failed, free
}

// Admit implements Circuit.
func (c *circuit) Admit(ctx context.Context, extra bool, p *Pass) (wait time.Duration, admitted bool) {
	if era := c.calm.Load(); era >= 0 { // and no probe is under way
		*p = Pass{by: c, era: int(era)}
		return 0, true
	}
	c.mu.Lock()
	now := c.env.now()
	wait, refused := c.refuses(now)
	if !refused {
		wait, refused = c.enter(now, extra, p)
	}
	c.show(ctx, now)
	c.mu.Unlock()
	c.tell()
	return wait, !refused
}

// refuses reports that the circuit is open, and for how much longer, if known.
func (c *circuit) refuses(now instant) (wait time.Duration, refused bool) {
	switch c.forced {
	case StateOpen:
		return 0, true
	case StateClosed:
		return 0, false
	}
	return max(0, c.until-now), now < c.until
}

// enter asks the engine. wait is when the first of the probes under way is
// given up.
func (c *circuit) enter(now instant, extra bool, p *Pass) (wait time.Duration, refused bool) {
	c.forget(p)
	*p = Pass{by: c, era: c.era, settled: true} // nothing to settle yet
	if c.forced == StateClosed {
		return 0, false // and nothing counts
	}
	if extra && c.inner != gobreaker.StateClosed {
		return 0, true // a probe is worth more to a first send
	}
	if c.inner == gobreaker.StateOpen {
		done, err := c.core.Allow()
		if err != nil {
			return 0, true
		}
		c.done = done
	}
	if c.inner == gobreaker.StateHalfOpen {
		if c.full() && !(c.expire(now) && !c.full()) {
			wait = never
			for _, probe := range c.probes {
				wait = min(wait, probe.lease)
			}
			if wait == never { // they are not even sent
				return 0, true
			}
			return max(0, wait-now), true
		}
		p.probe = true
		p.lease = never // it begins when the probe is sent
		c.probes = append(c.probes, p)
	}
	p.era, p.settled = c.era, false
	return 0, false
}

// forget takes a probe out of those under way.
func (c *circuit) forget(p *Pass) {
	c.probes = slices.DeleteFunc(c.probes, func(o *Pass) bool { return o == p })
}

// Sent begins the lease of a probe.
func (c *circuit) Sent(p *Pass) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.lease == never {
		p.lease = after(c.env.now(), c.set.Open)
	}
}

// Open implements Circuit.
func (c *circuit) Open() (wait time.Duration, open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refuses(c.env.now())
}

// full reports that the probes under way, should they succeed, are enough.
func (c *circuit) full() bool { return len(c.probes)+c.good >= c.set.Probes }

// closeIfGood closes the circuit if enough probes have succeeded.
func (c *circuit) closeIfGood() {
	if c.inner == gobreaker.StateHalfOpen && c.good >= c.set.Probes {
		c.done(nil)
	}
}

// expire makes room for others than the probes whose lease is over, and reports
// whether there were any.
func (c *circuit) expire(now instant) (expired bool) {
	n := len(c.probes)
	c.probes = slices.DeleteFunc(c.probes, func(p *Pass) bool { return now >= p.lease })
	return len(c.probes) < n
}

// Settle implements Settler.
func (c *circuit) Settle(ctx context.Context, p *Pass, v Verdict) {
	c.mu.Lock()
	if again := c.again; again != nil && v != VerdictNeutral && !p.settled && p.era == c.era {
		p.settled = true
		c.mu.Unlock()
		if heir, ok := again(v == VerdictFailure).(*circuit); ok {
			heir.hear(ctx, v)
		}
		return
	}
	now := c.env.now()
	c.report(now, p, v)
	c.show(ctx, now)
	opened := c.draw < 0
	c.mu.Unlock()
	c.tell()
	if opened {
		draw := c.env.Rand() // the user's code, and so under no lock
		c.mu.Lock()
		c.draw = draw
		c.mu.Unlock()
	}
}

// madeRoom implements leaver.
func (c *circuit) madeRoom(again func(anew bool) Circuit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.again = again
}

// hear counts what another circuit of the key was told.
func (c *circuit) hear(ctx context.Context, v Verdict) {
	if era := c.calm.Load(); era >= 0 {
		c.Settle(ctx, &Pass{era: int(era)}, v)
	}
}

// report counts a verdict. The mutex must be held.
func (c *circuit) report(now instant, p *Pass, v Verdict) {
	if p.settled {
		return
	}
	p.settled = true
	if p.era != c.era {
		return
	}
	if c.forced == StateClosed {
		v = VerdictNeutral
	}
	failed := v == VerdictFailure
	switch {
	case p.probe:
		leased := now <= p.lease && slices.Contains(c.probes, p)
		c.forget(p)
		switch {
		case v == VerdictSuccess: // late too, or a server slower than Open would be shut out for ever
			c.good++
			c.closeIfGood()
		case failed && leased:
			c.done(errFailed)
		}
	case v == VerdictNeutral:
	default:
		if c.set.Ratio > 0 {
			n, bad := c.window.count(now, c.set.Window, failed)
			c.trip = n >= c.set.MinRequests && float64(bad) >= c.set.Ratio*float64(n)
		}
		c.count(failed || c.trip) // also if it is a success that completes the number
		c.trip = false
	}
}

// count tells the closed engine of a result. A success after no failure is no
// news.
func (c *circuit) count(failed bool) {
	if !failed && !c.failed {
		return
	}
	c.failed = failed
	done, err := c.core.Allow()
	switch {
	case err != nil: // it is closed, and lets all pass
	case failed:
		done(errFailed)
	default:
		done(nil)
	}
}

// Stale implements Settler.
func (c *circuit) Stale(p *Pass) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return p.settled || p.era != c.era || c.forced == StateOpen || p.probe && c.env.now() >= p.lease
}

// show notes a change of the state that is seen, to be told once the mutex,
// which must be held, is free.
func (c *circuit) show(ctx context.Context, now instant) {
	s := c.state(now)
	if s == c.said || s == StateHalfOpen && len(c.probes) == 0 && c.said == StateOpen {
		return
	}
	c.said = s
	if c.env.Observer == nil {
		return
	}
	e := Event{Kind: KindBreaker, Phase: PhaseBreaker, At: c.env.time(now), State: s, Breaker: c.seen, Forced: c.forced != 0}
	if s == StateOpen && c.forced == 0 {
		e.Wait = max(0, c.until-now)
	}
	if c, ok := CallFrom(ctx); ok {
		e.Route = c.Route()
	}
	c.changes = append(c.changes, change{context.WithoutCancel(ctx), e})
}

// tell tells the observer of the changes, in order, and under no lock.
func (c *circuit) tell() {
	if c.env.Observer == nil {
		return
	}
	for {
		c.mu.Lock()
		if c.telling || len(c.changes) == 0 {
			c.mu.Unlock()
			return
		}
		c.telling = true
		next := c.changes[0]
		c.changes = c.changes[1:]
		c.mu.Unlock()
		c.observe(next)
	}
}

func (c *circuit) observe(news change) {
	defer func() { // also if the observer panics
		c.mu.Lock()
		c.telling = false
		c.mu.Unlock()
	}()
	c.env.Observer.Observe(news.ctx, news.event)
}

func (c *circuit) state(now instant) State {
	switch {
	case c.forced != 0:
		return c.forced
	case now < c.until:
		return StateOpen
	case c.inner == gobreaker.StateClosed:
		return StateClosed
	}
	return StateHalfOpen
}

// Status implements Shown.
func (c *circuit) Status() BreakerStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.env.now()
	s := BreakerStatus{
		State: c.state(now), Forced: c.forced != 0, Why: c.why,
		Failures: int(c.core.Counts().ConsecutiveFailures), Probes: len(c.probes),
	}
	if now < c.until {
		s.Until = c.env.time(c.until)
	}
	return s
}

// Force implements Shown.
func (c *circuit) Force(s State) {
	c.mu.Lock()
	c.forced = s
	c.settleCalm()
	c.show(context.Background(), c.env.now())
	c.mu.Unlock()
	c.tell()
}
