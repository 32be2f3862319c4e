package layers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/policy"
)

// Sent says how far the last attempt of a failed call got.
type Sent uint8

const (
	// Unsent is proof that no byte of the request was sent, or that the server
	// did nothing with it, as HTTP/2 can say. The send can be made again, whatever
	// its method; whether the call can, Error.Retryable says.
	Unsent Sent = iota
	// MaybeSent means that the server may have received the request.
	MaybeSent
	// Answered means that response headers arrived.
	Answered
)

func (s Sent) String() string {
	return [...]string{"unsent", "maybe", "answered"}[min(s, Answered)]
}

// MarshalText returns what String does, for JSON.
func (s Sent) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// The reasons why a call was not sent again; see [Error] and [Call.Reason].
const (
	// ReasonDeadline: too little is left of the deadline for the wait that comes
	// next, or for another attempt after it; it need not have passed yet. A longer
	// Deadline gives room, or a shorter Timeouts.Read.
	ReasonDeadline = "deadline exhausted"
	// ReasonAttempts: there were as many as Retry.MaxAttempts.
	ReasonAttempts = "attempts exhausted"
	// ReasonBudget: the origin has had the extra sends that it may have for now; see
	// Retry.Budget.
	ReasonBudget = "budget exhausted"
	// ReasonNotReplayable: the body cannot be sent again, as it has no GetBody and
	// did not fit Retry.Buffer. A GetBody of yours can open a file anew.
	ReasonNotReplayable = "not replayable"
	// ReasonNotSafe: the server may have received the request, and doing it twice
	// may do harm, as with a POST. An Idempotency-Key makes it safe, or
	// Retry.Idempotent on its route.
	ReasonNotSafe = "not safe"
	// ReasonNotRetryable: sending it again would not help, as with a certificate
	// that is not trusted, or Retry.Check says so.
	ReasonNotRetryable = "not retryable"
	// ReasonHint: the server asked for a longer wait than Retry.MaxHint.
	ReasonHint = "hint above limit"
	// ReasonMaxWait: the wait for a turn or a slot would be longer than its
	// MaxWait.
	ReasonMaxWait = "longest wait exceeded"
	// ReasonCost: the request takes more units of a budget than its Burst, or fewer than
	// none.
	ReasonCost = "cost above burst"
	// ReasonCircuit: the breaker refuses calls to the origin for now.
	ReasonCircuit = "circuit open"
	// ReasonInFlight: there is no free slot, and InFlight.MaxWait is Off.
	ReasonInFlight = "in-flight limit reached"
)

// Error is how a call fails, unless its caller's context ended: then that one's
// error comes back, of a deadline too. What the connection fails with while the body
// is read, such as [io.ErrUnexpectedEOF], comes back as it is.
//
// An Error is a timeout if a limit of the stack expired or if Err is one. A
// timeout is context.DeadlineExceeded and os.ErrDeadlineExceeded to errors.Is,
// never context.Canceled, and a [net.Error] to errors.As. The text holds no URL,
// header or body.
type Error struct {
	// Layer is the layer that ended the call: "outer" or "inner" for one of the
	// user's, "base" for what came from below all of them.
	Layer string
	// Phase is what the call was doing, or what expired.
	Phase Phase
	// Route is the name of the route.
	Route string
	// Limit is the limit that expired or refused. Elapsed is how long the phase took
	// that expired, or else the call.
	Limit, Elapsed time.Duration
	// RetryAfter is how long to wait before the call is worth making again.
	// Zero: not known.
	RetryAfter time.Duration
	// Attempts counts the sends of the call, over all redirect hops.
	Attempts int
	// Sent says how far the last of them got.
	Sent Sent
	// Retryable reports that the same call may be made again, from its first hop on,
	// without doing something twice, not that it would help: see Reason and RetryAfter.
	Retryable bool
	// Reason says why there was no further attempt: one of the Reason
	// constants. Empty: no layer was there to make one.
	Reason string
	// Deadline is the one that left no time, if Reason is ReasonDeadline, and
	// Owner says whose it is.
	Deadline time.Time
	Owner    Owner
	// Err is the cause as it came, if there is one besides. Its own text may quote
	// what a server sent; that of what Unwrap returns does not. It is not in JSON.
	Err error `json:"-"`

	timeout  bool
	local    bool  // a refusal of ours, or of the caller's body: never retried, no fault of the server
	told     bool  // to a caller: one that comes from further in is another call's
	streamed bool  // it cut a stream off that is not guarded
	during   Phase // what the deadline interrupted, of the attempt of this number
	attempt  int
}

// Error begins with what happened.
func (e *Error) Error() string {
	var b strings.Builder
	switch {
	case e.Phase == PhaseDeadline && e.timeout:
		fmt.Fprintf(&b, "deadline exceeded after %v", brief(e.Elapsed))
		switch {
		case e.Attempts == 0:
			b.WriteString(", before attempt 1 was sent")
		case e.during != "":
			fmt.Fprintf(&b, ", in phase %s of attempt %d", e.during, e.attempt)
		}
		if e.streamed {
			b.WriteString(": the response is a stream, which Stream.Enabled on its route bounds by its content instead")
		}
	case e.timeout && !e.local && e.Err == nil:
		fmt.Fprintf(&b, "%s timeout after %v (limit %v)", e.Phase, brief(e.Elapsed), e.Limit)
	case e.Err != nil:
		b.WriteString(safeText(e.Err))
	default:
		fmt.Fprintf(&b, "refused by layer %s", e.Layer)
	}
	sep := " ("
	if e.Attempts > 1 {
		b.WriteString(sep + strconv.Itoa(e.Attempts) + " attempts")
		sep = ", "
	}
	if e.Reason != "" {
		b.WriteString(sep + e.Reason)
		sep = ", "
	}
	if e.RetryAfter > 0 {
		fmt.Fprintf(&b, "%sretry after %v", sep, brief(e.RetryAfter))
		sep = ", "
	}
	if sep == ", " {
		b.WriteByte(')')
	}
	return b.String()
}

