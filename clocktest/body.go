package clocktest

import (
	"cmp"
	"errors"
	"io"
	"maps"
	"net/http"
	"sync/atomic"
	"time"
)

var errBodyClosed = errors.New("clocktest: read on closed response body")

// A body is the body of an answer.
type body struct {
	x      *exchange
	resp   *http.Response
	at     time.Time // when the last chunk of those taken arrived
	chunks []Chunk   // those to come
	left   int64     // of the length that the headers announce; negative: none
	data   string    // arrived and not yet read
	err    error     // what comes after data
	closed atomic.Bool
}

func newBody(x *exchange, resp *http.Response, at time.Time) *body {
	b := &body{x: x, resp: resp, at: at, chunks: x.step.chunks, left: resp.ContentLength}
	x.u.mu.Lock()
	defer x.u.mu.Unlock()
	x.u.open[b] = x.seen
	return b
}

// Read returns data of one chunk at a time.
func (b *body) Read(p []byte) (int, error) {
	for b.data == "" && b.err == nil && len(p) > 0 {
		b.data, b.err = b.next()
	}
	if b.closed.Load() {
		return 0, errBodyClosed
	}
	if b.data == "" && len(p) > 0 {
		return 0, b.err
	}
	n := copy(p, b.data)
	b.data = b.data[n:]
	return n, nil
}

// next waits for what arrives next.
func (b *body) next() (string, error) {
	switch {
	case b.left == 0:
		b.x.end()
		return "", io.EOF
	case len(b.chunks) > 0:
		c := b.chunks[0]
		b.chunks, b.at = b.chunks[1:], b.at.Add(c.After)
		if err := b.x.until(b.at); err != nil {
			return "", err
		}
		data := c.Data
		if b.left > 0 {
			data = data[:min(int64(len(data)), b.left)]
			b.left -= int64(len(data))
		}
		return data, nil
	case b.x.step.silent:
		return "", b.x.hang()
	}
	if err := b.x.until(b.at); err != nil {
		return "", err
	}
	maps.Copy(b.resp.Trailer, b.x.step.trailer)
	b.x.end()
	end := io.EOF
	if b.left > 0 {
		end = io.ErrUnexpectedEOF
	}
	return "", cmp.Or(b.x.step.err, end)
}

// Close ends the exchange. A Read that waits returns, and finds the body closed,
// even if the test ends with it.
func (b *body) Close() error {
	b.closed.Store(true)
	b.x.u.mu.Lock()
	delete(b.x.u.open, b)
	b.x.u.mu.Unlock()
	b.x.end()
	return nil
}
