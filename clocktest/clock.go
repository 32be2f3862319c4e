package clocktest

import (
	"fmt"
	"sync"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
)

// Clock is the clock of a bubble: a [clock.Clock] for the code under test that
// can also be moved by hand. Only [Run] makes one, and only goroutines of its
// bubble may use it; any number of them may do so at once.
//
// It reads the time that package time reads in the bubble, and its timers are
// timers of the bubble. A context.WithTimeout of the standard library, a timer
// of net/http and a timer made here thus share one time line, and Stop, Reset,
// and delays of zero or less do what they do in production.
//
// That is why it is not a [clock.Mock], though it has the Add and the Set of one.
// A Mock in a bubble has a time of its own. With each timer that it fires, it
// sleeps for a millisecond of the bubble's time, so that the two drift apart; and
// only a timer knows that it was Reset, so that nobody could move the Mock to it.
//
// What falls due at one instant happens one after the other. First come the
// timers of package time, and those made by Timer, Ticker, Tick, WithTimeout and
// WithDeadline, in no particular order; then After, AfterFunc and Sleep, in the
// order in which they were called, each once everything that the one before set
// off has come to rest. Reset leaves a timer its place in that order. A Stop that
// comes when the function is due already, though not yet called, reports false.
//
// Goroutines that are started together call these methods in any order. Start
// them with AfterFunc(0, f) instead: each then starts when the one before waits.
type Clock struct {
	clock.Clock
	start time.Time

	mu    sync.Mutex
	calls uint64 // of AfterFunc, so far
	due   []turn // what waits for its turn at this instant
}

// A turn is one of several things that fall due at the same instant.
type turn struct {
	order uint64
	begin chan struct{}
}

func newClock() *Clock {
	return &Clock{Clock: clock.New(), start: time.Now()}
}

// Elapsed returns how far the clock has moved since [Run] began.
func (c *Clock) Elapsed() time.Duration { return c.Since(c.start) }

// AfterFunc calls f in its own goroutine once d has passed.
func (c *Clock) AfterFunc(d time.Duration, f func()) *clock.Timer {
	c.mu.Lock()
	c.calls++
	order := c.calls
	c.mu.Unlock()
	first := d
	if d <= 0 {
		// A timer that is made due runs on the spot, inside of the runtime. If two
		// threads do so at once, the race detector, which takes all timers of a
		// bubble for one thread, brings the process down.
		first = time.Hour
	}
	timer := c.Clock.AfterFunc(first, func() {
		c.await(order)
		f()
		// What f did happens before what is due next, for the race detector too.
		c.mu.Lock()
		defer c.mu.Unlock()
	})
	if d <= 0 {
		timer.Reset(0)
	}
	return timer
}

// After returns a channel that carries the time once d has passed.
func (c *Clock) After(d time.Duration) <-chan time.Time {
	ch := make(chan time.Time, 1)
	c.AfterFunc(d, func() { ch <- c.Now() })
	return ch
}

// Sleep returns once d has passed. Even a d of zero or less lets everything else
// come to rest first.
func (c *Clock) Sleep(d time.Duration) { <-c.After(d) }

// Add moves the clock forward by d, stopping at every timer on the way, and
// returns when everything that is due by then has happened and come to rest.
// Add(0) just waits for that. Like synctest.Wait, which it ends with, it is for
// one goroutine at a time. It panics if d is negative: time never goes back.
func (c *Clock) Add(d time.Duration) {
	if d < 0 {
		panic(fmt.Sprintf("clocktest: the clock cannot go back by %v", -d))
	}
	c.Sleep(d)
	synctest.Wait()
}

// Set is [Clock.Add] up to the instant t.
func (c *Clock) Set(t time.Time) { c.Add(c.Until(t)) }

// await returns when it is the turn of what has the given order.
func (c *Clock) await(order uint64) {
	begin := make(chan struct{})
	c.mu.Lock()
	c.due = append(c.due, turn{order, begin})
	if len(c.due) == 1 {
		whenIdle(c.next)
	}
	c.mu.Unlock()
	<-begin
}

// next begins the first of the turns, and sees to the one after it.
func (c *Clock) next() {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := 0
	for i, t := range c.due {
		if t.order < c.due[first].order {
			first = i
		}
	}
	close(c.due[first].begin)
	c.due = append(c.due[:first], c.due[first+1:]...)
	if len(c.due) > 0 {
		whenIdle(c.next)
	}
}

// whenIdle calls f as soon as every goroutine of the bubble waits, at the same
// instant and before any synctest.Wait returns. (Wait itself would not do: only
// one goroutine at a time may be in it, and that is the test's to use.)
//
// It rests on how the runtime, which looks for timers that are due whenever all
// wait, treats one that is moved to now while it is pending. It does not fire at
// once, as a new one would; nor while the runtime still fires others that are
// due, since it keeps its old place among the pending ones until the next look,
// and guard is before it there.
func whenIdle(f func()) {
	guard := time.AfterFunc(time.Hour, func() {})
	time.AfterFunc(2*time.Hour, func() {
		guard.Stop()
		f()
	}).Reset(0)
}
