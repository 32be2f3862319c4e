package layers

import (
	"net/http"
	"time"

	"github.com/weir-go/weir/policy"
)

// Deadline bounds a whole call, from its entry into the stack to the end of its
// body, by one instant: d after it entered, or the deadline of the caller's
// context or of [WithDeadline], whichever is earliest. Redirect hops share it.
// Zero is the default of package policy, [policy.Off] adds no bound.
//
// When the deadline passes, whatever the call is doing ends with an [Error]
// that is a timeout.
func Deadline(env *Env, d time.Duration) Layer {
	d = policy.Defaults().With(policy.Settings{Deadline: d}).Deadline
	return env.layer(rankDeadline, "", func(_ *Env, next sender) sender {
		return &deadline{next: next, d: d}
	})
}

type deadline struct {
	next sender
	d    time.Duration
}

func (l *deadline) send(a *attempt, req *http.Request) (*http.Response, error) {
	c := a.call
	now := c.start
	if c.hop != nil || c.first.exposed || c.heard { // something came before
		now = c.env.now()
	}
	if err := c.limit(l.d, now); err != nil {
		return nil, err
	}
	return l.next.send(a, req)
}

// passed returns the error of the deadline if it has passed.
func (c *Call) passed() error { return c.limit(policy.Off, c.env.now()) }
