package stream

import (
	"io"
	"strings"
	"testing"
)

// An end that may well be regular is no truncation.
func TestUnclearEnds(t *testing.T) {
	long := strings.Repeat("A", 2*maxPrefix)
	image := `{"candidates":[{"content":{"parts":[{"inlineData":{"data":"` + long + `"}}]},"finishReason":"STOP"}]}`
	usage := "data: {\"usageMetadata\":{\"totalTokenCount\":3}}\n\n"
	gemini := "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}]}\n\n"
	tests := []struct {
		dialect, framing, text string
		want                   error
	}{
		// The finish is where an event that is long is not looked at.
		{"gemini", "sse", "data: " + image + "\n\n", io.EOF},
		{"gemini", "sse", "data: " + image + "\n\n: ping\n\n" + usage, io.EOF},
		{"gemini", "json-array", image, io.EOF},
		{"ollama", "json-array", `{"model":"m","message":{"content":"` + long + `"},"done":true}`, io.EOF},
		{"openai-chat", "sse", `data: {"choices":[{"delta":{"content":"` + long + `"},"finish_reason":"stop"}]}` + "\n\n", io.EOF},
		{"openai-responses", "sse", `data: {"response":{"instructions":"` + long + `"},"type":"response.completed"}` + "\n\n", io.EOF},
		// It was not there if the answer goes on, or if the event is not over.
		{"gemini", "sse", "data: " + image + "\n\n" + gemini, ErrTruncated},
		{"gemini", "sse", gemini + usage, ErrTruncated},
		{"gemini", "sse", "data: " + image[:len(image)-9], ErrTruncated},
		{"gemini", "json-array", image[:len(image)-9], ErrTruncated},
		{"ollama", "ndjson", `{"message":{"content":"` + long, ErrTruncated},
		// It was not there either if the type says so, which comes first.
		{"openai-responses", "sse", `data: {"type":"response.created","response":{"instructions":"` + long + `"}}` + "\n\n", ErrTruncated},
		{"openai-responses", "sse", "event: response.created\n" + `data: {"response":{"instructions":"` + long + `"}}` + "\n\n", ErrTruncated},
		{"anthropic", "sse", `data: {"type":"content_block_start","content_block":{"type":"x","content":"` + long + `"}}` + "\n\n", ErrTruncated},
		{"cohere", "sse", `data: {"type":"content-delta","delta":{"message":{"content":{"text":"` + long + `"}}}}` + "\n\n", ErrTruncated},
		// What a model's other endpoints answer is in one piece.
		{"gemini", "json-array", `{"totalTokens": 3}`, io.EOF},
		{"ollama", "json-array", "{\"embeddings\":[[0.1]]}\n", io.EOF},
		{"ollama", "json-array", `{"embeddings":[[0.1]`, ErrTruncated},
		{"ollama", "json-array", `{"message":{"content":"a"},"done":false}`, ErrTruncated},
		{"ollama", "json-array", `{"message":{"content":""},"done":false}{"message":{}}`, ErrTruncated},
		{"gemini", "json-array", `[{"usageMetadata":{}}`, ErrTruncated},
		{"gemini", "json-array", `{"usageMetadata":{}}{"usageMetadata":`, ErrTruncated},
		{"gemini", "json-array", "", ErrTruncated},
	}
	for _, tt := range tests {
		for _, size := range []int{1000, 1 << 20} {
			b := Guard(&chunked{[]string{tt.text}}, &Limits{Dialect: tt.dialect}, Options{Header: header(tt.framing)})
			if got, err := read(b, size); got != tt.text || err != tt.want {
				t.Errorf("%s, %.100s: %d of %d bytes, then %v, want %v", tt.dialect, tt.text, len(got), len(tt.text), err, tt.want)
			}
		}
	}
}
