package layers

import (
	"context"
	"time"
)

// WithDeadline gives every call made with the context one deadline: a job's,
// or that of the request being served. It bounds the whole call, on every
// route, but not a connection that a 101 has upgraded: that is the caller's, and
// no clock is on it. Calls keep to the earliest deadline that applies to them. at
// is a time on the clock of the stack that serves the calls.
func WithDeadline(ctx context.Context, at time.Time) context.Context {
	if outer, ok := ctx.Value(deadlineKey{}).(time.Time); ok && outer.Before(at) {
		return ctx
	}
	return context.WithValue(ctx, deadlineKey{}, at)
}

// deadline returns the instant by which the call must have ended.
func (c *Call) deadline() instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(c.end, c.ctxEnd)
}

// jobEnd is the deadline that comes from WithDeadline. The mutex must be held.
func (c *Call) jobEnd() instant {
	if r := c.first.seldom(); r.job {
		return r.jobEnd
	}
	return never
}

func (c *Call) entered() instant {
	if c.hop != nil {
		return c.hop.entered
	}
	return c.start
}

// limit adds, now, a deadline of d after the call entered; policy.Off adds none. It
// returns the error of a deadline that has passed: a redirect hop or a layer of
// the user's may come too late.
func (c *Call) limit(d time.Duration, now instant) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d > 0 {
		c.end = min(c.end, after(c.entered(), d))
		c.arm(c.end, now)
	}
	if now < c.end {
		return nil
	}
	return c.overdue(now)
}

// arm makes the call wake at due or earlier. The mutex must be held.
func (c *Call) arm(due, now instant) {
	if due >= c.armed || c.done {
		return
	}
	c.armed = due
	switch d := due - now; {
	case d <= 0:
		// A timer of no delay is not sure to fire on a mock clock.
		go c.wake()
	case c.alarm == nil:
		c.alarm, d = c.env.alarmIn(c, d)
		c.armed = now + d
	default:
		c.alarm.reset(d)
	}
}

// wake does what is due. It may be called at any time.
func (c *Call) wake() {
	c.mu.Lock()
	if c.done {
		c.mu.Unlock()
		return
	}
	now := c.env.now()
	passed := now >= c.end
	next := c.end
	var end context.CancelCauseFunc
	if passed {
		next, end = never, c.contextEnd()
		if c.expired == nil {
			c.expired = c.overdue(now)
		}
	}
	var hit []*attempt
	for a := c.live; a != nil; a = a.next {
		if a.expired != nil {
			continue
		}
		if passed {
			e := *c.expired
			e.Sent, e.during, e.attempt, e.streamed = a.sent, a.during(), int(a.n), a.streamed
			a.expired = &e
		} else {
			a.expired = a.overdue(now)
		}
		if a.expired != nil {
			hit = append(hit, a)
			continue
		}
		if end := a.seldom().endDue; end > 0 {
			next = min(next, end)
		}
		if !a.lastCall {
			next = min(next, a.phaseDue)
		}
		if g := a.guard; g != nil && now >= g.due {
			g.due = never
			// What arrives at this very instant is to be read first.
			c.env.soon(func() { a.expire(g) })
		} else if g != nil {
			next = min(next, g.due)
		}
	}
	if c.alarm != nil && c.armed <= now {
		c.alarm.fired(passed || hit != nil)
	}
	c.armed = never
	if next != never {
		c.arm(next, now)
	}
	cause := c.expired
	if own := c.first.expired; own != nil && own.Phase == PhaseDeadline {
		cause = own // which says what the send did
	}
	c.mu.Unlock()
	if end != nil {
		end(nil)
	}
	if passed {
		c.first.stop(cause)
	}
	for _, a := range hit {
		a.abort()
	}
}

// overdue is the error of a deadline that has passed. The mutex must be held.
func (c *Call) overdue(now instant) *Error {
	e := &Error{
		Layer: rankDeadline.String(), Phase: PhaseDeadline,
		Limit: max(0, c.end-c.start), Elapsed: now - c.start,
		Attempts: c.Attempts(), Reason: ReasonDeadline, timeout: true,
	}
	e.Deadline, e.Owner = c.due()
	return e
}
