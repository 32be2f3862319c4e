package layers

import (
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/stream"
)

// StreamGuard holds the response to limits on its content: see [policy.Stream],
// whose zero fields have their defaults here, and package stream. It takes the
// place of the Read timeout: FirstContent until there is content, the gaps
// after it. A stream that exceeds a limit is cut off, and its Read, or the
// RoundTrip if no response was returned yet, fails with an [Error] that wraps
// a *[stream.StallError].
//
// With Hold the response is returned at its first content, so that a stream
// that stalls or fails before can be sent again like any failed send.
//
// A deadline of the policy bounds how long it takes to open a stream, which is
// to its first content with Hold or without FirstContent, else to its headers.
// The caller's own deadlines bound the reading too.
//
// Bodies of other answers than 2xx pass as they are.
func StreamGuard(env *Env, l policy.Stream) Layer {
	l.Enabled = policy.On
	l = policy.Defaults().With(policy.Settings{Stream: l}).Stream
	return env.layer(rankStream, "", func(env *Env, next sender) sender {
		return &streamGuard{env: env, next: next, limits: &l}
	})
}

type streamGuard struct {
	env    *Env
	next   sender
	limits *stream.Limits
}

// guard is what holds one response to its limits.
type guard struct {
	limits *stream.Limits
	sent   instant

	mu      sync.Mutex // for the monitor; not held while the body is read
	monitor stream.Monitor
	began   bool // its first content was told
	failed  bool // its failure was told

	due instant // of the present wait; under the call's mutex
}

func (l *streamGuard) send(a *attempt, req *http.Request) (*http.Response, error) {
	c := a.call
	g := &guard{limits: l.limits, sent: l.env.now()}
	g.monitor.Start(l.limits)
	c.mu.Lock()
	a.guard = g
	if first := l.limits.FirstContent; first < min(c.end, c.ctxEnd)-c.start { // else it is cut
		a.least = first
	}
	g.due = after(g.sent, g.monitor.Due())
	c.arm(g.due)
	c.mu.Unlock()
	resp, err := l.next.send(a, req)
	if err != nil || l.limits.Hold != policy.On || !a.guarded() {
		return resp, err
	}
	return a.holdBack(resp)
}

// guarded reports whether the response is held to limits.
func (a *attempt) guarded() bool {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	return a.guard != nil
}

// guardBody begins to guard the body of a response, or gives that up if it is
// no stream.
func (a *attempt) guardBody(b *body, resp *http.Response) {
	c := a.call
	c.mu.Lock()
	g := a.guard
	if g == nil {
		a.streamed = isStream(resp.Header)
		c.mu.Unlock()
		return
	}
	g.due = never
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		a.guard = nil
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	g.mu.Lock()
	g.monitor.Answered(resp.Header, c.env.now()-g.sent)
	g.mu.Unlock()
	if g.limits.Hold != policy.On && g.limits.FirstContent > 0 {
		c.lift()
	}
	b.guard = g
	resp.Body = guardedBody{b}
}

// isStream reports whether a response says that it is a stream of events.
func isStream(h http.Header) bool {
	for _, kind := range [...]string{"text/event-stream", "application/x-ndjson", "application/vnd.amazon.eventstream"} {
		if t := h.Get("Content-Type"); len(t) >= len(kind) && t[:len(kind)] == kind {
			return true
		}
	}
	return false
}

// lift ends the policy's deadline: the stream is open.
func (c *Call) lift() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.expired == nil {
		c.end = c.jobEnd
	}
}

// guardedBody is a body that is guarded.
type guardedBody struct{ *body }

// Read implements io.Reader.
func (b guardedBody) Read(p []byte) (int, error) { return b.readGuarded(p) }

// Stats returns what the guard has seen; see stream.StatsOf.
func (b guardedBody) Stats() stream.Stats {
	b.guard.mu.Lock()
	defer b.guard.mu.Unlock()
	return b.guard.monitor.Stats()
}

// readMost is the most that is read at once: net/http fills a larger buffer from
// one chunk, and would take a slow one for silence.
const readMost = 4096

