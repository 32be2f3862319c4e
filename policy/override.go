package policy

import (
	"context"
	"slices"
	"sync"
)

// An Override changes the settings of single calls. One that is kept and used
// for many calls costs little more than none: what a transport compiles for it
// lives and dies with it.
type Override struct {
	settings Settings

	mu     sync.Mutex
	owners []any // the keys of chains, the oldest first
	chains sync.Map
}

// NewOverride returns an override with the settings.
func NewOverride(s Settings) *Override { return &Override{settings: Settings{}.With(s)} }

// Context returns a context whose calls the override applies to. An override
// that ctx has already lies beneath: the two are merged into a one-off.
func (o *Override) Context(ctx context.Context) context.Context {
	if under := OverrideFrom(ctx); under != nil {
		o = NewOverride(under.settings.With(o.settings))
	}
	return context.WithValue(ctx, overrideKey{}, o)
}

// WithOverride returns a context whose calls have the settings, as a one-off:
// they are checked and compiled for each context anew.
func WithOverride(ctx context.Context, s Settings) context.Context {
	return NewOverride(s).Context(ctx)
}

// OverrideFrom returns the override of a context, or nil.
func OverrideFrom(ctx context.Context) *Override {
	o, _ := ctx.Value(overrideKey{}).(*Override)
	return o
}

type overrideKey struct{}

// maxOwners bounds what an override keeps alive of transports and tables that
// have been given up.
const maxOwners = 8

// Chains returns where an owner keeps what it compiles for the override, by
// [*Line]. The owner is a pointer that stands for one table under one view; the
// last 8 to ask for the first time are remembered.
func (o *Override) Chains(owner any) *sync.Map {
	if m, ok := o.chains.Load(owner); ok {
		return m.(*sync.Map)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	m, known := o.chains.LoadOrStore(owner, new(sync.Map))
	if !known {
		o.owners = append(o.owners, owner)
		if len(o.owners) > maxOwners {
			o.chains.Delete(o.owners[0])
			o.owners = slices.Delete(o.owners, 0, 1)
		}
	}
	return m.(*sync.Map)
}
