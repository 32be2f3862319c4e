package layers

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/weir-go/weir/stream"
)

// ErrSuperseded is how the body of an answer ends, for inner layers of the user's, that
// has been read for a second, so that another send can follow: see [Retry].
var ErrSuperseded = errors.New("the answer is read no longer, as another send is to follow")

func (e *Error) superseded() bool { return e.Err == ErrSuperseded }

// hold reads the body of a superseded response into memory, so that its
// connection is free for the next attempt and the response can still be the
// call's outcome. A body that is too long, or too slow, ends in
// io.ErrUnexpectedEOF.
func (a *attempt) hold(resp *http.Response) {
	if resp.Body == http.NoBody {
		return
	}
	a.call.mu.Lock()
	due, limit := a.seldom().endDue, a.seldom().endLimit
	a.call.mu.Unlock()
	a.boundBy(heldTime, true)
	const most = heldBytes + 1     // one more tells a body that is too long
	size := resp.ContentLength + 1 // to see the end
	if size <= 0 || size > most {
		size = 512
	}
	data := make([]byte, 0, size)
	var err error
	for err == nil && len(data) < most {
		if len(data) == cap(data) {
			data = slices.Grow(data, 1)
		}
		var n int
		n, err = resp.Body.Read(data[len(data):min(cap(data), most)])
		data = data[:len(data)+n]
	}
	_ = resp.Body.Close()
	a.call.mu.Lock()
	h := &a.mark().held
	if !a.settled { // a layer of the user's may send again
		a.rare.endDue, a.rare.endLimit, a.rare.draining = due, limit, false
	}
	a.call.mu.Unlock()
	h.data, h.end = data, io.EOF
	if err != io.EOF || len(data) > heldBytes {
		h.data, h.end = data[:min(len(data), heldBytes)], io.ErrUnexpectedEOF
	}
	if stats, guarded := stream.StatsOf(resp); guarded {
		resp.Body = heldStream{h, stats}
		return
	}
	resp.Body = h
}

// heldStream is the body of a stream in memory.
type heldStream struct {
	*held
	stats stream.Stats
}

// Stats returns what the guard has seen; see stream.StatsOf.
func (h heldStream) Stats() stream.Stats { return h.stats }

// held is a body in memory.
type held struct {
	mu   sync.Mutex // a Close may come during a Read
	data []byte
	end  error
}

// Read implements io.Reader.
func (h *held) Read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.data) == 0 {
		return 0, h.end
	}
	n := copy(p, h.data)
	h.data = h.data[n:]
	return n, nil
}

// Close implements io.Closer.
func (h *held) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.data = nil
	h.end = http.ErrBodyReadAfterClose
	return nil
}
