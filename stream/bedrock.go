package stream

import "encoding/base64"

// bedrock is InvokeModelWithResponseStream and ConverseStream of Amazon Bedrock.
// https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html
var bedrock = &dialect{"bedrock", []framing{framingEventStream}, classBedrock, false}

func classBedrock(e *event, m *memory) verdict {
	if e.form == exception {
		return fault{found: true, typ: e.name}.verdict("bedrock")
	}
	s := e.scan()
	if string(e.name) == "chunk" {
		v := classInvoke(&s, m)
		v.from, v.to = 0, 0 // which are places in what is encoded
		return v
	}
	v := s.converse(e.name)
	if !s.ok() {
		return undecodable
	}
	return v
}

// classInvoke takes the payload of a chunk, which is what the model's own API
// would have sent, in base64, beside a padding that hides its length.
func classInvoke(s *scanner, m *memory) verdict {
	buf := bufferPool.Get().(*buffers)
	defer buf.free()
	inner := &event{cut: s.cut}
	for key := s.object(); key != nil; key = s.member() {
		if string(key) != "bytes" {
			s.skip()
			continue
		}
		encoded := s.text()
		if s.cut {
			encoded = encoded[:len(encoded)/4*4]
		}
		var err error
		buf.data, err = base64.StdEncoding.AppendDecode(buf.data[:0], encoded)
		s.bad = s.bad || err != nil
		inner.data = buf.data
	}
	if !s.ok() {
		return undecodable
	}
	in := inner.scan()
	if in.peek() != '{' {
		// An agent sends its words as they are, and nothing at their end.
		v := verdict{class: Lifecycle}
		if len(inner.data) > 0 {
			v.content(text)
		}
		return v
	}
	return classModel(inner, m)
}

// classModel classes an event of any family of models.
func classModel(e *event, m *memory) verdict {
	v := verdict{class: Lifecycle}
	anthropic, openAI := false, false
	known, finished := false, false
	s := e.scan()
	for key := s.object(); key != nil; key = s.member() {
		switch string(key) {
		case "type":
			anthropic = true
			s.skip()
		case "choices":
			openAI = true
			s.skip()
		case "messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata":
			known = true
			v = s.converse(key)
		case "outputText", "generation", "completion", "text":
			known = true
			if s.filled() {
				v.content(text)
			}
		case "outputs":
			known = true
			for more := s.list(); more; more = s.elem() {
				for key := s.object(); key != nil; key = s.member() {
					switch string(key) {
					case "text":
						if s.filled() {
							v.content(text)
						}
					case "stop_reason":
						finished = len(s.text()) > 0 || finished
					default:
						s.skip()
					}
				}
			}
		case "completionReason", "stop_reason", "finish_reason":
			finished = len(s.text()) > 0 || finished
		case "is_finished":
			finished = string(s.word()) == "true" || finished
		case "amazon-bedrock-invocationMetrics": // comes with the last chunk
			finished, known = true, true
			s.skip()
		default:
			s.skip()
		}
	}
	switch {
	case anthropic:
		return classAnthropic(e, m)
	case openAI:
		v = classOpenAIChat(e, m) // some families of which give their reason another name
	case !s.ok():
		return undecodable
	case !known && !finished:
		v.content(text)
	}
	v.known = v.known || known
	if finished && v.class < Finish {
		v.class = Finish
	}
	return v
}

// converse takes the payload of an event of ConverseStream.
func (s *scanner) converse(name []byte) verdict {
	v := verdict{class: Lifecycle, known: true}
	switch string(name) {
	case "contentBlockStart":
		v.class, v.kind = Progress, text
		for key := s.object(); key != nil; key = s.member() {
			if string(key) != "start" {
				s.skip()
				continue
			}
			for key := s.object(); key != nil; key = s.member() {
				if string(key) == "toolUse" {
					v.kind = tool
				}
				s.skip()
			}
		}
		return v
	case "contentBlockDelta":
		for key := s.object(); key != nil; key = s.member() {
			if string(key) != "delta" {
				s.skip()
				continue
			}
			for key := s.object(); key != nil; key = s.member() {
				kind := text
				switch string(key) {
				case "toolUse":
					kind = tool
				case "reasoningContent":
					kind = thinking
				}
				if s.filled() {
					v.content(kind)
				}
			}
		}
		return v
	case "contentBlockStop":
		v.class = Progress
	case "messageStop":
		v.class = Finish
	case "metadata":
		v.class, v.known = Terminal, false // as other streams may have
	case "messageStart":
	default: // also initial-response, which every service has
		v.known = false
	}
	s.skip()
	return v
}
