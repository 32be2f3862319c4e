package stream

// cohere is the chat API, version 2.
// https://docs.cohere.com/v2/reference/chat-stream
var cohere = &dialect{"cohere", []framing{framingSSE}, classCohere, true}

func classCohere(e *event, _ *memory) verdict {
	typ := e.name
	var d cohereDelta
	s := e.scan()
	for key := s.object(); key != nil; key = s.member() {
		switch string(key) {
		case "type":
			typ = s.text()
		case "delta":
			s.cohereDelta(&d)
		default:
			s.skip()
		}
	}
	if !s.ok() {
		return undecodable
	}
	v := verdict{class: Lifecycle, from: s.from, to: s.to}
	switch string(typ) {
	case "content-delta", "tool-plan-delta", "tool-call-delta":
		if d.filled {
			v.content(d.kind)
		}
	case "citation-start":
		if d.filled {
			v.content(text)
		}
	case "content-start", "tool-call-start":
		v.class, v.kind = Progress, d.kind
	case "content-end", "tool-call-end", "citation-end":
		v.class = Progress
	case "message-start":
	case "message-end":
		if d.failed {
			return fault{found: true, typ: d.finish}.verdict("cohere")
		}
		v.class = Terminal
	default:
		return v
	}
	v.known = true
	return v
}

type cohereDelta struct {
	kind   kind
	filled bool
	failed bool
	finish []byte // the reason, if it is that of a failure
}

func (s *scanner) cohereDelta(d *cohereDelta) {
	for key := s.object(); key != nil; key = s.member() {
		switch string(key) {
		case "message":
			s.cohereMessage(d)
		case "error":
			var f fault
			s.fault(&f)
			d.failed = d.failed || f.found
		case "finish_reason":
			switch reason := s.text(); string(reason) {
			case "ERROR", "ERROR_TOXIC", "ERROR_LIMIT", "TIMEOUT":
				d.failed, d.finish = true, reason
			}
		default:
			s.skip()
		}
	}
}

func (s *scanner) cohereMessage(d *cohereDelta) {
	for key := s.object(); key != nil; key = s.member() {
		switch string(key) {
		case "content":
			s.cohereContent(d)
		case "tool_calls":
			d.kind = tool
			d.filled = s.filled() || d.filled
		default:
			d.kind = max(d.kind, text)
			d.filled = s.filled() || d.filled
		}
	}
}

func (s *scanner) cohereContent(d *cohereDelta) {
	kind := text
	for key := s.object(); key != nil; key = s.member() {
		switch string(key) {
		case "type":
			if string(s.text()) == "thinking" {
				kind = thinking
			}
		case "thinking":
			kind = thinking
			d.filled = s.filled() || d.filled
		default:
			d.filled = s.filled() || d.filled
		}
	}
	d.kind = max(d.kind, kind)
}
