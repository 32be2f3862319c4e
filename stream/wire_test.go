package stream

import (
	"encoding/base64"
	"io"
	"strings"
	"testing"
)

// chunkOf is a message of Bedrock with what a model or an agent has said.
func chunkOf(inner string) string {
	return message(`{"bytes":"`+base64.StdEncoding.EncodeToString([]byte(inner))+`"}`,
		":message-type", "event", ":event-type", "chunk")
}

// What the servers of a dialect say beside what the cases have.
func TestWires(t *testing.T) {
	chat := func(delta string) string {
		return `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"",` + delta + `},"finish_reason":null}]}` + "\n\n"
	}
	typed := func(event string) string { return `data: {"type":` + event + "}\n\n" }
	part := func(part string) string {
		return `data: {"candidates":[{"content":{"parts":[{` + part + `}]}}]}` + "\n\n"
	}
	pull := func(digest string, completed string) string {
		return `{"status":"pulling ` + digest + `","digest":"` + digest + `","total":900,"completed":` + completed + "}\n"
	}
	cohere := func(typ, message string) string {
		return `data: {"type":"` + typ + `","index":0,"delta":{"message":{` + message + `}}}` + "\n\n"
	}
	for _, tt := range []struct {
		dialect, framing, prefix, wire string
		class                          Class
		kind                           kind
	}{
		{"openai-chat", "sse", "", chat(`"images":[{"type":"image_url","image_url":{"url":"data:,x"}}]`), Content, text},
		{"openai-chat", "sse", "", chat(`"reasoning_text":"hm"`), Content, thinking},
		{"openai-chat", "sse", "", chat(`"reasoning_steps":[{"thought":"hm"}]`), Content, thinking},
		{"openai-chat", "sse", "", chat(`"reasoning_opaque":null`), Lifecycle, text},
		{"openai-chat", "sse", "", chat(`"annotations":[{"url":"u"}]`), Progress, text},
		{"openai-chat", "sse", "", "data: {\"choices\":[],\"usage\":{},\"error\":{}}\n\n", Lifecycle, text},
		{"openai-chat", "sse", "", "data: {\"choices\":[],\"error\":0}\n\n", Lifecycle, text},
		{"openai-chat", "sse", "", "data: {\"choices\":[],\"error\":[]}\n\n", Lifecycle, text},
		{"openai-chat", "sse", "", "data: {\"choices\":[],\"error\":[{}]}\n\n", Failure, text},
		// The parts of Mistral's content.
		{"openai-chat", "sse", "", "data: {\"choices\":[{\"delta\":{\"content\":[{\"type\":\"thinking\",\"thinking\":[{\"text\":\"hm\"}]}]}}]}\n\n", Content, thinking},
		{"openai-chat", "sse", "", "data: {\"choices\":[{\"delta\":{\"content\":[{\"type\":\"text\",\"text\":\"\"}]}}]}\n\n", Lifecycle, text},
		{"openai-chat", "sse", "", "data: {\"choices\":[{\"delta\":null,\"text\":\"a\"}]}\n\n", Content, text},
		{"openai-chat", "sse", "", "data: {\"choices\":[{\"delta\":{},\"error\":{\"code\":500}}]}\n\n", Failure, text},
		{"anthropic", "sse", "", typed(`"content_block_start","content_block":{"type":"redacted_thinking","data":"x"}`), Content, thinking},
		{"anthropic", "sse", "", typed(`"content_block_start","content_block":{"type":"thinking","thinking":"hm","signature":""}`), Content, thinking},
		{"anthropic", "sse", "", typed(`"content_block_start","content_block":{"type":"server_tool_use","input":{"q":"x"}}`), Content, tool},
		{"anthropic", "sse", "", typed(`"content_block_start","content_block":{"type":"text","text":"a","input":{}}`), Content, text},
		{"cohere", "sse", "", cohere("content-delta", `"content":{"text":"a","more":""}`), Content, text},
		{"cohere", "sse", "", cohere("content-delta", `"content":{"text":""}`), Lifecycle, text},
		{"gemini", "sse", "", part(`"thought":true,"text":"hm","more":{}`), Content, thinking},
		{"gemini", "sse", "", part(`"text":"","thoughtSignature":"s"`), Progress, text},
		{"gemini", "sse", "", part(`"toolCall":{}`), Lifecycle, text},
		{"gemini", "sse", "", "data: {\"promptFeedback\":{\"safetyRatings\":[{}]},\"candidates\":[{\"finishReason\":\"\"}]}\n\n", Lifecycle, text},
		{"gemini", "sse", "", part(`"toolCall":{"toolType":"SEARCH"}`), Content, tool},
		{"gemini", "sse", "", part(`"toolResponse":{"toolType":"SEARCH"}`), Content, text},
		{"openai-responses", "sse", "", "data: {\"type\":\"response.mcp_call.failed\",\"item_id\":\"m\"}\n\n", Progress, text},
		{
			"openai-responses", "sse", "",
			"data: {\"type\":\"response.reasoning_summary_part.added\",\"part\":{\"type\":\"summary_text\",\"text\":\"\"}}\n\n",
			Progress, thinking,
		},
		{"openai-responses", "sse", "", typed(`"response.image_generation_call.generating","item_id":"i"`), Progress, text},
		{"openai-responses", "sse", "", typed(`"response.code_interpreter_call_code.delta","delta":"x"`), Content, tool},
		{"openai-responses", "sse", "", typed(`"response.failed","response":{"error":{"code":"x"},"id":"r"}`), Failure, text},
		{"ollama", "ndjson", "", "{\"message\":{\"thinking\":\"hm\",\"content\":\"\"},\"done\":false}\n", Content, thinking},
		{"ollama", "ndjson", "", "{\"response\":\"\",\"thinking\":\"\",\"done\":false}\n", Lifecycle, text},
		{"ollama", "ndjson", "", "{\"response\":\"\",\"done\":false,\"done_reason\":\"load\"}\n", Finish, text},
		// A model that is pulled says nothing but how far it is.
		{"ollama", "ndjson", "", "{\"status\":\"pulling manifest\"}\n", Content, text},
		{"ollama", "ndjson", pull("a", "10"), pull("a", "20"), Content, text},
		{"ollama", "ndjson", pull("a", "10"), pull("a", "10"), Lifecycle, text},
		{"ollama", "ndjson", pull("a", "900") + pull("b", "10"), pull("b", "20"), Content, text},
		{"ollama", "ndjson", "", "{\"status\":\"success\"}\n", Finish, text},
		{"ollama", "ndjson", "", "{\"response\":\"\",\"thinking\":\"hm\",\"done\":false}\n", Content, thinking},
		{"bedrock", "eventstream", "", chunkOf("Hello there"), Content, text},
		{"bedrock", "eventstream", "", chunkOf(`{"choices":[{"text":"a","stop_reason":"stop"}],"amazon-bedrock-invocationMetrics":{}}`), Finish, text},
		{"bedrock", "eventstream", "", chunkOf(`{"choices":[],"error":{"code":500},"amazon-bedrock-invocationMetrics":{}}`), Failure, text},
		{"bedrock", "eventstream", "", chunkOf(""), Lifecycle, text},
		// The families of its models.
		{"bedrock", "eventstream", "", chunkOf(`{"messageStart":{"role":"assistant"}}`), Lifecycle, text},
		{"bedrock", "eventstream", "", chunkOf(`{"contentBlockDelta":{"delta":{"text":"a"},"contentBlockIndex":0}}`), Content, text},
		{"bedrock", "eventstream", "", chunkOf(`{"contentBlockDelta":{"delta":{"reasoningContent":{"text":"hm"}}}}`), Content, thinking},
		{"bedrock", "eventstream", "", chunkOf(`{"messageStop":{"stopReason":"end_turn"}}`), Finish, text},
		{"bedrock", "eventstream", "", chunkOf(`{"outputs":[{"text":"a","stop_reason":null}]}`), Content, text},
		{"bedrock", "eventstream", "", chunkOf(`{"outputs":[{"text":"","stop_reason":null,"of":{}}]}`), Lifecycle, text},
		{"bedrock", "eventstream", "", chunkOf(`{"outputs":[{"text":"","stop_reason":"stop"}]}`), Finish, text},
		{"bedrock", "eventstream", "", chunkOf(`{"outputs":[{"text":"","stop_reason":"stop"},{"stop_reason":""}]}`), Finish, text},
		{"bedrock", "eventstream", "", chunkOf(`{"outputText":"a","completionReason":null}`), Content, text},
		{"bedrock", "eventstream", "", chunkOf(`{"outputText":"","index":0}`), Lifecycle, text},
		{"bedrock", "eventstream", "", chunkOf(`{"outputText":"","completionReason":"FINISH"}`), Finish, text},
		{"bedrock", "eventstream", "", chunkOf(`{"text":"a","is_finished":false}`), Content, text},
		{"bedrock", "eventstream", "", chunkOf(`{"text":"","is_finished":true,"finish_reason":""}`), Finish, text},
		{"bedrock", "eventstream", "", chunkOf(`{"text":"","finish_reason":"COMPLETE","is_finished":false}`), Finish, text},
		{"bedrock", "eventstream", "", chunkOf(`{"contentBlockStart":{"start":{"image":{"format":"png"}}}}`), Progress, text},
		{"bedrock", "eventstream", "", chunkOf(`{"text":"","is_finished":true}`), Finish, text},
		{"cohere", "sse", "", cohere("content-start", `"content":{"type":"thinking","thinking":""}`), Progress, thinking},
		{"cohere", "sse", "", cohere("content-delta", `"content":{"thinking":"hm"}`), Content, thinking},
		{"cohere", "sse", "", cohere("citation-start", `"citations":{"text":"a"}`), Content, text},
		{"cohere", "sse", "", cohere("citation-start", `"citations":null`), Lifecycle, text},
		{"cohere", "sse", "", "data: {\"type\":\"content-end\",\"index\":0}\n\n", Progress, text},
		{"gemini", "sse", "", "data: {\"promptFeedback\":{\"safetyRatings\":[],\"blockReason\":\"SAFETY\"}}\n\n", Terminal, text},
		{"gemini", "sse", "", part(`"videoMetadata":{"fps":1}`), Lifecycle, text},
	} {
		m := new(Monitor)
		m.Start(&Limits{Dialect: tt.dialect})
		m.Answered(header(tt.framing), 0)
		come(m, tt.prefix, s)
		before := m.counts
		come(m, tt.wire, s)
		if m.counts[tt.class] != before[tt.class]+1 || m.kind != tt.kind {
			t.Errorf("%s: counts %v, then %v, kind %d: %s", tt.dialect, before, m.counts, m.kind, tt.wire)
		}
	}
}

// The words of an agent are no stream of a model: they have no finish.
func TestAgents(t *testing.T) {
	for _, words := range []string{"Hello", `{"answer": `, `{"answer": 1}`, `{"type": "answer"}`} {
		m := new(Monitor)
		m.Start(&Limits{})
		m.Answered(header("eventstream"), 0)
		come(m, strings.Repeat(chunkOf(words), 3), s)
		if end := m.EOF(s); end != io.EOF || !m.Began() {
			t.Errorf("%s: %v, %+v", words, end, m.Stats())
		}
	}
}
