package stream

import "bytes"

// openAIResponses is the responses API.
// https://platform.openai.com/docs/api-reference/responses-streaming
var openAIResponses = &dialect{"openai-responses", []framing{framingSSE}, classOpenAIResponses, true}

func classOpenAIResponses(e *event, m *memory) verdict {
	if isDone(e.data) {
		return verdict{class: Terminal}
	}
	typ := e.name
	var item, part []byte
	var filled, filledDelta bool
	var f fault
	s := e.scan()
	for key := s.object(); key != nil; key = s.member() {
		switch string(key) {
		case "type":
			typ = s.text()
		case "item_id":
			item = s.text()
		case "item", "part":
			for key := s.object(); key != nil; key = s.member() {
				if string(key) == "type" {
					part = s.text()
				} else {
					s.skip()
				}
			}
		case "delta", "partial_image_b64":
			filledDelta = s.filled()
		case "text", "arguments", "input", "refusal", "transcript":
			filled = s.filled() || filled
		case "code": // of an error, or what a code interpreter is to run
			f.code = s.word()
			filled = len(f.code) > 0 || filled
		case "response":
			for key := s.object(); key != nil; key = s.member() {
				if string(key) == "error" {
					s.fault(&f)
				} else {
					s.skip()
				}
			}
		case "error":
			s.fault(&f)
		default:
			s.skip()
		}
	}
	switch string(typ) {
	case "error", "response.failed":
		f.found = f.found || len(f.code) > 0
		return f.verdict("openai-responses")
	}
	if !s.ok() {
		return undecodable
	}
	v := verdict{class: Lifecycle}
	switch string(typ) {
	case "response.created", "response.queued", "response.in_progress":
	case "response.completed", "response.incomplete":
		v.class = Terminal
	case "keepalive":
		v.class = Keepalive
		return v // as many feeds have
	default:
		name, ok := bytes.CutPrefix(typ, []byte("response."))
		if !ok {
			return v
		}
		verb := name[bytes.LastIndexByte(name, '.')+1:]
		switch string(verb) {
		case "delta", "partial_image":
			if filledDelta {
				m.changed(item)
				v.content(kindOfResponse(name))
			}
		case "done":
			v.class = Progress
			// What was streamed before is only repeated.
			if filled && m.changed(item) {
				v.content(kindOfResponse(name))
			}
		case "added":
			v.class = Progress
			if len(part) > 0 {
				v.kind = kindOfResponse(part)
			}
			if bytes.HasPrefix(name, []byte("reasoning")) { // of whose parts some are plain text
				v.kind = thinking
			}
		case "in_progress", "searching", "generating", "interpreting", "completed", "failed": // all of a call
			v.class = Progress
		default:
			return v
		}
	}
	v.known = true
	return v
}

// kindOfResponse returns the kind of content that the type of an event, an item
// or a part names.
func kindOfResponse(typ []byte) kind {
	switch {
	case bytes.Contains(typ, []byte("reasoning")):
		return thinking
	case bytes.Contains(typ, []byte("_call")):
		return tool
	}
	return text
}
