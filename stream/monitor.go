package stream

import (
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Never is a time at which nothing falls due.
const Never time.Duration = math.MaxInt64

// defaultHold is the HoldLimit of limits that hold and set none.
const defaultHold = 256 << 10

// maxForeign is how many events may fail to show the dialect before the search
// for it ends.
const maxForeign = 8

// A Monitor holds one stream to its limits. It is the guard without the wiring:
// it has no clock, timer or goroutine, and reads nothing. Whoever drives it says
// what happens and when, and asks it when to come back. [Guard] drives one for a
// body; a stack of layers that has a timer and a body of its own drives it
// directly.
//
//	m.Start(limits)              // the request is sent
//	m.Answered(resp.Header, now) // the headers are here
//	due := m.Wait(now)           // a Read of the body begins
//	m.Bytes(p[:n], now)          // it has returned bytes,
//	err := m.EOF(now)            // or the end of the body,
//	err := m.Fail(err, now)      // or an error,
//	err := m.Expire(due)         // or nothing until it is too late
//
// All times are since the request was sent, and never go back. A limit is used up
// only during a wait, which is from Start to Answered and from each Wait to
// whatever ends it. What has arrived at the instant of an expiry counts, so a
// driver that has both reports the bytes first.
//
// A Monitor is not safe for concurrent use, but a driver of several goroutines can
// have a lock released while its classifier runs: see Under. Its zero value is not
// ready: Start it.
type Monitor struct {
	limits *Limits
	framer framer
	extra  *extra // with Classify or DropKeepalives

	seen

	framing   framing
	kind      kind // of the last content or opened block
	foreign   uint8
	unread    uint32 // bytes of an event that is not over, while no dialect is known
	waiting   bool
	answered  bool
	encoded   bool // the body still has a Content-Encoding
	json      bool // the Content-Type is application/json
	sniffing  bool // for the framing
	pinged    bool // there was a keepalive since the last content or progress
	over      bool // there was a terminal or a failure
	endedKind kind // of the content before the gap that ended
	endedPing bool // there was a keepalive in it before
	headLen   uint8
	head      [sniffLen]byte // what has been sniffed at so far

	// Limits are measured in time that waits have spent.
	since    time.Duration // when this wait began, or else the last that was heard of the time
	spent    time.Duration // by the waits before it
	mark     time.Duration // what was spent at the last content or progress, or at the terminal
	rateMark time.Duration // what was spent when this window of MinRate began
	ended    time.Duration // how long the gap was that the last bytes ended
	rate     int64         // bytes in this window

	memory   memory
	template template

	err      error // how the stream ended
	lastByte time.Duration
	bytes    int64
}

// seen is what events have shown, and others may ask for.
type seen struct {
	dialect *dialect
	failure *FailureError
	first   time.Duration
	gaps    [tool]time.Duration // the longest by kind, which begin at 1
	counts  [Failure + 1]int32  // by class; Unknown: of a type that the dialect does not know

	undecoded int32
	opaque    bool // events cannot be told apart, so every byte counts
	began     bool // there was content
	finished  bool
	unclear   bool // what is lost of the last event may have been the finish
}

// An extra is what it takes to ask the caller's classifier, and to filter.
type extra struct {
	filter filter
	names  [2]string // the last names of events
	offset int64     // of the end of the last piece

	mu      sync.Locker // of the driver; nil: none
	working bool        // the events of a write are looked at, and mu is free
	before  seen        // what others see meanwhile
	resume  resume      // likewise
}

// Start readies m for a stream whose request is sent now, at time 0, and begins
// the wait for its headers. Limits may be shared, and must not change; nil is none.
func (m *Monitor) Start(l *Limits) {
	if l == nil {
		l = new(Limits)
	}
	*m = Monitor{limits: l, waiting: true, seen: seen{dialect: dialectOf(l.Dialect)}, kind: text}
	if l.Classify != nil || m.Filters() {
		m.extra = new(extra)
	}
}

// Under tells m, once it is started, of the lock that all goroutines of its driver
// hold when they call m. While Bytes and EOF show events to Classify, they release
// it. Others may then call Due, Expire, Fail, Err, Stats, Began and Failure, which
// know nothing of these events yet; a Fail ends the stream at once.
func (m *Monitor) Under(mu sync.Locker) {
	if m.limits.Classify != nil {
		m.extra.mu = mu
	}
}

// working reports that events are looked at and the driver's lock is free.
func (m *Monitor) working() bool { return m.extra != nil && m.extra.working }

// look has the framer look at events: at the end of the stream, or in p.
func (m *Monitor) look(p []byte, end bool) {
	if m.extra != nil && m.extra.mu != nil {
		m.publish()
		m.extra.mu.Unlock()
		defer m.relock()
	}
	if end {
		m.framer.end(m)
		return
	}
	m.framer.write(p, m)
	m.template.rest()
}

// publish leaves to others what has been seen so far.
func (m *Monitor) publish() {
	x := m.extra
	if r := m.resumption(); r != nil {
		x.resume.id, x.resume.retry = append(x.resume.id[:0], r.id...), r.retry
	}
	x.working, x.before = true, m.seen
}

// relock ends that, also after a panic. If the stream was ended meanwhile, its
// buffers are left to give back.
func (m *Monitor) relock() {
	m.extra.mu.Lock()
	m.extra.working = false
	if m.err != nil {
		m.release()
	}
}

// resumption is what the stream has said of being resumed; nil: nothing.
func (m *Monitor) resumption() *resume {
	if m.working() {
		return &m.extra.resume
	}
	if f, ok := m.framer.(*sse); ok {
		return f.resume
	}
	return nil
}

// shown is what others may see.
func (m *Monitor) shown() *seen {
	if m.working() {
		return &m.extra.before
	}
	return &m.seen
}

// Answered takes the headers of the response and ends the wait for them.
func (m *Monitor) Answered(h http.Header, now time.Duration) {
	m.stop(now)
	m.answered = true
	m.mark, m.rateMark = m.spent, m.spent
	typ := mediaType(h.Get("Content-Type"))
	m.json = typ == "application/json"
	if e := h.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		m.encoded, m.opaque = true, true
	} else if f := framingOf(typ); f != noFraming {
		m.frame(f)
	} else {
		m.sniffing = true
	}
}

