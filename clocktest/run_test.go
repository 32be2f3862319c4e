package clocktest_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/clocktest"
)

func TestTimeMovesByItself(t *testing.T) {
	began := time.Now()
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		for range 1000 {
			c.Sleep(time.Hour)
		}
		if got := c.Elapsed(); got != 1000*time.Hour {
			t.Errorf("elapsed: %v", got)
		}
	})
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestDeadlock(t *testing.T) {
	for name, want := range map[string][]string{
		"TestFailBlocked": {"all goroutines in bubble are blocked", "before the deadlock", "TestFailBlocked.func1", "waitForNothing"},
		"TestFailLeft":    {"blocked goroutines remain", "waitForNothing"},
		"TestFailTurn":    {"blocked goroutines remain", "waitForNothing"},
		"TestFailPlainly": {"plainly", "cleaned up"},
	} {
		out := failing(t, name)
		for _, w := range append(want, "--- FAIL: "+name, "run_test.go") {
			if !strings.Contains(out, w) {
				t.Errorf("%s: no %q in\n%s", name, w, out)
			}
		}
		if strings.Contains(out, "panic") {
			t.Errorf("%s: panics:\n%s", name, out)
		}
	}
}

func waitForNothing() { <-make(chan int) }

func TestFailBlocked(t *testing.T) {
	onlyOnPurpose(t)
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		t.Log("before the deadlock")
		go waitForNothing()
		c.Sleep(time.Second)
		select {}
	})
}

func TestFailLeft(t *testing.T) {
	onlyOnPurpose(t)
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		go waitForNothing()
	})
}

func TestFailTurn(t *testing.T) {
	onlyOnPurpose(t)
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		c.AfterFunc(time.Second, waitForNothing)
		c.Sleep(time.Second)
	})
}

func TestFailPlainly(t *testing.T) {
	onlyOnPurpose(t)
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		t.Cleanup(func() { t.Log("cleaned up after", c.Elapsed()) })
		c.AfterFunc(time.Hour, func() { t.Error("time moved after the end") })
		c.Sleep(time.Second)
		t.Fatal("plainly")
	})
}

// What is due when f ends is done before Run returns, and nothing later is.
func TestEndAtBusyInstant(t *testing.T) {
	var done, late int
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		fine := c.After(time.Second)
		for range 10 {
			c.AfterFunc(time.Second, func() {
				c.Sleep(0)
				done++
			})
		}
		c.AfterFunc(time.Second+1, func() { late++ })
		<-fine
	})
	if done != 10 || late != 0 {
		t.Errorf("%d of 10 done, %d late", done, late)
	}
}

// A goroutine may be in synctest.Wait while others wait for their turn.
func TestWaitAmongTurns(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		first := c.After(time.Second)
		turns := 0
		for range 10 {
			c.AfterFunc(time.Second, func() { turns++ })
		}
		<-first
		synctest.Wait()
		if turns != 10 || c.Elapsed() != time.Second {
			t.Errorf("%d turns after %v", turns, c.Elapsed())
		}
	})
}
