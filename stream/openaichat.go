package stream

import (
	"bytes"
)

// openAIChat is the chat completions API and its many relatives: Azure, Mistral,
// Groq, Together, DeepSeek, xAI, OpenRouter, vLLM, llama.cpp, and the older
// completions API. https://platform.openai.com/docs/api-reference/chat-streaming
var openAIChat = &dialect{"openai-chat", []framing{framingSSE}, classOpenAIChat, false}

func classOpenAIChat(e *event, m *memory) verdict {
	if isDone(e.data) {
		return verdict{class: Terminal, known: true}
	}
	v := verdict{class: Lifecycle}
	// Groq names the event of an error; llama.cpp has used a field "error",
	// whose value is the error itself.
	f := fault{found: string(e.name) == "error"}
	named := f.found
	s := e.scan()
	for key := s.object(); key != nil; key = s.member() {
		switch string(key) {
		case "choices":
			v.known = true
			for more := s.list(); more; more = s.elem() {
				s.choice(&v, &f)
			}
		case "error":
			s.fault(&f)
		case "prompt_progress":
			// llama.cpp: only a count that grows is progress.
			for key := s.object(); key != nil; key = s.member() {
				if string(key) != "processed" {
					s.skip()
				} else if m.grown(s.number()) {
					v.progress()
				}
			}
		default:
			f.beside(&s, key)
		}
	}
	if f.found {
		known := v.known || named || f.alone()
		v = f.verdict("openai-chat")
		v.known = known
		return v
	}
	if !s.ok() {
		return undecodable
	}
	v.from, v.to = s.from, s.to
	return v
}

// isDone reports whether a payload is the marker that ends a stream.
func isDone(data []byte) bool {
	return len(data) < 16 && string(bytes.TrimSpace(data)) == "[DONE]"
}

func (s *scanner) choice(v *verdict, f *fault) {
	for key := s.object(); key != nil; key = s.member() {
		switch string(key) {
		case "delta":
			s.chatDelta(v)
		case "text":
			if s.filled() {
				v.content(text)
			}
		case "finish_reason":
			switch reason := s.text(); string(reason) {
			case "":
			case "error":
				f.found = true
			default:
				v.class = Finish
			}
		case "error":
			s.fault(f)
		default:
			s.skip()
		}
	}
}

func (s *scanner) chatDelta(v *verdict) {
	for key := s.object(); key != nil; key = s.member() {
		k := text
		switch string(key) {
		case "content":
			if s.peek() == '[' {
				s.contentParts(v)
				continue
			}
		case "annotations":
			if s.filled() {
				v.progress()
			}
			continue
		case "refusal", "audio", "images":
		case "tool_calls", "function_call":
			k = tool
		default:
			// reasoning, and with _content, _details, _text, _opaque or _steps behind it.
			if !bytes.HasPrefix(key, []byte("reasoning")) {
				s.skip()
				continue
			}
			k = thinking
		}
		if s.filled() {
			v.content(k)
		}
	}
}

// contentParts takes content as Mistral has it: a list of parts of text and of
// thinking.
func (s *scanner) contentParts(v *verdict) {
	for more := s.list(); more; more = s.elem() {
		for key := s.object(); key != nil; key = s.member() {
			k := text
			switch string(key) {
			case "type":
				s.skip()
				continue
			case "thinking":
				k = thinking
			}
			if s.filled() {
				v.content(k)
			}
		}
	}
}
