package clocktest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/clocktest"
)

// The timers of the clock, of package time and of clock.New share one time line.
func TestOneTime(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		l := &timeline{c: c}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second+1)
		defer cancel()
		context.AfterFunc(ctx, func() { l.add("context") })
		c.AfterFunc(20*time.Second, func() { l.add("clock") })
		time.AfterFunc(20*time.Second+2, func() { l.add("time") })
		clock.New().AfterFunc(20*time.Second+3, func() { l.add("clock.New") })
		// Many timers of the clock in between would make a Mock drift.
		for i := range 1000 {
			c.AfterFunc(time.Duration(i)*time.Millisecond, func() {})
		}
		c.Sleep(time.Minute)
		l.check(t, "20s clock", "20.000000001s context", "20.000000002s time", "20.000000003s clock.New")
		if deadline, _ := ctx.Deadline(); !c.Now().Equal(time.Now()) || c.Until(deadline) != 1-40*time.Second {
			t.Errorf("the clock says %v, package time %v, the deadline is %v", c.Now(), time.Now(), deadline)
		}
	})
}

func TestSameInstant(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		l := &timeline{c: c}
		woken := make(chan int)
		for i := range 50 {
			switch i % 3 {
			case 0:
				c.AfterFunc(time.Second, func() { l.add("func %d", i) })
			case 1:
				after := c.After(time.Second)
				go func() { <-after; l.add("after %d", i); woken <- i }()
			case 2:
				go func() { l.add("woken by %d", <-woken) }()
			}
		}
		c.AfterFunc(time.Second-time.Millisecond, func() {
			c.AfterFunc(time.Millisecond, func() { l.add("made later") })
			time.AfterFunc(time.Millisecond, func() { l.add("time") })
		})
		c.Add(time.Second)

		want := []string{"1s time"}
		for i := range 50 {
			switch i % 3 {
			case 0:
				want = append(want, fmt.Sprint("1s func ", i))
			case 1:
				want = append(want, fmt.Sprint("1s after ", i))
				if i < 49 {
					want = append(want, fmt.Sprint("1s woken by ", i))
				}
			}
		}
		l.check(t, append(want, "1s made later")...)
		<-woken
	})
}

// The order of a large crowd holds while the runtime is still about to fire it.
func TestCrowdAtOneInstant(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		var order []int
		for i := range 1000 {
			c.AfterFunc(time.Second, func() { order = append(order, i) })
		}
		c.Add(time.Second)
		if len(order) != 1000 || !slices.IsSorted(order) {
			t.Error(order)
		}
	})
}

// Goroutines that begin with AfterFunc(0, f) begin one after the other.
func TestStartInOrder(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		l := &timeline{c: c}
		for i := range 3 {
			c.AfterFunc(-time.Duration(i), func() {
				l.add("%d begins", i)
				c.Sleep(time.Second)
				l.add("%d ends", i)
			})
		}
		c.Add(time.Second)
		l.check(t, "0s 0 begins", "0s 1 begins", "0s 2 begins", "1s 0 ends", "1s 1 ends", "1s 2 ends")
	})
}

// A delay of zero or less is over at once, and time does not go back.
func TestNoDelay(t *testing.T) {
	for _, d := range []time.Duration{0, -1, -time.Hour} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			c.Sleep(5 * time.Second)
			fired := make(chan time.Time)
			c.AfterFunc(d, func() { fired <- c.Now() })
			ticker := c.Ticker(time.Hour)
			defer ticker.Stop()
			for name, ch := range map[string]<-chan time.Time{"AfterFunc": fired, "After": c.After(d), "Timer": c.Timer(d).C} {
				select {
				case <-ch:
				case <-ticker.C:
					t.Errorf("%s(%v) has not fired", name, d)
				}
			}
			c.Sleep(d)
			ctx, cancel := c.WithTimeout(t.Context(), d)
			defer cancel()
			if ctx.Err() != context.DeadlineExceeded {
				t.Errorf("WithTimeout(%v): %v", d, ctx.Err())
			}
			if got := c.Elapsed(); got != 5*time.Second {
				t.Errorf("elapsed: %v", got)
			}
		})
	}
}

