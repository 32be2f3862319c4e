package transport_test

import (
	"context"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/layers"
)

// check looks at what is left when all calls are over. The upstream sees that its
// bodies were closed, and the bubble that no goroutine is left.
func (s *randomStack) check() {
	s.witness.check(s.t)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.bodies {
		b.check()
	}
	s.checkReceived()
	s.checkTurns()
	for _, slots := range s.env.Slots() {
		if slots.Used != 0 || slots.Waiting != 0 {
			s.t.Errorf("slots are held: %+v", slots)
		}
	}
	for _, b := range s.env.RetryBudgets() {
		if b.Level < 0 || b.Level > 3 {
			s.t.Errorf("a retry budget is at %v", b.Level)
		}
	}
	for _, b := range s.env.Breakers() {
		equal(s.t, "the number of probes under way", b.Status().Probes, 0)
	}
	for call, of := range s.calls {
		if of.starts != 1 || of.ends != 1 || len(of.open) > 0 || call.Err() == nil {
			s.t.Errorf("of a call with the end %v was told %+v", call.Err(), of)
		}
	}
}

// checkReceived: a POST is received once, and once more for who asked for it. A layer
// of the user's that is around the base alone is taken at its word, as the base is.
func (s *randomStack) checkReceived() {
	n := len(s.names)
	if s.names[n-1] == "sends again" && s.names[n-2] != "inner" {
		return
	}
	for id, n := range s.received {
		if n > 1+s.asked[rootOf(id)] {
			s.t.Errorf("the POST %s was received %d times", id, n)
		}
	}
}

// rootOf returns the id of the call that a layer of the user's sends again.
func rootOf(id string) string {
	root, _, _ := strings.Cut(id, " ")
	return root
}

// checkTurns: no turn is lost.
func (s *randomStack) checkTurns() {
	spent := 0
	for _, b := range s.env.Budgets() {
		equal(s.t, "the number of those who wait for a turn", b.Waiting, 0)
		if b.ID.Budget == "counted" {
			spent += b.Burst - int(b.Level+0.5)
		}
	}
	if s.counted && (spent < s.sent-s.again || spent > s.sent+s.alone) {
		s.t.Errorf("%d turns were taken for %d sends, %d of them again, and %d without", spent, s.sent, s.again, s.alone)
	}
}

// told is what the observer is told of a call.
type told struct {
	starts, ends int
	last         int          // the number of the latest send
	open         map[int]bool // sends
}

func (s *randomStack) observe(ctx context.Context, e layers.Event) {
	call, _ := layers.CallFrom(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.calls[call]
	if of == nil {
		of = &told{open: map[int]bool{}}
		s.calls[call] = of
	}
	switch e.Kind {
	case layers.KindStart:
		of.starts++
	case layers.KindEnd:
		of.ends++
	case layers.KindSend:
		if e.Attempt <= of.last {
			s.t.Errorf("send %d is told of after %d", e.Attempt, of.last)
		}
		of.last, of.open[e.Attempt] = e.Attempt, true
	case layers.KindDone:
		if !of.open[e.Attempt] {
			s.t.Errorf("send %d is done, and was not begun", e.Attempt)
		}
		delete(of.open, e.Attempt)
	}
}

// sentBody is a caller's. A Read that comes at the instant of the Close may have begun
// before.
type sentBody struct {
	io.ReadCloser
	s *randomStack

	mu     sync.Mutex
	closes int
	at     time.Duration // of the first
	late   bool
}

func (s *randomStack) body(src io.ReadCloser) *sentBody {
	b := &sentBody{ReadCloser: src, s: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bodies = append(s.bodies, b)
	return b
}

func (b *sentBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	b.late = b.late || b.closes > 0 && b.s.c.Elapsed() > b.at
	b.mu.Unlock()
	return b.ReadCloser.Read(p)
}

func (b *sentBody) Close() error {
	b.mu.Lock()
	if b.closes++; b.closes == 1 {
		b.at = b.s.c.Elapsed()
	}
	b.mu.Unlock()
	return b.ReadCloser.Close()
}

func (b *sentBody) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	equal(b.s.t, "the number of closes of a body", b.closes, 1)
	equal(b.s.t, "whether it was read afterwards", b.late, false)
}