// Bytes takes what a Read has returned, and ends the wait for it. With a filter,
// what the caller may have of it is for Take.
func (m *Monitor) Bytes(p []byte, now time.Duration) {
	m.stop(now)
	if len(p) == 0 {
		return
	}
	m.bytes += int64(len(p))
	m.lastByte = now
	mark, after, pinged, gap := m.mark, m.kind, m.pinged, m.began && !m.over
	if m.limits.MinRate > 0 {
		m.rate += int64(len(p))
		if float64(m.rate) >= float64(m.limits.MinRate)*m.limits.MinRateWindow.Seconds() {
			m.rate, m.rateMark = 0, m.spent
		}
	}
	if m.sniffing {
		p = m.sniff(p)
	}
	switch {
	case m.framer == nil || m.err != nil:
		m.pass(p)
	case m.Filters() || !m.over:
		m.look(p, false)
	}
	if m.opaque && !m.over && m.err == nil {
		m.touch(text)
	}
	if gap && (m.mark > mark || m.pinged && !pinged) {
		m.ended, m.endedKind, m.endedPing = m.spent-mark, after, pinged
	}
}

// sniff looks for the framing in the first bytes of p, and returns the rest of
// them once it is settled.
func (m *Monitor) sniff(p []byte) []byte {
	for i, c := range p {
		if m.headLen == 0 && (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
			m.pass(p[i : i+1])
			continue
		}
		m.head[m.headLen] = c
		m.headLen++
		f, more := sniff(m.head[:m.headLen], m.json)
		if more {
			continue
		}
		m.sniffing = false
		if f == noFraming {
			m.opaque = true
			m.pass(m.head[:m.headLen])
		} else {
			m.frame(f)
			m.framer.write(m.head[:m.headLen], m)
		}
		return p[i+1:]
	}
	return nil
}

// frame settles the framing. A dialect that does not stream in it has answered in
// one piece, which is not for looking at.
func (m *Monitor) frame(f framing) {
	m.framing, m.framer = f, f.framer()
	if m.dialect != nil && !slices.Contains(m.dialect.framings, f) && m.limits.Classify == nil {
		m.opaque, m.dialect, m.foreign = true, nil, maxForeign
	}
}

// piece is called by the framer.
func (m *Monitor) piece(k pieceKind, raw []byte, e *event) {
	if m.extra != nil {
		m.extra.offset += int64(len(raw))
	}
	keepalive := false
	if m.dialect == nil && !m.opaque && m.limits.Classify == nil {
		m.strange(k, raw)
	}
	switch k {
	case whole:
		keepalive = m.event(e) == Keepalive && !e.sets // which a client needs to resume
		if e.cut && !e.typed && raw != nil {           // else it is not whole
			m.unclear = true
		}
	case comment, idle:
		keepalive = true
		m.effect(verdict{class: Keepalive})
	case closing:
		if !m.opaque {
			m.effect(verdict{class: Terminal})
		}
	case lost:
		m.opaque = true
	}
	if m.Filters() {
		if m.framing == framingJSONArray { // where a comma would have to go too
			k, keepalive = setting, false
		}
		m.extra.filter.add(k, raw, keepalive)
	}
}

