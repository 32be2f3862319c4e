package layers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
)

// unset is an error whose methods need more than a nil pointer has.
type unset struct{ err error }

func (u *unset) Error() string { return u.err.Error() }
func (u *unset) Unwrap() error { return u.err }

// TestErrorThatPanics: what is said of an error does not depend on its methods,
// which a timer's goroutine may run as well as the caller's.
func TestErrorThatPanics(t *testing.T) {
	for _, err := range []error{
		(*unset)(nil), (*url.Error)(nil), (*Error)(nil),
		fmt.Errorf("behind another: %w", (*unset)(nil)),
		errors.Join(context.Canceled, (*unset)(nil)),
		callerError{context.Canceled, (*unset)(nil)},
	} {
		if text := safeText(err); text == "" {
			t.Errorf("%T has no text", err)
		}
		if text := safe(err).Error(); text == "" {
			t.Errorf("%T has no safe text", err)
		}
	}
}
