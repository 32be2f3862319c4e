package stream_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/weir-go/weir/stream"
)

// respond stands for a request: the response has events in its body, and then
// whatever rest has.
func respond(contentType, events string, rest io.Reader) *http.Response {
	return &http.Response{
		Header: http.Header{"Content-Type": {contentType}},
		Body:   io.NopCloser(io.MultiReader(strings.NewReader(events), rest)),
	}
}

// silence is a server that says nothing more, until the request is cancelled.
type silence struct {
	ctx   context.Context
	clock *clock.Mock
}

func (s silence) Read([]byte) (int, error) {
	for s.ctx.Err() == nil {
		s.clock.Add(time.Second)
	}
	return 0, s.ctx.Err()
}

func ExampleGuard() {
	limits := &stream.Limits{
		FirstContent: 20 * time.Second,
		Gap:          30 * time.Second,
		PingedGap:    2 * time.Minute,
	}
	now := clock.NewMock() // in production, leave Options.Clock nil
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)

	sent := now.Now()
	resp := respond("text/event-stream", `data: {"choices":[{"delta":{"content":"Once"}}]}

data: {"choices":[{"delta":{"content":" upon"}}]}

: keep-alive

`, silence{ctx, now})
	resp.Body = stream.Guard(resp.Body, limits, stream.Options{
		Clock: now, Sent: sent, Header: resp.Header, Context: ctx, Cancel: cancel,
	})
	defer resp.Body.Close()

	text, err := io.ReadAll(resp.Body)
	fmt.Println(strings.Count(string(text), "content"), "pieces of text")
	if stall, ok := errors.AsType[*stream.StallError](err); ok {
		fmt.Println("stalled:", stall.Kind, stall.Limit, "in a stream of", stall.Dialect)
	}
	// Output:
	// 2 pieces of text
	// stalled: pinged-gap 2m0s in a stream of openai-chat
}

// An end without a finish is no success.
func ExampleGuard_truncated() {
	resp := respond("application/x-ndjson", `{"message":{"content":"Once"},"done":false}`+"\n", http.NoBody)
	resp.Body = stream.Guard(resp.Body, &stream.Limits{}, stream.Options{Header: resp.Header})
	_, err := io.ReadAll(resp.Body)
	fmt.Println(err == stream.ErrTruncated, errors.Is(err, io.ErrUnexpectedEOF))
	// Output: true true
}

func ExampleStatsOf() {
	resp := respond("text/event-stream", `data: {"type":"message_start","message":{"role":"assistant"}}

event: ping
data: {"type":"ping"}

data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"Hi"}}

event: error
data: {"type":"error","error":{"type":"overloaded_error","message":"..."}}

`, http.NoBody)
	resp.Body = stream.Guard(resp.Body, &stream.Limits{}, stream.Options{Header: resp.Header})
	io.Copy(io.Discard, resp.Body)

	stats, ok := stream.StatsOf(resp)
	fmt.Println(ok, stats.Dialect, stats.Framing)
	fmt.Println(stats.Contents, "content,", stats.Keepalives, "keepalive,", stats.Lifecycles, "lifecycle")
	fmt.Println(stats.Failure, stats.Failure.Retryable)
	// Output:
	// true anthropic sse
	// 1 content, 1 keepalive, 1 lifecycle
	// stream reports a failure: overloaded_error true
}

// A classifier for a Kubernetes watch. Its bookmarks come whether or not anything
// happens, and no watch has to have news: without a Gap, such a stream is only
// counted, and FirstContent asks for nothing but the first object.
func ExampleLimits_classify() {
	limits := &stream.Limits{
		FirstContent: time.Minute,
		Classify: func(e stream.Event) stream.Class {
			var event struct{ Type string }
			json.Unmarshal(e.Data, &event)
			switch event.Type {
			case "BOOKMARK":
				return stream.Keepalive
			case "ERROR":
				return stream.Failure
			}
			return stream.Content // also if it is so large that Data is cut
		},
	}
	resp := respond("application/json", `{"type":"ADDED","object":{"kind":"Pod"}}
{"type":"BOOKMARK","object":{"kind":"Pod"}}
{"type":"ERROR","object":{"kind":"Status","code":410}}
`, http.NoBody)
	resp.Body = stream.Guard(resp.Body, limits, stream.Options{Header: resp.Header})
	_, err := io.Copy(io.Discard, resp.Body)

	stats, _ := stream.StatsOf(resp)
	fmt.Println(stats.Contents, "object,", stats.Keepalives, "bookmark, failed:", stats.Failure != nil, err)
	// Output: 1 object, 1 bookmark, failed: true <nil>
}

// What drives a Monitor says when things happen.
func ExampleMonitor() {
	var m stream.Monitor
	m.Start(&stream.Limits{FirstContent: 5 * time.Second, Gap: 10 * time.Second, Hold: stream.On})
	fmt.Println("no headers by", m.Due())

	m.Answered(http.Header{"Content-Type": {"text/event-stream"}}, time.Second)
	fmt.Println("no content by", m.Wait(time.Second))

	m.Bytes([]byte(`data: {"choices":[{"delta":{"role":"assistant"}}]}`+"\n\n"), 2*time.Second)
	fmt.Println("hold back what there is:", m.Holds())

	m.Wait(2 * time.Second)
	m.Bytes([]byte(`data: {"choices":[{"delta":{"content":"Hi"}}]}`+"\n\n"), 3*time.Second)
	fmt.Println("hold back what there is:", m.Holds())

	due := m.Wait(time.Minute) // the caller has taken its time
	fmt.Println("no more content by", due)
	fmt.Println(m.Expire(due))
	// Output:
	// no headers by 5s
	// no content by 5s
	// hold back what there is: true
	// hold back what there is: false
	// no more content by 1m10s
	// stream stalled: no content in 10s (gap limit 10s; before: 1 contents, 0 keepalives, 100 bytes, the last 1m7s ago; openai-chat)
}

func ExampleDialects() {
	fmt.Println(stream.Dialects())
	// Output: [anthropic bedrock cohere gemini ollama openai-chat openai-responses]
}
