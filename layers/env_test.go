package layers

import (
	"net/http"
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

// stepped is a clock whose time of day was set, as by an operator or a suspend,
// while the time that passes is not concerned.
type stepped struct {
	clock.Clock
	by time.Duration
}

func (c *stepped) Now() time.Time {
	if c.by == 0 {
		return c.Clock.Now()
	}
	return c.Clock.Now().Add(c.by).Round(0)
}

// TestClockThatIsSet: a deadline that was read from a text is a time of day, and
// goes by the one of now, not by that of when the process began.
func TestClockThatIsSet(t *testing.T) {
	for _, by := range []time.Duration{0, time.Hour, -time.Hour} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			set := &stepped{Clock: c}
			rt := Deadline(&Env{Clock: set}, time.Minute)(clocktest.NewUpstream(t, c, clocktest.Reply(200).After(time.Hour)))
			set.by = by
			text, err := set.Now().Add(10 * time.Second).MarshalText()
			if err != nil {
				t.Fatal(err)
			}
			var at time.Time
			if err := at.UnmarshalText(text); err != nil {
				t.Fatal(err)
			}
			req, err := http.NewRequestWithContext(WithDeadline(t.Context(), at), http.MethodGet, "http://api.example/", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := rt.RoundTrip(req); err == nil || c.Elapsed() != 10*time.Second {
				t.Errorf("set by %v: it ends after %v with %v, want 10 s", by, c.Elapsed(), err)
			}
		})
	}
}

// TestInstant: an instant and its time are the same, however far away.
func TestInstant(t *testing.T) {
	for name, c := range map[string]clock.Clock{"real": clock.New(), "mock": clock.NewMock()} {
		e := (&Env{Clock: c}).ready()
		for _, i := range []instant{0, 1, time.Hour, -time.Hour, 100 * 365 * 24 * time.Hour} {
			if got := e.instant(e.time(i)); got != i {
				t.Errorf("%s: %v comes back as %v", name, i, got)
			}
		}
		if got := e.instant(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)); got != never {
			t.Errorf("%s: the far end is at %v", name, got)
		}
		if got := e.instant(time.Time{}); got >= 0 {
			t.Errorf("%s: the far past is at %v", name, got)
		}
	}
}
