package stream

import "time"

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
	if m.waiting {
		m.waiting = false
		m.spent += now - m.since
	}
	m.since = now
}

// next returns when the present wait is due to expire, which limit it then
// exceeds, and what had been spent when that began to count.
func (m *Monitor) next() (due, limit, from time.Duration, kind StallKind) {
	l := m.limits
	from = m.mark
	switch known := m.dialect != nil && !m.opaque; {
	case m.over:
		limit, kind = l.Linger, StallGap
	case !m.answered, !m.began && (known || l.FirstContent > 0):
		limit, from, kind = l.FirstContent, 0, StallFirstContent
	default:
		limit, kind = m.gapLimit(m.kind, m.pinged)
	}
	due = m.dueAt(limit, from)
	if l.MinRate > 0 && m.answered && !m.over {
		if d := m.dueAt(l.MinRateWindow, m.rateMark); d < due {
			return d, l.MinRateWindow, m.rateMark, StallMinRate
		}
	}
	return due, limit, from, kind
}

// gapLimit returns the limit of a gap after content of a kind, with or without a
// keepalive since.
func (m *Monitor) gapLimit(after kind, pinged bool) (limit time.Duration, kind StallKind) {
	l := m.limits
	limit, kind = l.Gap, StallGap
	// A limit that is to take the place of Gap does if it is set at all. Of two,
	// the longer.
	special := func(d time.Duration, k StallKind) {
		if d < 0 {
			d = Never
		}
		if d > limit || d != 0 && kind == StallGap {
			limit, kind = d, k
		}
	}
	switch after {
	case thinking:
		special(l.ThinkingGap, StallThinkingGap)
	case tool:
		special(l.ToolGap, StallToolGap)
	}
	if pinged {
		special(l.PingedGap, StallPingedGap)
	}
	return limit, kind
}

// dueAt returns when this wait will have spent limit, counted from a time spent.
func (m *Monitor) dueAt(limit, from time.Duration) time.Duration {
	left := limit - (m.spent - from)
	if limit <= 0 || left > Never-m.since {
		return Never
	}
	return m.since + left
}
