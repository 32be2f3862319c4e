package layers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/stream"
)

// CircuitBreaker refuses the sends of a key, at once and unsent, while its
// circuit is open: see [policy.Breaker], whose zero fields have their defaults
// here. id is the identity of the state that it shares, zero if the stack has
// only one.
//
// A send counts when its body ends. A failure is a connection error, an expired
// phase, a status of 500 or above but for 501, a stall, a body that ends in an
// error, one that a stream reports of its server, and the policy's deadline passing
// while the send waits on the server. The caller's cancellation and shorter
// deadline, refusals of ours, other 4xx and 429 and what says the same in a stream,
// and a body that the caller abandons count as nothing.
func CircuitBreaker(env *Env, id policy.StateID, b policy.Breaker) Layer {
	b = policy.Defaults().With(policy.Settings{Breaker: b}).Breaker
	env = env.ready()
	states := statesOf(env, id, circuits)
	states.set(policy.Settings{Breaker: b})()
	return env.layer(rankBreaker, "", func(_ *Env, next sender) sender {
		return &circuitBreaker{next: next, states: states, key: keyOf(b.Key)}
	})
}

type circuitBreaker struct {
	next   sender
	states *keyed[Circuit]
	key    policy.KeyFunc
}

func (l *circuitBreaker) send(a *attempt, req *http.Request) (*http.Response, error) {
	p := &a.pass
	a.circuit = l.states.of(l.key, req)
	if wait, admitted := a.circuit.Admit(a, a.hedge, p); !admitted {
		if a.hedge || !a.inProbeOf(a.circuit) {
			return nil, a.refuse(circuitOpen(a.circuit, wait))
		}
		*p = Pass{} // that probe has the verdict
	}
	defer func() {
		if !a.left() { // refused further in, or a panic in a function of the user's
			p.Settle(a, VerdictNeutral)
		}
	}()
	return l.next.send(a, req)
}

// inProbeOf reports that the send is part of a probe of c: a layer of the
// user's, inside the probe, makes a token for it.
func (a *attempt) inProbeOf(c Circuit) bool {
	for o := a.around(); o != nil; o = o.around() {
		if p := &o.pass; o.circuit == c && p.probe && p.by != nil && !p.Stale() {
			return true
		}
	}
	return false
}

var (
	errCircuit = errors.New("the circuit is open")
	errForced  = errors.New("the circuit was opened by hand")
)

func circuitOpen(c Circuit, wait time.Duration) *Error {
	err := errCircuit
	if by, ok := c.(interface{ Status() BreakerStatus }); ok && wait == 0 {
		if s := by.Status(); s.Forced && s.State == StateOpen {
			err = errForced
		}
	}
	return &Error{Layer: rankBreaker.String(), Phase: PhaseBreaker, RetryAfter: wait, Reason: ReasonCircuit, Err: err}
}

// barred reports that the circuit of the attempt will still be open after a wait.
func (a *attempt) barred(wait time.Duration) bool {
	if a.circuit == nil {
		return false
	}
	left, open := a.circuit.Open()
	return open && (left == 0 || left > wait)
}

// ended is told how the send ended.
func (p *Pass) ended(a *attempt, o outcome) { p.Settle(a, o.verdict()) }

// content is told of the first content of a response, which is what a probe is
// for: it need not wait for the end of a long body.
func (p *Pass) content(a *attempt) {
	if p.probe {
		p.Settle(a, outcome{status: int(a.status)}.verdict())
	}
}

// State is the state of a circuit.
type State uint8

// The states of a circuit. The zero State is none.
const (
	StateClosed   State = iota + 1 // sends pass
	StateHalfOpen                  // a few sends pass, to see
	StateOpen                      // none pass
)

func (s State) String() string {
	return [...]string{"", "closed", "half-open", "open"}[min(s, StateOpen)]
}

