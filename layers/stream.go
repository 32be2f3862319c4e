package layers

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

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
	if l.Gap < 0 { // no default of a longer one then applies, as in a policy
		for _, longer := range []*time.Duration{&l.PingedGap, &l.ThinkingGap, &l.ToolGap} {
			*longer = cmp.Or(*longer, policy.Off)
		}
	}
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
	resp   *http.Response // whose body it is

	reads sync.Mutex // held during a Read

	mu      *sync.Mutex // the call's, for what follows; not held while the body is read or classified
	monitor stream.Monitor
	began   bool // its first content was told
	failed  bool // its failure was told
	open    bool // that it is open was told

	due instant // of the present wait

	prefix []byte // what was held back of the body
}

func (l *streamGuard) send(a *attempt, req *http.Request) (*http.Response, error) {
	c := a.call
	g := &guard{limits: l.limits, sent: l.env.now(), mu: &c.mu}
	g.monitor.Start(l.limits)
	g.monitor.Under(g.mu)
	c.mu.Lock()
	a.guard = g
	if first := l.limits.FirstContent; first < min(c.end, c.ctxEnd)-c.start { // else it is cut
		a.least = first
	}
	g.due = after(g.sent, g.monitor.Due())
	c.arm(g.due, g.sent)
	c.mu.Unlock()
	resp, err := l.next.send(a, req)
	if err != nil {
		a.unguard()
		return nil, err
	}
	if l.limits.Hold == policy.On {
		return a.holdBack(resp)
	}
	return resp, nil
}

// unguard takes the guard off the attempt, and returns it.
func (a *attempt) unguard() *guard {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	g := a.guard
	a.guard = nil
	return g
}

// guardBody begins to guard the body of a response, if it is a stream. g is nil
// on a route that does not guard any.
func (a *attempt) guardBody(g *guard, b *body, resp *http.Response) {
	c := a.call
	if g == nil {
		if isStream(resp.Header) {
			c.mu.Lock()
			a.streamed = true
			c.mu.Unlock()
		}
		return
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return
	}
	resp.Body = guardedBody{b}
	if g.limits.DropKeepalives == policy.On { // fewer bytes may come out than go in
		resp.ContentLength = -1
		resp.Header.Del("Content-Length")
	}
	c.mu.Lock()
	g.monitor.Answered(resp.Header, c.env.now()-g.sent)
	g.open = g.limits.Hold != policy.On && g.limits.FirstContent > 0
	g.due = never
	b.guard, g.resp = g, resp
	a.guard, a.open, a.guarded = g, g.open, true
	if b != &a.response {
		a.mark().again = g
	}
	c.mu.Unlock()
}

// missing reports that an empty body is a stream that ended before it began, since
// the response says that it is one, of a dialect with an end of its own.
func (g *guard) missing(resp *http.Response) bool {
	return g != nil && g.limits.Dialect != "" && resp.StatusCode/100 == 2 && isStream(resp.Header)
}

// isStream reports whether a response says that it is a stream of events.
func isStream(h http.Header) bool {
	list := h["Content-Type"]
	if len(list) == 0 {
		return false
	}
	t, _, _ := strings.Cut(list[0], ";")
	t = strings.TrimSpace(t)
	for _, s := range streamTypes {
		if len(t) == len(s) && strings.EqualFold(t, s) {
			return true
		}
	}
	return false
}

var streamTypes = [...]string{
	"text/event-stream", "application/x-ndjson", "application/ndjson", "application/jsonl",
	"application/x-jsonlines", "application/stream+json", "application/vnd.amazon.eventstream",
}

// handOver is told that the attempt goes up, answered or not, from a layer of ours
// that a layer of the user's stands around, to where it was. Unless that layer
// stands inside one of ours in turn, there is nobody left who would send the call
// again.
func (a *attempt) handOver(to rank, answered bool) {
	c := a.call
	c.mu.Lock()
	defer c.mu.Unlock()
	a.rank = to
	if answered && a.depth == 0 && !a.behind && c.last != nil {
		c.last.handed = true
		c.last.lift()
	}
}

// opened is told that the attempt's stream is open.
func (a *attempt) opened() {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	a.open = true
	a.lift()
}

// lift ends the policy's deadline once the stream is open and nobody can send
// the call again. The mutex must be held.
func (a *attempt) lift() {
	if c := a.call; a.open && a.handed && c.expired == nil {
		c.end = c.jobEnd()
	}
}

// guardedBody is a body that is guarded.
type guardedBody struct{ *body }

// Read implements io.Reader.
func (b guardedBody) Read(p []byte) (int, error) {
	b.guard.reads.Lock()
	defer b.guard.reads.Unlock()
	return b.readGuarded(p)
}

// Stats returns what the guard has seen; see stream.StatsOf.
func (b guardedBody) Stats() stream.Stats { return b.guard.stats() }

