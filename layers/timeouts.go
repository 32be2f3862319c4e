package layers

import (
	"net/http"

	"github.com/weir-go/weir/policy"
)

// Timeouts bounds each phase of a send; see [policy.Timeouts], whose zero
// fields have their defaults here. The phases hold over any base: on one that fires the
// hooks of net/http/httptrace they are pool, connect, write and read, on any
// other the whole wait for headers counts as read. A send that waits for a stream of an
// HTTP/2 connection, as with StrictMaxConcurrentRequests of net/http, counts as writing,
// and as perhaps sent: no hook tells that it has not begun.
//
// An expired phase cancels the attempt, which frees its socket, and is an
// [Error] with the phase, the limit and the time elapsed. Over an
// *http.Transport whose dialer is not wrapped by [DialContext], a dial that was
// given up goes on until the transport's own dial and handshake timeouts.
func Timeouts(env *Env, t policy.Timeouts) Layer {
	t = policy.Defaults().With(policy.Settings{Timeouts: t}).Timeouts
	return env.layer(rankTimeouts, "", func(_ *Env, next sender) sender {
		return &timeouts{next: next, limits: t}
	})
}

type timeouts struct {
	next   sender
	limits policy.Timeouts
}

func (l *timeouts) send(a *attempt, req *http.Request) (*http.Response, error) {
	c := a.call
	now := c.env.now()
	c.mu.Lock()
	a.limits = &l.limits
	a.secure = req.URL.Scheme == "https"
	a.enterPhase(phaseRead, now)
	c.mu.Unlock()
	if l.limits.Attempt > 0 {
		a.boundBy(l.limits.Attempt, false)
	}
	return a.trace(l.next, req)
}

// enter moves the attempt to a phase if that follows from where it is. Before,
// under the mutex, it calls note, if there is one.
//
// For HTTP/2, net/http calls the hook of the pool phase under a lock that all its
// requests share. What the hook tells is told with the next event: that follows
// at once, unless the phase lasts.
func (a *attempt) enter(p phase, note func(*attempt)) {
	c := a.call
	now := c.env.now()
	c.mu.Lock()
	if note != nil {
		note(a)
	}
	follows := !a.settled && a.expired == nil && phasePool <= a.phase && a.phase <= phaseRead
	switch p {
	case phasePool:
		if a.sought = min(a.sought+1, 2); follows && !a.gotConn && !a.seldom().lost {
			a.sent = Unsent
		}
	case phaseConnect:
		follows = follows && a.phase == phasePool
	case phaseWrite:
		if a.gotConn = true; follows && a.sent == Unsent {
			a.sent = MaybeSent
		}
	case phaseRead:
		follows = follows && a.phase == phaseWrite
	}
	pool, untold := a.since, a.untold && follows
	if follows {
		a.enterPhase(p, now)
		a.untold = p == phasePool
	}
	c.mu.Unlock()
	if !follows || p == phasePool {
		return
	}
	if untold {
		a.emit(Event{Kind: KindPhase, Phase: PhasePool, At: c.env.time(pool)})
	}
	a.emit(Event{Kind: KindPhase, Phase: p.name()})
}
