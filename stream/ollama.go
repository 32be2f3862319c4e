package stream

// ollama is the API of Ollama: chat, generate, and the pulling of models.
// https://github.com/ollama/ollama/blob/main/docs/api.md
var ollama = &dialect{"ollama", []framing{framingNDJSON, framingJSONArray}, classOllama, false}

func classOllama(e *event, m *memory) verdict {
	v := verdict{class: Lifecycle}
	var f fault
	shown, ends := false, false
	done, finished := false, false
	var status []byte // of the pulling of a model, a layer after the other
	var completed int64
	s := e.scan()
	for key := s.object(); key != nil; key = s.member() {
		switch string(key) {
		case "message":
			shown = s.peek() == '{' || shown
			s.ollamaMessage(&v)
		case "response":
			shown = s.peek() == '"' || shown
			if s.filled() {
				v.content(text)
			}
		case "thinking":
			if s.filled() {
				v.content(thinking)
			}
		case "done":
			ends = true
			done = string(s.word()) == "true"
		case "done_reason":
			finished = len(s.text()) > 0 || finished
		case "status":
			status, f.among = s.text(), true
			finished = string(status) == "success" || finished
		case "completed":
			completed = s.number()
		case "error":
			s.fault(&f)
		default:
			f.beside(&s, key)
		}
	}
	if len(status) > 0 && m.changed(status) {
		m.count = 0
		v.content(text)
	}
	if m.grown(completed) {
		v.content(text)
	}
	v.known = shown && ends // a word such as done is anybody's
	switch {
	case f.found:
		known := v.known || f.alone()
		v = f.verdict("ollama")
		v.known = known
		return v
	case !s.ok():
		return undecodable
	case done:
		v.class = Terminal
	case finished:
		v.class = Finish
	}
	return v
}

func (s *scanner) ollamaMessage(v *verdict) {
	for key := s.object(); key != nil; key = s.member() {
		kind := text
		switch string(key) {
		case "content", "images":
		case "thinking":
			kind = thinking
		case "tool_calls":
			kind = tool
		default:
			s.skip()
			continue
		}
		if s.filled() {
			v.content(kind)
		}
	}
}
