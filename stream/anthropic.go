package stream

import "bytes"

// anthropic is the Messages API, also as Vertex AI and Bedrock pass it on.
// https://docs.anthropic.com/en/api/messages-streaming
//
// The type in the payload counts, and the name of the event only where there is
// none. New types are announced to come; an unknown one resets nothing.
var anthropic = &dialect{"anthropic", []framing{framingSSE}, classAnthropic, true}

func classAnthropic(e *event, _ *memory) verdict {
	typ := e.name
	v := verdict{class: Lifecycle}
	var delta, block struct {
		kind   kind
		filled bool
	}
	var stopped bool
	var f fault
	s := e.scan()
	for key := s.object(); key != nil; key = s.member() {
		switch string(key) {
		case "type":
			typ = s.text()
		case "delta":
			delta.kind, delta.filled, stopped = s.anthropicDelta()
		case "content_block":
			block.kind, block.filled = s.anthropicBlock()
		case "error":
			s.fault(&f)
		default:
			s.skip()
		}
	}
	if string(typ) == "error" {
		return f.verdict("anthropic")
	}
	if !s.ok() {
		return undecodable
	}
	v.from, v.to = s.from, s.to
	switch string(typ) {
	case "content_block_delta":
		if delta.filled {
			v.content(delta.kind)
		}
	case "content_block_start":
		v.class, v.kind = Progress, block.kind
		if block.filled {
			v.content(block.kind)
		}
	case "content_block_stop":
		v.class = Progress
	case "message_delta":
		if stopped {
			v.class = Finish
		}
	case "message_stop":
		v.class = Terminal
	case "ping":
		v.class = Keepalive
		return v // so many feeds have a ping that it tells nothing
	case "message_start":
	default:
		return v
	}
	v.known = true
	return v
}

// anthropicDelta takes a delta. Whatever it carries beside its type is output:
// text, thinking, signatures, the JSON of a tool's input, citations.
func (s *scanner) anthropicDelta() (k kind, filled, stopped bool) {
	k = noKind
	for key := s.object(); key != nil; key = s.member() {
		of := text
		switch string(key) {
		case "type":
			s.skip()
			continue
		case "stop_reason":
			stopped = len(s.text()) > 0
			continue
		case "thinking", "signature":
			of = thinking
		case "partial_json":
			of = tool
		}
		if s.filled() {
			k, filled = max(k, of), true
		}
	}
	return k, filled, stopped
}

// anthropicBlock takes the start of a block, which carries data if the block
// comes whole: redacted thinking, and the results of tools on the server.
func (s *scanner) anthropicBlock() (k kind, filled bool) {
	k = text
	for key := s.object(); key != nil; key = s.member() {
		switch string(key) {
		case "type":
			switch typ := s.text(); {
			case bytes.HasSuffix(typ, []byte("thinking")):
				k = thinking
			case bytes.HasSuffix(typ, []byte("tool_use")):
				k = tool
			}
		case "text", "thinking", "data", "content", "input":
			filled = s.filled() || filled
		default:
			s.skip()
		}
	}
	return k, filled
}
