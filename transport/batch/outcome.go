package batch

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
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
// a circuit then cut off, or whose trial of the circuit failed. One that trips
// the circuit by itself would come back for ever.
const mostReturns = 3

// A verdict is what the end of an item means.
type verdict struct {
	outcome
	wait time.Duration // that a limit asks for; 0: it does not know
	sent bool          // something was, nevertheless
	call bool          // the error is that of a call, so that the server may be why
}

// judge says what the error means that fn returned before the deadline. ends
// reports that an instant is that deadline.
func judge(err error, ends func(time.Time) bool) verdict {
	if err == nil {
		return verdict{outcome: done}
	}
	e, ok := errors.AsType[*layers.Error](err)
	switch {
	case !ok:
	case e.Layer == "breaker" || e.Reason == layers.ReasonCircuit:
		return verdict{circuit, e.RetryAfter, e.Sent != layers.Unsent || acted(e), true}
	case e.Sent == layers.Unsent && !acted(e) && e.Reason != layers.ReasonCost &&
		(e.Phase == layers.PhaseRate || e.Phase == layers.PhaseInFlight):
		return verdict{limited, e.RetryAfter, false, true}
	case e.Reason == layers.ReasonDeadline && ends(e.Deadline):
		return verdict{stopped, 0, true, true}
	}
	return verdict{failed, 0, false, ok}
}

// acted reports that a server did what must not be done twice, before the call was
// redirected to where nothing was sent any more.
func acted(e *layers.Error) bool { return e.Attempts > 0 && !e.Retryable }

// StatusError returns the error of an answer whose status is not the one that
// was hoped for. Return it from the function of an item: it knows why the call
// was not made again, so that an item whose retries a circuit or the deadline
// of the job cut off does not count as failed. The body is left as it is.
//
// It is a *[layers.Error].
func StatusError(resp *http.Response) error {
	e := &layers.Error{Layer: "base", Sent: layers.Answered, Err: fmt.Errorf("the answer is %s", resp.Status)}
	if resp.Request == nil {
		return e
	}
	if c, ok := layers.CallFrom(resp.Request.Context()); ok {
		e.Route, e.Attempts, e.Reason = c.Route(), c.Attempts(), c.Reason()
		if e.Reason == layers.ReasonDeadline {
			e.Deadline, _ = c.Deadline()
			e.Owner = c.Owner()
		}
	}
	return e
}

// PanicError is a panic in the function of an item, or in the methods of the error
// that it returned, in a Store as it saved, or in SaveFailed.
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

// recovered makes a panic the error of the function that defers it.
func recovered(err *error) {
	if v := recover(); v != nil {
		*err = &PanicError{Value: v, Stack: debug.Stack()}
	}
}

// errGoexit is the error of a function that ended its goroutine.
var errGoexit = errors.New("the function called runtime.Goexit")