// statter is a body that stream.StatsOf knows.
type statter interface{ Stats() stream.Stats }

// withStats returns b, which hides another body, with the statistics of that.
func withStats(b, hidden io.ReadCloser) io.ReadCloser {
	if s, ok := hidden.(statter); ok {
		return struct {
			io.ReadCloser
			statter
		}{b, s}
	}
	return b
}

func (g *guard) stats() stream.Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.monitor.Stats()
}

// StatsOf implements stream.Guardian, for a body that is hidden in another. The
// request may be that of responses which are none of ours, or of earlier ones.
func (a *attempt) StatsOf(resp *http.Response) (stream.Stats, bool) {
	a.call.mu.Lock()
	first, again := a.response.guard, a.seldom().again
	a.call.mu.Unlock()
	for _, g := range [...]*guard{first, again} {
		if g != nil && g.resp == resp {
			return g.stats(), true
		}
	}
	return stream.Stats{}, false
}

// readMost is the most that is read at once: net/http fills a larger buffer from
// one chunk, and would take a slow one for silence.
const readMost = 4096

func (b *body) readGuarded(p []byte) (int, error) {
	if len(b.guard.prefix) > 0 && !b.shut.Load() {
		n := copy(p, b.guard.prefix)
		if b.guard.prefix = b.guard.prefix[n:]; len(b.guard.prefix) == 0 {
			b.guard.prefix = nil // and with it its memory
		}
		return n, nil
	}
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
	g, c := b.guard, b.a.call
	c.mu.Lock()
	if !b.shut.Load() {
		n = g.monitor.Take(p)
	}
	err = g.monitor.Err()
	if n == 0 && len(p) > 0 && b.err == nil && err == nil {
		now := c.env.now()
		if err = b.begin(now); err == nil {
			g.due = after(g.sent, g.monitor.Wait(now-g.sent))
			c.arm(g.due, now)
			c.mu.Unlock()
			return 0, nil, false
		}
	}
	c.mu.Unlock()
	if n > 0 || len(p) == 0 {
		return n, nil, true
	}
	return 0, b.endStream(err), true
}

// endGuarded takes what a Read has returned. Bytes go to the caller before an
// error does.
func (b *body) endGuarded(p []byte, err error) (int, error) {
	if err == io.EOF && !b.complete(nil) {
		err = errCut
	}
	var n news
	b.take(&n, p, err)
	if !n.over && (n.began || n.opened || n.failed != nil || n.gap > 0) {
		b.a.hear(&n)
	}
	switch {
	case n.filters:
		return 0, nil // beginGuarded has what there is
	case len(p) > 0:
		return len(p), nil
	case n.end != nil:
		return 0, b.endStream(n.end)
	}
	return 0, nil
}

// errCut is an end of the body that may not be the end of the stream.
var errCut = errors.New("the body ended when the stream was given up")

// news is what a Read has brought.
type news struct {
	at      instant // since the sending
	began   bool    // the first content
	opened  bool
	opaque  bool // events cannot be told apart
	failed  *stream.FailureError
	gap     time.Duration // that has ended
	under   stream.StallKind
	over    bool // the attempt has ended, perhaps while a classifier made them wait
	filters bool
	end     error
}

// hear passes news on.
func (a *attempt) hear(n *news) {
	if n.gap > 0 {
		a.emit(Event{Kind: KindGap, Phase: PhaseGap, Wait: n.gap, Gap: n.under})
	}
	if n.opened {
		a.opened()
	}
	if n.opaque {
		a.emit(Event{Kind: KindOpaque})
	}
	if n.began {
		a.pass.content(a)
		a.emit(Event{Kind: KindContent, Phase: PhaseFirst, Wait: n.at})
	}
	if n.failed != nil {
		a.emit(Event{Kind: KindFailure, Err: n.failed})
	}
}

// take ends a wait, and tells the monitor what the Read has returned. It may call
// a classifier of the user's, and holds no lock then.
func (b *body) take(n *news, p []byte, err error) {
	a, g := b.a, b.guard
	c, m := a.call, &g.monitor
	c.mu.Lock()
	defer c.mu.Unlock() // also after a panic in the classifier
	now := c.env.now()
	g.due = never
	switch expired := b.endAt(now); {
	case err == nil:
		err = expired
	case err == io.EOF && expired != nil && !b.whole:
		err = errCut
	}
	n.at = now - g.sent
	m.Bytes(p, n.at)
	switch {
	case err == nil:
	case err == io.EOF, err == errCut && m.Stats().Finished:
		m.EOF(n.at)
	default:
		m.Fail(err, n.at)
	}
	n.began = m.Began() && !g.began
	n.opaque = n.began && g.opaque()
	if f := m.Failure(); !g.failed {
		n.failed = f
	}
	n.opened = !g.open && (n.began || n.failed != nil || m.Stats().Finished)
	g.began, g.failed, g.open = g.began || n.began, g.failed || n.failed != nil, g.open || n.opened
	if c.env.gaps {
		n.gap, n.under = m.Ended()
	}
	n.over, n.filters, n.end = a.settled, m.Filters(), m.Err()
}

