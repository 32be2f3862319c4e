package layers

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"
)

// TestUnprocessed: a stream that HTTP/2 refused was not processed; one that it
// cancelled may have been.
func TestUnprocessed(t *testing.T) {
	for code, want := range map[uint32]bool{7: true, 8: false, 0: false} { // RFC 9113 section 7
		if got := unprocessed(fmt.Errorf("a send: %w", streamError{Code: code})); got != want {
			t.Errorf("error code %d: %v, want %v", code, got, want)
		}
	}
}

// TestProofOfSeveralErrors: errors that are joined prove that nothing was sent only
// if each of them does.
func TestProofOfSeveralErrors(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: io.EOF}
	reset := &net.OpError{Op: "read", Err: io.ErrUnexpectedEOF}
	authority := x509.UnknownAuthorityError{}
	refused, goaway := streamError{Code: refusedStream}, errors.New("http2: Transport received GOAWAY from server ErrCode:0")
	told := &Error{Sent: Unsent, Retryable: true, told: true, Err: reset}
	last := &Error{Sent: Unsent, told: true, Err: dial}
	for _, test := range []struct {
		of   string
		is   func(error) bool
		err  error
		want bool
	}{
		{"dial", provenUnsent, fmt.Errorf("a send: %w", &url.Error{Err: dial}), true},
		{"dial of several addresses", provenUnsent, errors.Join(dial, fmt.Errorf("and: %w", dial), authority), true},
		{"one dial that failed in several ways", provenUnsent, &net.OpError{Op: "dial", Err: errors.Join(reset, io.EOF)}, true},
		{"a proxy", provenUnsent, &net.OpError{Op: "proxyconnect", Err: reset}, true},
		{"a call that goes on", provenUnsent, &Error{Sent: Unsent, Retryable: true, Err: reset}, false},
		{"a certificate", provenUnsent, fmt.Errorf("a send: %w", authority), true},
		{"a call that sent nothing", provenUnsent, fmt.Errorf("mint: %w", told), true},
		{"a call whose last send was not sent", provenUnsent, fmt.Errorf("a send: %w", last), false},
		{"a read", provenUnsent, reset, false},
		{"a read and a dial", provenUnsent, errors.Join(reset, dial), false},
		{"a dial and a read", provenUnsent, fmt.Errorf("%w, after %w", dial, reset), false},
		{"inside another", provenUnsent, fmt.Errorf("a send: %w", errors.Join(errors.Join(dial, io.EOF), dial)), false},
		{"hidden", provenUnsent, redacted{errors.Join(reset, dial), "…"}, false},
		{"hidden dial", provenUnsent, redacted{dial, "…"}, true},
		{"none", provenUnsent, errors.Join(dial, none{}), false},
		{"refused and a read", unprocessed, errors.Join(refused, reset), false},
		{"refused twice", unprocessed, errors.Join(refused, goaway), true},
		{"told to go away, and a read", unprocessed, errors.Join(goaway, reset), false},
		{"a call that sent nothing", unprocessed, fmt.Errorf("mint: %w", told), true},
		{"a call that goes on", unprocessed, &Error{Sent: Unsent, Retryable: true, Err: reset}, false},
		{"told to go away", unprocessed, goaway, true},
		{"refused, as net/http says it", unprocessed, fmt.Errorf("a send: %w", bundled{7}), true},
		{"canceled, as net/http says it", unprocessed, fmt.Errorf("a send: %w", bundled{8}), false},
	} {
		if got := test.is(test.err); got != test.want {
			t.Errorf("%s: %v, want %v", test.of, got, test.want)
		}
	}
}

// bundled is an error of a type that others do not know, as net/http has it.
type bundled struct{ code uint32 }

func (bundled) Error() string { return "stream error" }

func (b bundled) As(target any) bool {
	e, ok := target.(*streamError)
	if ok {
		e.Code = b.code
	}
	return ok
}

// none wraps no error, as a list.
type none struct{}

func (none) Error() string   { return "none" }
func (none) Unwrap() []error { return nil }
