package stream

import (
	"net/http"
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