// opaque reports that the first content is only the first byte: events could
// not be told apart. The mutex must be held.
func (g *guard) opaque() bool {
	s := g.monitor.Stats()
	return s.Framing == "" || s.Dialect == "" && g.limits.Classify == nil
}

// endStream settles the attempt with how its stream ended, and returns what
// the caller is told of it.
func (b *body) endStream(end error) error {
	switch {
	case b.err != nil:
	case end == io.EOF:
		b.end(nil)
		b.err = end
	default:
		b.end(b.a.bodyError(end))
	}
	return b.err
}

// verdict corrects how a body ended by what was seen of the stream: a reader
// may leave once it has heard of a failure or a finish, and need not wait for
// the end.
func (g *guard) verdict(o outcome) outcome {
	g.mu.Lock()
	failure, finished := g.monitor.Failure(), g.monitor.Stats().Finished
	g.mu.Unlock()
	switch {
	case failure != nil:
		o.err, o.abandoned = failure, false
	case finished && o.abandoned:
		o.err, o.abandoned = nil, false
	}
	return o
}

// leave ends the guard of a body that is closed by its reader. What is left to
// wait for is what Read is for.
func (g *guard) leave(a *attempt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.monitor.Fail(http.ErrBodyReadAfterClose, a.call.env.now()-g.sent)
	if a.guard == g {
		a.guard = nil
	}
}

// expire ends a stream whose wait is over, once what arrives at the same
// instant has been read.
func (a *attempt) expire(g *guard) {
	if a.givenUp() != nil {
		return // which is what the Read will say
	}
	switch a.expireGuard(g).(type) { //nolint:errorlint // They come from the monitor as they are.
	case nil:
	case *stream.StallError:
		a.abort()
	default:
		a.cancel(errLingered) // complete, but for the end of the body
	}
}

// expireGuard returns how the stream has ended just now; nil: it has not.
func (a *attempt) expireGuard(g *guard) error {
	c := a.call
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.guard != g || a.expired != nil || a.settled || g.monitor.Err() != nil {
		return nil
	}
	now := c.env.now()
	end := g.monitor.Expire(now - g.sent)
	if end == nil {
		g.due = after(g.sent, g.monitor.Due())
		c.arm(g.due, now)
		return nil
	}
	if stall, ok := end.(*stream.StallError); ok { //nolint:errorlint // As above.
		stall.Attempt = int(a.n)
		phase := PhaseGap
		if stall.Kind == stream.StallFirstContent {
			phase = PhaseFirst
		}
		a.expired = &Error{
			Layer: rankStream.String(), Phase: phase, Limit: stall.Limit, Elapsed: stall.Waited,
			Sent: a.sent, Err: stall, timeout: true,
		}
	}
	return end
}

var errLingered = errors.New("the stream was complete, and its body stayed open")

// holdBack reads on until the response may be released: at its first content,
// at its end, or when too much would have to be held.
func (a *attempt) holdBack(resp *http.Response) (*http.Response, error) {
	b, ok := resp.Body.(guardedBody)
	if !ok {
		return resp, nil
	}
	ended := false
	defer func() {
		if !ended { // a panic in a classifier of the user's
			_ = b.Close()
			a.settle(outcome{err: errPanic, abandoned: true})
		}
	}()
	var data []byte
	for b.guard.holds() {
		if cap(data)-len(data) < readMost/2 {
			data = append(make([]byte, 0, max(readMost, 2*cap(data))), data...)
		}
		n, err := b.readGuarded(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if err == nil {
			continue
		}
		if err != io.EOF && !errors.Is(err, stream.ErrTruncated) { // which are for the caller to read
			ended = true
			_ = b.Close()
			return nil, a.failure(err, rankStream, false)
		}
		break
	}
	ended = true
	b.guard.prefix = data
	return resp, nil
}

// holds reports that a response is to be held back, or has ended with nothing to
// release it for, as the next Read says.
func (g *guard) holds() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.monitor.Holds() || g.monitor.Err() != nil && !g.open
}

// streamFailure returns a failure that a held stream has told of before its
// first content, and that another attempt may mend.
func (a *attempt) streamFailure() *stream.FailureError {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	g := a.guard
	if g == nil || g.limits.Hold != policy.On {
		return nil
	}
	if f := g.monitor.Failure(); f != nil && f.Retryable && !g.monitor.Began() {
		return f
	}
	return nil
}
