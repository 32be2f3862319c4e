package layers

import (
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// extraFloor is how many extra sends a second, and at once, an origin is good
// for whatever its traffic: with little of it, a share of nothing would rule
// out every retry.
const extraFloor = 3

// extraMemory is how long a first send counts, in seconds.
const extraMemory = 10

// extraBudget is the budget of an origin for sends beyond the first of a call:
// retries, hedges, and what RetryOnce asks for. Each first send pays in the
// share that the policy allows, which is worth something for ten seconds; each
// extra send takes out one.
type extraBudget struct {
	env *Env

	mu    sync.Mutex
	floor *rate.Limiter
	paid  [extraMemory]struct {
		second int64
		credit float64
	}
}

// extraOf returns the budget of the origin of req.
func (e *Env) extraOf(req *http.Request) *extraBudget {
	if req.URL == nil {
		return e.extra.create(stateKey{})
	}
	return e.extra.of(nil, req)
}

func newExtraBudget(e *Env) *extraBudget {
	return &extraBudget{env: e, floor: rate.NewLimiter(extraFloor, extraFloor)}
}

// Rests implements Handle.
func (b *extraBudget) Rests() (idle, free bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.env.now()
	return b.total(now) == 0 && b.floor.TokensAt(b.env.time(now)) >= extraFloor, true
}

// credit is what slice i is worth. The mutex must be held.
func (b *extraBudget) credit(now instant, i int) float64 {
	if int64(now/time.Second)-b.paid[i].second >= extraMemory {
		b.paid[i].credit = 0
	}
	return b.paid[i].credit
}

// total is what all first sends that count are worth. The mutex must be held.
func (b *extraBudget) total(now instant) (total float64) {
	for i := range b.paid {
		total += b.credit(now, i)
	}
	return total
}

// level returns how many extra sends it is good for.
func (b *extraBudget) level() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.env.now()
	return b.total(now) + max(0, b.floor.TokensAt(b.env.time(now)))
}

// deposit notes a first send.
func (b *extraBudget) deposit(share float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.env.now()
	second := int64(now / time.Second)
	i := int(second % extraMemory)
	b.credit(now, i)
	b.paid[i].second = second
	b.paid[i].credit += share
}

// withdraw takes an extra send out of the budget, if there is one in it.
func (b *extraBudget) withdraw() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.env.now()
	total := b.total(now)
	const rounding = 1e-9
	if total < 1-rounding {
		return b.floor.AllowN(b.env.time(now), 1)
	}
	owed := 1.0
	oldest := int(int64(now/time.Second)+1) % extraMemory
	for i := range b.paid {
		p := &b.paid[(oldest+i)%extraMemory]
		take := min(owed, p.credit)
		p.credit -= take
		owed -= take
	}
	return true
}