// MarshalText returns what String does, for JSON.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Breaker is the circuit of one key. gobreaker's two-step breaker is its state
// machine. It reads the real clock and cannot be told otherwise, so it is given
// the smallest open time that it takes, and how long the circuit stays open,
// and the window of the ratio, are kept in front of it on the injected clock.
//
// It is safe for concurrent use.
type Breaker struct {
	shown Shown // of a Store, whose circuit this is to be seen; nil: it is this one
	env   *Env
	id    policy.StateID
	key   stateKey
	calm  atomic.Int64 // the era, while the circuit is closed by itself; else -1

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
		b := newBreaker(e, key, s.Breaker)
		b.id = id
		return b
	},
	apply: func(c Circuit, s policy.Settings) func() {
		if b, ok := c.(*Breaker); ok {
			return b.apply(s.Breaker)
		}
		return func() { c.Set(s.Breaker) }
	},
	// There is no pool. A limit holds for keys that share it, but a circuit would
	// refuse the sends to those that are well for the failures of others. One that
	// is not kept lets a failing server be asked, for no longer than a deadline.
}

func newBreaker(e *Env, key stateKey, set policy.Breaker) *Breaker {
	b := &Breaker{env: e, key: key, set: set, said: StateClosed, draw: e.Rand()}
	b.core = b.engine()
	return b
}

// engine returns a state machine in the closed state. One success closes it
// again: how many probes make one is counted in front of it.
func (b *Breaker) engine() *gobreaker.TwoStepCircuitBreaker[struct{}] {
	b.inner = gobreaker.StateClosed
	return gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1,
		Timeout:     1, // 0 would be a minute
		ReadyToTrip: func(n gobreaker.Counts) bool {
			return b.trip || b.set.Failures > 0 && int64(n.ConsecutiveFailures) >= int64(b.set.Failures)
		},
		IsSuccessful: func(err error) bool { return err == nil },
		// All calls of the engine are under the mutex, and so is this.
		OnStateChange: func(_ string, _, to gobreaker.State) { b.moved(to) },
	})
}

// moved follows the engine. That it leaves the open state at once is for
// nobody to see.
func (b *Breaker) moved(to gobreaker.State) {
	if to == gobreaker.StateOpen {
		b.why = b.reason()
	}
	b.inner = to
	b.era++
	b.window = window{}
	b.probes, b.good, b.failed = b.probes[:0], 0, false
	b.settleCalm()
	switch to {
	case gobreaker.StateOpen:
		open := b.set.Open
		for i := 0; i < b.opens && open < b.set.OpenMax; i++ {
			open *= 2
		}
		open = min(open, max(b.set.Open, b.set.OpenMax))
		open += time.Duration(max(0, b.set.OpenJitter) * max(0, b.draw) * float64(open))
		b.draw = -1
		b.until = after(b.env.now(), open)
		b.opens++
	case gobreaker.StateClosed:
		b.opens, b.until = 0, 0
	}
}

// settleCalm notes whether the circuit lets all pass, and will until it moves.
// The mutex must be held.
func (b *Breaker) settleCalm() {
	if b.inner == gobreaker.StateClosed && b.forced == 0 {
		b.calm.Store(int64(b.era))
	} else {
		b.calm.Store(-1)
	}
}

// shownAs returns a Breaker that is to be seen and switched in the place of a
// circuit of a Store.
func shownAs(c Shown, id policy.StateID, key string) *Breaker {
	b := &Breaker{shown: c, id: id, key: stateKey{name: key}}
	b.calm.Store(-1)
	return b
}

// reason says why the circuit opens now.
func (b *Breaker) reason() string {
	switch {
	case b.inner == gobreaker.StateHalfOpen:
		return "a probe failed"
	case b.trip:
		return fmt.Sprintf("%d of %d sends failed within %v", b.window.failed, b.window.n, b.set.Window)
	}
	return fmt.Sprintf("%d failures in a row", b.set.Failures)
}

// Set implements Circuit.
func (b *Breaker) Set(set policy.Breaker) {
	if b.shown != nil {
		b.shown.Set(set)
		return
	}
	b.apply(set)()
}

