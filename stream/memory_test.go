package stream

import (
	"io"
	"net/http"
	"runtime"
	"testing"
	"time"
)

// once is a body with one chunk of bytes and then nothing for ever.
type once struct{ data []byte }

func (o *once) Read(p []byte) (int, error) {
	n := copy(p, o.data)
	o.data = nil
	return n, nil
}

func (*once) Close() error { return nil }

// What a stream costs between its events: the guard with its timer, and no buffer.
func TestIdleStreamsAreSmall(t *testing.T) {
	if poolsLeak {
		t.Skip("under the race detector, a sync.Pool drops some of what it is given")
	}
	const n, budget = 10_000, 700
	limits := &Limits{FirstContent: time.Hour, Gap: time.Hour, PingedGap: time.Hour}
	h := http.Header{"Content-Type": {"text/event-stream"}}
	stream, _ := deltas(3, false)
	split := len(stream) - 100 // the second Read ends an event that the first began
	bodies := make([]*once, n)
	for i := range bodies {
		bodies[i] = &once{stream[:split]}
	}
	guards := make([]*Body, n)
	p := make([]byte, 4<<10)
	before := heap()
	for i, body := range bodies {
		guards[i] = Guard(body, limits, Options{Header: h})
		if _, err := guards[i].Read(p); err != nil {
			t.Fatal(err)
		}
		body.data = stream[split:]
		if _, err := guards[i].Read(p); err != nil {
			t.Fatal(err)
		}
	}
	if each := (heap() - before) / n; each > budget {
		t.Errorf("a stream holds %d bytes, want at most %d", each, budget)
	} else {
		t.Logf("a stream holds %d bytes", each)
	}
	if s := guards[n-1].Stats(); s.Contents != 3 || s.Dialect != "openai-chat" {
		t.Errorf("the last has seen %+v", s)
	}
	for _, g := range guards {
		io.Closer(g).Close()
	}
}

// heap returns the bytes on the heap that are in use.
func heap() int64 {
	var m runtime.MemStats
	for range 2 { // what a sync.Pool holds goes with the second
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