// The clock finds a timer that is Reset, whatever it went through before.
func TestReset(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		l := &timeline{c: c}
		sleep := func(d time.Duration) { t.Helper(); c.Sleep(d) }
		timer := c.AfterFunc(2*time.Second, func() { l.add("fires") })

		timer.Reset(time.Second) // earlier
		sleep(3 * time.Second)
		l.check(t, "1s fires")
		if timer.Reset(time.Second) { // after it fired: at 4s
			t.Error("Reset of a timer that fired reports true")
		}
		timer.Reset(5 * time.Second) // later: at 8s
		sleep(4 * time.Second)
		l.check(t, "1s fires")
		if !timer.Stop() || timer.Stop() {
			t.Error("Stop")
		}
		sleep(10 * time.Second) // at 17s
		timer.Reset(time.Hour)
		sleep(2 * time.Hour)
		l.check(t, "1s fires", "1h0m17s fires")

		// A fired timer that nobody waited for is reset without its old value.
		ticks := c.Timer(time.Second)
		sleep(time.Minute)
		ticks.Reset(time.Hour)
		reset := c.Now()
		if at := <-ticks.C; at.Sub(reset) != time.Hour {
			t.Errorf("fired %v after Reset", at.Sub(reset))
		}

		ticker := c.Ticker(time.Second)
		ticker.Reset(time.Minute)
		ticker.Stop()
		ticker.Reset(2 * time.Minute)
		reset = c.Now()
		<-ticker.C
		if at := <-ticker.C; at.Sub(reset) != 4*time.Minute {
			t.Errorf("second tick %v after Reset", at.Sub(reset))
		}
		ticker.Stop()
	})
}

func TestContext(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		mine := errors.New("mine")
		parent, cancelParent := context.WithCancelCause(t.Context())
		others := goleak.IgnoreCurrent()
		timed, cancel := c.WithTimeout(parent, 3*time.Second)
		defer cancel()
		child, cancelChild := context.WithCancel(timed)
		defer cancelChild()
		late, cancelLate := c.WithDeadline(parent, c.Now().Add(time.Hour))
		defer cancelLate()
		given, giveUp := c.WithTimeout(parent, time.Hour)
		if err := goleak.Find(others); err != nil {
			t.Error(err)
		}
		if at, ok := timed.Deadline(); !ok || c.Until(at) != 3*time.Second {
			t.Errorf("Deadline: %v, %v", at, ok)
		}
		giveUp()
		<-child.Done()
		if c.Elapsed() != 3*time.Second {
			t.Errorf("expired after %v", c.Elapsed())
		}
		cancelParent(mine)
		for _, test := range []struct {
			ctx        context.Context
			err, cause error
		}{
			{timed, context.DeadlineExceeded, context.DeadlineExceeded},
			{child, context.DeadlineExceeded, context.DeadlineExceeded},
			{late, context.Canceled, mine},
			{given, context.Canceled, context.Canceled},
		} {
			if test.ctx.Err() != test.err || context.Cause(test.ctx) != test.cause {
				t.Errorf("Err %v, want %v; cause %v, want %v",
					test.ctx.Err(), test.err, context.Cause(test.ctx), test.cause)
			}
		}
	})
}

// Add and Set stop at every timer on the way, and return when all is at rest.
func TestMoveByHand(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		l := &timeline{c: c}
		done := 0 // unguarded: the race detector sees that Add comes after it
		var again func()
		again = func() {
			l.add("fires")
			done++
			if done < 4 {
				c.AfterFunc(time.Second, again)
			}
		}
		c.AfterFunc(time.Second, again)
		c.Add(2*time.Second - 1)
		l.check(t, "1s fires")
		c.Add(1)
		if done != 2 {
			t.Errorf("done: %d", done)
		}
		c.Set(c.Now().Add(time.Hour))
		l.check(t, "1s fires", "2s fires", "3s fires", "4s fires")
		if c.Elapsed() != time.Hour+2*time.Second {
			t.Errorf("elapsed: %v", c.Elapsed())
		}
		go func() { done = 10 }()
		c.Add(0)
		if done != 10 {
			t.Error("Add(0) did not wait")
		}
		defer func() {
			if recover() == nil {
				t.Error("the clock went back")
			}
		}()
		c.Set(c.Now().Add(-1))
	})
}