// strange makes the stream opaque once an event that shows no dialect is longer than
// what is kept of one: no more can be learnt of it, and it may be a long way to its
// end, such as that of a document which is one JSON value. Server-sent events are of no
// document, and one without end is silence.
func (m *Monitor) strange(k pieceKind, raw []byte) {
	if k != partial || m.framing == framingSSE {
		m.unread = 0
		return
	}
	m.unread += uint32(len(raw))
	m.opaque = m.unread > maxPrefix
}

// pass lets bytes through that are not looked at.
func (m *Monitor) pass(p []byte) {
	if m.extra != nil { // else nobody wants them
		m.piece(setting, p, nil)
	}
}

// event takes an event and returns its class.
func (m *Monitor) event(e *event) Class {
	if m.over {
		return Unknown
	}
	if classify := m.limits.Classify; classify != nil && e.form != bare {
		c := classify(Event{m.extra.name(e.name), e.data, e.cut, m.extra.offset})
		switch {
		case c == Content: // which most are
			m.counts[Content]++
			m.touch(noKind)
			return c
		case Unknown < c && c <= Failure:
			m.effect(verdict{class: c, known: true})
			return c
		}
	}
	if m.dialect != nil && e.form == plain && m.template.fits(e) {
		m.counts[Content]++
		m.touch(m.template.kind)
		return Content
	}
	v := m.class(e)
	if e.form == bare && v.class != Failure {
		// No client takes JSON without a field name for content; but it may be the
		// reason why there is none.
		v = verdict{class: Lifecycle}
	}
	m.effect(v)
	return v.class
}

// class asks the dialect, or every dialect while none is known. Without an answer
// it makes the stream opaque, and the class is Unknown.
func (m *Monitor) class(e *event) verdict {
	if m.dialect == nil && m.foreign < maxForeign {
		d, keepalive := detect(m.framing, e)
		switch {
		case d != nil:
			m.dialect, m.opaque = d, false
		case keepalive:
			return verdict{class: Keepalive}
		default:
			m.foreign++
		}
	}
	switch {
	case m.dialect != nil:
	case m.limits.Classify != nil:
		// What the caller does not rule out, and no dialect is there to.
		return verdict{class: Content, kind: text}
	default:
		m.opaque = true
		return verdict{}
	}
	v := m.dialect.class(e, &m.memory)
	e.typed = m.dialect.typed && v.known
	if v.class == Content && v.to > 0 && !e.cut {
		m.template.learn(e, &v)
	}
	return v
}

// name returns b as a string, without an allocation if it is one of the two last
// names.
func (x *extra) name(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	for _, name := range x.names {
		if name == string(b) {
			return name
		}
	}
	x.names[0], x.names[1] = string(b), x.names[0]
	return x.names[0]
}

// effect does what a class does.
func (m *Monitor) effect(v verdict) {
	if m.over || v.class == Unknown {
		return
	}
	if v.class != Content {
		m.counts[v.class]++
	}
	if v.class == Content || v.carries {
		m.counts[Content]++
		m.touch(v.kind)
	}
	switch v.class {
	case Progress:
		m.advance(v.kind)
	case Lifecycle:
		if v.bad {
			m.undecoded++
		} else if !v.known {
			m.counts[Unknown]++
		}
	case Keepalive:
		m.pinged = true
	case Finish:
		m.finished = true
	case Terminal:
		m.finished, m.over, m.mark = true, true, m.spent
	case Failure:
		if m.failure = v.failure; m.failure == nil {
			m.failure = &FailureError{Dialect: m.dialectName()}
		}
		m.over, m.mark = true, m.spent
	}
}

// touch is the effect of content.
func (m *Monitor) touch(k kind) {
	if !m.began {
		m.began, m.first, m.mark = true, m.since, m.spent
	}
	m.advance(k)
}

// advance starts the gap anew.
func (m *Monitor) advance(k kind) {
	m.measure()
	m.mark, m.pinged, m.unclear = m.spent, false, false
	if k != noKind {
		m.kind = k
	}
}

// measure notes how long the gap is so far.
func (m *Monitor) measure() {
	if m.began {
		m.gaps[m.kind-1] = max(m.gaps[m.kind-1], m.spent-m.mark)
	}
}

// EOF takes the end of the body and returns what the caller is to be told:
// [io.EOF], or [ErrTruncated] if the dialect is known and there should have been
// more. An event that the end leaves unfinished still counts.
func (m *Monitor) EOF(now time.Duration) error {
	m.stop(now)
	if m.err != nil {
		return m.err
	}
	answer := false // to something else than what streams
	if m.framer != nil {
		f, ok := m.framer.(*jsonArray)
		answer = ok && f.onePiece()
		m.look(nil, true)
	}
	if m.err != nil { // by another, meanwhile
		return m.err
	}
	whole := m.finished || m.over || m.unclear || answer && !m.began
	if m.dialect != nil && !m.opaque && !whole && m.limits.AllowTruncated <= 0 {
		return m.end(ErrTruncated)
	}
	if m.began && !m.over && m.ended == 0 {
		m.ended, m.endedKind, m.endedPing = m.spent-m.mark, m.kind, m.pinged
	}
	return m.end(io.EOF)
}

