package stream

import (
	"bytes"
	"slices"
	"strings"
)

// A framing names a way to cut a stream into events.
type framing uint8

const (
	noFraming framing = iota
	framingSSE
	framingNDJSON
	framingJSONArray
	framingEventStream
)

func (f framing) String() string {
	return [...]string{"", "sse", "ndjson", "json-array", "eventstream"}[f]
}

func (f framing) framer() framer {
	switch f {
	case framingSSE:
		return new(sse)
	case framingNDJSON:
		return new(ndjson)
	case framingJSONArray:
		return new(jsonArray)
	default:
		return new(eventStream)
	}
}

// mediaType returns a Content-Type without its parameters.
func mediaType(contentType string) string {
	t, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(t))
}

// framingOf returns the framing that a media type names, if it names one.
func framingOf(mediaType string) framing {
	switch mediaType {
	case "text/event-stream":
		return framingSSE
	case "application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines", "application/stream+json":
		return framingNDJSON
	case "application/vnd.amazon.eventstream":
		return framingEventStream
	}
	return noFraming
}

// sniffLen is as many bytes as sniff needs.
const sniffLen = len("event:")

// sniff returns the framing that a body has by its first bytes after white space,
// if it has one; more says that it takes further bytes to tell. An object under
// application/json may span lines, so that is no NDJSON.
func sniff(head []byte, json bool) (f framing, more bool) {
	switch head[0] {
	case '{':
		if json {
			return framingJSONArray, false
		}
		return framingNDJSON, false
	case '[':
		return framingJSONArray, false
	case 0: // the length of a message begins so
		return framingEventStream, false
	}
	for _, start := range []string{":", "data:", "event:", "id:", "retry:", bom} {
		if bytes.HasPrefix(head, []byte(start)) {
			return framingSSE, false
		}
		more = more || strings.HasPrefix(start, string(head))
	}
	return noFraming, more
}

// detect returns the dialect that an event shows, or nil, and whether the event
// is a keepalive whatever the dialect.
func detect(f framing, e *event) (found *dialect, keepalive bool) {
	for _, d := range dialects {
		if !slices.Contains(d.framings, f) {
			continue
		}
		v := d.class(e, new(memory))
		// A whole answer in JSON that is an error may be of any API. Google's is
		// told by its form, and comes first.
		if v.known && (f != framingJSONArray || v.class != Failure || d == gemini) {
			return d, false
		}
		keepalive = keepalive || v.class == Keepalive
	}
	return nil, keepalive
}
