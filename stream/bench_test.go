package stream

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// deltas returns n events as OpenAI streams them, of about 206 bytes, and the
// length of the first; padded, they differ in more than their text.
func deltas(n int, padded bool) (stream []byte, event int) {
	var b bytes.Buffer
	for i := range n {
		padding := ""
		if padded {
			padding = fmt.Sprintf(`,"obfuscation":"%06d"`, i)
		}
		fmt.Fprintf(&b, `data: {"id":"chatcmpl-9fGhT2kLmN4pQrS6","object":"chat.completion.chunk","created":1767225600,`+
			`"model":"gpt-4o-mini","choices":[{"index":0,"delta":{"content":" word%04d"},"logprobs":null,"finish_reason":null}]%s}`+"\n\n", i%10000, padding)
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
// bufio.Scanner does, cutting them into events and no more, and through a guard
// that counts bytes, that shows each event to a classifier that looks at nothing,
// and that classes them, also if they differ in more than their text.
func BenchmarkRead(b *testing.B) {
	stream, event := deltas(100_000, false)
	limits := func(l Limits) *Limits {
		l.FirstContent, l.Gap, l.PingedGap, l.AllowTruncated = 120e9, 120e9, 300e9, On
		return &l
	}
	header := http.Header{"Content-Type": {"text/event-stream"}}
	guard := func(l *Limits, h http.Header) func(io.ReadCloser, []byte) error {
		return func(body io.ReadCloser, buf []byte) error {
			return drain(Guard(body, l, Options{Header: h}), buf)
		}
	}
	chat := guard(limits(Limits{Dialect: "openai-chat"}), header)
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
		{"sse", func(body io.ReadCloser, buf []byte) error {
			for f := new(sse); ; {
				n, err := body.Read(buf)
				f.write(buf[:n], discard{})
				if err == io.EOF {
					return nil
				}
			}
		}},
		{"guard-bytes", guard(limits(Limits{}), http.Header{"Content-Encoding": {"br"}})},
		{"guard-framing", guard(limits(Limits{Classify: func(Event) Class { return Content }}), header)},
		{"guard-openai-chat", chat},
		{"guard-openai-chat-padded", chat},
	}
	for _, size := range []struct {
		name string
		n    int
	}{{"event", event}, {"4KiB", 4 << 10}} {
		for _, way := range ways {
			stream := stream
			if strings.HasSuffix(way.name, "padded") {
				stream, _ = deltas(100_000, true)
			}
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
