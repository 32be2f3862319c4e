package layers

import (
	"net/http"
	"sync"
	"time"
)

// extraFloor is how many extra sends a second, and at once, an origin is good
// for whatever its traffic: with little of it, a share of nothing would rule
// out every retry.
const extraFloor = 3

// oneSend is an extra send, less what rounding may have taken.
const oneSend = 1 - 1e-9

// extraBudget is the budget of an origin for sends beyond the first of a call:
// retries, hedges, and what RetryOnce asks for. Each first send pays in the
// share that the policy allows, each second the floor; each extra send takes out
// one. No more than the floor of one second is kept: what a healthy hour has
// paid in would let a bad second send twice as much.
type extraBudget struct {
	env *Env

	mu    sync.Mutex
	level float64
	at    instant // when the level was right
}

// extraOf returns the budget of the origin of req.
func (e *Env) extraOf(req *http.Request) *extraBudget {
	return e.extra.of(nil, req)
}

func newExtraBudget(e *Env) *extraBudget { return &extraBudget{env: e, level: extraFloor, at: e.now()} }

// add pays in a share, and what the time since the last time is worth. The mutex
// must be held.
func (b *extraBudget) add(share float64) {
	now := b.env.now()
	since := min(max(0, now-b.at), time.Second)
	b.level = min(extraFloor, b.level+extraFloor*since.Seconds()+share)
	b.at = now
}

// Rests implements Handle.
func (b *extraBudget) Rests() (idle, free bool) { return b.Level() == extraFloor, true }

// Level returns how many extra sends it is good for.
func (b *extraBudget) Level() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(0)
	return b.level
}

// deposit notes a first send.
func (b *extraBudget) deposit(share float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(share)
}

// has reports that there is an extra send in the budget. It is taken out when
// the send has passed every gate: those that wait there would otherwise pay when
// there is quiet, and go at once.
func (b *extraBudget) has() bool { return b.Level() >= oneSend }

// withdraw takes an extra send out of the budget, if there is one in it.
func (b *extraBudget) withdraw() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(0)
	if b.level < oneSend {
		return false
	}
	b.level--
	return true
}
