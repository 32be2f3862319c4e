package layers

import (
	"context"
	"log/slog"
	"time"

	"github.com/weir-go/weir/stream"
)

// Phase is a part of a call that takes time and can be bounded.
type Phase string

// The phases of a send, in their usual order, and the waits of a call.
const (
	PhasePool     Phase = "pool"    // waiting for a pooled connection
	PhaseConnect  Phase = "connect" // DNS, TCP, TLS
	PhaseWrite    Phase = "write"   // writing the request
	PhaseRead     Phase = "read"    // waiting for headers, or in one Read of the body
	PhaseAttempt  Phase = "attempt" // one whole send
	PhaseBackoff  Phase = "backoff"
	PhaseRate     Phase = "rate"
	PhaseInFlight Phase = "in-flight"
	PhaseBreaker  Phase = "breaker"
	PhaseFirst    Phase = "first-content"
	PhaseGap      Phase = "gap"
	PhaseDeadline Phase = "deadline" // the whole call
)

// Kind says what an [Event] tells.
type Kind string

// The kinds of events. A call has one start and one end; between them each
// attempt has a send, its phases, a response or none, and a done. That of a send
// which competes with others may come after the end, as may its other events.
const (
	KindStart    Kind = "start"    // the call entered the stack
	KindSend     Kind = "send"     // an attempt passed every gate
	KindPhase    Kind = "phase"    // an attempt entered Phase
	KindResponse Kind = "response" // headers with Status arrived
	KindContent  Kind = "content"  // the first content of a stream arrived, Wait after it was sent
	KindGap      Kind = "gap"      // a gap of a stream ended after Wait; see [Observer]
	KindOpaque   Kind = "opaque"   // the events of a stream cannot be told apart, so each byte counts as content
	KindFailure  Kind = "failure"  // a stream reported the failure Err
	KindDone     Kind = "done"     // an attempt ended, its body included
	KindWait     Kind = "wait"     // a wait of length Wait began, in Phase
	KindWaited   Kind = "waited"   // it is over, after Wait; see [Observer]
	KindRefused  Kind = "refused"  // a limit of ours refused the call or the attempt
	KindEnd      Kind = "end"      // the call ended, its body included, with Status or Err or both
	KindBreaker  Kind = "breaker"  // a circuit went to State, for Wait if it opened by itself
)

// Event is one thing that happened to a call. It holds no URL, header or body.
type Event struct {
	Kind    Kind
	At      time.Time
	Route   string
	Attempt int   // from 1; 0 before the first
	Phase   Phase // of a phase, wait or refusal, or the one that timed out
	Wait    time.Duration
	Status  int
	State   State    // of a breaker
	Breaker *Breaker // of a breaker: the circuit, as it stands by now
	Forced  bool     // of a breaker: by hand, which it may not be any more
	Err     error

	Gap       stream.StallKind // of a gap: the limit that it was under
	Longest   time.Duration    // of a done: the longest Read of the body
	Abandoned bool             // of a done or an end: the caller closed the body or gave up, or another send was faster
}

// LogValue implements slog.LogValuer.
func (e Event) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, 8)
	attrs = append(attrs, slog.String("kind", string(e.Kind)), slog.String("route", e.Route))
	if e.Attempt > 0 {
		attrs = append(attrs, slog.Int("attempt", e.Attempt))
	}
	if e.Phase != "" {
		attrs = append(attrs, slog.String("phase", string(e.Phase)))
	}
	if e.Wait > 0 {
		attrs = append(attrs, slog.Duration("wait", e.Wait))
	}
	if e.Status > 0 {
		attrs = append(attrs, slog.Int("status", e.Status))
	}
	if e.State > 0 {
		attrs = append(attrs, slog.String("state", e.State.String()))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("err", safeText(e.Err)))
	}
	return slog.GroupValue(attrs...)
}

