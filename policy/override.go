package policy

import (
	"context"
	"sync"
)

// An Override changes the settings of single calls. One that is kept and used
// for many calls costs little more than none, since what a transport compiles
// for it is kept with it, for as long as it lives.
type Override struct {
	settings Settings
	// Chains is where transports keep what they compiled for the override.
	Chains sync.Map
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
// they are checked and compiled for each call anew.
func WithOverride(ctx context.Context, s Settings) context.Context {
	return NewOverride(s).Context(ctx)
}

// OverrideFrom returns the override of a context, or nil.
func OverrideFrom(ctx context.Context) *Override {
	o, _ := ctx.Value(overrideKey{}).(*Override)
	return o
}

type overrideKey struct{}
