package transport_test

import (
	"errors"
	"io"
	"sync/atomic"
)

// closeCounter is a request body that is no known type.
type closeCounter struct {
	io.Reader
	closes atomic.Int32
}

func (b *closeCounter) Read(p []byte) (int, error) {
	if b.closes.Load() > 0 {
		return 0, errors.New("read after close")
	}
	if b.Reader == nil {
		return 0, io.EOF
	}
	return b.Reader.Read(p)
}

func (b *closeCounter) Close() error {
	b.closes.Add(1)
	return nil
}