// Observer is told what happens to calls, while it happens, on the goroutines
// of the call and never under a lock of ours: a slow observer delays its own
// call and no other, but with events of [KindBreaker]. The changes of one circuit
// are told in order, one after the other: the call that tells of one also tells
// of those that others cause meanwhile, and waits for the observer each time. It
// may be called concurrently. [CallFrom] finds the
// call in the context, which has the values of the caller's but never ends: the
// last events come when the call is over. It must not panic:
// some of the goroutines are timers' or net/http's, where nobody recovers.
//
// An event of [KindGap] comes with every few tokens of a stream, and one of
// [KindWaited] says little that the next event does not. Only an Observer with a
// method Wants(Kind) bool is told of them, if that returns true for the kind.
//
// One with a method Idle() bool is told of nothing of a call if that returned true
// when the call began, and costs next to nothing then.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// ObserverFunc lets a function be an Observer.
type ObserverFunc func(context.Context, Event)

// Observe calls f.
func (f ObserverFunc) Observe(ctx context.Context, e Event) { f(ctx, e) }

// Observers returns an Observer that tells each of the list, in order.
func Observers(list ...Observer) Observer {
	o := make(observers, len(list))
	for i, to := range list {
		o[i].Observer = to
		o[i].idle, _ = to.(idler)
	}
	return o
}

type observers []struct {
	Observer
	idle idler // nil: it never is
}

// Observe implements Observer.
func (o observers) Observe(ctx context.Context, e Event) {
	for i := range o {
		if to := &o[i]; (to.idle == nil || !to.idle.Idle()) && (e.Kind != KindGap && e.Kind != KindWaited || Wants(to.Observer, e.Kind)) {
			to.Observe(ctx, e)
		}
	}
}

// Wants reports that one of them does.
func (o observers) Wants(k Kind) bool {
	for i := range o {
		if Wants(o[i].Observer, k) {
			return true
		}
	}
	return false
}

// Idle reports that they all are.
func (o observers) Idle() bool {
	for i := range o {
		if o[i].idle == nil || !o[i].idle.Idle() {
			return false
		}
	}
	return true
}

// idler is an observer that may be idle.
type idler interface{ Idle() bool }

// Wants reports that an observer wants to be told of a kind of event that is told
// only to those who do: see [Observer].
func Wants(o Observer, k Kind) bool {
	w, ok := o.(interface{ Wants(Kind) bool })
	return ok && w.Wants(k)
}

// emit tells the observer, if there is one. The caller must not hold the
// call's mutex.
func (c *Call) emit(e Event) {
	if c.heard { // nobody to tell is the usual case, and inlined
		c.tell(&c.first, e)
	}
}

// heard reports that there is an observer, and that it is not idle.
func (e *Env) heard() bool {
	return e.Observer != nil && (e.idle == nil || !e.idle.Idle())
}

func (c *Call) tell(a *attempt, e Event) {
	if e.At.IsZero() {
		e.At = c.env.Clock.Now()
	}
	e.Route = c.Route()
	c.env.Observer.Observe((*witness)(a), e)
}

// witness is an attempt as the context of an observer: it finds all that the
// attempt does, and never ends, as the attempt has by its last event.
type witness attempt

func (*witness) Deadline() (at time.Time, ok bool) { return at, false }
func (*witness) Done() <-chan struct{}             { return nil }
func (*witness) Err() error                        { return nil }

// Value has the values of the caller's context alone: what an observer sends is not
// the attempt's to time, and the end of the attempt not its cause.
func (w *witness) Value(key any) any {
	a := (*attempt)(w)
	if found := a.known(key); found != nil {
		return found
	}
	return context.WithoutCancel(a.base).Value(key)
}

func (a *attempt) emit(e Event) {
	if a.call.heard {
		a.tell(e)
	}
}

func (a *attempt) tell(e Event) {
	c := a.call
	c.mu.Lock()
	began, untold := a.since, a.untold
	a.untold = false
	c.mu.Unlock()
	e.Attempt = int(a.n)
	if untold {
		c.tell(a, Event{Kind: KindPhase, Phase: PhasePool, Attempt: e.Attempt, At: c.env.time(began)})
	}
	c.tell(a, e)
}

// waited tells who wants to know that a wait is over.
func (a *attempt) waited(p Phase, began instant) {
	if e := a.call.env; e.waited {
		a.emit(Event{Kind: KindWaited, Phase: p, Wait: e.now() - began})
	}
}
