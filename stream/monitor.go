package stream

import (
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
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
//	err := m.Expire(due)         // or nothing until it is too late
//
// All times are since the request was sent, and never go back. A limit is used up
// only during a wait, which is from Start to Answered and from each Wait to the
// Bytes or EOF after it. What has arrived at the instant of an expiry counts, so
// a driver that has both reports the bytes first.
//
// A Monitor is not safe for concurrent use. Its zero value is not ready: Start it.
type Monitor struct {
	limits *Limits

	// Limits are measured in time that waits have spent.
	waiting  bool
	answered bool
	since    time.Duration // when this wait began
	spent    time.Duration // by the waits before it
	mark     time.Duration // what was spent at the last content or progress, or at the terminal
	rateMark time.Duration // what was spent when this window of MinRate began
	rate     int64         // bytes of this window

	framer   framer
	framing  string
	encoding string
	json     bool // the Content-Type is application/json
	sniffing bool
	opaque   bool // every byte counts, because events cannot be told apart
	foreign  uint8
	headLen  uint8
	head     [sniffLen]byte // what has been sniffed at so far
	dialect  *dialect
	memory   memory
	names    [2]string // the last names of events that Limits.Classify was given
	filter   *filter   // with DropKeepalives

	kind     kind // of the last content or opened block
	began    bool // there was content
	pinged   bool // there was a keepalive since the last content or progress
	finished bool
	over     bool // there was a terminal or a failure
	failure  *FailureError
	err      error // how the stream ended

	now, first, lastByte time.Duration
	gaps                 [kinds]time.Duration
	bytes, offset        int64
	counts               [Failure + 1]int32
	unknown, undecodable int32
}

// Start readies m for a stream whose request is sent now, at time 0, and begins
// the wait for its headers. Limits may be shared, and must not change.
func (m *Monitor) Start(l *Limits) {
	*m = Monitor{limits: l, waiting: true, dialect: dialectOf(l.Dialect)}
	if l.DropKeepalives > 0 {
		m.filter = new(filter)
	}
}

// Answered takes the headers of the response and ends the wait for them.
func (m *Monitor) Answered(h http.Header, now time.Duration) {
	m.stop(now)
	m.answered = true
	m.mark, m.rateMark = m.spent, m.spent
	typ := mediaType(h.Get("Content-Type"))
	m.json = typ == "application/json"
	if e := h.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		m.encoding, m.opaque = e, true
		return
	}
	if framing := framingOf(typ); framing != "" {
		m.frame(framing)
	} else {
		m.sniffing = true
	}
}

// Wait begins a wait and returns when it is due to expire.
func (m *Monitor) Wait(now time.Duration) (due time.Duration) {
	m.waiting, m.since = true, now
	return m.Due()
}

// Due returns when the present wait is due to expire, or [Never].
func (m *Monitor) Due() time.Duration {
	if !m.waiting || m.err != nil {
		return Never
	}
	due, _, _, _ := m.next()
	return due
}

// stop ends the wait.
func (m *Monitor) stop(now time.Duration) {
	m.now = now
	if m.waiting {
		m.waiting = false
		m.spent += now - m.since
	}
}

// next returns the limit that is the first to be exceeded if this wait goes on,
// when that is, and what had been spent when it began to count.
func (m *Monitor) next() (due, limit, from time.Duration, kind StallKind) {
	l := m.limits
	limit, from, kind = l.Gap, m.mark, StallGap
	switch known := m.dialect != nil && !m.opaque; {
	case m.over:
		limit = l.Linger
	case !m.answered, !m.began && (known || l.FirstContent > 0):
		limit, from, kind = l.FirstContent, 0, StallFirstContent
	default:
		// A limit that takes the place of Gap does so if it is set at all; of
		// two, the longer.
		special := func(d time.Duration, k StallKind) {
			if d < 0 {
				d = Never
			}
			if d > limit || kind == StallGap && d != 0 {
				limit, kind = d, k
			}
		}
		switch m.kind {
		case thinking:
			special(l.ThinkingGap, StallThinkingGap)
		case tool:
			special(l.ToolGap, StallToolGap)
		}
		if m.pinged {
			special(l.PingedGap, StallPingedGap)
		}
	}
	due = m.dueAt(limit, from)
	if l.MinRate > 0 && m.answered && !m.over {
		if d := m.dueAt(l.MinRateWindow, m.rateMark); d < due {
			return d, l.MinRateWindow, m.rateMark, StallMinRate
		}
	}
	return due, limit, from, kind
}

