package stream

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
)

// Options are what [Guard] needs to know beside the limits. The zero value of
// each field is usable.
type Options struct {
	// Clock measures all times. Nil: the real one.
	Clock clock.Clock
	// Sent is when the request was sent, from which FirstContent counts. Zero:
	// now.
	Sent time.Time
	// Header is the response's, for its Content-Type and Content-Encoding.
	Header http.Header
	// Context is the request's. Once it has ended, what the body says of that is
	// returned, and no stall is found any more. Nil: none.
	Context context.Context
	// Cancel aborts the request, with the error that the Read will return. Nil:
	// the body is closed instead.
	Cancel func(error)
}

// Guard holds a response's body to limits. The caller reads from the Body that it
// returns instead, and closes that.
//
// What a response has for a body is not always a stream: do not guard an answer
// with a status other than 2xx, with 204, to HEAD, or that switches protocols.
//
// The limits may be shared by any number of bodies, and must not change. Their
// Hold is for whoever can hold a response back, which Guard, given a body, cannot.
func Guard(body io.ReadCloser, limits *Limits, o Options) *Body {
	b := &Body{body: body, clock: o.Clock, ctx: o.Context, cancel: o.Cancel, sent: o.Sent, alarm: Never}
	if b.clock == nil {
		b.clock = clock.New()
	}
	if b.sent.IsZero() {
		b.sent = b.clock.Now()
	}
	b.monitor.Start(limits)
	b.monitor.Under(&b.mu)
	b.monitor.Answered(o.Header, b.now())
	return b
}

// A Body is a guarded body. Its methods may be called at the same time; Reads
// follow one another.
type Body struct {
	body   io.ReadCloser
	clock  clock.Clock
	ctx    context.Context
	cancel func(error)
	sent   time.Time

	mu      sync.Mutex // protects what follows; never held while user code runs or upstream is read
	monitor Monitor
	timer   *clock.Timer
	alarm   time.Duration // when timer fires, or Never
	turn    *sync.Cond    // that a Read hands over; nil: none ever waited for its turn
	queued  int32         // Reads that wait for theirs
	reading bool          // a Read has its turn
	closed  bool
}

// maxRead is the most that is read at once. A Read of net/http goes on until a
// chunk of the transfer encoding, or the buffer, is at its end; with a large buffer,
// it would look like silence when a large chunk comes slowly.
const maxRead = 4 << 10

func (b *Body) now() time.Duration { return b.clock.Since(b.sent) }

// Read reads from the body. Once a limit is exceeded it returns, after the bytes
// that have come before, a [*StallError], and does so ever after. A stream that
// ends before it is finished ends in [ErrTruncated]. A Read that waits when a limit
// is exceeded returns as soon as that of the body does, for which the request is
// cancelled; one that waits for Classify returns once that does.
func (b *Body) Read(p []byte) (int, error) {
	b.mu.Lock()
	if b.reading {
		b.queue()
	}
	b.reading = true
	free := false
	defer func() { // also of a panic, of upstream or in Classify
		if free {
			b.mu.Lock()
		}
		b.leave()
		b.mu.Unlock()
	}()
	for {
		if !b.closed {
			if n := b.monitor.Take(p); n > 0 {
				return n, nil
			}
		}
		if b.monitor.err != nil || len(p) == 0 {
			return 0, b.monitor.err
		}
		now := b.now()
		b.arm(b.monitor.Wait(now), now)
		free = true
		b.mu.Unlock()
		n, err := b.body.Read(p[:min(len(p), maxRead)])
		b.mu.Lock()
		free = false
		n, err = b.ended(p[:n], err)
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// queue waits for a Read's turn, leave hands it over.
func (b *Body) queue() {
	if b.turn == nil {
		b.turn = sync.NewCond(&b.mu)
	}
	b.queued++
	b.turn.Wait()
}

func (b *Body) leave() {
	if b.queued == 0 {
		b.reading = false
		return
	}
	b.queued--
	b.turn.Signal()
}

// ended takes what a Read of upstream has returned. Bytes go to the caller before
// an error does.
func (b *Body) ended(p []byte, err error) (int, error) {
	now := b.now()
	b.monitor.Bytes(p, now)
	switch {
	case err == io.EOF:
		b.monitor.EOF(now)
	case err != nil:
		b.monitor.Fail(err, now)
	}
	b.disarm()
	if b.monitor.Filters() {
		return 0, nil // Take has what there is
	}
	if len(p) > 0 {
		return len(p), nil
	}
	return 0, b.monitor.err
}

// arm sees to it that the timer fires no later than due. It is left to fire too
// early rather than moved for every Read.
func (b *Body) arm(due, now time.Duration) {
	if due < b.alarm {
		b.set(due, now)
	}
}

func (b *Body) set(due, now time.Duration) {
	b.alarm = due
	switch wait := due - now; {
	case wait <= 0:
		if b.timer != nil {
			b.timer.Stop()
		}
		b.timer = b.soon(b.fire)
	case b.timer == nil:
		b.timer = b.clock.AfterFunc(wait, b.fire)
	default:
		b.timer.Reset(wait)
	}
}

// fire is called when the timer fires.
func (b *Body) fire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alarm = Never
	switch due, now := b.monitor.Due(), b.now(); {
	case b.monitor.err != nil || due == Never:
	case now < due:
		b.arm(due, now)
	default:
		// Bytes may have arrived at this very instant. Let their Read go first.
		b.soon(b.expire)
	}
}

// soon makes a timer that is due. One that is made so crashes the race detector in
// a bubble of testing/synctest, where it runs on the spot; one that is moved does
// not.
func (b *Body) soon(f func()) *clock.Timer {
	t := b.clock.AfterFunc(time.Hour, f)
	t.Reset(0)
	return t
}

// expire ends the stream if it is still due to.
func (b *Body) expire() {
	if b.ctx != nil && b.ctx.Err() != nil {
		return
	}
	b.mu.Lock()
	if b.monitor.err != nil {
		b.mu.Unlock()
		return
	}
	now := b.now()
	err := b.monitor.Expire(now)
	if err == nil {
		b.arm(b.monitor.Due(), now)
		b.mu.Unlock()
		return
	}
	b.disarm()
	b.mu.Unlock()
	if b.cancel != nil {
		b.cancel(err)
	} else {
		b.body.Close()
	}
}

// disarm stops the timer once the stream has ended.
func (b *Body) disarm() {
	if b.monitor.err != nil && b.timer != nil {
		b.timer.Stop()
	}
}

// Close closes the body. It may be called during a Read, and more than once.
func (b *Body) Close() error {
	b.mu.Lock()
	again := b.closed
	b.closed = true
	b.monitor.Fail(http.ErrBodyReadAfterClose, b.now())
	b.disarm()
	b.mu.Unlock()
	if again {
		return nil
	}
	return b.body.Close()
}

// Stats returns what the guard has seen so far.
func (b *Body) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.monitor.Stats()
}
