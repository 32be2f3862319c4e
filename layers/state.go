package layers

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/policy"
)

// maxKeys bounds how many keys a set of shared state holds.
const maxKeys = 10_000

// beyond is what the state is listed as that other keys share.
var beyond = stateKey{name: "(all keys beyond 10,000)"}

// stateKey names a state. An origin has two parts, so that finding it makes no
// string.
type stateKey struct{ scheme, name string }

func (k stateKey) String() string {
	if k.scheme != "" {
		return k.scheme + "://" + k.name
	}
	return k.name
}

// keyed is a bounded set of states. When it is full, a state that is idle makes
// room, or else one that is free; the least recently used ones are found first.
// If there is none, a new key shares the overflow state with all others of which
// that is so, or gets a state that is not kept: see kind. Once there is room, a
// call has the key's own state, whole, while calls under way still hold what they
// have of the other.
type keyed[T Handle] struct {
	env  *Env
	id   policy.StateID
	kind kind[T]
	live sync.Map                // of stateKey to *kept[T]
	last atomic.Pointer[kept[T]] // found: most calls of a client go where the one before went

	mu      sync.Mutex
	create  func(k stateKey) T
	numbers any             // that create gives to a state
	latest  policy.Settings // that have them
	changed int             // how often they have changed
	ring    []*kept[T]
	hand    int
	over    *kept[T] // the overflow state; nil: there has been none
}

type kept[T Handle] struct {
	key   stateKey
	state T
	used  atomic.Bool // since the hand passed last
	gone  atomic.Bool // to make room
}

// keyOf returns nil for the key function of which no string need be made.
func keyOf(k policy.KeyFunc) policy.KeyFunc {
	if k != nil && reflect.ValueOf(k).Pointer() == reflect.ValueOf(policy.ByOrigin).Pointer() {
		return nil
	}
	return k
}

// kind is what a set has to know of its states.
type kind[T Handle] struct {
	// numbers are those of the settings that the states go by, to be compared.
	numbers func(policy.Settings) any
	make    func(*Env, policy.StateID, stateKey, policy.Settings) T
	// apply returns what is to be done about it under no lock.
	apply func(T, policy.Settings) func()
	// pool makes a state the overflow state, unless it is a store's: that needs
	// no memory here to be remembered, and so each key has its own. Nil: keys for
	// which there is no room share none.
	pool func(T) bool
}

func nothing() {}

// set makes states with the numbers of s from now on. What it returns, to be
// called under no lock, applies them to those that there are.
func (k *keyed[T]) set(s policy.Settings) (rest func()) {
	k.mu.Lock()
	numbers := k.kind.numbers(s)
	same := k.numbers == numbers
	if !same {
		k.numbers, k.latest = numbers, s
		k.changed++
	}
	k.create = func(key stateKey) T { return k.kind.make(k.env, k.id, key, s) }
	changed := k.changed
	k.mu.Unlock()
	if same {
		return nothing
	}
	return k.apply(s, changed)
}

// apply applies numbers to the states that there are. A store's may be told of later
// ones meanwhile, and so has to be told of them again.
func (k *keyed[T]) apply(s policy.Settings, changed int) (rest func()) {
	var todo []func()
	for _, kept := range k.kept() {
		todo = append(todo, k.kind.apply(kept.state, s))
	}
	return func() {
		for _, do := range todo {
			do()
		}
		k.mu.Lock()
		latest, now := k.latest, k.changed
		k.mu.Unlock()
		if now != changed {
			k.apply(latest, now)()
		}
	}
}

// of returns the state that req shares under a key function, nil for the
// origin.
func (k *keyed[T]) of(f policy.KeyFunc, req *http.Request) T {
	var key stateKey
	if f == nil {
		key = stateKey{req.URL.Scheme, req.URL.Host}
	} else {
		key.name = f(req)
	}
	// An origin as it is written is no other's, if it is one that is kept.
	e := k.last.Load()
	if e == nil || e.key != key || e.gone.Load() {
		if f == nil {
			key = originOf(req)
		}
		found, ok := k.live.Load(key)
		if !ok {
			return k.add(key)
		}
		e = found.(*kept[T]) // Nothing else is stored.
		k.last.Store(e)
	}
	if !e.used.Load() {
		e.used.Store(true)
	}
	return e.state
}

func originOf(req *http.Request) stateKey {
	if req.URL == nil { // Auth is asked before any layer that refuses it
		return stateKey{}
	}
	scheme, host := req.URL.Scheme, req.URL.Host
	if plain(scheme) && plain(host) && !strings.HasSuffix(host, ":80") && !strings.HasSuffix(host, ":443") &&
		!strings.HasSuffix(host, ".") && !strings.HasSuffix(host, ":") && !strings.Contains(host, ".:") {
		return stateKey{scheme, host}
	}
	scheme, host, _ = strings.Cut(policy.ByOrigin(req), "://")
	return stateKey{scheme, host}
}

