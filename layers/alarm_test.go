package layers

import (
	"testing"
	"time"

	"github.com/benbjohnson/clock"
)

// TestAlarmIsArmedOnce: an alarm that was moved to an earlier time is armed for
// that at first the next time, and for longer again once that was too early.
func TestAlarmIsArmedOnce(t *testing.T) {
	env := (&Env{Clock: clock.NewMock()}).ready()
	c := new(Call)
	a, in := env.alarmIn(c, time.Minute)
	if in != time.Minute {
		t.Errorf("a new alarm is armed for %v", in)
	}
	a.reset(10 * time.Second)
	for want := 10 * time.Second; want < time.Minute; want *= 2 {
		a.timer.Stop()
		if in := a.start(c, time.Minute); in != want {
			t.Errorf("it is armed for %v, want %v", in, want)
		}
		a.fired(true)
		a.fired(false)
	}
}
