package stream

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"
)

// deltas returns n events as OpenAI streams them, of about 206 bytes.
func deltas(n int) (stream []byte, event int) {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `data: {"id":"chatcmpl-9fGhT2kLmN4pQrS6","object":"chat.completion.chunk","created":1767225600,`+
			`"model":"gpt-4o-mini","choices":[{"index":0,"delta":{"content":" word%04d"},"logprobs":null,"finish_reason":null}]}`+"\n\n", i%10000)
		if i == 0 {
			event = b.Len()
		}
	}
	return b.Bytes(), event
}

// pieces is a body that gives at most size bytes a Read.
type pieces struct {
	data []byte
	size int
}

func (r *pieces) Read(p []byte) (int, error) {
	if len(r.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.data[:min(r.size, len(r.data))])
	r.data = r.data[n:]
	return n, nil
}

func (*pieces) Close() error { return nil }

// BenchmarkRead reads 100,000 events: as io.CopyBuffer does, line by line as
// bufio.Scanner does, and through a guard that counts bytes, that cuts events, and
// that classes them.
func BenchmarkRead(b *testing.B) {
	stream, event := deltas(100_000)
	limits := func(l Limits) *Limits {
		l.FirstContent, l.Gap, l.PingedGap, l.AllowTruncated = 120e9, 120e9, 300e9, On
		return &l
	}
	sse := http.Header{"Content-Type": {"text/event-stream"}}
	guard := func(l *Limits, h http.Header) func(io.ReadCloser, []byte) error {
		return func(body io.ReadCloser, buf []byte) error {
			return drain(Guard(body, l, Options{Header: h}), buf)
		}
	}
	ways := []struct {
		name string
		read func(io.ReadCloser, []byte) error
	}{
		{"copy", func(body io.ReadCloser, buf []byte) error { return drain(body, buf) }},
		{"scanner", func(body io.ReadCloser, buf []byte) error {
			s := bufio.NewScanner(body)
			s.Buffer(buf, 1<<20)
			for s.Scan() {
			}
			return s.Err()
		}},
		{"bytes", guard(limits(Limits{}), http.Header{"Content-Encoding": {"br"}})},
		{"framing", guard(limits(Limits{Classify: func(Event) Class { return Content }}), sse)},
		{"openai-chat", guard(limits(Limits{Dialect: "openai-chat"}), sse)},
	}
	for _, size := range []struct {
		name string
		n    int
	}{{"event", event}, {"4KiB", 4 << 10}} {
		for _, way := range ways {
			b.Run(way.name+"/"+size.name, func(b *testing.B) {
				b.SetBytes(int64(len(stream)))
				b.ReportAllocs()
				buf := make([]byte, 4<<10)
				for b.Loop() {
					if err := way.read(&pieces{stream, size.n}, buf); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// drain reads a body as io.CopyBuffer does from one that has no WriteTo.
func drain(body io.ReadCloser, buf []byte) error {
	defer body.Close()
	_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, body, buf)
	return err
}
