package stream

import (
	"strings"
	"testing"
)

// A document that is one long event, or one JSON value, is a download: its bytes
// count before its end has come.
func TestLongDocuments(t *testing.T) {
	l := &Limits{FirstContent: 5 * s, Gap: 10 * s}
	part := strings.Repeat("A", 40<<10)
	for framing, head := range map[string]string{
		"json-array":  `{"data":"`,
		"ndjson":      `{"data":"`,
		"eventstream": message(strings.Repeat(part, 40))[:100],
	} {
		m := new(Monitor)
		m.Start(l)
		m.Answered(header(framing), 0)
		come(m, head+part, 4*s)
		if m.Began() {
			t.Errorf("%s: content before more is there than is kept", framing)
		}
		for range 30 {
			come(m, part, s/2)
		}
		if got := m.Stats(); got.Dialect != "" || got.FirstContent != 4*s+s/2 {
			t.Errorf("%s: %+v", framing, got)
		}
		stalls(t, m, StallGap, 10*s)
	}
	t.Run("one that shows its dialect after all", func(t *testing.T) {
		m := begun(l)
		come(m, `data: {"candidates":[{"content":{"parts":[{"text":"`+part, s)
		come(m, part+"\"}]}}]}\n\n", s)
		if got := m.Stats(); got.Dialect != "gemini" || got.Contents != 1 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("an event of a stream that does not end", func(t *testing.T) {
		for _, head := range []string{"data: ", `data: {"type":"response.created","response":{"instructions":"`} {
			m := begun(l)
			come(m, head+part, s)
			come(m, part, s)
			come(m, part, s)
			if m.Began() {
				t.Errorf("%s: it counts as content", head)
			}
			stalls(t, m, StallFirstContent, 2*s)
		}
	})
	t.Run("many short keepalives are no document", func(t *testing.T) {
		m := begun(l)
		for range maxPrefix / 10 {
			come(m, "event: ping\n", s)
			come(m, "data: {}\n\n", s)
		}
		if m.Began() {
			t.Error("they count as content")
		}
	})
}
