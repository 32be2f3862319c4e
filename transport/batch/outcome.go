package batch

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weir-go/weir/layers"
)

// outcome is what the end of an item comes to.
type outcome uint8

const (
	done    outcome = iota
	failed          // by itself
	stopped         // by the end of the job
	circuit         // refused by an open circuit
	limited         // refused by another limit
)

// mostReturns is how often an item is put back whose calls were sent, and which
// a circuit then cut off. One that trips the circuit by itself would come back
// for ever.
const mostReturns = 3

// judge says what the error means that fn returned before the deadline. wait is
// how long a limit asks to wait, zero if it does not know; sent tells that
// something was sent nevertheless.
func judge(err error, deadline time.Time) (o outcome, wait time.Duration, sent bool) {
	if err == nil {
		return done, 0, false
	}
	if a, ok := errors.AsType[*answerError](err); ok && a.cutBy(deadline) {
		return stopped, 0, true
	}
	e, ok := errors.AsType[*layers.Error](err)
	switch {
	case !ok:
	case e.Layer == "breaker" || e.Reason == layers.ReasonCircuit:
		return circuit, e.RetryAfter, e.Sent != layers.Unsent
	case e.Sent != layers.Unsent || e.Reason == layers.ReasonCost:
	case e.Phase == layers.PhaseRate || e.Phase == layers.PhaseInFlight:
		return limited, e.RetryAfter, false
	}
	return failed, 0, false
}

// StatusError returns the error of an answer whose status is not the one that
// was hoped for. Return it from the function of an item: it knows why the call
// was not made again, so that an item whose retries a circuit or the deadline
// of the job cut off does not count as failed. The body is left as it is.
//
// It is a *[layers.Error] to errors.As.
func StatusError(resp *http.Response) error {
	e := &answerError{err: &layers.Error{
		Layer: "base", Sent: layers.Answered, Err: fmt.Errorf("the answer is %s", resp.Status),
	}}
	if resp.Request == nil {
		return e
	}
	if c, ok := layers.CallFrom(resp.Request.Context()); ok {
		e.err.Route, e.err.Attempts, e.err.Reason = c.Route(), c.Attempts(), c.Reason()
		e.deadline, _ = c.Deadline()
	}
	return e
}

// answerError is the error of an answer, with the deadline of its call.
type answerError struct {
	err      *layers.Error
	deadline time.Time // zero: none
}

func (e *answerError) Error() string { return e.err.Error() }
func (e *answerError) Unwrap() error { return e.err }

// cutBy reports that the deadline left no room for another attempt.
func (e *answerError) cutBy(deadline time.Time) bool {
	return e.err.Reason == layers.ReasonDeadline && e.deadline.Equal(deadline)
}

// PanicError is a panic in the function of an item.
type PanicError struct {
	Value any    // that it panicked with
	Stack []byte // of the goroutine, as debug.Stack returns it
}

// Error has the value, and not the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// errGoexit is the error of an item whose function ended its goroutine.
var errGoexit = errors.New("the function of the item called runtime.Goexit")
