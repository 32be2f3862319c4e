package layers

import (
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/weir-go/weir/clocktest"
)

// undue is a clock on which no timer is made that is due. In a bubble of
// testing/synctest, the race detector would not survive that for long.
type undue struct {
	clock.Clock
	t *testing.T
}

func (c undue) AfterFunc(d time.Duration, f func()) *clock.Timer {
	if d <= 0 {
		c.t.Errorf("a timer of %v is made", d)
	}
	return c.Clock.AfterFunc(d, f)
}

// TestSoon: what is to be done soon is done at the same instant.
func TestSoon(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		env := (&Env{Clock: undue{clock.New(), t}}).ready()
		done := make(chan struct{})
		env.soon(func() { close(done) })
		<-done
		if c.Elapsed() != 0 {
			t.Errorf("it is done after %v", c.Elapsed())
		}
	})
}
