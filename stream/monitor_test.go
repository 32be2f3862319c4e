package stream

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

const (
	ping    = ": ping\n\n"
	role    = `data: {"choices":[{"delta":{"role":"assistant"}}]}` + "\n\n"
	word    = `data: {"choices":[{"delta":{"content":"word"}}]}` + "\n\n"
	done    = "data: [DONE]\n\n"
	refused = `data: {"error":{"message":"the secret is 42","type":"invalid_request_error"}}` + "\n\n"
)

// begun returns a Monitor of a stream of server-sent events whose headers came at
// once.
func begun(l *Limits) *Monitor {
	m := new(Monitor)
	m.Start(l)
	m.Answered(header("sse"), 0)
	return m
}

// come tells m that text has arrived after a wait.
func come(m *Monitor, text string, after time.Duration) {
	now := m.since
	m.Wait(now)
	m.Bytes([]byte(text), now+after)
}

// stalls waits, and checks what for and until when.
func stalls(t *testing.T, m *Monitor, kind StallKind, after time.Duration) {
	t.Helper()
	now := m.since
	due := m.Wait(now)
	if due-now != after {
		t.Errorf("due in %v, want %v", due-now, after)
	}
	if err := m.Expire(due - 1); err != nil {
		t.Errorf("before that: %v", err)
	}
	err := m.Expire(due)
	var stall *StallError
	if !errors.As(err, &stall) || stall.Kind != kind {
		t.Errorf("ends in %v, want kind %s", err, kind)
	}
	if again := m.Expire(due + time.Hour); again != err || m.Err() != err {
		t.Errorf("then in %v and %v", again, m.Err())
	}
}

const s = time.Second

func TestGapsThatAreNotSet(t *testing.T) {
	thought := `data: {"choices":[{"delta":{"reasoning":"hm"}}]}` + "\n\n"
	call := `data: {"choices":[{"delta":{"tool_calls":[{"function":{"name":"f"}}]}}]}` + "\n\n"
	tests := []struct {
		name  string
		l     Limits
		come  string
		kind  StallKind // "" for never
		after time.Duration
	}{
		{"nothing set", Limits{}, word, "", 0},
		{"only Gap", Limits{Gap: 10 * s}, word + ping, StallGap, 10 * s},
		{"only Gap, thinking", Limits{Gap: 10 * s}, thought, StallGap, 10 * s},
		{"only Gap, tool", Limits{Gap: 10 * s}, call, StallGap, 10 * s},
		{"PingedGap off", Limits{Gap: 10 * s, PingedGap: -1}, word + ping, "", 0},
		{"PingedGap off, no ping", Limits{Gap: 10 * s, PingedGap: -1}, word, StallGap, 10 * s},
		{"ThinkingGap off", Limits{Gap: 10 * s, ThinkingGap: -1}, thought, "", 0},
		{"thinking and pings", Limits{Gap: 10 * s, PingedGap: 30 * s, ThinkingGap: 20 * s}, thought + ping, StallPingedGap, 30 * s},
		{"tool and pings", Limits{Gap: 10 * s, PingedGap: 20 * s, ToolGap: 30 * s}, call + ping, StallToolGap, 30 * s},
		{"tool and pings without limit", Limits{Gap: 10 * s, PingedGap: -1, ToolGap: 30 * s}, call + ping, "", 0},
		{"Gap off", Limits{Gap: -1, PingedGap: 20 * s}, word, "", 0},
		{"Gap off, pings", Limits{Gap: -1, PingedGap: 20 * s}, word + ping, StallPingedGap, 20 * s},
		{"the longest there is", Limits{Gap: Never - 1}, word, "", 0},
		{"nothing yet, FirstContent off", Limits{Gap: 10 * s}, role, "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.l.Dialect = "openai-chat"
			m := begun(&tt.l)
			come(m, tt.come, s)
			if tt.kind != "" {
				stalls(t, m, tt.kind, tt.after)
			} else if due := m.Wait(m.since); due != Never {
				t.Errorf("due at %v", due)
			}
		})
	}
}

