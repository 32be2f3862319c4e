package stream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// tree builds from a text what json.Unmarshal would, with the scanner's means.
func tree(s *scanner) any {
	switch s.peek() {
	case '{':
		m := map[string]any{}
		for key := s.object(); key != nil; key = s.member() {
			m[string(key)] = tree(s)
		}
		return m
	case '[':
		l := []any{}
		for more := s.list(); more; more = s.elem() {
			l = append(l, tree(s))
		}
		return l
	case '"':
		return string(s.text())
	default:
		switch v := string(s.literal()); v {
		case "null":
			return nil
		case "true", "false":
			return v == "true"
		default:
			return json.Number(v)
		}
	}
}

// FuzzScanner holds the scanner to encoding/json. What that takes, the scanner
// takes, walked or skipped, with the same meaning; and cut short it is malformed,
// or, if the end is known to be missing, is not.
func FuzzScanner(f *testing.F) {
	for _, s := range []string{
		`{"a":1,"b":[true,false,null,-1.5e3,"x"],"c":{"d":{}}}`, ` { "a" : [ ] } `, `[]`, `"\\\"\u0041\n"`,
		`{"\u0061":"\ud83d\ude00"}`, `{"a":"` + strings.Repeat(`\\`, 20) + `"}`, `[[[[[]]]],{"a":"]}"}]`,
		`{"a":[}`, `{"a" 1}`, `{"a":1,}`, `[1 2]`, `{"a":tru}`, `{} {}`, `{"a":"b`, "{\"a\":\"\x00\"}", `"\`, `[,1]`, `{,}`,
		strings.Repeat("[", 100) + strings.Repeat("]", 100),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		walked, skipped, asked := scanner{b: text}, scanner{b: text}, scanner{b: text}
		got := tree(&walked)
		skipped.skip()
		asked.filled()
		var want any
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if d.Decode(&want) != nil || !json.Valid(text) {
			return
		}
		if !walked.ok() || !skipped.ok() || !asked.ok() {
			t.Fatalf("valid JSON: walked %v, skipped %v, asked %v", walked.ok(), skipped.ok(), asked.ok())
		}
		if utf8.Valid(text) && !reflect.DeepEqual(got, want) { // the scanner keeps bytes
			t.Errorf("got %#v, want %#v", got, want)
		}
		text = bytes.TrimSpace(text)
		if text[0] != '{' && text[0] != '[' && text[0] != '"' {
			return // a number may be cut and still be one
		}
		for i := range min(len(text), 500) {
			whole, cut := scanner{b: text[:i]}, scanner{b: text[:i], cut: true}
			tree(&whole)
			tree(&cut)
			if whole.ok() || cut.bad {
				t.Errorf("cut to %q: sound %v, malformed if known to be cut %v", text[:i], whole.ok(), cut.bad)
			}
		}
	})
}

func TestScannerRefuses(t *testing.T) {
	for _, text := range []string{
		``, ` `, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{,}`, `{1:2}`, `{"a" "b"}`, `{"a":1 "b":2}`, `{"a":"b}`,
		`{"a":[1}`, `{"a":{]}`, `[`, `[1`, `[1,`, `[,1]`, `[1 2]`, `[1}`, `{"a":nul}`, `{"a":x}`, `{"a":}`, `{} {}`, `{"a":1}}`, `{"a":"\"}`,
		"{\"a\":\x00}", "{\x00}", "\x00",
	} {
		s := scanner{b: []byte(text)}
		tree(&s)
		if s.ok() {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestFilled(t *testing.T) {
	for text, want := range map[string]bool{
		`""`: false, `" "`: true, `null`: false, `12`: false, `true`: false, `{}`: false, `[]`: false,
		`[""]`: false, `["",["x"]]`: true, `{"a":""}`: false, `{"a":{"b":["","x"]}}`: true,
		`{"type":"x","id":"y","index":0,"role":"z","format":"f"}`:     false,
		`{"type":"x","arguments":"{"}`:                                true,
		strings.Repeat("[", 1000) + `"x"` + strings.Repeat("]", 1000): false, // deeper than anyone looks
	} {
		s := scanner{b: []byte(text)}
		if got := s.filled(); got != want || !s.ok() {
			t.Errorf("%.40s: %v, sound %v; want %v", text, got, s.ok(), want)
		}
	}
	cut := scanner{b: []byte(`{"a":"x`), cut: true}
	if !cut.filled() || cut.bad {
		t.Error("a string that is cut is not filled")
	}
}

// Many quotes behind many backslashes, and strings of every length, at every place
// in a word.
func TestScannerStrings(t *testing.T) {
	for n := range 40 {
		for _, fill := range []string{"x", `\\`, `\"`, "é", "\xA2", "#", "]"} {
			want := strings.Repeat(fill, n)
			s := scanner{b: []byte(fmt.Sprintf(`["%s", "%s"]`, want, want))}
			for more := s.list(); more; more = s.elem() {
				s.peek()
				if got, escaped := s.str(); string(got) != want || escaped != strings.Contains(want, `\`) {
					t.Errorf("%q: got %q, escaped %v", want, got, escaped)
				}
			}
			if !s.ok() {
				t.Errorf("%q: not sound", want)
			}
		}
	}
}