// Fail takes an error of the body, or whatever else ends the stream, and returns
// how it ended: by err, if it had not ended before.
func (m *Monitor) Fail(err error, now time.Duration) error {
	if !m.working() { // else no wait goes on
		m.stop(now)
	}
	return m.end(err)
}

// Expire ends the stream if the present wait has lasted until Due, and returns
// how; nil means that nothing is due yet. The end is a [*StallError], to which
// the driver may add its Attempt, or [io.EOF] if the stream is known to be
// complete and only its body lingers. Either way the request is to be aborted.
func (m *Monitor) Expire(now time.Duration) error {
	if m.err != nil || !m.waiting {
		return m.err
	}
	due, limit, from, kind := m.next()
	if now < due {
		return nil
	}
	m.stop(now)
	if m.over || m.finished {
		return m.end(io.EOF)
	}
	m.measure()
	return m.end(&StallError{
		Kind: kind, Limit: limit, Waited: m.spent - from,
		SinceLastByte: now - m.lastByte, Elapsed: now,
		Contents: int(m.counts[Content]), Keepalives: int(m.counts[Keepalive]), Bytes: m.bytes,
		Dialect: m.dialectName(),
	})
}

// end settles how the stream ended, and gives back all buffers but what is for
// Take.
func (m *Monitor) end(err error) error {
	if m.err != nil {
		return m.err
	}
	m.err = err
	if !m.working() {
		m.release()
	}
	return err
}

// release gives back the buffers of a stream that has ended.
func (m *Monitor) release() {
	if m.framer != nil {
		m.framer.end(discard{})
	}
	if m.sniffing {
		m.pass(m.head[:m.headLen])
	}
	if m.Filters() {
		m.extra.filter.flush()
	}
}

type discard struct{}

func (discard) piece(pieceKind, []byte, *event) {}

// Ended returns how long the gap was that the latest bytes, or the end, brought
// to its end, and the limit that it was under: by content, progress or a
// terminal, and also by the first keepalive, after which another limit holds. It
// is 0 if they ended none, and once it has been asked.
func (m *Monitor) Ended() (gap time.Duration, under StallKind) {
	_, under = m.gapLimit(m.endedKind, m.endedPing)
	gap, m.ended = m.ended, 0
	return gap, under
}

// Err returns how the stream ended; nil: it has not.
func (m *Monitor) Err() error { return m.err }

// Filters reports whether keepalives are dropped, so that the caller's bytes are
// those from Take.
func (m *Monitor) Filters() bool { return m.limits.DropKeepalives > 0 }

// Take moves what the caller may have to p, and returns how much it is.
func (m *Monitor) Take(p []byte) int {
	if !m.Filters() {
		return 0
	}
	return m.extra.filter.take(p)
}

// Holds reports whether a response with Hold is still to be held back: nothing
// has come that ends the hold, which is content, a terminal or a failure, the end
// of the body, or more than HoldLimit bytes.
func (m *Monitor) Holds() bool {
	limit := m.limits.HoldLimit
	if limit <= 0 {
		limit = defaultHold
	}
	return m.limits.Hold > 0 && !m.began && !m.over && m.err == nil && m.bytes <= limit
}

// Began reports whether there was content.
func (m *Monitor) Began() bool { return m.shown().began }

// Failure returns the failure that the stream has reported, or nil.
func (m *Monitor) Failure() *FailureError { return m.shown().failure }

func (s *seen) dialectName() string {
	if s.dialect == nil || s.opaque {
		return ""
	}
	return s.dialect.name
}

// Stats returns what m has seen so far.
func (m *Monitor) Stats() Stats {
	e := m.shown()
	s := Stats{
		Dialect: e.dialectName(), Framing: m.framing.String(), Encoded: m.encoded,
		FirstContent: e.first,
		Gap:          e.gaps[text-1], ThinkingGap: e.gaps[thinking-1], ToolGap: e.gaps[tool-1],
		Contents: int(e.counts[Content]), Progresses: int(e.counts[Progress]),
		Lifecycles: int(e.counts[Lifecycle]), Keepalives: int(e.counts[Keepalive]),
		Unknown: int(e.counts[Unknown]), Undecodable: int(e.undecoded),
		Bytes: m.bytes, Finished: e.finished, Failure: e.failure,
	}
	if r := m.resumption(); r != nil {
		s.LastEventID = string(r.id)
		s.Retry = time.Duration(min(max(r.retry, 0), int64(Never/time.Millisecond))) * time.Millisecond
	}
	return s
}
