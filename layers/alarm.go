package layers

import (
	"sync/atomic"

	"github.com/benbjohnson/clock"
)

// alarm is the one timer of a call. It is armed for the earliest instant at
// which anything of the call may be due, and moved only to an earlier one:
// what becomes due later is found when it fires, so that a call that ends
// before its shortest limit touches its timer twice, to start and to stop it.
//
// Alarms are pooled. One that may still fire is never put back, and a stray
// firing only makes a call look at the clock. A call uses its alarm under its
// own mutex.
type alarm struct {
	timer *clock.Timer
	call  atomic.Pointer[Call] // who is woken; nil while pooled
}

// alarmIn returns an alarm that wakes c after d, which is positive.
func (e *Env) alarmIn(c *Call, d instant) *alarm {
	if a, ok := e.alarms.Get().(*alarm); ok {
		a.call.Store(c)
		a.timer.Reset(d)
		return a
	}
	a := new(alarm)
	a.call.Store(c)
	a.timer = e.Clock.AfterFunc(d, func() {
		if c := a.call.Load(); c != nil {
			c.wake()
		}
	})
	return a
}

// release stops the alarm; it must not be used afterwards.
func (e *Env) release(a *alarm) {
	a.call.Store(nil)
	if a.timer.Stop() {
		e.alarms.Put(a)
	}
}
