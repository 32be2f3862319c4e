package layers

import (
	"sync/atomic"

	"github.com/benbjohnson/clock"
)

// alarm is the one timer of a call. It is armed for the earliest instant at
// which anything of the call may be due, and moved only to an earlier one:
// what becomes due later is found when it fires. Since a new earliest timer
// wakes the thread that waits for the network, which costs more than all else
// here, it is armed at first for the shortest time that it was needed for
// lately. A call that ends before its shortest limit thus touches its timer
// twice, to start and to stop it.
//
// Alarms are pooled. One that may still fire is never put back, and a stray
// firing only makes a call look at the clock. A call uses its alarm under its
// own mutex.
type alarm struct {
	timer *clock.Timer
	call  atomic.Pointer[Call] // who is woken; nil while pooled
	least instant              // what it is armed for at first, at most
}

// fired notes that the alarm fired, and whether anything was due. If not, it was
// armed for too short a time.
func (a *alarm) fired(due bool) {
	if !due {
		a.least = after(a.least, a.least)
	}
}

// start arms a stopped alarm.
func (a *alarm) start(c *Call, d instant) (in instant) {
	in = min(d, a.least)
	a.call.Store(c)
	a.timer.Reset(in)
	return in
}

// reset moves the alarm to an earlier time.
func (a *alarm) reset(d instant) {
	a.least = min(a.least, d)
	a.timer.Reset(d)
}

// alarmIn returns an alarm that wakes c after d, which is positive, or earlier:
// after in.
func (e *Env) alarmIn(c *Call, d instant) (_ *alarm, in instant) {
	if a, ok := e.alarms.Get().(*alarm); ok {
		return a, a.start(c, d)
	}
	a := &alarm{least: d}
	a.call.Store(c)
	a.timer = e.Clock.AfterFunc(d, func() {
		if c := a.call.Load(); c != nil {
			c.wake()
		}
	})
	return a, d
}

// release stops the alarm; it must not be used afterwards.
func (e *Env) release(a *alarm) {
	a.call.Store(nil)
	if a.timer.Stop() {
		e.alarms.Put(a)
	}
}