// What the assumptions of the timelines leave to be seen at close range.
func TestMonitorAssumptions(t *testing.T) {
	limits := func() *Limits {
		return &Limits{FirstContent: 5 * s, Gap: 10 * s, PingedGap: 30 * s, Linger: 2 * s, Dialect: "openai-chat"}
	}
	t.Run("ping at expiry counts", func(t *testing.T) {
		m := begun(limits())
		come(m, word, s)
		come(m, ping, 10*s)
		stalls(t, m, StallPingedGap, 20*s)
	})
	t.Run("EOF at expiry counts", func(t *testing.T) {
		m := begun(limits())
		come(m, word+strings.Replace(word, `"content":"word"`, `},"finish_reason":"stop","x":{`, 1), s)
		m.Wait(s)
		if err := m.EOF(11 * s); err != io.EOF {
			t.Error(err)
		}
	})
	t.Run("what was used before a pause stays used", func(t *testing.T) {
		m := begun(limits())
		come(m, word, s)
		come(m, role, 4*s)
		m.since = time.Hour
		stalls(t, m, StallGap, 6*s)
	})
	t.Run("linger runs from the terminal", func(t *testing.T) {
		m := begun(limits())
		come(m, word+done, s)
		come(m, "more", s)
		now := m.since
		if due := m.Wait(now); due != now+s || m.Expire(due) != io.EOF {
			t.Errorf("due in %v, then %v", due-now, m.Err())
		}
	})
	t.Run("finish, then the gap is EOF", func(t *testing.T) {
		m := begun(limits())
		come(m, word, s)
		come(m, `data: {"choices":[{"finish_reason":"stop"}]}`+"\n\n", 4*s)
		now := m.since
		if due := m.Wait(now); due != now+6*s || m.Expire(due) != io.EOF {
			t.Errorf("due in %v, then %v", due-now, m.Err())
		}
	})
	t.Run("a pending block counts at EOF", func(t *testing.T) {
		m := begun(limits())
		come(m, word+"data: [DONE]", s)
		if err := m.EOF(s); err != io.EOF {
			t.Error(err)
		}
	})
	t.Run("a failure outranks a later reset", func(t *testing.T) {
		m := begun(limits())
		come(m, refused, s)
		if err := m.Fail(errReset, s); err != errReset || m.Failure() == nil {
			t.Errorf("%v, and failure %v", err, m.Failure())
		}
		come(m, strings.Replace(refused, "invalid", "other", 1)+word, s)
		if got := m.Stats(); got.Failure.Type != "invalid_request_error" || got.Contents != 0 {
			t.Errorf("what came after it counts: %+v", got)
		}
	})
	t.Run("truncation may be allowed", func(t *testing.T) {
		l := limits()
		l.AllowTruncated = On
		m := begun(l)
		come(m, word, s)
		if err := m.EOF(s); err != io.EOF {
			t.Error(err)
		}
	})
	t.Run("an empty body is truncated", func(t *testing.T) {
		if err := begun(limits()).EOF(s); err != ErrTruncated {
			t.Error(err)
		}
	})
	t.Run("a stall keeps what it has seen", func(t *testing.T) {
		m := begun(limits())
		come(m, word+ping, s)
		come(m, role, 4*s)
		m.Expire(m.Wait(m.since))
		want := StallError{
			Kind: StallPingedGap, Limit: 30 * s, Waited: 30 * s, SinceLastByte: 26 * s, Elapsed: 31 * s,
			Contents: 1, Keepalives: 1, Bytes: int64(len(word + ping + role)), Dialect: "openai-chat",
		}
		if got := *m.Err().(*StallError); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

func TestHold(t *testing.T) {
	hold := func(l Limits) *Monitor {
		l.Hold, l.Dialect = On, "openai-chat"
		return begun(&l)
	}
	tests := []struct {
		name, come string
		limit      int64
		holds      bool
	}{
		{"nothing", "", 0, true},
		{"a role and pings", role + ping, 0, true},
		{"content", role + word, 0, false},
		{"terminal", done, 0, false},
		{"failure", refused, 0, false},
		{"as much as may be held", role, int64(len(role)), true},
		{"more than may be held", role, int64(len(role)) - 1, false},
		{"more than is held by default", ":" + strings.Repeat("x", defaultHold), 0, false},
	}
	for _, tt := range tests {
		m := hold(Limits{HoldLimit: tt.limit, FirstContent: 5 * s})
		come(m, tt.come, s)
		if got := m.Holds(); got != tt.holds {
			t.Errorf("%s: holds %v", tt.name, got)
		}
	}
	m := hold(Limits{HoldLimit: 1, FirstContent: 5 * s})
	come(m, role, s)
	stalls(t, m, StallFirstContent, 4*s) // the first wait goes on
	if m = hold(Limits{}); m.EOF(s) != ErrTruncated || m.Holds() {
		t.Error("EOF does not end the hold")
	}
	m = hold(Limits{FirstContent: s})
	m.Wait(0)
	if m.Expire(s); m.Holds() {
		t.Error("a stall does not end the hold")
	}
}

func TestMinRate(t *testing.T) {
	start := func() *Monitor {
		m := new(Monitor)
		m.Start(&Limits{MinRate: 100, MinRateWindow: 10 * s})
		m.Answered(http.Header{"Content-Type": {"application/octet-stream"}}, 3*s)
		return m
	}
	bytes := func(n int) string { return strings.Repeat("x", n) }
	t.Run("silence", func(t *testing.T) {
		stalls(t, start(), StallMinRate, 10*s)
	})
	t.Run("drip", func(t *testing.T) {
		m := start()
		for range 9 {
			come(m, bytes(99), s)
		}
		stalls(t, m, StallMinRate, s)
	})
	t.Run("just enough", func(t *testing.T) {
		m := start()
		for range 100 {
			come(m, bytes(1000), 10*s)
		}
		stalls(t, m, StallMinRate, 10*s)
	})
	t.Run("bursts", func(t *testing.T) {
		m := start()
		for range 100 {
			for range 1000 {
				come(m, bytes(1000), 0)
			}
			come(m, bytes(1), 9*s)
		}
	})
	t.Run("the caller's pauses are free", func(t *testing.T) {
		m := start()
		come(m, bytes(1), 9*s)
		m.since += time.Hour
		stalls(t, m, StallMinRate, s)
	})
	t.Run("not after the terminal", func(t *testing.T) {
		m := begun(&Limits{MinRate: 100, MinRateWindow: 10 * s, Dialect: "openai-chat"})
		come(m, word+done, s)
		if due := m.Wait(m.since); due != Never {
			t.Errorf("due at %v", due)
		}
	})
}

// A stream of which nothing is known counts by its bytes, from the first on.
func TestOpaque(t *testing.T) {
	l := &Limits{FirstContent: 5 * s, Gap: 10 * s, PingedGap: 30 * s}
	named := *l
	named.Dialect = "openai-chat"
	tests := []struct {
		name    string
		limits  *Limits
		header  http.Header
		come    string
		framing string
	}{
		{"no stream", l, http.Header{"Content-Type": {"text/html"}}, "<html>", ""},
		{"a word like a field", l, nil, "datum", ""},
		{"encoded", &named, http.Header{"Content-Type": {"text/event-stream"}, "Content-Encoding": {"gzip"}}, role, ""},
		{"unknown events", l, header("sse"), "data: tick\n\n", "sse"},
		{"unknown lines", l, header("ndjson"), "{\"tick\":1}\n", "ndjson"},
		{"an answer in one piece", &named, header("json-array"), "{\"choices\": [\n", "json-array"},
		{"an event stream that breaks", &Limits{FirstContent: 5 * s, Gap: 10 * s, Dialect: "bedrock"}, header("eventstream"), strings.Repeat("x", 20), "eventstream"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			start := func() *Monitor {
				m := new(Monitor)
				m.Start(tt.limits)
				m.Answered(tt.header, 0)
				return m
			}
			m := start()
			come(m, tt.come, 4*s)
			come(m, "x", 9*s)
			stalls(t, m, StallGap, 10*s)
			if got := m.Stats(); got.Dialect != "" || got.Framing != tt.framing || got.Encoded != (tt.name == "encoded") || got.FirstContent != 4*s {
				t.Errorf("%+v", got)
			}
			m = start()
			stalls(t, m, StallFirstContent, 5*s)
			m = start()
			come(m, tt.come, 4*s)
			if err := m.EOF(5 * s); err != io.EOF {
				t.Errorf("it ends in %v", err)
			}
		})
	}
	t.Run("silence without FirstContent", func(t *testing.T) {
		m := begun(&Limits{Gap: 10 * s})
		stalls(t, m, StallGap, 10*s)
	})
	t.Run("until an event tells", func(t *testing.T) {
		m := begun(l)
		come(m, "data: tick\n\n", s)
		come(m, word, s)
		come(m, ping, 9*s)
		stalls(t, m, StallPingedGap, 21*s)
	})
	t.Run("but not for ever", func(t *testing.T) {
		m := begun(l)
		come(m, strings.Repeat("data: tick\n\n", maxForeign)+word, s)
		if got := m.Stats(); got.Dialect != "" || got.Contents != 0 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("comments tell nothing", func(t *testing.T) {
		m := begun(l)
		come(m, ping+"event: ping\ndata: {}\n\n", s)
		if m.Began() {
			t.Error("they count as content")
		}
		stalls(t, m, StallFirstContent, 4*s)
	})
}

func TestClassify(t *testing.T) {
	var names []string
	classify := func(class func(Event) Class) *Limits {
		return &Limits{Gap: 10 * s, Classify: func(e Event) Class {
			names = append(names, e.Name)
			return class(e)
		}}
	}
	t.Run("decides first", func(t *testing.T) {
		l := classify(func(Event) Class { return Keepalive })
		l.Dialect = "openai-chat"
		m := begun(l)
		come(m, word, s)
		if got := m.Stats(); got.Contents != 0 || got.Keepalives != 1 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("falls back on the dialect", func(t *testing.T) {
		for _, c := range []Class{Unknown, Failure + 1} {
			m := begun(classify(func(Event) Class { return c }))
			come(m, role+word, s)
			if got := m.Stats(); got.Contents != 1 || got.Lifecycles != 1 || got.Dialect != "openai-chat" {
				t.Errorf("%+v", got)
			}
		}
	})
	t.Run("rules out what is no content", func(t *testing.T) {
		m := begun(classify(func(e Event) Class {
			if string(e.Data) == "tick" {
				return Keepalive
			}
			return Unknown
		}))
		come(m, "data: tick\n\n", s)
		if m.Began() {
			t.Error("a keepalive is content")
		}
		come(m, "data: news\n\n", s)
		if !m.Began() || m.EOF(s) != io.EOF {
			t.Errorf("%+v, and %v at the end", m.Stats(), m.Err())
		}
	})
	t.Run("is not shown what no client sees", func(t *testing.T) {
		m := begun(classify(func(Event) Class { return Content }))
		come(m, "{\"news\":1}\n\n", s)
		if m.Began() {
			t.Error("it counts as content")
		}
	})
	t.Run("reports a failure", func(t *testing.T) {
		m := begun(classify(func(Event) Class { return Failure }))
		come(m, "event: a\nid: 7\nretry: 250\ndata: b\n\n", s)
		if got := m.Stats(); *got.Failure != (FailureError{}) || got.LastEventID != "7" || got.Retry != 250*time.Millisecond {
			t.Errorf("%+v", got)
		}
	})
	if want := ",,,,,,,a"; strings.Join(names, ",") != want {
		t.Errorf("names %q", names)
	}
}

func TestDetect(t *testing.T) {
	for _, c := range load[dialectCase](t, "dialects.json") {
		if c.Class != "content" || c.Dialect == "k8s-watch" {
			continue
		}
		var m Monitor
		m.Start(&Limits{})
		m.Answered(nil, 0) // not even a Content-Type
		m.Bytes([]byte(c.Prefix+c.Wire+string(c.WireBase64)), 0)
		if got := m.Stats(); got.Dialect != c.Dialect {
			t.Errorf("%s is taken for %q (%s): %s", c.Dialect, got.Dialect, got.Framing, c.Wire)
		}
	}
	for text, want := range map[string]string{
		`{"error":{"message":"m","type":"server_error"}}`:       "openai-chat",
		`{"error":{"code":503,"status":"UNAVAILABLE"}}`:         "gemini",
		`{"type":"error","error":{"type":"overloaded_error"}}`:  "anthropic",
		`{"type":"error","code":"server_error","message":"m"}`:  "openai-responses",
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32601}}`:      "",
		`{"type":"message-start","delta":{}}`:                   "cohere",
		`{"status":"pulling","message":"m","response":"r"}`:     "",
		`{"type":"ADDED","object":{}}`:                          "",
		`{"type":"response.created","response":{"error":null}}`: "openai-responses",
		`{"usageMetadata":{"promptTokenCount":3}}`:              "gemini",
		`{"choices":[],"prompt_filter_results":[]}`:             "openai-chat",
		`{"type":"message_start","message":{"type":"message"}}`: "anthropic",
		`[DONE]`: "openai-chat",
	} {
		m := begun(&Limits{})
		come(m, "data: "+text+"\n\n", 0)
		if got := m.Stats().Dialect; got != want {
			t.Errorf("%s is taken for %q, want %q", text, got, want)
		}
	}
}

func TestFailures(t *testing.T) {
	tests := []struct {
		dialect, text, typ, code string
		retryable, server        bool
	}{
		{"anthropic", `{"type":"error","error":{"type":"overloaded_error","message":"m"}}`, "overloaded_error", "", true, true},
		{"anthropic", `{"type":"error","error":{"type":"invalid_request_error"}}`, "invalid_request_error", "", false, false},
		{"openai-chat", `{"error":{"type":"server_error","code":503}}`, "server_error", "503", true, true},
		{"openai-chat", `{"error":{"type":"x","code":"429"}}`, "x", "429", true, false},
		{"openai-chat", `{"error":{"type":"tokens","code":"rate_limit_exceeded"}}`, "tokens", "rate_limit_exceeded", true, false},
		{"openai-chat", `{"error":{"type":"x","code":408}}`, "x", "408", true, false},
		{"openai-chat", `{"error":{"type":"x","code":404}}`, "x", "404", false, false},
		{"openai-chat", `{"error":{"type":"x","code":300}}`, "x", "300", false, true},
		{"openai-chat", `{"error":{"type":"x","code":600}}`, "x", "600", false, true},
		{"openai-chat", `{"error":{"type":"overloaded"}}`, "overloaded", "", true, true},
		{"openai-chat", `{"error":{"type":"x","code":501}}`, "x", "501", false, false},
		{"openai-chat", `{"error":{"type":"insufficient_quota"}}`, "insufficient_quota", "", false, false},
		{"openai-chat", `{"error":{"type":"upstream_error"}}`, "upstream_error", "", false, true},
		{"openai-chat", `{"error":"backend is gone"}`, "", "", true, true},
		{"openai-chat", `{"error":{"type":"a sentence with spaces"}}`, "", "", false, true},
		{"openai-responses", `{"type":"response.failed","response":{"error":{"code":"server_error"}}}`, "", "server_error", true, true},
		{"openai-responses", `{"type":"response.failed","response":{"error":{"code":"invalid_prompt"}}}`, "", "invalid_prompt", false, false},
		{"gemini", `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}}`, "RESOURCE_EXHAUSTED", "429", true, false},
		{"gemini", `{"error":{"status":"RESOURCE_EXHAUSTED"}}`, "RESOURCE_EXHAUSTED", "", true, false},
		{"gemini", `{"error":{"code":400,"status":"INVALID_ARGUMENT"}}`, "INVALID_ARGUMENT", "400", false, false},
		{"cohere", `{"type":"message-end","delta":{"finish_reason":"ERROR"}}`, "ERROR", "", true, true},
		{"cohere", `{"type":"message-end","delta":{"finish_reason":"TIMEOUT"}}`, "TIMEOUT", "", true, true},
		{"cohere", `{"type":"message-end","delta":{"finish_reason":"ERROR_TOXIC"}}`, "ERROR_TOXIC", "", false, true},
		{"bedrock", "throttlingException", "throttlingException", "", true, false},
		{"bedrock", "validationException", "validationException", "", false, false},
		{"bedrock", "serviceUnavailableException", "serviceUnavailableException", "", true, true},
	}
	for _, tt := range tests {
		e := &event{data: []byte(tt.text)}
		if tt.dialect == "bedrock" {
			e = &event{name: []byte(tt.text), form: exception}
		}
		got := dialectOf(tt.dialect).class(e, new(memory)).failure
		if want := (FailureError{tt.dialect, tt.typ, tt.code, tt.retryable}); got == nil || *got != want || got.Server() != tt.server {
			t.Errorf("%s: %+v, want %+v; of the server %v", tt.text, got, want, got.Server())
		}
	}
}
