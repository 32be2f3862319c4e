package layers

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
)

// Env is what the layers of one stack share. Layers built with the same Env
// are one stack: they join each other's [Call]. The zero value is ready to
// use; its fields must not change once a layer was built with it. A nil *Env
// gives a layer an environment of its own.
type Env struct {
	// Clock gives the time of every decision and every timer. Nil: the real
	// clock.
	Clock clock.Clock
	// Observer is told of every event of every call. Nil: nobody.
	Observer Observer
	// Store makes the handles of shared state. Nil: the state is this
	// process's own.
	Store Store
	// Rand gives the numbers in [0, 1) that spread backoffs and other waits.
	// It is called concurrently. Nil: math/rand/v2.
	Rand func() float64

	once   sync.Once
	gaps   bool      // the observer wants KindGap
	waited bool      // it wants KindWaited
	idle   idler     // the observer, if it may be idle
	epoch  time.Time // what instants count from
	alarms sync.Pool // of *alarm, stopped
	hooks  sync.Pool // of *hooks, that tell nobody
	states states
	drawn  atomic.Uint64       // tickets
	early  atomic.Uint64       // tickets that are lower than all of those
	extra  keyed[*extraBudget] // by origin
}

// instant is a time as the stack counts it: since the Env's epoch. It is
// cheaper to read and to compare than a time.Time, and monotonic.
type instant = time.Duration

// never is later than every instant.
const never instant = math.MaxInt64

func (e *Env) ready() *Env {
	if e == nil {
		e = new(Env)
	}
	e.once.Do(func() {
		if e.Clock == nil {
			e.Clock = clock.New()
		}
		if e.Rand == nil {
			e.Rand = rand.Float64
		}
		e.gaps, e.waited = Wants(e.Observer, KindGap), Wants(e.Observer, KindWaited)
		e.idle, _ = e.Observer.(idler)
		e.epoch = e.Clock.Now()
		e.extra.kind.pool = func(*extraBudget) bool { return true }
		e.extra.create = func(stateKey) *extraBudget { return newExtraBudget(e) }
	})
	return e
}

func (e *Env) now() instant { return e.Clock.Since(e.epoch) }

func (e *Env) mocked() bool {
	_, mock := e.Clock.(*clock.Mock)
	return mock
}

// soon calls f once what else is due at this instant has been done, as far as the
// clock can tell.
func (e *Env) soon(f func()) {
	if e.mocked() {
		go f() // its timers of no delay fire only when it is moved again
		return
	}
	// A timer that is made due crashes the race detector in a bubble of
	// testing/synctest, where it runs on the spot; one that is moved does not.
	e.Clock.AfterFunc(time.Hour, f).Reset(0)
}

// ticket returns a number larger than all before.
func (e *Env) ticket() uint64 { return 1<<63 + e.drawn.Add(1) }

// instant converts a point in time, time converts back. A time of day, such as one
// that was read from a text, is as far away as the clock says now: it may have been
// set since the epoch.
func (e *Env) instant(t time.Time) instant {
	// Round strips the reading of a monotonic clock.
	monotonic := t != t.Round(0) //nolint:revive // Equal does not tell.
	if monotonic || e.mocked() { // a mock that moves meanwhile would be read twice
		return t.Sub(e.epoch)
	}
	return after(e.now(), t.Sub(e.Clock.Now()))
}

func (e *Env) time(i instant) time.Time { return e.epoch.Add(i) }

// after adds a duration to an instant and saturates at never.
func after(i instant, d time.Duration) instant {
	if d > never-i {
		return never
	}
	return i + d
}
