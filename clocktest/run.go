package clocktest

import (
	"bytes"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
)

// Run calls f in a testing/synctest bubble, and returns when f and every
// goroutine that it started have ended. The clock stands at midnight UTC of
// 2000-01-01, stands still while any goroutine runs, and moves by itself to the
// next timer when all of them wait.
//
// The test fails, with the stacks of the goroutines concerned, when nothing is
// left that could end their wait: f waits for what will never happen, or has
// ended and left goroutines behind.
//
// What [testing/synctest.Test] says of its t holds for this one: cleanups run
// inside the bubble, and t.Run, t.Parallel and t.Deadline must not be called.
// For subtests, call Run inside t.Run.
func Run(t *testing.T, f func(t *testing.T, c *Clock)) {
	t.Helper()
	if failure := run(t, f); failure != "" {
		t.Fatal(failure)
	}
}

// run returns the report of a bubble that could not go on, or "".
func run(t *testing.T, f func(t *testing.T, c *Clock)) (failure string) {
	t.Helper()
	var bubble string
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if !isDeadlock(p) {
			panic(p)
		}
		failure = fmt.Sprintf("clocktest: %v\n\n%s", p, stacks(bubble))
	}()
	synctest.Test(t, func(t *testing.T) {
		bubble = bubbleOf(stack(false))
		// What has become due with f's end must not be left waiting for its turn.
		t.Cleanup(synctest.Wait)
		// Let the bubble's first look for timers pass, while nothing is due; see whenIdle.
		synctest.Wait()
		f(t, newClock())
	})
	return ""
}

// isDeadlock reports whether p is the panic of a bubble that cannot go on, whose
// type is private to the runtime.
func isDeadlock(p any) bool {
	err, ok := p.(error)
	return ok && strings.HasPrefix(err.Error(), "deadlock: ")
}

// stacks returns the stacks of the goroutines in a bubble.
func stacks(bubble string) string {
	var in []string
	for s := range strings.SplitSeq(stack(true), "\n\n") {
		if bubbleOf(s) == bubble {
			in = append(in, s)
		}
	}
	return strings.Join(in, "\n\n")
}

var bubbleRE = regexp.MustCompile(`^goroutine \d+ \[[^]]*(synctest bubble \d+)`)

// bubbleOf returns what the heading of a stack says of the goroutine's bubble.
func bubbleOf(stack string) string {
	if m := bubbleRE.FindStringSubmatch(stack); m != nil {
		return m[1]
	}
	return ""
}

// stack returns the stack of the calling goroutine, or of all.
func stack(all bool) string {
	buf := make([]byte, 64<<10)
	for {
		n := runtime.Stack(buf, all)
		if n < len(buf) {
			return string(bytes.TrimSpace(buf[:n]))
		}
		buf = make([]byte, 2*len(buf))
	}
}
