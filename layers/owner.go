package layers

import "time"

// Owner says whose a deadline is. Of several at the same instant, it is that of
// the job, then that of the context.
type Owner string

// The owners of a deadline.
const (
	OwnerPolicy  Owner = "policy"  // the settings
	OwnerContext Owner = "context" // the caller's context
	OwnerJob     Owner = "job"     // WithDeadline
)

// Owner says whose the deadline is that Deadline returns. Empty: there is none.
func (c *Call) Owner() Owner {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, owner := c.due()
	return owner
}

// due returns the deadline and its owner. The mutex must be held.
func (c *Call) due() (time.Time, Owner) {
	end := min(c.end, c.ctxEnd)
	owner := OwnerPolicy
	switch end {
	case never:
		return time.Time{}, ""
	case c.jobEnd():
		owner = OwnerJob
	case c.ctxEnd:
		owner = OwnerContext
	}
	return c.env.time(end), owner
}
