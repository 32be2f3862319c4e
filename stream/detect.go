package stream

import (
	"bytes"
	"slices"
	"strings"
)

// The names of the framings, as [Stats] gives them.
const (
	framingSSE         = "sse"
	framingNDJSON      = "ndjson"
	framingJSONArray   = "json-array"
	framingEventStream = "eventstream"
)

func newFramer(framing string) framer {
	switch framing {
	case framingSSE:
		return newSSE()
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

// framingOf returns the framing that a media type names, or "" if the body has
// to be looked at.
func framingOf(mediaType string) string {
	switch mediaType {
	case "text/event-stream":
		return framingSSE
	case "application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines", "application/stream+json":
		return framingNDJSON
	case "application/vnd.amazon.eventstream":
		return framingEventStream
	}
	return ""
}

// sniffLen is as many bytes as sniff needs.
const sniffLen = len("event:")

// sniff returns the framing that a body has by its first bytes after white space,
// or "" for none; more says that it takes further bytes to tell. An object under
// application/json may span lines, so that is no NDJSON.
func sniff(head []byte, json bool) (framing string, more bool) {
	if len(head) == 0 {
		return "", true
	}
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
	return "", more
}

// detect returns the dialect that an event shows, or nil, and whether the event
// is a keepalive whatever the dialect.
func detect(framing string, e event) (found *dialect, keepalive bool) {
	for _, d := range dialects {
		if !slices.Contains(d.framings, framing) {
			continue
		}
		v := d.class(e, new(memory))
		if v.known {
			return d, false
		}
		keepalive = keepalive || v.class == Keepalive
	}
	return nil, keepalive
}
