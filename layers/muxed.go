package layers

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/benbjohnson/clock"
)

// muxed is a body over HTTP/2. Of its Close, and of the end of its send, net/http tells
// the server before it lets go of who waits. It is held up in that for as long as the
// socket takes nothing, or a Read of the request's body lasts: past every deadline.
type muxed struct {
	io.ReadCloser
	env     *Env
	ctx     context.Context // of the send
	forget  func() bool     // that it may end
	reading atomic.Bool
	cut     atomic.Pointer[clock.Timer] // of the Read under way, once the send has ended
}

func (e *Env) mux(ctx context.Context, upstream io.ReadCloser) *muxed {
	m := &muxed{ReadCloser: upstream, env: e, ctx: ctx}
	m.forget = context.AfterFunc(ctx, m.ended)
	return m
}

// Read implements io.Reader.
func (m *muxed) Read(p []byte) (int, error) {
	m.reading.Store(true)
	if m.ctx.Err() != nil {
		m.ended()
	}
	n, err := m.ReadCloser.Read(p)
	m.reading.Store(false)
	if t := m.cut.Swap(nil); t != nil && !t.Stop() && err != nil && err != io.EOF {
		err = m.ctx.Err() // as net/http has it
	}
	if err != nil {
		m.forget()
	}
	return n, err
}

// ended cuts off a Read that the end of the send does not end at once. What has arrived
// is read first.
func (m *muxed) ended() {
	if !m.reading.Load() {
		return // the next one looks itself
	}
	t := m.env.Clock.AfterFunc(closeGrace, func() {
		if m.reading.Load() {
			_ = m.ReadCloser.Close()
		}
	})
	if !m.cut.CompareAndSwap(nil, t) { // both the Read and the end have come here
		t.Stop()
	}
}

// Close implements io.Closer. One that is held up goes on by itself.
func (m *muxed) Close() error {
	m.forget()
	m.env.close(m.ReadCloser)
	return nil
}
