package batch

import "time"

// gate is what lets items start. A circuit that is met shuts it. When the time
// is over that the circuit asked for, one item goes on trial, and the gate opens
// for all when that one ends without having met a circuit: all workers at once
// would run into a circuit that lets one call pass. A trial that takes long is
// joined by another, as the circuit's probe would be.
type gate struct {
	shut   bool
	until  instant // shut for all before this, then for all but one
	wait   time.Duration
	since  instant       // when it was shut
	paused time.Duration // in all, up to then
}

func (g *gate) open(now instant) bool { return !g.shut || now >= g.until }

// started notes the start of an item, and reports whether it is a trial.
func (g *gate) started(now instant) (trial bool) {
	if g.shut {
		g.until = after(now, g.wait)
	}
	return g.shut
}

// met notes that an item met a circuit which asks to wait.
func (g *gate) met(now instant, wait time.Duration) {
	if !g.shut {
		g.shut, g.since = true, now
	}
	g.until, g.wait = after(now, wait), wait
}

// passed notes that a trial met none.
func (g *gate) passed(now instant) {
	if g.shut {
		g.shut = false
		g.paused += now - g.since
	}
}

// total returns how long the gate has been shut.
func (g *gate) total(now instant) time.Duration {
	if g.shut {
		return g.paused + now - g.since
	}
	return g.paused
}

// guess is how long to wait where a limit does not say.
type guess struct {
	until instant
	n     int
}

const (
	firstGuess = 100 * time.Millisecond
	lastGuess  = 10 * time.Second
)

// wait returns a longer time with each wait that has passed, until an item gets
// through. After an item that was sent, and then cut off, it is short: the next
// one will be told.
func (g *guess) wait(now instant, sent bool) time.Duration {
	if sent {
		return firstGuess
	}
	if now >= g.until {
		g.until = now + min(firstGuess<<min(g.n, 10), lastGuess)
		g.n++
	}
	return g.until - now
}

// after adds a duration to an instant and saturates at never.
func after(i instant, d time.Duration) instant {
	if d > never-i {
		return never
	}
	return i + d
}