// apply applies numbers. What it returns tells the observer, who may call back.
func (b *Breaker) apply(set policy.Breaker) (tell func()) {
	b.mu.Lock()
	now := b.env.now()
	if set.Window != b.set.Window {
		b.window = b.window.over(now, b.set.Window, set.Window)
	}
	b.set = set
	b.closeIfGood()
	b.show(context.Background(), now)
	b.mu.Unlock()
	return b.tell
}

// Rests implements Handle.
func (b *Breaker) Rests() (idle, free bool) {
	if b.shown != nil {
		return b.shown.Rests()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	free = b.inner == gobreaker.StateClosed && b.forced == 0
	return free && !b.failed, free
}

// Admit implements Circuit.
func (b *Breaker) Admit(ctx context.Context, extra bool, p *Pass) (wait time.Duration, admitted bool) {
	if era := b.calm.Load(); era >= 0 { // and no probe is under way
		*p = Pass{by: b, era: int(era)}
		return 0, true
	}
	if b.shown != nil {
		return b.shown.Admit(ctx, extra, p)
	}
	b.mu.Lock()
	now := b.env.now()
	wait, refused := b.refuses(now)
	if !refused {
		wait, refused = b.enter(now, extra, p)
	}
	b.show(ctx, now)
	b.mu.Unlock()
	b.tell()
	return wait, !refused
}

// refuses reports that the circuit is open, and for how much longer, if known.
func (b *Breaker) refuses(now instant) (wait time.Duration, refused bool) {
	switch b.forced {
	case StateOpen:
		return 0, true
	case StateClosed:
		return 0, false
	}
	return max(0, b.until-now), now < b.until
}

// enter asks the engine. wait is when the first of the probes under way is
// given up.
func (b *Breaker) enter(now instant, extra bool, p *Pass) (wait time.Duration, refused bool) {
	b.forget(p)
	*p = Pass{by: b, era: b.era, settled: true} // nothing to settle yet
	if b.forced == StateClosed {
		return 0, false // and nothing counts
	}
	if extra && b.inner != gobreaker.StateClosed {
		return 0, true // a probe is worth more to a first send
	}
	if b.inner == gobreaker.StateOpen {
		done, err := b.core.Allow()
		if err != nil {
			return 0, true
		}
		b.done = done
	}
	if b.inner == gobreaker.StateHalfOpen {
		if b.full() && !(b.expire(now) && !b.full()) {
			wait = never
			for _, probe := range b.probes {
				wait = min(wait, probe.lease)
			}
			if wait == never { // they are not even sent
				return 0, true
			}
			return max(0, wait-now), true
		}
		p.probe = true
		p.lease = never // it begins when the probe is sent
		b.probes = append(b.probes, p)
	}
	p.era, p.settled = b.era, false
	return 0, false
}

// forget takes a probe out of those under way.
func (b *Breaker) forget(p *Pass) {
	b.probes = slices.DeleteFunc(b.probes, func(o *Pass) bool { return o == p })
}

// Sent begins the lease of a probe.
func (b *Breaker) Sent(p *Pass) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.lease == never {
		p.lease = after(b.env.now(), b.set.Open)
	}
}

