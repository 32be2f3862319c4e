package stream

// gemini is streamGenerateContent of Gemini and Vertex AI, as server-sent events
// and as one JSON array. https://ai.google.dev/api/generate-content
var gemini = &dialect{"gemini", []framing{framingSSE, framingJSONArray}, classGemini, false}

func classGemini(e *event, _ *memory) verdict {
	v := verdict{class: Lifecycle}
	var f fault
	blocked := false
	s := e.scan()
	for key := s.object(); key != nil; key = s.member() {
		switch string(key) {
		case "usageMetadata":
			v.known = true
			s.skip()
		case "candidates":
			v.known = true
			for more := s.list(); more; more = s.elem() {
				s.candidate(&v)
			}
		case "promptFeedback":
			v.known = true
			// A prompt that is refused is a regular end without content.
			for key := s.object(); key != nil; key = s.member() {
				if string(key) == "blockReason" {
					blocked = len(s.text()) > 0
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
	switch {
	case f.found:
		v = f.verdict("gemini")
		v.known = f.google
		return v
	case !s.ok():
		return undecodable
	case blocked:
		v.class = Terminal
	}
	return v
}

func (s *scanner) candidate(v *verdict) {
	for key := s.object(); key != nil; key = s.member() {
		switch string(key) {
		case "content":
			for key := s.object(); key != nil; key = s.member() {
				if string(key) != "parts" {
					s.skip()
					continue
				}
				for more := s.list(); more; more = s.elem() {
					s.geminiPart(v)
				}
			}
		case "finishReason":
			if len(s.text()) > 0 {
				v.class = Finish
			}
		default:
			s.skip()
		}
	}
}

// geminiPart takes a part. A signature alone shows that the model is at work, and
// is no output.
func (s *scanner) geminiPart(v *verdict) {
	kind, thought, signed := noKind, false, false
	for key := s.object(); key != nil; key = s.member() {
		switch string(key) {
		case "text", "inlineData", "fileData", "executableCode", "codeExecutionResult", "toolResponse":
			if s.filled() {
				kind = max(kind, text)
			}
		case "functionCall", "toolCall":
			if s.filled() {
				kind = tool
			}
		case "thought":
			thought = string(s.word()) == "true"
		case "thoughtSignature":
			signed = s.filled()
		default:
			s.skip()
		}
	}
	switch {
	case kind == text && thought:
		v.content(thinking)
	case kind != noKind:
		v.content(kind)
	case signed:
		v.progress()
	}
}
