package layers

import (
	"io"
	"net/http"
	"time"
)

// closeGrace is how long a Close is waited for that may block.
const closeGrace = time.Millisecond

// CloseBody closes the body of a request that goes no further, as whoever refuses it
// must. A Close that blocks is waited for a millisecond, and goes on after that.
func (e *Env) CloseBody(req *http.Request) {
	if req.Body == nil || req.Body == http.NoBody {
		return
	}
	if _, memory := inMemory(req.Body); !memory { // else that does nothing
		e.ready().close(req.Body)
	}
}

// close closes a body of the caller's, or of a response over HTTP/2. One whose Close
// blocks, since it is stuck in a Read, say, holds nobody up: it may answer long after the call has its outcome.
// Others are over when close returns, since it waits for them to begin first.
func (e *Env) close(body io.Closer) {
	begun, closed, over := make(chan struct{}), make(chan any, 1), make(chan struct{})
	go func() {
		var panicked any
		defer func() { closed <- panicked }() // also if the goroutine is ended
		defer func() { panicked = recover() }()
		close(begun)
		_ = body.Close()
	}()
	<-begun
	t := e.Clock.AfterFunc(closeGrace, func() { close(over) })
	defer t.Stop()
	select {
	case panicked := <-closed:
		if panicked != nil {
			panic(panicked) // where it can be recovered
		}
	case <-over:
	}
}
