package layers

import (
	"strings"

	"github.com/weir-go/weir/policy"
)

// State is the state of a circuit.
type State uint8

// The states of a circuit. The zero State is none.
const (
	StateClosed   State = iota + 1 // sends pass
	StateHalfOpen                  // a few sends pass, to see
	StateOpen                      // none pass
)

func (s State) String() string {
	return [...]string{"", "closed", "half-open", "open"}[min(s, StateOpen)]
}

// MarshalText returns what String does, for JSON.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Breaker is the circuit of one key, to be seen and switched by hand. It is safe for
// concurrent use.
type Breaker struct {
	circuit Shown
	id      policy.StateID
	key     stateKey
}

// BreakerOf returns a circuit of a [Store] as [Event].Breaker has it. Its key and numbers
// are those that the Store was asked for.
func BreakerOf(c Shown, id policy.StateID, key string, b policy.Breaker) *Breaker {
	k := stateKey{name: key}
	if scheme, host, ok := strings.Cut(key, "://"); ok && keyOf(b.Key) == nil {
		k = stateKey{scheme, host}
	}
	return &Breaker{c, id, k}
}

// Key returns what requests share the circuit: an origin, or what the policy's
// Key returned for them.
func (b *Breaker) Key() string { return b.key.String() }

// State returns the state of the circuit, as the next send would find it.
func (b *Breaker) State() State { return b.circuit.Status().State }

// Status returns the circuit as it stands.
func (b *Breaker) Status() BreakerStatus {
	s := b.circuit.Status()
	s.ID, s.Key = b.id, b.Key()
	return s
}

// ForceOpen refuses every send until ForceClosed or Auto.
func (b *Breaker) ForceOpen() { b.circuit.Force(StateOpen) }

// ForceClosed lets every send pass, and counts none, until ForceOpen or Auto.
func (b *Breaker) ForceClosed() { b.circuit.Force(StateClosed) }

// Auto goes back to what the sends say, from where they left off.
func (b *Breaker) Auto() { b.circuit.Force(0) }