// Open implements Circuit.
func (b *Breaker) Open() (wait time.Duration, open bool) {
	if b.shown != nil {
		return b.shown.Open()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refuses(b.env.now())
}

// full reports that the probes under way, should they succeed, are enough.
func (b *Breaker) full() bool { return len(b.probes)+b.good >= b.set.Probes }

// closeIfGood closes the circuit if enough probes have succeeded.
func (b *Breaker) closeIfGood() {
	if b.inner == gobreaker.StateHalfOpen && b.good >= b.set.Probes {
		b.done(nil)
	}
}

// expire makes room for others than the probes whose lease is over, and reports
// whether there were any.
func (b *Breaker) expire(now instant) (expired bool) {
	n := len(b.probes)
	b.probes = slices.DeleteFunc(b.probes, func(p *Pass) bool { return now >= p.lease })
	return len(b.probes) < n
}

// Settle implements Settler.
func (b *Breaker) Settle(ctx context.Context, p *Pass, v Verdict) {
	b.mu.Lock()
	if again := b.again; again != nil && v != VerdictNeutral && !p.settled && p.era == b.era {
		p.settled = true
		b.mu.Unlock()
		if heir, ok := again(v == VerdictFailure).(*Breaker); ok {
			heir.hear(ctx, v)
		}
		return
	}
	now := b.env.now()
	b.report(now, p, v)
	b.show(ctx, now)
	opened := b.draw < 0
	b.mu.Unlock()
	b.tell()
	if opened {
		draw := b.env.Rand() // the user's code, and so under no lock
		b.mu.Lock()
		b.draw = draw
		b.mu.Unlock()
	}
}

// madeRoom implements leaver.
func (b *Breaker) madeRoom(again func(anew bool) Circuit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.again = again
}

// hear counts what another circuit of the key was told.
func (b *Breaker) hear(ctx context.Context, v Verdict) {
	if era := b.calm.Load(); era >= 0 {
		b.Settle(ctx, &Pass{era: int(era)}, v)
	}
}

// report counts a verdict. The mutex must be held.
func (b *Breaker) report(now instant, p *Pass, v Verdict) {
	if p.settled {
		return
	}
	p.settled = true
	if p.era != b.era {
		return
	}
	if b.forced == StateClosed {
		v = VerdictNeutral
	}
	failed := v == VerdictFailure
	switch {
	case p.probe:
		leased := now <= p.lease && slices.Contains(b.probes, p)
		b.forget(p)
		switch {
		case v == VerdictSuccess: // late too, or a server slower than Open would be shut out for ever
			b.good++
			b.closeIfGood()
		case failed && leased:
			b.done(errFailed)
		}
	case v == VerdictNeutral:
	default:
		if b.set.Ratio > 0 {
			n, bad := b.window.count(now, b.set.Window, failed)
			b.trip = n >= b.set.MinRequests && float64(bad) >= b.set.Ratio*float64(n)
		}
		b.count(failed || b.trip) // also if it is a success that completes the number
		b.trip = false
	}
}

// count tells the closed engine of a result. A success after no failure is no
// news.
func (b *Breaker) count(failed bool) {
	if !failed && !b.failed {
		return
	}
	b.failed = failed
	done, err := b.core.Allow()
	switch {
	case err != nil: // it is closed, and lets all pass
	case failed:
		done(errFailed)
	default:
		done(nil)
	}
}

// Stale implements Settler.
func (b *Breaker) Stale(p *Pass) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return p.settled || p.era != b.era || b.forced == StateOpen || p.probe && b.env.now() >= p.lease
}

// verdict says what an outcome tells of the server.
func (o outcome) verdict() Verdict {
	failed := o.status >= 500 && o.status != http.StatusNotImplemented
	told, ok := o.err.(*stream.FailureError) //nolint:errorlint // It is noted as it is.
	switch {
	case failed && !o.foreign:
		return VerdictFailure
	case o.abandoned || o.foreign, ok && !told.Server():
		return VerdictNeutral
	case o.err != nil:
		return VerdictFailure
	case o.status >= 400:
		return VerdictNeutral
	}
	return VerdictSuccess
}

// show notes a change of the state that is seen, to be told once the mutex,
// which must be held, is free.
func (b *Breaker) show(ctx context.Context, now instant) {
	s := b.state(now)
	if s == b.said || s == StateHalfOpen && len(b.probes) == 0 && b.said == StateOpen {
		return
	}
	b.said = s
	if b.env.Observer == nil {
		return
	}
	e := Event{Kind: KindBreaker, Phase: PhaseBreaker, At: b.env.time(now), State: s, Breaker: b, forced: b.forced != 0}
	if s == StateOpen && b.forced == 0 {
		e.Wait = max(0, b.until-now)
	}
	if c, ok := CallFrom(ctx); ok {
		e.Route = c.Route()
	}
	b.changes = append(b.changes, change{context.WithoutCancel(ctx), e})
}

