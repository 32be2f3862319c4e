package stream

import (
	"io"
	"testing"
)

// What a feed of another kind says by chance does not make it one of a dialect, which
// could end it, and is no failure of its server.
func TestForeignFeeds(t *testing.T) {
	for _, tt := range []struct{ framing, text string }{
		{"ndjson", `{"level":"error","msg":"x","error":"context canceled"}` + "\n" + `{"level":"info","msg":"y"}` + "\n"},
		{"ndjson", `{"id":1,"done":false,"message":"copying"}` + "\n" + `{"id":1,"done":true}` + "\n"},
		{"ndjson", `{"jsonrpc":"2.0","id":1,"error":{"code":-32601}}` + "\n"},
		{"ndjson", `{"status":"failed","error":"disk full"}` + "\n"},
		{"sse", "data: {\"job\":3,\"status\":\"failed\",\"error\":\"timeout\"}\n\n"},
		{"sse", "data: {\"id\":3,\"error\":{\"message\":\"m\",\"type\":\"server_error\"}}\n\n"},
		{"ndjson", `{"error":{"status":"failed"}}` + "\n"},
		{"sse", "event: keepalive\ndata: {}\n\ndata: {\"price\":1}\n\n"},
		{"sse", "event: ping\ndata: {}\n\ndata: {\"price\":1}\n\n"},
		{"eventstream", message(`{"a":1}`, ":event-type", "metadata") + message(`{"b":1}`, ":event-type", "tick")},
		{"json-array", `{"data":null,"error":"validation failed"}`},
		{"json-array", `{"error":"not found"}`},
		{"json-array", `{"jsonrpc":"2.0","id":1,"error":{"code":-32601}}`},
		{"json-array", `[{"id":1,"error":"x"},{"id":2}]`},
	} {
		m := new(Monitor)
		m.Start(&Limits{})
		m.Answered(header(tt.framing), 0)
		come(m, tt.text, s)
		end := m.EOF(s)
		if got := m.Stats(); got.Dialect != "" || got.Failure != nil || !m.Began() || end != io.EOF {
			t.Errorf("%s, %s: %+v, then %v", tt.framing, tt.text, got, end)
		}
	}
}

// An error that is all there is, or that only models' servers say so, tells which.
func TestFirstErrors(t *testing.T) {
	for _, tt := range []struct{ framing, text, want string }{
		{"ndjson", `{"error":"model runner has unexpectedly stopped"}` + "\n", "ollama"},
		{"ndjson", `{"model":"m","message":{"content":""},"done":false,"error":"x"}` + "\n", "ollama"},
		{"sse", "data: {\"error\":\"backend is gone\",\"error_type\":\"generation\"}\n\n", "openai-chat"},
		{"sse", "data: {\"error\":{\"message\":\"m\"},\"request_id\":\"r\"}\n\n", "openai-chat"},
		{"sse", `data: {"object":"error","message":"m","param":null,"model":"m","user_id":"u","error":"x"}` + "\n\n", "openai-chat"},
		{"sse", "event: error\ndata: {\"id\":1,\"error\":{\"message\":\"m\"}}\n\n", "anthropic"},
		{"sse", "event: error\ndata: {\"detail\":\"x\"}\n\n", "openai-chat"},
		{"sse", "event: error\ndata: upstream connect error\n\n", "openai-chat"},
		{"sse", "data: {\"id\":\"g\",\"provider\":\"p\",\"choices\":[],\"error\":{\"code\":502}}\n\n", "openai-chat"},
		{"json-array", `{"error":{"code":503,"status":"UNAVAILABLE"}}`, "gemini"},
		{"json-array", `[{"error":{"code":503,"status":"UNAVAILABLE"}}`, "gemini"},
	} {
		m := new(Monitor)
		m.Start(&Limits{})
		m.Answered(header(tt.framing), 0)
		come(m, tt.text, s)
		if got := m.Stats(); got.Dialect != tt.want || got.Failure == nil {
			t.Errorf("%s: %+v", tt.text, got)
		}
	}
}
