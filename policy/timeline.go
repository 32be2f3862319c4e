package policy

import (
	"fmt"
	"time"
)

// attempt returns how long a send to a server that never answers lasts, and the
// setting that ends it; 0 if none does.
func (a *advisor) attempt() (length time.Duration, limit string) {
	length, limit = a.Timeouts.Read, "Timeouts.Read"
	if a.Stream.Enabled == On { // its limits are in the place of Read
		length, limit = a.Stream.FirstContent, "Stream.FirstContent"
	}
	if t := a.Timeouts.Attempt; t > 0 && (length <= 0 || t < length) {
		length, limit = t, "Timeouts.Attempt"
	}
	return max(length, 0), limit
}

// free returns a drill without gates.
func (a *advisor) free(hedges int) *drill {
	d := &drill{length: never, hedges: hedges, delay: a.Hedge.Delay}
	if length, _ := a.attempt(); length > 0 {
		d.length = length
	}
	return d
}

// drill returns one with the gates as they are before the first call.
func (a *advisor) drill(hedges int) *drill {
	d := a.free(hedges)
	d.deadline = a.Deadline
	for main, r := range a.rates {
		d.budgets = append(d.budgets, newTurns(main.String(), r.PerSecond, float64(r.Burst), r.MaxWait))
	}
	if a.InFlight.Enabled == On {
		d.slots, d.patience = a.InFlight.Max, a.InFlight.MaxWait
	}
	if a.share() > 0 {
		d.extra = newTurns("Retry.Budget", extraFloor, extraFloor, Off)
	}
	if a.Breaker.Enabled == On {
		d.circuit = &circuit{Breaker: a.Breaker}
	}
	return d
}

// extraFloor is how many extra sends a retry budget keeps at most, and gains a
// second, whatever the share.
const extraFloor = 3

// share is that of the retry budget, 0 if there is none. Where Retry is off, hedges
// are paid out of the default.
func (a *advisor) share() float64 {
	if a.Retry.Enabled != On {
		return Defaults().Retry.Budget
	}
	return max(0, a.Retry.Budget)
}

// wait returns the longest backoff after the n-th attempt.
func (a *advisor) wait(n int) time.Duration {
	base, most := max(a.Retry.BaseDelay, 0), a.Retry.MaxDelay
	if base > 0 && a.Retry.Backoff != nil || base > most>>(n-1) {
		return most
	}
	return base << (n - 1)
}

// least returns the time left that a further attempt is worth, and the setting
// that says so: a stream is not asked for that could not begin in time.
func (a *advisor) least() (time.Duration, string) {
	if first := a.Stream.FirstContent; a.Stream.Enabled == On && a.Retry.MinAttempt < first && first < a.Deadline {
		return first, "Stream.FirstContent"
	}
	return max(a.Retry.MinAttempt, 0), "Retry.MinAttempt"
}

// worthwhile reports whether a further attempt begins with so much time left.
func (a *advisor) worthwhile(left time.Duration) bool {
	least, _ := a.least()
	return a.Deadline <= 0 || left >= max(least, 1)
}

// draw makes the timeline.
func (a *advisor) draw(attempts, hedges int) {
	step := func(at time.Duration, format string, args ...any) {
		a.timeline = append(a.timeline, Step{at.String(), fmt.Sprintf(format, args...)})
	}
	_, limit := a.attempt()
	d := a.drill(hedges)
	defer func() {
		if d.unsent != "" {
			a.say("a hedge is not sent: %s", d.unsent)
		}
	}()
	for n, now := 1, time.Duration(0); ; n++ {
		first := len(d.sends)
		over, refused := d.race(now)
		for i, s := range d.sends[first:] {
			if a.Deadline > 0 && s.at >= a.Deadline {
				break
			}
			hedge := ""
			if i > 0 {
				hedge = ", a hedge"
			}
			step(s.at, "send %d%s%s", first+i+1, hedge, s.waited)
		}
		wait, last := a.wait(n), len(d.sends)
		left := a.Deadline - over - wait
		switch {
		case a.Deadline > 0 && over >= a.Deadline:
			step(a.Deadline, "the deadline ends the call")
			return
		case refused != "":
			step(over, "the call ends without send %d: %s", last+1, refused)
			return
		case over == never:
			step(d.sends[last-1].at, "nothing ends the wait")
			a.unbounded()
			return
		case n == attempts:
			step(over, "%s ends the call", limit)
			return
		case !a.worthwhile(left):
			step(over, "%s ends the call: a wait of %v would leave %v for send %d", limit, wait, max(left, 0), last+1)
			return
		case d.extra != nil && !d.extra.there(over):
			step(over, "%s ends the call: %s", limit, noneLeft)
			return
		case d.shut(over) > wait:
			step(over, "%s ends the call: %s", limit, isOpen)
			return
		}
		step(over, "%s ends send %d; wait up to %v", limit, last, wait)
		now = over + wait
	}
}

// unbounded says what would bound the wait for an answer.
func (a *advisor) unbounded() {
	read := "Timeouts.Read"
	if a.Stream.Enabled == On {
		read = "Stream.FirstContent"
	}
	a.say("nothing bounds the wait for an answer; set Deadline, %s or Timeouts.Attempt", read)
}
