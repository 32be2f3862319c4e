package layers

import (
	"io"
	"net/http"
	"time"
)

// closeGrace is how long a Close of the caller's body is waited for.
const closeGrace = time.Millisecond

// closeBody closes the body of a request that goes no further.
func (e *Env) closeBody(req *http.Request) {
	if req.Body == nil || req.Body == http.NoBody {
		return
	}
	if _, memory := inMemory(req.Body); !memory { // else that does nothing
		e.close(req.Body)
	}
}

// close closes a body of the caller's. One whose Close blocks, since it is stuck in
// a Read, say, holds nobody up: it may answer long after the call has its outcome.
func (e *Env) close(body io.Closer) {
	closed, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(closed)
		_ = body.Close()
	}()
	t := e.Clock.AfterFunc(closeGrace, func() { close(over) })
	defer t.Stop()
	select {
	case <-closed:
	case <-over:
	}
}
