package derive

import (
	"slices"
	"sync"
	"time"
)

// redirects are calls whose last response was a redirect. Nobody says whether it
// will be followed, and so they have succeeded until the next hop begins. That is at
// once, and so only the last ones are kept apart.
type redirects struct {
	mu   sync.Mutex
	list []redirect // in the order of their ends
}

type redirect struct {
	group *slot
	begun time.Time // of all hops
	took  time.Duration
}

// add takes the end of one. Where there are too many, the first was not followed.
func (r *redirects) add(o redirect) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) == maxRedirects {
		first := r.list[0]
		first.group.mu.Lock()
		first.group.succeed(Call, first.took)
		first.group.mu.Unlock()
		r.list = slices.Delete(r.list, 0, 1)
	}
	r.list = append(r.list, o)
}

// follow forgets one whose next hop begins: of several that began at the same
// instant, the one that ended last.
func (r *redirects) follow(begun time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, o := range slices.Backward(r.list) {
		if o.begun.Equal(begun) {
			r.list = slices.Delete(r.list, i, i+1)
			return
		}
	}
}
