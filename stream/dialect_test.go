package stream

import (
	"net/http"
	"strings"
	"testing"
)

type dialectCase struct {
	Dialect, Variant, Framing string
	Prefix, Wire              string
	WireBase64                []byte `json:"wire_base64"`
	EOF                       bool
	Class, Also               string
	Why                       string
}

var contentTypes = map[string]string{
	"sse":         "text/event-stream; charset=utf-8",
	"ndjson":      "application/x-ndjson",
	"json-array":  "application/json",
	"eventstream": "application/vnd.amazon.eventstream",
}

func header(framing string) http.Header {
	return http.Header{"Content-Type": {contentTypes[framing]}}
}

var classNames = map[string]Class{
	"content": Content, "progress": Progress, "lifecycle": Lifecycle, "keepalive": Keepalive,
	"finish": Finish, "terminal": Terminal, "failure": Failure,
}

// kubernetes classes the events of a watch, which is no built-in dialect.
func kubernetes(e Event) Class {
	s := scanner{b: e.Data, cut: e.Truncated}
	for key := s.object(); key != nil; key = s.member() {
		if string(key) == "type" {
			switch string(s.text()) {
			case "BOOKMARK":
				return Keepalive
			case "ERROR":
				return Failure
			}
			return Content
		}
		s.skip()
	}
	return Lifecycle
}

// A template says where the text of an event is, so that the text is all that can
// change. It is of no use where the text is not there as it is.
func TestTemplates(t *testing.T) {
	for _, c := range load[dialectCase](t, "dialects.json") {
		if c.Class != "content" || c.Framing == "json-array" {
			continue
		}
		var m Monitor
		m.Start(&Limits{Dialect: c.Dialect})
		m.Answered(header(c.Framing), 0)
		wire := c.Wire + string(c.WireBase64)
		m.Bytes([]byte(wire), 0)
		learns := map[string]bool{"anthropic": true, "cohere": true, "openai-chat": true}
		if got := m.template.head > 0; got != learns[c.Dialect] {
			t.Errorf("%s: learnt %v: %s", c.Dialect, got, wire)
		}
		if m.template.head == 0 {
			continue
		}
		_, data, _ := strings.Cut(strings.TrimSuffix(wire, "\n\n"), "data: ")
		name, _, _ := strings.Cut(strings.TrimPrefix(wire, "event: "), "\ndata")
		if strings.HasPrefix(wire, "data") {
			name = ""
		}
		head, tail := data[:m.template.head], data[len(data)-int(m.template.tail):]
		// Twice each: by its hash, as the first event of a write, and by comparison, as
		// one after others that have fitted.
		fits := func(as, data string) bool {
			e := &event{name: []byte(as), data: []byte(data)}
			m.template.rest()
			first := m.template.fits(e)
			for range 2 {
				m.template.fits(&event{name: []byte(name), data: []byte(head + "x" + tail)})
			}
			if m.template.copy == nil {
				t.Fatalf("%s: no copy after three events", c.Dialect)
			}
			if later := m.template.fits(e); later != first {
				t.Errorf("%s: fits first %v, later %v: %s", c.Dialect, first, later, data)
			}
			return first
		}
		for text, want := range map[string]bool{
			"x": true, "": false, `a \" b \\`: true, `\`: false, `x" y`: false, strings.Repeat("long", 1000): true,
		} {
			if got := fits(name, head+text+tail); got != want {
				t.Errorf("%s: text %.20q fits %v: %s", c.Dialect, text, got, data)
			}
			if fits("error", head+text+tail) {
				t.Errorf("%s: another name fits", c.Dialect)
			}
		}
		for _, other := range []string{head + "x" + tail + " ", " " + head + "x" + tail, head + `x"`, head, ""} {
			if fits(name, other) {
				t.Errorf("%s: %s fits %s", c.Dialect, other, data)
			}
		}
		if m.template.rest(); m.template.copy != nil {
			t.Errorf("%s: a copy is kept", c.Dialect)
		}
	}
}

func TestDialects(t *testing.T) {
	for _, c := range load[dialectCase](t, "dialects.json") {
		t.Run(c.Dialect+"/"+c.Why, func(t *testing.T) {
			limits := Limits{Dialect: c.Dialect}
			if c.Dialect == "k8s-watch" {
				limits = Limits{Classify: kubernetes}
			}
			var want [Failure + 1]int32
			want[classNames[c.Class]] = 1
			if c.Also != "" {
				want[classNames[c.Also]] = 1
			}
			for name, chunks := range chunkings(c.Wire + string(c.WireBase64)) {
				var m Monitor
				m.Start(&limits)
				m.Answered(header(c.Framing), 0)
				m.Bytes([]byte(c.Prefix), 0)
				before := m.counts
				for _, chunk := range chunks {
					m.Bytes([]byte(chunk), 0)
				}
				if c.EOF {
					m.EOF(0)
				}
				got := m.counts
				got[Unknown] = before[Unknown]
				for i := range got {
					got[i] -= before[i]
				}
				if got != want {
					t.Errorf("%s: classes %v, want %v\n%s", name, got, want, c.Wire)
				}
			}
		})
	}
}
