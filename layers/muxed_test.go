package layers

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
)

// slowReads is a body over HTTP/2 whose Reads do as they are told.
type slowReads struct {
	read   func()
	closed atomic.Bool
}

func (b *slowReads) Read(p []byte) (int, error) {
	b.read()
	return len(p), nil
}

func (b *slowReads) Close() error {
	b.closed.Store(true)
	return nil
}

// TestEndSeenTwice: a Read that begins as its send ends may see that too. What cuts it
// off is over with it, and no trouble to the next.
func TestEndSeenTwice(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		ctx, end := context.WithCancel(t.Context())
		body := &slowReads{}
		m := (&Env{Clock: c}).ready().mux(ctx, body)
		m.forget()
		end()
		for _, read := range []func(){m.ended, func() { c.Sleep(closeGrace * 3 / 4) }} {
			body.read = read
			if _, err := m.Read(make([]byte, 1)); err != nil || body.closed.Load() {
				t.Errorf("closed %v, %v", body.closed.Load(), err)
			}
			c.Sleep(closeGrace / 2)
		}
		body.read = func() { c.Sleep(time.Second) }
		if m.Read(make([]byte, 1)); !body.closed.Load() {
			t.Error("a Read that lasts is not cut off")
		}
	})
}