// brief leaves out of a duration what no reader of a message cares for.
func brief(d time.Duration) time.Duration {
	switch {
	case d >= time.Second:
		return d.Round(time.Millisecond)
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond)
	}
	return d
}

// Unwrap returns Err, as [errors.Is] and [errors.As] see it. If its text, or that of
// an error that it wraps, may hold a secret, the chain ends there, with a text that
// is safe to show.
func (e *Error) Unwrap() error { return safe(e.Err) }

// Timeout reports whether a limit expired. net/http and url.Error ask for it.
func (e *Error) Timeout() bool {
	var t interface{ Timeout() bool }
	return e.timeout || errors.As(e.Err, &t) && t.Timeout()
}

// Temporary reports what Timeout does. It makes an Error a [net.Error], as the
// timeouts of net/http are.
func (e *Error) Temporary() bool { return e.Timeout() }

// Is makes a timeout context.DeadlineExceeded and os.ErrDeadlineExceeded.
func (e *Error) Is(target error) bool {
	return (target == context.DeadlineExceeded || target == os.ErrDeadlineExceeded) && e.Timeout()
}

// callerError is how the caller's own cancellation comes back when it was
// given a cause: it is both the context's error and the cause.
type callerError struct{ err, cause error }

func (e callerError) Error() string   { return e.cause.Error() }
func (e callerError) Unwrap() []error { return []error{e.err, e.cause} }
func (e callerError) Timeout() bool   { return errors.Is(e.err, context.DeadlineExceeded) }

// errRequestCanceled is what net/http says when Request.Cancel is closed.
var errRequestCanceled error = requestCanceledError{}

type requestCanceledError struct{}

func (requestCanceledError) Error() string        { return "net/http: request canceled" }
func (requestCanceledError) Is(target error) bool { return target == context.Canceled }

// callerEnded returns the caller's own error if it ended ctx.
func callerEnded(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil && cause != err {
		return callerError{err, cause}
	}
	return err
}

// quoted matches what net/http and its parsers quote: bytes that a peer sent,
// or a header.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// What a URL in a text may hold a secret in.
var (
	userinfo = regexp.MustCompile(`//[^\s/?#]*@`)
	query    = regexp.MustCompile(`\?\S+`)
	fragment = regexp.MustCompile(`(://[^\s#]*)#\S+`)
)

// bare takes out of a text what is secret of the URLs in it.
func bare(text string) string {
	text = fragment.ReplaceAllString(text, "$1#…")
	return query.ReplaceAllString(userinfo.ReplaceAllString(text, "//…@"), "?…")
}

// safeText is an error's text without what may hold a secret: the URL of a
// nested client's error, userinfo and query of any other URL, and whatever
// net/http quotes from a message. It may be asked for on any goroutine, where a
// panic of the error's methods, as of a nil pointer's, would end the process.
func safeText(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a %T without a text", err)
		}
	}()
	switch e := err.(type) { //nolint:errorlint // Each level of the chain prints itself.
	case *Error:
		return e.Error()
	case *url.Error:
		return strings.ToLower(e.Op) + ": " + safeText(e.Err)
	case *net.OpError:
		return bare(e.Error())
	case textproto.ProtocolError, *textproto.Error:
		return "malformed message from the server"
	}
	text = err.Error()
	if _, ok := errors.AsType[*policy.ConfigError](err); ok { // it quotes patterns
		return text
	}
	if inner, ok := errors.AsType[*url.Error](err); ok {
		text = strings.ReplaceAll(text, inner.Error(), safeText(inner))
	}
	if protocol, ok := errors.AsType[textproto.ProtocolError](err); ok {
		text = strings.ReplaceAll(text, protocol.Error(), safeText(protocol))
	}
	return bare(quoted.ReplaceAllString(text, `"…"`))
}

// safe is err, with a text that is safe to show: net/http quotes what it could
// not read of a body.
func safe(err error) error {
	if tells(err) {
		return redacted{err, safeText(err)}
	}
	return err
}

// tells reports that err, or what it wraps, has a text that is not safe to show.
func tells(err error) (does bool) {
	defer func() { does = recover() != nil || does }() // with a panic of its methods, it is not safe
	if err == nil || safeText(err) != err.Error() {
		return err != nil
	}
	switch e := err.(type) { //nolint:errorlint // It goes through each level.
	case *Error: // its Unwrap sees to it
	case interface{ Unwrap() error }:
		return tells(e.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), tells)
	}
	return false
}

// redacted is an error that is what another is, and does not show it.
type redacted struct {
	err  error
	text string
}

func (e redacted) Error() string        { return e.text }
func (e redacted) Is(target error) bool { return errors.Is(e.err, target) }
func (e redacted) As(target any) bool   { return errors.As(e.err, target) }
