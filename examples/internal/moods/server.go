// Package moods is what the examples about streams share: a loopback server that
// speaks in five moods, and a judge who says whether a client with weir under it
// saw what it should have, and when.
package moods

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

// The names of the moods, which are models to the server.
const (
	Healthy = "healthy"
	Thinker = "slow-thinker"
	Pings   = "pings-only"
	Dies    = "dies-halfway"
	Silent  = "silent-after-200"
)

// How the server speaks.
const (
	pace   = 30 * time.Millisecond  // between two words
	beat   = 100 * time.Millisecond // between two keepalives
	think  = time.Second            // of the slow thinker, behind keepalives
	words  = 60                     // of an answer
	spoken = 5                      // words before the death halfway
)

// Wire is how events look on the wire of a dialect.
type Wire struct {
	Route          string // a pattern
	Start, End     string
	Ping           string
	Think, Thought string // begin and end the thinking
	Text, Word     string // Text comes before the first Word
}

// OpenAI is the wire of openai-chat.
var OpenAI = Wire{
	Route: "POST /v1/chat/completions",
	Start: chunk(`{"role":"assistant","content":""}`, "null"),
	Ping:  ": keep-alive\n\n",
	Think: chunk(`{"reasoning_content":"hm "}`, "null"),
	Word:  chunk(`{"content":"word "}`, "null"),
	End:   chunk(`{}`, `"stop"`) + "data: [DONE]\n\n",
}

func chunk(delta, finish string) string {
	return `data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m",` +
		`"choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + "}]}\n\n"
}

// Anthropic is the wire of anthropic.
var Anthropic = Wire{
	Route: "POST /v1/messages",
	Start: typed("message_start", `,"message":{"id":"m1","type":"message","role":"assistant","model":"m","content":[],`+
		`"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}`),
	Ping: typed("ping", ""),
	Think: typed("content_block_start", `,"index":0,"content_block":{"type":"thinking","thinking":"","signature":""}`) +
		typed("content_block_delta", `,"index":0,"delta":{"type":"thinking_delta","thinking":"hm "}`),
	Thought: typed("content_block_stop", `,"index":0`),
	Text:    typed("content_block_start", `,"index":1,"content_block":{"type":"text","text":""}`),
	Word:    typed("content_block_delta", `,"index":1,"delta":{"type":"text_delta","text":"word "}`),
	End: typed("content_block_stop", `,"index":1`) +
		typed("message_delta", `,"delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":9}`) +
		typed("message_stop", ""),
}

func typed(name, rest string) string {
	return "event: " + name + "\ndata: {\"type\":\"" + name + "\"" + rest + "}\n\n"
}

// serve starts the server.
func serve(wire Wire) *httptest.Server {
	var mu sync.Mutex
	asked := map[string]int{} // by model
	mux := http.NewServeMux()
	mux.HandleFunc(wire.Route, func(w http.ResponseWriter, r *http.Request) {
		var prompt struct {
			Model string `json:"model"`
		}
		if err := json.NewDecoder(r.Body).Decode(&prompt); err != nil {
			http.Error(w, "no prompt", http.StatusBadRequest)
			return
		}
		mu.Lock()
		asked[prompt.Model]++
		again := asked[prompt.Model] > 1
		mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		s := &speech{w: w, ctx: r.Context(), wire: wire}
		s.say("")
		s.speak(prompt.Model, again)
	})
	return httptest.NewServer(mux)
}

// speech is one answer.
type speech struct {
	w    http.ResponseWriter
	ctx  context.Context
	wire Wire
}

func (s *speech) speak(mood string, again bool) {
	switch {
	case mood == Silent && !again:
		<-s.ctx.Done()
	case mood == Thinker:
		s.say(s.wire.Start + s.wire.Think)
		for start := time.Now(); time.Since(start) < think && s.pause(beat); {
			s.say(s.wire.Ping)
		}
		s.say(s.wire.Thought)
		s.words(spoken)
		s.say(s.wire.End)
	case mood == Pings:
		s.say(s.wire.Start)
		for s.pause(beat) {
			s.say(s.wire.Ping)
		}
	case mood == Dies:
		s.say(s.wire.Start)
		s.words(spoken)
		<-s.ctx.Done()
	default:
		s.say(s.wire.Start)
		s.words(words)
		s.say(s.wire.End)
	}
}

func (s *speech) words(n int) {
	s.say(s.wire.Text)
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for range n {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
			s.say(s.wire.Word)
		}
	}
}

func (s *speech) say(text string) {
	fmt.Fprint(s.w, text)
	_ = http.NewResponseController(s.w).Flush()
}

// pause reports whether somebody still listens after d.
func (s *speech) pause(d time.Duration) bool {
	select {
	case <-s.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
