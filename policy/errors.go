package policy

import (
	"errors"
	"fmt"
	"slices"
)

// A ConfigError is one fault of a policy, a view or an override.
type ConfigError struct {
	// Route is the route that sets the value: its name, or its pattern if it
	// has none. The levels that are no route are "policy", "view" and "call".
	Route string
	// Field is the setting's path in Go, such as Timeouts.Read.
	Field string
	// Value is what it is set to, and Limit what it may be, or what it stands
	// beside that it contradicts. Empty: Reason says it.
	Value, Limit string
	// Reason says why, and what to do.
	Reason string

	beside bool // Limit is what it stands beside
}

// Error says all of it in one sentence.
func (e *ConfigError) Error() string {
	where := e.Route
	if !slices.Contains(reserved, where) {
		where = fmt.Sprintf("route %q", where)
	}
	against := ", limit "
	switch {
	case e.Limit == "":
		against = ""
	case e.beside:
		against = ", beside "
	}
	return fmt.Sprintf("%s: %s is %s%s%s: %s", where, e.Field, e.Value, against, e.Limit, e.Reason)
}

// faults collects errors, each once.
type faults []*ConfigError

func (f *faults) add(e *ConfigError) {
	if !slices.ContainsFunc(*f, func(o *ConfigError) bool { return *o == *e }) {
		*f = append(*f, e)
	}
}

func (f faults) join() error {
	errs := make([]error, len(f))
	for i, e := range f {
		errs[i] = e
	}
	return errors.Join(errs...)
}