// dueAt returns when this wait will have spent limit, counted from a time spent.
func (m *Monitor) dueAt(limit, from time.Duration) time.Duration {
	left := limit - (m.spent - from)
	if limit <= 0 || left > Never-m.since {
		return Never
	}
	return m.since + left
}

// Bytes takes what a Read has returned, and ends the wait for it. With
// DropKeepalives, what of it the caller may have is for Take.
func (m *Monitor) Bytes(p []byte, now time.Duration) {
	m.stop(now)
	if len(p) == 0 {
		return
	}
	m.bytes += int64(len(p))
	m.lastByte = now
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
	case m.filter != nil || !m.over:
		m.framer.write(p, m)
	}
	if m.opaque && !m.over && m.err == nil {
		m.touch(text)
	}
}

// pass lets bytes through that are not looked at.
func (m *Monitor) pass(p []byte) {
	m.offset += int64(len(p))
	if m.filter != nil {
		m.filter.add(setting, p, false)
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
		framing, more := sniff(m.head[:m.headLen], m.json)
		if more {
			continue
		}
		m.sniffing = false
		if framing == "" {
			m.opaque = true
			m.pass(m.head[:m.headLen])
		} else {
			m.frame(framing)
			m.framer.write(m.head[:m.headLen], m)
		}
		return p[i+1:]
	}
	return nil
}

// frame settles the framing.
func (m *Monitor) frame(framing string) {
	m.framing, m.framer = framing, newFramer(framing)
	if m.dialect != nil && !slices.Contains(m.dialect.framings, framing) && m.limits.Classify == nil {
		m.opaque, m.dialect = true, nil // an answer in one piece
		m.foreign = maxForeign
	}
}

// piece is called by the framer.
func (m *Monitor) piece(k pieceKind, raw []byte, e event) {
	m.offset += int64(len(raw))
	keepalive := false
	switch k {
	case whole:
		keepalive = m.event(e) == Keepalive
	case comment, idle:
		keepalive = true
		m.effect(verdict{class: Keepalive, known: true})
	case closing:
		if !m.opaque {
			m.effect(verdict{class: Terminal, known: true})
		}
	case lost:
		m.opaque, m.framer = true, nil
	}
	if m.filter != nil {
		if m.framing == framingJSONArray { // where a gap would need its comma closed
			k, keepalive = setting, false
		}
		m.filter.add(k, raw, keepalive)
	}
}

// event takes an event and returns its class.
func (m *Monitor) event(e event) Class {
	if m.over || m.err != nil {
		return Unknown
	}
	v, ok := m.class(e)
	if !ok {
		return Unknown
	}
	// No client takes JSON without a field name for content; but it may be the
	// reason why there is none.
	if e.form == bare && v.class != Failure {
		v = verdict{class: Lifecycle}
	}
	m.effect(v)
	return v.class
}

// class asks the caller's classifier, the dialect, and if none is known, every
// dialect. Without an answer the stream is opaque.
func (m *Monitor) class(e event) (v verdict, ok bool) {
	if classify := m.limits.Classify; classify != nil {
		c := classify(Event{m.name(e.name), e.data, e.cut, m.offset})
		if Unknown < c && c <= Failure {
			v := verdict{class: c, known: true}
			if c == Failure {
				v.failure = &FailureError{}
			}
			return v, true
		}
	}
	if m.dialect == nil && m.foreign < maxForeign {
		d, keepalive := detect(m.framing, e)
		switch {
		case d != nil:
			m.dialect, m.opaque = d, false
		case keepalive:
			return verdict{class: Keepalive}, true
		default:
			m.foreign++
		}
	}
	switch {
	case m.dialect != nil:
		return m.dialect.class(e, &m.memory), true
	case m.limits.Classify != nil:
		// What the caller does not rule out, and no dialect is there to.
		return verdict{class: Content, known: true, kind: text}, true
	}
	m.opaque = true
	return v, false
}

// name returns b as a string, without an allocation if it is one of the two last
// names.
func (m *Monitor) name(b []byte) string {
	for _, name := range m.names {
		if name == string(b) {
			return name
		}
	}
	m.names[0], m.names[1] = string(b), m.names[0]
	return m.names[0]
}

