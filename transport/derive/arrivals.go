package derive

import (
	"slices"
	"time"
)

// keptMinutes is how long arrivals are kept by the minute: a day, so that the
// busiest hour is among them.
const keptMinutes = 24 * 60

// arrivals counts calls by the minute in which they began.
type arrivals struct {
	first, last time.Time // the zero time: none yet
	minutes     []arrived // ascending, of the last day only
}

type arrived struct {
	minute int64 // since 1970
	calls  uint64
}

func (a *arrivals) add(at time.Time) {
	a.span(at, at)
	a.count(arrived{at.Unix() / 60, 1})
	a.forget()
}

func (a *arrivals) span(first, last time.Time) {
	if a.first.IsZero() || first.Before(a.first) {
		a.first = first
	}
	if last.After(a.last) {
		a.last = last
	}
}

func (a *arrivals) count(n arrived) {
	i := len(a.minutes)
	for i > 0 && a.minutes[i-1].minute > n.minute {
		i--
	}
	if i > 0 && a.minutes[i-1].minute == n.minute {
		a.minutes[i-1].calls = plus(a.minutes[i-1].calls, n.calls)
		return
	}
	a.minutes = slices.Insert(a.minutes, i, n)
}

func (a *arrivals) forget() {
	n := len(a.minutes)
	if n == 0 {
		return
	}
	oldest := a.minutes[n-1].minute - keptMinutes
	old := 0
	for a.minutes[old].minute <= oldest {
		old++
	}
	a.minutes = slices.Delete(a.minutes, 0, old)
}

func (a *arrivals) merge(o *arrivals) {
	if o.first.IsZero() {
		return
	}
	a.span(o.first, o.last)
	for _, m := range o.minutes {
		a.count(m)
	}
	a.forget()
}

// perSecond returns the rate in the busiest minute, or in all of the time if
// that was less than a minute. A single call, or calls at a single instant, have
// no rate.
func (a *arrivals) perSecond() float64 {
	var busiest, all uint64
	for _, m := range a.minutes {
		busiest, all = max(busiest, m.calls), plus(all, m.calls)
	}
	switch span := a.last.Sub(a.first); {
	case span <= 0:
		return 0
	case span < time.Minute:
		return float64(all-1) / span.Seconds()
	}
	return float64(busiest) / 60
}
