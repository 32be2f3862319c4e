package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/stream"
)

// events is a stream of deltas, and the length of each but the last.
type events struct {
	data []byte
	size int
}

func newEvents(n int) events {
	const event = `data: {"id":"chatcmpl-9fGhT2kLmN4pQrS6","object":"chat.completion.chunk","created":1767225600,` +
		`"model":"gpt-4o-mini","choices":[{"index":0,"delta":{"content":" word%04d"},"logprobs":null,"finish_reason":null}]}` + "\n\n"
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, event, i%10000)
	}
	size := b.Len() / n
	b.WriteString("data: [DONE]\n\n")
	return events{b.Bytes(), size}
}

// pieces is a body that gives at most size bytes a Read.
type pieces struct {
	data []byte
	size int
}

func (p *pieces) Read(buf []byte) (int, error) {
	if len(p.data) == 0 {
		return 0, io.EOF
	}
	n := copy(buf, p.data[:min(p.size, len(p.data))])
	p.data = p.data[n:]
	return n, nil
}

func (p *pieces) Close() error { return nil }

// reader reads a body to its end.
type reader struct {
	name string
	read func(body io.ReadCloser, buf []byte) error
}

func drain(body io.ReadCloser, buf []byte) error {
	for {
		if _, err := body.Read(buf); err != nil {
			_ = body.Close()
			if err == io.EOF {
				return nil
			}
			return err
		}
	}
}

// read measures readers of a stream of 10,000 events, of which each Read gives
// one, or 4 KiB.
func read(whole bool, readers ...reader) func(options) ([]result, error) {
	return func(o options) ([]result, error) {
		e := newEvents(10_000)
		size, buf := e.size, make([]byte, 4<<10)
		if whole {
			size = len(buf)
		}
		over := func(r reader) subject {
			return subject{r.name, func() error { return r.read(&pieces{e.data, size}, buf) }, len(e.data)}
		}
		subjects := make([]subject, len(readers))
		for i, r := range readers {
			subjects[i] = over(r)
		}
		results, err := measure(o, over(reader{"copy", drain}), subjects...)
		for i := range results { // what a stream takes is not taken by its events
			results[i].figures[allocs] = float64(int(results[i].figures[allocs]) / 10_000)
		}
		return results, err
	}
}

// guard is weir's guard with limits that nothing reaches.
func guard(l stream.Limits, header http.Header) reader {
	l.FirstContent, l.Gap, l.PingedGap, l.AllowTruncated = time.Minute, time.Minute, time.Minute, policy.On
	return reader{"weir", func(body io.ReadCloser, buf []byte) error {
		return drain(stream.Guard(body, &l, stream.Options{Header: header}), buf)
	}}
}

var (
	sse     = http.Header{"Content-Type": {"text/event-stream"}}
	byBytes = guard(stream.Limits{}, http.Header{"Content-Encoding": {"br"}}) // opaque
	framing = guard(stream.Limits{Classify: func(stream.Event) stream.Class { return stream.Content }}, sse)
	classes = guard(stream.Limits{Dialect: "openai-chat"}, sse)
)

// watched resets a timer before each Read.
var watched = reader{"time.AfterFunc, reset a Read", func(body io.ReadCloser, buf []byte) error {
	timer := time.AfterFunc(time.Minute, func() { _ = body.Close() })
	defer timer.Stop()
	for {
		timer.Reset(time.Minute)
		_, err := body.Read(buf)
		timer.Stop()
		if err == io.EOF {
			return body.Close()
		} else if err != nil {
			return err
		}
	}
}}

// timed reads the clock before and after each Read, and nothing else: the least
// that limits cost which are exact, and count only while a Read waits.
var timed = reader{least.name, func(body io.ReadCloser, buf []byte) error {
	start, waited := time.Now(), time.Duration(0)
	for {
		began := time.Since(start)
		_, err := body.Read(buf)
		waited = max(waited, time.Since(start)-began)
		if err == io.EOF && waited < time.Minute {
			return body.Close()
		} else if err != nil {
			return err
		}
	}
}}

// decoder gives out events, and has no limits.
var decoder = reader{"openai-go decoder", func(body io.ReadCloser, _ []byte) error {
	d := ssestream.NewDecoder(&http.Response{Header: sse, Body: body})
	for d.Next() {
	}
	return d.Err()
}}

// silent answers with a stream that gives one event and then waits for the
// context. Nobody reads on: what is measured is what an open stream holds.
type silent struct{}

func (silent) RoundTrip(req *http.Request) (*http.Response, error) {
	body := &pieces{[]byte(`data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n"), 1 << 10}
	return &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: sse, ContentLength: -1, Request: req, Body: body,
	}, nil
}

// idle measures what each of 10,000 open streams holds between two events. It is
// the median of three times: what the rows before have left behind goes during one of
// them, since the runtime keeps stopped timers for a while.
func idle(stacks ...stack) func(options) ([]result, error) {
	return func(options) ([]result, error) {
		stacks := append([]stack{{"base", bare}}, stacks...)
		results := make([]result, len(stacks))
		for i, s := range stacks {
			results[i].name = s.name
			times := make([]figures, 3)
			for k := range times {
				var err error
				if times[k], err = hold(s); err != nil {
					return nil, err
				}
			}
			for _, of := range []figure{size, goroutine} {
				slices.SortFunc(times, func(a, b figures) int { return cmp.Compare(a[of], b[of]) })
				results[i].figures[of] = times[1][of] - results[0].figures[of]
			}
		}
		return results[1:], nil
	}
}

func hold(s stack) (f figures, err error) {
	const n = 10_000
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	rt, buf := s.build(silent{}), make([]byte, 1<<10)
	requests, responses := make([]http.Request, n), make([]*http.Response, n)
	for i := range requests {
		requests[i] = newCaller(ctx, http.MethodGet, target).made
	}
	before, goroutines := heap(), runtime.NumGoroutine()
	for i := range responses {
		resp, err := rt.RoundTrip(&requests[i])
		if err != nil {
			return f, err
		}
		if _, err := resp.Body.Read(buf); err != nil {
			return f, err
		}
		responses[i] = resp
	}
	f[goroutine] = float64(runtime.NumGoroutine()-goroutines) / n
	f[size] = float64(heap()-before) / n
	for _, resp := range responses {
		_ = resp.Body.Close()
	}
	runtime.KeepAlive(requests)
	return f, nil
}

// heap is what is in use once all that is not has been collected.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
