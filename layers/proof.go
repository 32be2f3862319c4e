package layers

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"regexp"
	"slices"
	"strings"
)

// proves reports that err proves something. Of what it wraps, the outermost that is
// known decides. Of several errors that are joined, each has to prove it: one may
// tell of a send before.
func proves(err error, asks func(error) (proof, known bool)) bool {
	for err != nil {
		switch e := err.(type) { //nolint:errorlint // It goes through each level.
		case redacted:
			err = e.err
			continue
		case interface{ Unwrap() []error }:
			list := e.Unwrap()
			return len(list) > 0 && !slices.ContainsFunc(list, func(err error) bool { return !proves(err, asks) })
		}
		if proof, known := asks(err); known {
			return proof
		}
		err = errors.Unwrap(err)
	}
	return false
}

// provenUnsent reports that err happened before a connection was there.
func provenUnsent(err error) bool {
	return proves(err, func(err error) (proof, known bool) {
		switch e := err.(type) { //nolint:errorlint // proves goes through each level.
		case *net.OpError:
			return e.Op == "dial" || e.Op == "proxyconnect", true
		case *tls.CertificateVerificationError, x509.UnknownAuthorityError:
			return true, true
		case *Error:
			return e.unsent(), e.told
		}
		return false, false
	})
}

// unsent reports that nothing of another call was sent, by any of its sends.
func (e *Error) unsent() bool { return e.Sent == Unsent && e.Retryable }

// unprocessed reports that a server said by HTTP/2 that it did nothing with the
// request: RFC 9113 sections 6.8 and 8.7. It is net/http that tells so of a
// GOAWAY; most of these sends it begins anew by itself.
func unprocessed(err error) bool {
	return proves(err, func(err error) (proof, known bool) {
		if e, ours := err.(*Error); ours && e.told { //nolint:errorlint // As below.
			return e.unsent(), true
		}
		reset, known := err.(streamError) //nolint:errorlint // proves goes through each level.
		if as, ok := err.(interface{ As(target any) bool }); ok && !known {
			known = as.As(&reset)
		}
		away := strings.HasPrefix(err.Error(), goAway)
		return away || reset.Code == refusedStream, away || known
	})
}

// streamError is what the error of an HTTP/2 stream can be had as: net/http keeps
// its type to itself.
type streamError struct {
	StreamID, Code uint32
	Cause          error
}

func (streamError) Error() string { return "stream error" }

const (
	refusedStream = 7
	goAway        = "http2: Transport received GOAWAY from server ErrCode:"
)

// unfitTexts match what net/http says of a request that it cannot send, or not
// as it says of itself. It has no types for that. Each begins with a literal, which
// makes it fast to look for.
var unfitTexts = compiled(
	`http: nil Request\.`, `no Host in request URL`, `on Request with no Host`, `invalid Host header`, `idna: `,
	`net/http: invalid (?:method|header|trailer) `, `invalid Trailer key `, `invalid HTTP (?:header|trailer) `, `invalid \S+ request header`,
	`unsupported protocol scheme `, `in Request\.URL$`, `invalid request :path `, `request header list larger than peer's`,
	`http: ContentLength=\d+ with Body length \d+`, `with nil Body`, `request body larger than specified content length`,
)

func compiled(patterns ...string) (list []*regexp.Regexp) {
	for _, p := range patterns {
		list = append(list, regexp.MustCompile(p))
	}
	return list
}

// unfit reports that the request itself is what failed: it would again, anywhere,
// and no server had a part in it.
func unfit(err error) bool {
	text := safeText(err)
	return slices.ContainsFunc(unfitTexts, func(r *regexp.Regexp) bool { return r.MatchString(text) })
}