// plain reports that s has no upper-case letter.
func plain(s string) bool {
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'Z' || s[i] >= 0x80 {
			return false
		}
	}
	return true
}

func (k *keyed[T]) add(key stateKey) T {
	k.mu.Lock()
	create, changed := k.create, k.changed
	k.mu.Unlock()
	state := create(key) // a store may take its time
	k.mu.Lock()
	if k.changed != changed { // and the numbers may have changed meanwhile
		k.mu.Unlock()
		return k.add(key)
	}
	defer k.mu.Unlock()
	if e, ok := k.live.Load(key); ok {
		return e.(*kept[T]).state // Nothing else is stored.
	}
	e := &kept[T]{key: key, state: state}
	if len(k.ring) < maxKeys {
		k.ring = append(k.ring, e)
	} else if !k.replace(e) {
		return k.without(e.state)
	}
	k.live.Store(key, e)
	return e.state
}

// at returns the state of a key, or nil if there is none and none is to be made.
func (k *keyed[T]) at(key stateKey, anew bool) (state T) {
	if e, ok := k.live.Load(key); ok {
		return e.(*kept[T]).state // Nothing else is stored.
	}
	if anew {
		state = k.add(key)
	}
	return state
}

// without returns the state of a key for which there is no room: the overflow
// state, or else the one that was made for it. The mutex must be held.
func (k *keyed[T]) without(made T) T {
	switch {
	case k.kind.pool == nil || !k.kind.pool(made):
		return made
	case k.over == nil:
		k.over = &kept[T]{key: beyond, state: made}
	}
	return k.over.state
}

// replace gives e the place of another. The mutex must be held. The hand goes
// round like that of a clock, and looks at no more than a part of the ring for
// an idle state, since a flood of new keys calls it for each of them.
func (k *keyed[T]) replace(e *kept[T]) bool {
	const most = 64
	second, third := -1, -1
	for range most {
		k.hand = (k.hand + 1) % len(k.ring)
		at := k.hand
		idle, free := k.ring[at].state.Rests()
		if !free {
			continue
		}
		switch used := k.ring[at].used.Swap(false); {
		case idle && !used:
			return k.put(at, e)
		case !used && second < 0:
			second = at
		case idle && third < 0:
			third = at
		}
	}
	if second < 0 {
		second = third
	}
	return second >= 0 && k.put(second, e)
}

func (k *keyed[T]) put(at int, e *kept[T]) bool {
	old := k.ring[at]
	old.gone.Store(true)
	k.live.Delete(old.key)
	k.ring[at] = e
	if s, ok := any(old.state).(leaver[T]); ok {
		s.madeRoom(func(anew bool) T { return k.at(old.key, anew) })
	}
	return true
}

// leaver is a state that may be told something after it made room for others, by a
// send that was under way, and passes it on to the state that its key has again, or
// that is made for it.
type leaver[T any] interface {
	madeRoom(again func(anew bool) T)
}

// kept returns the states that are kept, the overflow state included.
func (k *keyed[T]) kept() []*kept[T] {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := slices.Clone(k.ring)
	if k.over != nil {
		list = append(list, k.over)
	}
	return list
}

// states are the sets of shared state of an Env, by identity: they outlive the
// layers that use them.
type states struct {
	mu   sync.Mutex
	sets map[setID]stateSet
}

// setID names a set: layers of several kinds may each have the zero identity.
type setID struct {
	policy.StateID
	of reflect.Type
}

type stateSet interface{ set(policy.Settings) func() }

// statesOf returns the states of an identity.
func statesOf[T Handle](e *Env, id policy.StateID, of kind[T]) *keyed[T] {
	s := &e.states
	s.mu.Lock()
	defer s.mu.Unlock()
	key := setID{id, reflect.TypeFor[T]()}
	if set, ok := s.sets[key].(*keyed[T]); ok {
		return set
	}
	if s.sets == nil {
		s.sets = map[setID]stateSet{}
	}
	set := &keyed[T]{env: e, id: id, kind: of}
	s.sets[key] = set
	return set
}

// Apply gives the states that there are the numbers of a new policy, also those
// that calls are waiting for. numbers returns them by the identity of a state;
// one that it does not know is left to the calls that use it, and forgotten. What
// it returns, to be called under no lock, tells whom it concerns.
func (e *Env) Apply(numbers func(policy.StateID) (policy.Settings, bool)) (rest func()) {
	var todo []func()
	e.states.mu.Lock()
	sets := maps.Clone(e.states.sets)
	e.states.mu.Unlock()
	for id, set := range sets {
		if s, ok := numbers(id.StateID); ok {
			todo = append(todo, set.set(s))
			continue
		}
		e.states.mu.Lock()
		delete(e.states.sets, id)
		e.states.mu.Unlock()
	}
	return func() {
		for _, do := range todo {
			do()
		}
	}
}