// effect does what a class does.
func (m *Monitor) effect(v verdict) {
	if m.over || m.err != nil {
		return
	}
	if v.carries || v.class == Content {
		m.counts[Content]++
		m.touch(v.kind)
	}
	if v.class != Content {
		m.counts[v.class]++
	}
	switch v.class {
	case Progress:
		m.advance(v.kind)
	case Lifecycle:
		if v.bad {
			m.undecodable++
		} else if !v.known {
			m.unknown++
		}
	case Keepalive:
		m.pinged = true
	case Finish:
		m.finished = true
	case Terminal, Failure:
		m.finished = m.finished || v.class == Terminal
		m.over, m.failure, m.mark = true, v.failure, m.spent
	}
}

// touch is the effect of content.
func (m *Monitor) touch(k kind) {
	if !m.began {
		m.began, m.first, m.mark = true, m.now, m.spent
	}
	m.advance(k)
}

// advance starts the gap anew.
func (m *Monitor) advance(k kind) {
	if m.began {
		m.gaps[m.kind] = max(m.gaps[m.kind], m.spent-m.mark)
	}
	m.mark, m.pinged = m.spent, false
	if k != noKind {
		m.kind = k
	}
}

// EOF takes the end of the body and returns what the caller is to be told:
// [io.EOF], or [ErrTruncated] if the dialect is known and there should have been
// more. An event that the end leaves unfinished still counts.
func (m *Monitor) EOF(now time.Duration) error {
	m.stop(now)
	if m.err == nil {
		if m.sniffing {
			m.pass(m.head[:m.headLen])
		}
		if m.framer != nil {
			m.framer.end(m)
		}
		m.err = io.EOF
		if m.dialect != nil && !m.opaque && !m.finished && !m.over && m.limits.AllowTruncated <= 0 {
			m.err = ErrTruncated
		}
	}
	m.Release()
	return m.err
}

// Expire ends the stream if the present wait has lasted until Due, and returns
// how; nil means that nothing is due yet. The end is a [*StallError], which the
// driver may complete with its Attempt, or [io.EOF] if the stream is known to be
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
		m.err = io.EOF
	} else {
		if m.began {
			m.gaps[m.kind] = max(m.gaps[m.kind], m.spent-m.mark)
		}
		m.err = &StallError{
			Kind: kind, Limit: limit, Waited: m.spent - from,
			SinceLastByte: now - m.lastByte, Elapsed: now,
			Contents: int(m.counts[Content]), Keepalives: int(m.counts[Keepalive]), Bytes: m.bytes,
			Dialect: m.dialectName(),
		}
	}
	m.Release()
	return m.err
}

// Release gives back the buffers that m holds. It is for a stream that has
// neither ended nor expired, and is not to be read on. What a filter has is
// still there to Take.
func (m *Monitor) Release() {
	if m.err == nil {
		m.err = io.ErrClosedPipe
	}
	if m.framer != nil {
		m.framer.end(discard{})
	}
	if m.filter != nil {
		m.filter.flush()
	}
}

type discard struct{}

func (discard) piece(pieceKind, []byte, event) {}

// Filters reports whether keepalives are dropped: then the caller gets its bytes
// from Take.
func (m *Monitor) Filters() bool { return m.filter != nil }

// Take copies to p what the caller may have, and returns how much it is.
func (m *Monitor) Take(p []byte) int {
	if m.filter == nil {
		return 0
	}
	return m.filter.take(p)
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
func (m *Monitor) Began() bool { return m.began }

// Failure returns the failure that the stream has reported, or nil.
func (m *Monitor) Failure() *FailureError { return m.failure }

func (m *Monitor) dialectName() string {
	if m.dialect == nil || m.opaque {
		return ""
	}
	return m.dialect.name
}

// Stats returns what m has seen so far.
func (m *Monitor) Stats() Stats {
	s := Stats{
		Dialect: m.dialectName(), Framing: m.framing, Encoding: m.encoding,
		FirstContent: m.first,
		Gap:          max(m.gaps[noKind], m.gaps[text]), ThinkingGap: m.gaps[thinking], ToolGap: m.gaps[tool],
		Contents: int(m.counts[Content]), Progresses: int(m.counts[Progress]),
		Lifecycles: int(m.counts[Lifecycle]), Keepalives: int(m.counts[Keepalive]),
		Unknown: int(m.unknown), Undecodable: int(m.undecodable),
		Bytes: m.bytes, Finished: m.finished, Failure: m.failure,
	}
	if f, ok := m.framer.(*sse); ok {
		s.LastEventID = string(f.id)
		s.Retry = time.Duration(min(max(f.retry, 0), int64(Never/time.Millisecond))) * time.Millisecond
	}
	return s
}
