package layers

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// replay gives each attempt the whole request body.
type replay struct {
	getBody func() (io.ReadCloser, error)
	rec     *recorder // nil unless the body is recorded
	some    bool      // there is a body
}

// replayOf returns how the body of req can be sent again. A body without
// GetBody is recorded as the transport reads it, if it is not known to be
// longer than limit. It is never read ahead: a body that waits for its own
// response would wait for ever.
func replayOf(req *http.Request, limit int64) replay {
	if req.Body == nil || req.Body == http.NoBody {
		return replay{}
	}
	r := replay{getBody: req.GetBody, some: true}
	if r.getBody == nil && limit > 0 && req.ContentLength <= limit {
		r.rec = &recorder{src: req.Body, limit: limit, turn: make(chan struct{}, 1)}
	}
	return r
}

// possible reports whether there can be another body.
func (r *replay) possible() bool {
	return !r.some || r.getBody != nil || r.rec != nil && !r.rec.overflow.Load()
}

// next returns the body of a further attempt. What the one before still reads
// is recorded for this one.
func (r *replay) next() (io.ReadCloser, error) {
	switch {
	case !r.some:
		return http.NoBody, nil
	case r.getBody != nil:
		return r.getBody()
	}
	return r.rec.reader()
}

// release lets the caller's body be closed once its last reader is.
func (r *replay) release(e *Env) {
	if r.rec != nil {
		r.rec.release(e)
	}
}

// recorder keeps what is read of a body, up to a limit, to read it again.
type recorder struct {
	src      io.ReadCloser
	limit    int64
	turn     chan struct{} // held by the one that reads src or buf
	overflow atomic.Bool   // more was read than is kept

	// Held with turn.
	buf []byte
	end error // of src

	mu      sync.Mutex
	current *recorded
	final   bool // current is the last reader
	closed  bool // src is
}

var (
	errSuperseded  = errors.New("the attempt that read this body was superseded")
	errNotRecorded = errors.New("the body is longer than what is kept of it for replay")
)

// reader returns a reader of the whole body in place of the current one.
func (r *recorder) reader() (io.ReadCloser, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.replace(); err != nil {
		return nil, err
	}
	return r.current, nil
}

// replace ends the current reader, and makes another. r.mu must be held.
func (r *recorder) replace() error {
	if r.current != nil {
		r.current.shut()
	}
	if r.overflow.Load() {
		return errNotRecorded
	}
	r.current = &recorded{r: r, stop: make(chan struct{})}
	return nil
}

func (r *recorder) release(e *Env) {
	r.mu.Lock()
	r.final = true
	shut := r.current == nil || r.current.isShut
	r.mu.Unlock()
	if shut {
		e.close(r)
	}
}

// Close closes the caller's body, once.
func (r *recorder) Close() error {
	r.mu.Lock()
	closed := r.closed
	r.closed = true
	r.mu.Unlock()
	if closed {
		return nil
	}
	return r.src.Close()
}

// recorded is one reading of the body.
type recorded struct {
	r      *recorder
	off    int
	stop   chan struct{}
	isShut bool // under r.mu
}

// getBody returns what a base that begins the send anew by itself has the body
// again from, until another send reads it.
func (b *recorded) getBody() func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) {
		r := b.r
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.current != b || r.final {
			return nil, errSuperseded
		}
		if err := r.replace(); err != nil {
			return nil, err
		}
		b = r.current
		return b, nil
	}
}

// shut ends the reading. r.mu must be held.
func (b *recorded) shut() {
	if !b.isShut {
		b.isShut = true
		close(b.stop)
	}
}

// Read implements io.Reader.
func (b *recorded) Read(p []byte) (int, error) {
	r := b.r
	select {
	case <-b.stop:
		return 0, errSuperseded
	case r.turn <- struct{}{}:
	}
	defer func() { <-r.turn }()
	if b.off < len(r.buf) {
		n := copy(p, r.buf[b.off:])
		b.off += n
		return n, nil
	}
	if r.end != nil {
		return 0, r.end
	}
	n, err := r.src.Read(p)
	r.end = err
	b.off += n
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.overflow.Load():
	case int64(len(r.buf)+n) > r.limit && !b.isShut:
		r.overflow.Store(true)
		r.buf = nil
	default: // whole, even if a successor waits for a little more than the limit
		r.buf = append(r.buf, p[:n]...)
	}
	return n, err
}

// Close implements io.Closer.
func (b *recorded) Close() error {
	b.r.mu.Lock()
	b.shut()
	final := b.r.final && b.r.current == b
	b.r.mu.Unlock()
	if final {
		return b.r.Close()
	}
	return nil
}
