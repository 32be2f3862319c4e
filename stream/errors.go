package stream

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
)

// ErrTruncated is what reading a stream ends in when its body ends before an
// event of class [Finish], [Terminal] or [Failure]. It unwraps to
// [io.ErrUnexpectedEOF] and is not a timeout. Where an end cannot be told from a
// truncation it is none: right after an event that is longer than what is kept
// of one, since its finish may be in what is lost, unless its type says that it
// has none, and after one whole JSON value without content, which is the answer to
// another request than for a stream.
var ErrTruncated error = fmt.Errorf("stream ended before it was finished: %w", io.ErrUnexpectedEOF)

// A StallKind names the limit that a stream has exceeded.
type StallKind string

// The kinds of stall.
const (
	StallFirstContent StallKind = "first-content"
	StallGap          StallKind = "gap"
	StallPingedGap    StallKind = "pinged-gap"
	StallThinkingGap  StallKind = "thinking-gap"
	StallToolGap      StallKind = "tool-gap"
	StallMinRate      StallKind = "min-rate"
)

// A StallError says that a stream was given up because it exceeded a limit. It is
// a timeout: Timeout reports true, and [errors.Is] finds [os.ErrDeadlineExceeded]
// and [context.DeadlineExceeded] in it.
type StallError struct {
	Kind          StallKind
	Limit         time.Duration // the limit that was exceeded
	Waited        time.Duration // what was charged against it
	SinceLastByte time.Duration // since any byte came; since the sending if none did
	Elapsed       time.Duration // since the request was sent
	Contents      int           // events with content before
	Keepalives    int           // keepalives before
	Bytes         int64         // bytes before
	Dialect       string        // "" if none is known
	Attempt       int           // which send of the call it was, from 1; 0 if no one counts
}

func (e *StallError) Error() string {
	what := "no content"
	switch {
	case e.Kind == StallMinRate:
		what = "too few bytes"
	case e.Dialect == "" && e.SinceLastByte >= e.Waited: // else there were keepalives, or a classifier knows
		what = "no bytes"
	case e.Kind == StallFirstContent:
		what = "no first content"
	}
	s := fmt.Sprintf("stream stalled: %s in %v (%s limit %v; before: %d contents, %d keepalives, %d bytes, the last %v ago",
		what, e.Waited, e.Kind, e.Limit, e.Contents, e.Keepalives, e.Bytes, e.SinceLastByte)
	if e.Dialect != "" {
		s += "; " + e.Dialect
	}
	if e.Attempt > 0 {
		s += "; attempt " + strconv.Itoa(e.Attempt)
	}
	return s + ")"
}

// Timeout reports true.
func (e *StallError) Timeout() bool { return true }

// Temporary reports true. It makes a StallError a [net.Error], as the timeouts of
// net/http are.
func (e *StallError) Temporary() bool { return true }

// Is reports whether target is one of the two errors of a deadline.
func (e *StallError) Is(target error) bool {
	return target == os.ErrDeadlineExceeded || target == context.DeadlineExceeded
}

// A FailureError is an error that a server reports inside a stream. It carries
// what identifies the error and never its message, since that may repeat what the
// caller sent.
type FailureError struct {
	Dialect string
	Type    string // the server's name for the error, if it has one
	Code    string // the server's code for it, likewise
	// Retryable reports whether the same request may well succeed when it is
	// sent again.
	Retryable bool
}

// Server reports whether the error may tell of the server's state, as a status of
// 500 does. One that is known to tell of the request or of its sender's rate, as 400
// and 429 do, does not.
func (e *FailureError) Server() bool {
	return !limited(e.Type) && !limited(e.Code) && !rejected(e.Type) && !rejected(e.Code)
}

func (e *FailureError) Error() string {
	s := "stream reports a failure"
	if e.Type != "" {
		s += ": " + e.Type
	}
	if e.Code != "" {
		s += " (code " + e.Code + ")"
	}
	return s
}