func (b *body) readGuarded(p []byte) (int, error) {
	if len(b.prefix) > 0 {
		n := copy(p, b.prefix)
		b.prefix = b.prefix[n:]
		return n, nil
	}
	b.prefix = nil
	for {
		if n, err, over := b.beginGuarded(p); over {
			return n, err
		}
		n, err := b.ReadCloser.Read(p[:min(len(p), readMost)])
		n, err = b.endGuarded(p[:n], err)
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// beginGuarded begins a wait, unless there is something to return without one.
func (b *body) beginGuarded(p []byte) (n int, err error, over bool) {
	a, g := b.a, b.guard
	g.mu.Lock()
	if n = g.monitor.Take(p); n > 0 || len(p) == 0 {
		g.mu.Unlock()
		return n, nil, true
	}
	if b.err != nil || g.monitor.Err() != nil {
		end := g.monitor.Err()
		g.mu.Unlock()
		return 0, b.endStream(end), true
	}
	now := a.call.env.now()
	due := g.monitor.Wait(now - g.sent)
	g.mu.Unlock()
	if expired := b.beginRead(); expired != nil {
		return 0, b.endStream(expired), true
	}
	c := a.call
	c.mu.Lock()
	g.due = never
	if due != stream.Never {
		g.due = after(g.sent, due)
		c.arm(g.due)
	}
	c.mu.Unlock()
	return 0, nil, false
}

// endGuarded takes what a Read has returned. Bytes go to the caller before an
// error does.
func (b *body) endGuarded(p []byte, err error) (int, error) {
	a, g := b.a, b.guard
	a.call.mu.Lock()
	g.due = never
	a.call.mu.Unlock()
	expired := b.endRead()
	g.mu.Lock()
	now := a.call.env.now() - g.sent
	g.monitor.Bytes(p, now)
	switch {
	case err == io.EOF:
		g.monitor.EOF(now)
	case err != nil:
		g.monitor.Fail(err, now)
	case expired != nil:
		g.monitor.Fail(expired, now)
	}
	end := g.monitor.Err()
	began := g.monitor.Began() && !g.began
	failure := g.monitor.Failure()
	news := failure != nil && !g.failed
	g.began, g.failed = g.began || began, failure != nil
	filters := g.monitor.Filters()
	gap, under := g.monitor.Ended()
	g.mu.Unlock()
	if gap > 0 && a.call.env.gaps {
		a.emit(Event{Kind: KindGap, Phase: PhaseGap, Wait: gap, Gap: under})
	}
	if began {
		a.opened()
		a.emit(Event{Kind: KindContent, Phase: PhaseFirst, Wait: now})
	}
	if news {
		a.call.lift()
		a.emit(Event{Kind: KindFailure, Err: failure})
	}
	switch {
	case filters:
		return 0, nil // beginGuarded has what there is
	case len(p) > 0:
		return len(p), nil
	case end != nil:
		return 0, b.endStream(end)
	}
	return 0, nil
}

// opened is told of the first content.
func (a *attempt) opened() {
	a.call.lift()
	a.pass.content(a)
}

// endStream settles the attempt with how its stream ended, and returns what
// the caller is told of it.
func (b *body) endStream(end error) error {
	if b.err != nil {
		return b.err
	}
	b.guard.mu.Lock()
	failure := b.guard.monitor.Failure()
	b.guard.mu.Unlock()
	if end == io.EOF {
		if failure != nil {
			b.end(failure)
		} else {
			b.end(nil)
		}
		b.err = io.EOF
		return io.EOF
	}
	b.end(b.a.bodyError(end))
	return b.err
}

// expire ends a stream whose wait is over, once what arrives at the same
// instant has been read.
func (a *attempt) expire(g *guard) {
	c := a.call
	if a.givenUp() != nil {
		return // which is what the Read will say
	}
	g.mu.Lock()
	now := c.env.now()
	end := g.monitor.Expire(now - g.sent)
	due := g.monitor.Due()
	g.mu.Unlock()
	if end == nil {
		c.mu.Lock()
		if due != stream.Never && a.reading {
			g.due = after(g.sent, due)
			c.arm(g.due)
		}
		c.mu.Unlock()
		return
	}
	var stall *stream.StallError
	if !errors.As(end, &stall) {
		a.cancel(errLingered) // complete, but for the end of the body
		return
	}
	stall.Attempt = a.n
	c.mu.Lock()
	if a.expired != nil || a.settled {
		c.mu.Unlock()
		return
	}
	phase := PhaseGap
	if stall.Kind == stream.StallFirstContent {
		phase = PhaseFirst
	}
	a.expired = &Error{
		Layer: rankStream.String(), Phase: phase, Limit: stall.Limit, Elapsed: stall.Waited,
		Sent: a.sent, Err: stall, timeout: true,
	}
	c.mu.Unlock()
	a.abort()
}

var errLingered = errors.New("the stream was complete, and its body stayed open")

// holdBack reads on until the response may be released: at its first content,
// at its end, or when too much would have to be held.
func (a *attempt) holdBack(resp *http.Response) (*http.Response, error) {
	b, ok := resp.Body.(guardedBody)
	if !ok {
		return resp, nil
	}
	g := b.guard
	var data []byte
	for {
		g.mu.Lock()
		holds := g.monitor.Holds()
		g.mu.Unlock()
		if !holds {
			break
		}
		if cap(data)-len(data) < readMost/2 {
			data = append(make([]byte, 0, max(readMost, 2*cap(data))), data...)
		}
		n, err := b.readGuarded(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if err == nil {
			continue
		}
		if err != io.EOF && !errors.Is(err, stream.ErrTruncated) { // which are for the caller to read
			_ = b.Close()
			return nil, a.failure(err, rankStream, false)
		}
		break
	}
	b.prefix = data
	return resp, nil
}

// streamFailed reports a failure that a held stream has told of before its
// first content, and that another attempt may mend.
func (a *attempt) streamFailed() bool {
	a.call.mu.Lock()
	g := a.guard
	a.call.mu.Unlock()
	if g == nil || g.limits.Hold != policy.On {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.monitor.Failure()
	return f != nil && f.Retryable && !g.monitor.Began()
}
