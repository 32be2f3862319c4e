package stream

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

type sseEvent struct {
	Type      string
	Data      string
	DataParts []wirePart `json:"data_parts"`
	ID        string
}

type sseCase struct {
	Name       string
	Input      []byte     `json:"input_base64"`
	InputParts []wirePart `json:"input_parts"`
	Events     []sseEvent
	Retry      *int64
	Pending    *struct{ Type, Data string }
	BytesKept  []byte `json:"bytes_kept"`
}

// A recorder is a sink that checks that it is given every byte once, in order.
type recorder struct {
	id     func() string
	raw    []byte
	pieces []pieceKind
	events []recorded
}

type recorded struct {
	Name, Data, ID string
	Cut            bool
	Form           form
	Sets           bool
}

func (r *recorder) piece(k pieceKind, raw []byte, e *event) {
	r.raw = append(r.raw, raw...)
	if k != partial {
		r.pieces = append(r.pieces, k)
	}
	if k == whole {
		id := ""
		if r.id != nil {
			id = r.id()
		}
		r.events = append(r.events, recorded{string(e.name), string(e.data), id, e.cut, e.form, e.sets})
	}
}

// feed gives f the chunks, each in memory that is overwritten after the call, and
// returns what it makes of them before and at the end.
func feed(t *testing.T, f framer, chunks []string) (before, atEnd []recorded) {
	t.Helper()
	r := new(recorder)
	if f, ok := f.(*sse); ok {
		r.id = func() string { return string(f.resumption().id) }
	}
	for _, c := range chunks {
		chunk := []byte(c)
		f.write(chunk, r)
		for i := range chunk {
			chunk[i] = '#'
		}
	}
	if got, want := string(r.raw), strings.Join(chunks, ""); got != want {
		t.Errorf("the pieces are %.200q, want %.200q", got, want)
	}
	n := len(r.events)
	f.end(r)
	return r.events[:n], r.events[n:]
}

func TestSSE(t *testing.T) {
	for _, c := range load[sseCase](t, "sse.json") {
		t.Run(c.Name, func(t *testing.T) {
			text := string(c.Input) + join(c.InputParts)
			for name, chunks := range chunkings(text) {
				f := new(sse)
				events, pending := feed(t, f, chunks)
				if len(events) != len(c.Events) {
					t.Fatalf("%s: %d events, want %d: %s", name, len(events), len(c.Events), brief(events))
				}
				for i, want := range c.Events {
					e := events[i]
					if e.Name == "" {
						e.Name = "message"
					}
					data := want.Data + join(want.DataParts)
					if c.BytesKept != nil {
						data = string(c.BytesKept)
					}
					cut := len(data) > maxPrefix
					data = data[:min(len(data), maxPrefix)]
					if e != (recorded{want.Type, data, want.ID, cut, plain, e.Sets}) {
						t.Errorf("%s: event %d is %s, want %s", name, i, brief(e), brief(want))
					}
				}
				var wantPending []recorded
				if p := c.Pending; p != nil {
					wantPending = []recorded{{p.Type, p.Data, string(f.resumption().id), false, plain, false}}
				}
				for i := range pending {
					pending[i].Sets = false
					if pending[i].Name == "" {
						pending[i].Name = "message"
					}
				}
				if !slices.Equal(pending, wantPending) {
					t.Errorf("%s: pending is %s, want %s", name, brief(pending), brief(wantPending))
				}
				want := int64(-1)
				if c.Retry != nil {
					want = *c.Retry
				}
				if f.resumption().retry != want {
					t.Errorf("%s: retry is %d, want %d", name, f.resumption().retry, want)
				}
				if f.buf != nil {
					t.Errorf("%s: a buffer is kept", name)
				}
			}
		})
	}
}

// What the guard sees and a reader of events does not.
func TestSSEBeyondTheStandard(t *testing.T) {
	tests := []struct {
		name, text    string
		before, atEnd []recorded
	}{
		{"error field", "error: {\"code\":500}\n\n", []recorded{{Name: "error", Data: `{"code":500}`}}, nil},
		{"error field at the end", "error: {}", nil, []recorded{{Name: "error", Data: "{}"}}},
		{"bare JSON", "data: a\n\n{\n  \"error\": {\n  \"b\": 1}\n}\n", []recorded{{Data: "a"}},
			[]recorded{{Data: "{\n  \"error\": {\n  \"b\": 1}\n}", Form: bare}}},
		{"bare JSON in a block", "{\"a\":1}\n\ndata: b\n\n", []recorded{{Data: `{"a":1}`, Form: bare}, {Data: "b"}}, nil},
		{"brace after data", "data: a\n{\n\n", []recorded{{Data: "a"}}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for name, chunks := range chunkings(tt.text) {
				before, atEnd := feed(t, new(sse), chunks)
				if !slices.Equal(before, tt.before) || !slices.Equal(atEnd, tt.atEnd) {
					t.Errorf("%s: %s, then %s; want %s, then %s", name, brief(before), brief(atEnd), brief(tt.before), brief(tt.atEnd))
				}
			}
		})
	}
}

// A block or a comment may arrive in any number of chunks, of any size.
func TestSSELongEvents(t *testing.T) {
	const size = 5 << 20
	text := "data: " + strings.Repeat("x", size) + "\n\n" +
		strings.Repeat(": keep-alive\n\n", 10000) +
		": " + strings.Repeat("y", size) + "\n" +
		"data: z\n\n"
	for _, n := range []int{1 << 10, 4 << 10, 1 << 20, len(text)} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var chunks []string
			for part := range slices.Chunk([]byte(text), n) {
				chunks = append(chunks, string(part))
			}
			f := new(sse)
			events, _ := feed(t, f, chunks)
			want := []recorded{{Data: strings.Repeat("x", maxPrefix), Cut: true}, {Data: "z"}}
			if !slices.Equal(events, want) {
				t.Errorf("%d events: %s", len(events), brief(events))
			}
		})
	}
}

// A chunk with one kind of line end must not be searched for the other kind again
// and again. That would take thousands of times as long.
func TestSSEIsLinear(t *testing.T) {
	for _, end := range []string{"\n", "\r", "\r\n"} {
		const n = 64
		short := bytes.Repeat([]byte("data: x"+end+end), 1<<10)
		long := bytes.Repeat(short, n)
		took := func(chunk []byte, times int) time.Duration {
			best := time.Hour
			for range 5 {
				start := time.Now()
				for range times {
					new(sse).write(chunk, discard{})
				}
				best = min(best, time.Since(start))
			}
			return best
		}
		if a, b := took(short, n), took(long, 1); b > 20*a {
			t.Errorf("%q: %d chunks take %v, and one of their size %v", end, n, a, b)
		}
	}
}

// A stream that breaks off in an event is resumed before that: its id counts once
// its empty line is there.
func TestResumeBeforeABrokenEvent(t *testing.T) {
	for name, chunks := range chunkings("id: 1\ndata: a\n\nid: 2\n\n: c\nid: 3\nretry: 5\ndata: b\n") {
		m := begun(&Limits{})
		for _, chunk := range chunks {
			come(m, chunk, 0)
		}
		m.EOF(0)
		if got := m.Stats(); got.LastEventID != "2" || got.Retry != 5*time.Millisecond {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
