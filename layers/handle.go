package layers

import (
	"context"
	"time"

	"github.com/weir-go/weir/policy"
)

// Store makes the handles of shared state, so that it can be shared by more
// than one process. A method may return nil for what it leaves to the process.
// It is asked once for a key, while that is in use, and the handle is told of
// new numbers by its Set. A stack remembers 10,000 handles of a setting at a time;
// where none of them is free to make room, it asks for a key's with every send.
type Store interface {
	Bucket(id policy.StateID, key string, r policy.Rate) Bucket
	Circuit(id policy.StateID, key string, b policy.Breaker) Circuit
	Slots(id policy.StateID, key string, f policy.InFlight) Slots
}

// LocalBucket returns a bucket of this process, for a [Store] to fall back on.
func (e *Env) LocalBucket(r policy.Rate) Bucket { return e.ready().newBucket(r) }

// LocalCircuit returns a circuit of this process, as LocalBucket does.
func (e *Env) LocalCircuit(b policy.Breaker) Shown {
	return newCircuit(e.ready(), policy.StateID{}, stateKey{}, b)
}

// Handle is state that the requests of one key share. Handles are safe for
// concurrent use, comparable, as pointers are, and call no code of the user's
// under a lock.
type Handle interface {
	// Rests reports that nothing would be lost if the state were made anew:
	// idle, if there is nothing left to remember; free, if nothing depends on
	// it at present. Only a state that is free makes room for others.
	Rests() (idle, free bool)
}

// Bucket is the handle of a rate budget.
type Bucket interface {
	Handle
	// Take takes n turns, if they are there and nobody waits for one.
	Take(n int) bool
	// Predict returns how long n turns would have to be waited for.
	Predict(n int) time.Duration
	// Join queues for n turns, which are of no use at limit or later; a zero
	// limit is none. Its place is that of the ticket, lower ones first; no two
	// that wait have the same. keeps says that the turn is to keep its place
	// until Take, once it is due: it is one of several that are taken together.
	Join(n int, limit time.Time, ticket uint64, keeps bool) Turn
	// Refund gives back n turns that nothing was sent for.
	Refund(n int)
	// Pause lets no turn come before until, at most [MaxPause] from now. A pause
	// is never shortened.
	Pause(until time.Time)
	// Set applies the numbers of r.
	Set(r policy.Rate)
}

// Joint is what the buckets of a [Store] may also be, if it can take turns in
// several of them at once, or has to be asked whether there are any.
type Joint interface {
	Bucket
	// TakeAll does what Take does for every claim, or for none. The claims are
	// on buckets of one Store. ctx is the send's: its end is the end of the
	// wait for an answer.
	TakeAll(ctx context.Context, claims []Claim) bool
}

// Claim is what a send takes from one bucket.
type Claim struct {
	Bucket Bucket
	N      int // turns
}

// Turn is a place in the queue of a [Bucket].
type Turn interface {
	// Due reports that the wait is over. The turn is there then, or refused
	// because it would have to be waited for, for as long as refused says; the
	// longest duration that there is: it will never come. If
	// it is not over, again is when to ask the next time; zero: when there is
	// a signal.
	Due() (over bool, refused time.Duration, again time.Time)
	// Signal has a value when Due should be asked.
	Signal() <-chan struct{}
	// Take takes a turn that is there. It fails only for one that keeps its
	// place, and then leaves it in the queue.
	Take() bool
	// Leave leaves the queue, or gives back a turn that is there.
	Leave()
}

// Circuit is the handle of a circuit breaker.
type Circuit interface {
	Handle
	// Admit lets a send pass, by the Grant of p, or says how much longer it
	// will not; zero: that is not known. An extra send, a hedge, is not worth
	// the probe of a half-open circuit. ctx is the send's.
	Admit(ctx context.Context, extra bool, p *Pass) (wait time.Duration, admitted bool)
	// Open reports that it lets no send pass, and for how much longer; zero: that
	// is not known.
	Open() (wait time.Duration, open bool)
	// Set applies the numbers of b.
	Set(b policy.Breaker)
}

// Shown is what a circuit of a [Store] may also be, to be seen and switched by
// hand: see [Env.Breakers].
type Shown interface {
	Circuit
	// Status returns the circuit as it stands. Its ID and Key are filled in.
	Status() BreakerStatus
	// Force has it open or closed in this process, whatever the sends say; zero
	// ends that.
	Force(s State)
}

// Pass is the admission of one send by a [Circuit].
type Pass struct {
	by Settler

	// Of a circuit of ours, and under its mutex.
	era     int
	lease   instant // a probe that has not settled by then makes room for another
	settled bool

	probe bool
}

// Settler is what a Circuit does with the sends that it admitted. It may have a
// method Sent(*Pass), which is told when a probe has passed every gate: it may
// have waited there for long.
type Settler interface {
	// Settle takes the verdict on a send. Only the first one counts.
	Settle(ctx context.Context, p *Pass, v Verdict)
	// Stale reports that the circuit is not what it was when it admitted the
	// send, which then needs another Admit.
	Stale(p *Pass) bool
}

// Grant admits a send. A probe settles by its first content already.
func (p *Pass) Grant(by Settler, probe bool) { p.by, p.probe = by, probe }

// Settle gives the verdict on the send to who admitted it, if anyone did.
func (p *Pass) Settle(ctx context.Context, v Verdict) {
	if p.by != nil {
		p.by.Settle(ctx, p, v)
	}
}

// Sent tells who admitted a probe, if it wants to know, that the send has passed
// every gate.
func (p *Pass) Sent() {
	if !p.probe {
		return
	}
	if s, ok := p.by.(interface{ Sent(p *Pass) }); ok {
		s.Sent(p)
	}
}

// Stale reports that the send was admitted, and needs another Admit by now.
func (p *Pass) Stale() bool { return p.by != nil && p.by.Stale(p) }

// Verdict is what a send says of the server.
type Verdict uint8

// The verdicts on a send. The zero Verdict says nothing of the server.
const (
	VerdictNeutral Verdict = iota
	VerdictSuccess
	VerdictFailure
)

// Slots is the handle of an in-flight limit.
type Slots interface {
	Handle
	// Take takes a slot, if there is one and nobody waits for it.
	Take() bool
	// Join queues for a slot, in the place of the ticket: see Bucket.
	Join(ticket uint64) Place
	// Release gives back a slot that was taken.
	Release()
	// Set applies the numbers of f.
	Set(f policy.InFlight)
}

// Place is a place in the queue of [Slots]. It holds nothing.
type Place interface {
	// Free reports that the place is the first and that there is a slot.
	Free() bool
	// Take takes the slot, if Free, and leaves the queue.
	Take() bool
	// Signal has a value when Free should be asked.
	Signal() <-chan struct{}
	// Leave leaves the queue.
	Leave()
}
