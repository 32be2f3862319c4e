package layers

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Timeline is an Observer that keeps what happened to the calls it saw. Its
// String is one line an event, with the time since its call began: what a test
// compares, and what a reviewer reads. What sends that compete do at the same
// instant comes in any order. It keeps everything, so it is for tests and for single
// calls. The zero value is ready to use.
type Timeline struct {
	mu    sync.Mutex
	calls []*Call
	lines map[*Call][]string
}

// Observe implements Observer.
func (t *Timeline) Observe(ctx context.Context, e Event) {
	c, ok := CallFrom(ctx)
	if !ok {
		return // a circuit that was forced
	}
	c = c.root()
	line := fmt.Sprintf("%9s  %s", e.At.Sub(c.Start()).Round(time.Microsecond), e)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines == nil {
		t.lines = map[*Call][]string{}
	}
	if t.lines[c] == nil {
		t.calls = append(t.calls, c)
	}
	t.lines[c] = append(t.lines[c], line)
}

// String returns the events, call by call in the order in which the calls
// began, an empty line between two.
func (t *Timeline) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	for i, c := range t.calls {
		if i > 0 {
			b.WriteByte('\n')
		}
		for _, line := range t.lines[c] {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// String is the event as one line, without its time. The end of a call does not
// say again what the lines before it did.
func (e Event) String() string {
	if e.Kind == KindEnd {
		e.Status, e.Err = 0, nil
	}
	words := []string{string(e.Kind)}
	if e.Attempt > 0 {
		words = append(words, fmt.Sprintf("#%d", e.Attempt))
	}
	if e.Phase != "" && string(e.Phase) != string(e.Kind) {
		words = append(words, string(e.Phase))
	}
	if e.State != 0 {
		words = append(words, e.State.String())
	}
	if e.Wait > 0 {
		words = append(words, brief(e.Wait).String())
	}
	if e.Status > 0 {
		words = append(words, strconv.Itoa(e.Status))
	}
	text := strings.Join(words, " ")
	if e.Err != nil {
		text += ": " + safeText(e.Err)
	}
	return text
}
