package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// A drill is a call that a server never answers, and that has what calls share to
// itself: what it meets at the gates is its own sends.
type drill struct {
	deadline time.Duration // 0 or less: none
	length   time.Duration // of a send; never: nothing ends it
	hedges   int           // of an attempt
	delay    time.Duration // of each

	budgets  []*turns
	slots    int           // 0: any number
	patience time.Duration // with which a slot is waited for
	extra    *turns        // the retry budget; nil: there is none
	circuit  *circuit      // nil: there is none

	sends  []sent // in their order
	judged int    // of them, by the circuit
	unsent string // why a hedge was not sent, if one was not
}

// sent is a send that has passed the gates.
type sent struct {
	at, end time.Duration
	waited  string // what for, and how long
	era     int    // of the circuit
}

// never is later than all that is not.
const never time.Duration = math.MaxInt64

// race plays an attempt, whose first send is ready at an instant: each hedge is
// ready after the delay, or as soon as a send has failed. It returns when the
// attempt is over, and why it could not begin, if it could not.
func (d *drill) race(ready time.Duration) (over time.Duration, refused string) {
	failed := len(d.sends)
	if over, refused = d.send(ready, failed > 0, false); refused != "" {
		return over, refused
	}
	due := d.sends[failed].at + d.delay
	left, lacks := d.hedges, ""
	for left > 0 {
		at := due
		if failed < len(d.sends) && d.sends[failed].end < at {
			at = d.sends[failed].end
			failed++
		} else {
			due = never
		}
		if at == never || at > max(over, d.end()) || d.deadline > 0 && at >= d.deadline {
			break
		}
		if d.extra != nil && !d.extra.there(at) {
			lacks = noneLeft // for now
			continue
		}
		left--
		due = at + d.delay
		until, why := d.send(at, true, true)
		over, d.unsent = max(over, until), cmp.Or(d.unsent, why)
	}
	if left > 0 {
		d.unsent = cmp.Or(d.unsent, lacks)
	}
	return max(over, d.end()), ""
}

// end returns when the last send ends.
func (d *drill) end() time.Duration { return d.sends[len(d.sends)-1].end }

const (
	noneLeft = "Retry.Budget is used up"
	isOpen   = "the circuit is open"
)

// send plays a send that is ready at an instant. It returns when that has passed the
// gates, or was refused there, and why.
func (d *drill) send(ready time.Duration, extra, hedge bool) (at time.Duration, refused string) {
	if !d.admitted(ready, hedge) {
		return ready, isOpen
	}
	turn, refused := d.turn(ready)
	if refused != "" {
		return ready, refused
	}
	at, refused = d.slot(turn)
	s := sent{at: at, end: never}
	switch {
	case refused != "":
		return at, refused
	case at > ready && !d.admitted(at, hedge):
		return at, isOpen
	case extra && d.extra != nil && !d.extra.take(at):
		return at, noneLeft
	case at > turn:
		s.waited = fmt.Sprintf(", after %v for a slot", at-ready)
	case turn > ready:
		s.waited = fmt.Sprintf(", after %v for a turn", turn-ready)
	}
	for _, b := range d.budgets {
		b.take(at)
	}
	if d.length < never {
		s.end = at + d.length
	}
	if d.circuit != nil {
		s.era = d.circuit.era
	}
	d.sends = append(d.sends, s)
	return at, ""
}

// turn returns when there is a turn in each budget. Of those where it would come too
// late, the slowest refuses.
func (d *drill) turn(ready time.Duration) (at time.Duration, refused string) {
	at = ready
	var longest time.Duration
	for _, b := range d.budgets {
		wait := b.wait(ready)
		at = max(at, ready+wait)
		if wait > longest && (b.maxWait < 0 || b.maxWait > 0 && wait > b.maxWait || d.deadline > 0 && ready+wait >= d.deadline) {
			longest, refused = wait, fmt.Sprintf("%s %g has no turn for it before another %v", b.name, b.perSecond, wait)
		}
	}
	return at, refused
}

// slot returns when there is a slot, or when it is waited for no longer.
func (d *drill) slot(ready time.Duration) (at time.Duration, refused string) {
	for at = ready; d.slots > 0; {
		taken, free := 0, never
		for _, s := range d.sends {
			if s.at <= at && at < s.end {
				taken++
				free = min(free, s.end)
			}
		}
		if taken < d.slots {
			break
		}
		if patience := max(0, d.patience); free-ready > patience {
			return ready + patience, fmt.Sprintf("InFlight.Max %d has no slot for it", d.slots)
		}
		at = free
	}
	return at, ""
}

// admitted reports that the circuit lets a send go.
func (d *drill) admitted(at time.Duration, hedge bool) bool {
	return d.shut(at) == 0 && (!hedge || d.circuit == nil || d.circuit.closed())
}

// shut returns how much longer the circuit is open, once it has been told of the
// failures until an instant.
func (d *drill) shut(at time.Duration) time.Duration {
	if d.circuit == nil {
		return 0
	}
	for d.judged < len(d.sends) && d.sends[d.judged].end <= at {
		d.circuit.fail(d.sends[d.judged])
		d.judged++
	}
	return max(0, d.circuit.until-at)
}

// turns are those of a budget.
type turns struct {
	name             string
	perSecond, burst float64
	maxWait          time.Duration

	level float64
	at    time.Duration
}

func newTurns(name string, perSecond, burst float64, maxWait time.Duration) *turns {
	return &turns{name: name, perSecond: perSecond, burst: burst, maxWait: maxWait, level: burst}
}

// there reports that there is a turn at an instant, or the latest before which one was
// taken.
func (t *turns) there(at time.Duration) bool {
	if at > t.at {
		t.level = min(t.burst, t.level+t.perSecond*(at-t.at).Seconds())
		t.at = at
	}
	return 1-t.level < 1e-9
}

// wait returns how long the next turn is to be waited for.
func (t *turns) wait(at time.Duration) time.Duration {
	if t.there(at) {
		return t.at - at
	}
	return t.at - at + time.Duration(math.Round((1-t.level)/t.perSecond*float64(time.Second)))
}

// take takes a turn, if it is there.
func (t *turns) take(at time.Duration) bool {
	if !t.there(at) {
		return false
	}
	t.level--
	return true
}

// circuit is a breaker that is told of nothing but failures.
type circuit struct {
	Breaker

	era    int // of its state
	failed []time.Duration
	opens  int           // that it opened
	until  time.Duration // it is open
}

func (c *circuit) closed() bool { return c.opens == 0 }

// fail tells it of a failure.
func (c *circuit) fail(s sent) {
	switch {
	case s.era != c.era:
	case !c.closed(): // a probe, which is given up after Open
		if s.end-s.at <= c.Open {
			c.trip(s.end)
		}
	default:
		c.failed = append(c.failed, s.end)
		enough := c.Failures
		if c.Ratio > 0 {
			enough = c.MinRequests
			c.failed = slices.DeleteFunc(c.failed, func(at time.Duration) bool { return s.end-at >= c.Window })
		}
		if len(c.failed) >= enough {
			c.trip(s.end)
		}
	}
}

// trip opens it, for as long as it may be.
func (c *circuit) trip(at time.Duration) {
	open := c.Open
	for i := 0; i < c.opens && open < c.OpenMax; i++ {
		open *= 2
	}
	open = min(open, c.OpenMax)
	c.until = at + open + time.Duration(max(0, c.OpenJitter)*float64(open))
	c.opens++
	c.era++
}