// tell tells the observer of the changes, in order, and under no lock.
func (b *Breaker) tell() {
	if b.env.Observer == nil {
		return
	}
	for {
		b.mu.Lock()
		if b.telling || len(b.changes) == 0 {
			b.mu.Unlock()
			return
		}
		b.telling = true
		next := b.changes[0]
		b.changes = b.changes[1:]
		b.mu.Unlock()
		b.observe(next)
	}
}

func (b *Breaker) observe(c change) {
	defer func() { // also if the observer panics
		b.mu.Lock()
		b.telling = false
		b.mu.Unlock()
	}()
	b.env.Observer.Observe(c.ctx, c.event)
}

func (b *Breaker) state(now instant) State {
	switch {
	case b.forced != 0:
		return b.forced
	case now < b.until:
		return StateOpen
	case b.inner == gobreaker.StateClosed:
		return StateClosed
	}
	return StateHalfOpen
}

// Key returns what requests share the circuit: an origin, or what the policy's
// Key returned for them.
func (b *Breaker) Key() string { return b.key.String() }

// State returns the state of the circuit, as the next send would find it.
func (b *Breaker) State() State {
	if b.shown != nil {
		return b.shown.Status().State
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state(b.env.now())
}

// Status returns the circuit as it stands.
func (b *Breaker) Status() BreakerStatus {
	if b.shown != nil {
		s := b.shown.Status()
		s.ID, s.Key = b.id, b.key.String()
		return s
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.env.now()
	s := BreakerStatus{
		ID: b.id, Key: b.key.String(), State: b.state(now), Forced: b.forced != 0, Why: b.why,
		Failures: int(b.core.Counts().ConsecutiveFailures), Probes: len(b.probes),
	}
	if now < b.until {
		s.Until = b.env.time(b.until)
	}
	return s
}

// ForceOpen refuses every send until ForceClosed or Auto.
func (b *Breaker) ForceOpen() { b.force(StateOpen) }

// ForceClosed lets every send pass, and counts none, until ForceOpen or Auto.
func (b *Breaker) ForceClosed() { b.force(StateClosed) }

// Auto goes back to what the sends say, from where they left off.
func (b *Breaker) Auto() { b.force(0) }

func (b *Breaker) force(s State) {
	if b.shown != nil {
		b.shown.Force(s)
		return
	}
	b.mu.Lock()
	b.forced = s
	b.settleCalm()
	b.show(context.Background(), b.env.now())
	b.mu.Unlock()
	b.tell()
}

// window counts verdicts over a length of time, in slices of a tenth.
type window struct {
	at        int64 // the newest slice since the epoch
	n, failed int   // of all slices that are not too old
	slices    [windowSlices]struct {
		at        int64 // which slice since the epoch
		n, failed int
	}
}

const windowSlices = 10

func sliceOf(length time.Duration) time.Duration { return max(1, length/windowSlices) }

// count counts a verdict, and returns how many there are.
func (w *window) count(now instant, length time.Duration, bad bool) (n, failed int) {
	w.advance(int64(now / sliceOf(length)))
	one := 0
	if bad {
		one = 1
	}
	w.add(w.at, 1, one)
	return w.n, w.failed
}

// advance forgets the slices that are too old at a newer one.
func (w *window) advance(at int64) {
	if at == w.at {
		return
	}
	w.at = at
	for i := range w.slices {
		if s := &w.slices[i]; at-s.at >= windowSlices {
			w.n -= s.n
			w.failed -= s.failed
			s.n, s.failed = 0, 0
		}
	}
}

// add adds to a slice that is not too old.
func (w *window) add(at int64, n, failed int) {
	s := &w.slices[at%windowSlices]
	s.at = at
	s.n += n
	s.failed += failed
	w.n += n
	w.failed += failed
}

// over returns the same counts, those of them that are not too old, for another
// length.
func (w *window) over(now instant, from, to time.Duration) (o window) {
	o.at = int64(now / sliceOf(to))
	for _, s := range w.slices {
		began := instant(s.at) * sliceOf(from)
		if at := int64(began / sliceOf(to)); now-began < from && o.at-at < windowSlices {
			o.add(at, s.n, s.failed)
		}
	}
	return o
}
