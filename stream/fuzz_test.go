package stream

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// cut cuts text into chunks whose sizes follow from seed.
func cut(text string, seed uint64) (chunks []string) {
	for len(text) > 0 {
		seed = seed*6364136223846793005 + 1442695040888963407
		n := min(int(seed>>33)%7+1, len(text))
		if seed>>60 == 0 {
			n = min(1000, len(text))
		}
		chunks, text = append(chunks, text[:n]), text[n:]
	}
	return chunks
}

// referenceSSE reads a whole text as sse does, line by line.
func referenceSSE(text string) (before, atEnd []recorded, retry int64) {
	text = strings.TrimPrefix(text, bom)
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	var e recorded
	var data []string
	id, next, retry := "", "", int64(-1)
	limit := func(s string) string { return s[:min(len(s), maxPrefix)] }
	dispatch := func() []recorded {
		joined := strings.Join(data, "\n")
		e.Data, e.Cut, e.ID = limit(joined), len(joined) > maxPrefix, id
		done := e
		seen := data != nil
		e, data = recorded{}, nil
		if !seen {
			return nil
		}
		return []recorded{done}
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if i < len(lines)-1 {
				id = next
				before = append(before, dispatch()...)
			}
		case line[0] == ':':
		case e.Form == bare:
			data = append(data, line)
		case field == "data":
			data = append(data, value)
		case field == "event":
			e.Name = limit(value)
		case field == "error":
			e.Name = "error"
			data = append(data, value)
		case field == "id":
			e.Sets = true
			if !strings.Contains(value, "\x00") && len(value) <= maxPrefix {
				next = value
			}
		case field == "retry":
			e.Sets = true
			if strings.Trim(value, "0123456789") == "" && value != "" {
				n, err := strconv.ParseInt(value, 10, 64)
				if err != nil {
					n = math.MaxInt64
				}
				retry = n
			}
		case line[0] == '{' && data == nil:
			e.Form, data = bare, []string{line}
		}
	}
	return before, dispatch(), retry
}

func FuzzSSE(f *testing.F) {
	for _, c := range load[sseCase](f, "sse.json") {
		if text := string(c.Input) + join(c.InputParts); len(text) < 5000 {
			f.Add([]byte(text), uint64(1))
		}
	}
	f.Add([]byte("data: a\n\n{\n:b\n\"c\":1}\r\rerror: x"), uint64(2))
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		wantBefore, wantAtEnd, wantRetry := referenceSSE(string(text))
		for _, chunks := range [][]string{{string(text)}, cut(string(text), seed)} {
			s := new(sse)
			before, atEnd := feed(t, s, chunks)
			if !slices.Equal(before, wantBefore) || !slices.Equal(atEnd, wantAtEnd) {
				t.Errorf("%d chunks: %s, then %s; want %s, then %s", len(chunks), brief(before), brief(atEnd), brief(wantBefore), brief(wantAtEnd))
			}
			if r := s.resumption().retry; r != wantRetry {
				t.Errorf("retry is %d, want %d", r, wantRetry)
			}
		}
	})
}

func FuzzNDJSON(f *testing.F) {
	f.Add([]byte("{\"a\":1}\n\n{}\r\n \n[1"), uint64(1))
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		var want []recorded
		for line := range strings.SplitSeq(string(text), "\n") {
			if len(bytes.TrimSpace([]byte(line))) > 0 || len(line) > maxPrefix {
				want = append(want, recorded{Data: line[:min(len(line), maxPrefix)], Cut: len(line) > maxPrefix})
			}
		}
		for _, chunks := range [][]string{{string(text)}, cut(string(text), seed)} {
			before, atEnd := feed(t, new(ndjson), chunks)
			if got := append(before, atEnd...); !slices.Equal(got, want) {
				t.Errorf("%d chunks: %s, want %s", len(chunks), brief(got), brief(want))
			}
		}
	})
}

func FuzzJSONArray(f *testing.F) {
	f.Add([]byte("[{\"a\":\"]\\\"\"},\n{\"b\":[1,{}]}]"), uint64(1))
	f.Add([]byte(`[1,"a",null,[[]],-2e3 ]{}`), uint64(2))
	f.Add([]byte("{\n\"error\":{}\n}{}"), uint64(3))
	f.Add([]byte(`]}{"a":"\\`), uint64(4))
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		before, atEnd := feed(t, new(jsonArray), []string{string(text)})
		whole := append(before, atEnd...)
		before, atEnd = feed(t, new(jsonArray), cut(string(text), seed))
		if got := append(before, atEnd...); !slices.Equal(got, whole) {
			t.Errorf("in chunks %s, whole %s", brief(got), brief(whole))
		}
		var elements []json.RawMessage
		if json.Unmarshal(text, &elements) != nil || elements == nil {
			return
		}
		var want []recorded
		for _, e := range elements {
			want = append(want, recorded{Data: string(e[:min(len(e), maxPrefix)]), Cut: len(e) > maxPrefix})
		}
		if !slices.Equal(whole, want) {
			t.Errorf("got %s, want %s", brief(whole), brief(want))
		}
	})
}

func FuzzEventStream(f *testing.F) {
	for _, c := range load[dialectCase](f, "dialects.json") {
		if c.Framing == "eventstream" {
			f.Add(c.WireBase64, uint64(1))
		}
	}
	f.Add([]byte(message("a")+flip(message("b"), -1)+message("c", ":message-type", "error", ":error-code", "x")), uint64(2))
	f.Add([]byte(message("a")+flip(message("b"), 3)), uint64(3))
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		whole, _ := feed(t, new(eventStream), []string{string(text)})
		if got, _ := feed(t, new(eventStream), cut(string(text), seed)); !slices.Equal(got, whole) {
			t.Errorf("in chunks %s, whole %s", brief(got), brief(whole))
		}
		// A payload of the fuzzer's comes out as it went in.
		name := string(text[:min(len(text), 100)])
		want := []recorded{{Name: name, Data: string(text[:min(len(text), maxPrefix)]), Cut: len(text) > maxPrefix}}
		if got, _ := feed(t, new(eventStream), cut(message(string(text), ":event-type", name), seed)); !slices.Equal(got, want) {
			t.Errorf("got %s, want %s", brief(got), brief(want))
		}
	})
}

// duplicates reports whether an object in a text has a key twice.
func duplicates(s *scanner) (found bool) {
	switch s.peek() {
	case '{':
		seen := map[string]bool{}
		for key := s.object(); key != nil; key = s.member() {
			found = found || seen[string(key)]
			seen[string(key)] = true
			found = duplicates(s) || found
		}
	case '[':
		for more := s.list(); more; more = s.elem() {
			found = duplicates(s) || found
		}
	default:
		s.skip()
	}
	return found
}

// FuzzDialects classes payloads. What a payload means does not change with the
// white space, the order and the escapes of its JSON, nor with what came before,
// but for what a dialect remembers.
func FuzzDialects(f *testing.F) {
	for _, c := range load[dialectCase](f, "dialects.json") {
		i := slices.IndexFunc(dialects, func(d *dialect) bool { return d.name == c.Dialect })
		if i < 0 {
			continue
		}
		framer := map[string]framing{"sse": framingSSE, "ndjson": framingNDJSON, "json-array": framingJSONArray, "eventstream": framingEventStream}
		r := new(recorder)
		fr := framer[c.Framing].framer()
		fr.write([]byte(c.Wire+string(c.WireBase64)), r)
		fr.end(r)
		for _, e := range r.events {
			f.Add(uint8(i), e.Name, []byte(e.Data), []byte(strings.Replace(e.Data, "Hi", "ho \\\" [", 1)))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, name string, data, next []byte) {
		d := dialects[int(which)%len(dialects)]
		class := func(data []byte) verdict {
			before := bytes.Clone(data)
			v := d.class(&event{name: []byte(name), data: data}, new(memory))
			if v.class <= Unknown || v.class > Failure {
				t.Fatalf("class %d", v.class)
			}
			if !bytes.Equal(before, data) {
				t.Fatal("the payload has changed")
			}
			return v
		}
		v := class(data)
		same := func(how string, other []byte) {
			if w := class(other); w.class != v.class || w.carries != v.carries || w.known != v.known || w.kind != v.kind {
				t.Errorf("%s: class %d (%+v) as it is, and %d (%+v) %s: %s", d.name, v.class, v, w.class, w, how, other)
			}
		}
		if s := (scanner{b: data}); json.Valid(data) && !duplicates(&s) {
			var compact, indented bytes.Buffer
			json.Compact(&compact, data)
			same("compact", compact.Bytes())
			json.Indent(&indented, data, " ", "\t")
			same("indented", indented.Bytes())
			var tree any
			decoder := json.NewDecoder(bytes.NewReader(data))
			decoder.UseNumber()
			if decoder.Decode(&tree) == nil {
				if sorted, err := json.Marshal(tree); err == nil {
					same("sorted", sorted)
				}
			}
		} else if !json.Valid(data) && v.class != Failure && !v.bad && !isDone(data) {
			s := scanner{b: data}
			if s.skip(); !s.ok() {
				t.Errorf("%s: malformed, and class %d", d.name, v.class)
			}
		}
		// A prefix has a class too.
		d.class(&event{name: []byte(name), data: data[:len(data)/2], cut: true}, new(memory))

		var m Monitor
		m.Start(&Limits{Dialect: d.name})
		m.Answered(http.Header{}, 0)
		first := m.class(&event{name: []byte(name), data: data})
		if first.class != v.class {
			t.Errorf("%s: the monitor says %d, the dialect %d", d.name, first.class, v.class)
		}
		remembers := m.memory != memory{}
		got, want := m.class(&event{name: []byte(name), data: next}), class(next)
		if !remembers && (got.class != want.class || got.kind != want.kind) {
			t.Errorf("%s: after %q, %q is class %d, kind %d, and alone class %d, kind %d", d.name, data, next, got.class, got.kind, want.class, want.kind)
		}
	})
}

// read reads all that a guard of a body gives.
func read(b io.Reader, size int) (string, error) {
	var out bytes.Buffer
	p := make([]byte, size)
	for {
		n, err := b.Read(p)
		out.Write(p[:n])
		if err != nil {
			return out.String(), err
		}
	}
}

// chunked is a body of chunks.
type chunked struct{ chunks []string }

func (c *chunked) Read(p []byte) (int, error) {
	if len(c.chunks) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.chunks[0])
	if c.chunks[0] = c.chunks[0][n:]; c.chunks[0] == "" {
		c.chunks = c.chunks[1:]
	}
	return n, nil
}

func (*chunked) Close() error { return nil }

func addStreams(f *testing.F) {
	for i, c := range load[timelineCase](f, "timelines.json") {
		var text strings.Builder
		for _, a := range c.arrivals() {
			if text.Len() < 3000 {
				text.WriteString(a.data)
			}
		}
		f.Add([]byte(text.String()), uint64(i), uint8(i))
	}
	f.Add([]byte(bom+": a\r\n\r\nevent: ping\r\ndata: {}\r\n\r\ndata: b\r\n:c\r\ndata: d\r\n\r\n\r\nid: 1\n\nevent: x\n\n: tail"), uint64(1), uint8(0))
	f.Add([]byte("<html>"), uint64(1), uint8(1))
	f.Add([]byte("\n\n \n{\"a\":1}\n\n"), uint64(1), uint8(2))
}

// FuzzGuard holds the guard to io.Copy: the bytes that pass are those of the body.
func FuzzGuard(f *testing.F) {
	addStreams(f)
	types := []string{"", "text/event-stream", "application/x-ndjson", "application/json", "application/vnd.amazon.eventstream", "text/plain"}
	f.Fuzz(func(t *testing.T, text []byte, seed uint64, which uint8) {
		limits := &Limits{FirstContent: 1e15, Gap: 1e15, Linger: 1e15}
		if i := int(which) % (len(dialects) + 1); i < len(dialects) {
			limits.Dialect = dialects[i].name
		}
		if which&0x80 != 0 {
			limits.Classify = func(e Event) Class {
				if e.Offset > int64(len(text)) || len(e.Data) > maxPrefix || len(e.Data) == maxPrefix && !e.Truncated {
					t.Errorf("event of %d bytes, truncated %v, at %d of %d", len(e.Data), e.Truncated, e.Offset, len(text))
				}
				return Class(len(e.Data) % 12)
			}
		}
		h := http.Header{"Content-Type": {types[int(seed%uint64(len(types)))]}}
		b := Guard(&chunked{cut(string(text), seed)}, limits, Options{Header: h})
		got, err := read(b, int(seed>>8%100)+1)
		if got != string(text) {
			t.Errorf("%q passes as %q", text, got)
		}
		if err != io.EOF && err != ErrTruncated {
			t.Errorf("it ends in %v", err)
		}
		if s := b.Stats(); s.Bytes != int64(len(text)) {
			t.Errorf("%d bytes, want %d", s.Bytes, len(text))
		}
		if b.Close(); b.monitor.Filters() {
			t.Error("a filter without keepalives to drop")
		}
	})
}

// FuzzDropKeepalives holds the filter to what is left of the events, whatever the
// chunks: all but the keepalives, and nothing between them.
func FuzzDropKeepalives(f *testing.F) {
	addStreams(f)
	f.Fuzz(func(t *testing.T, text []byte, seed uint64, _ uint8) {
		limits := &Limits{Dialect: "anthropic", DropKeepalives: On}
		h := http.Header{"Content-Type": {"text/event-stream"}}
		filtered := func(chunks []string, size int) string {
			b := Guard(&chunked{chunks}, limits, Options{Header: h})
			defer b.Close()
			got, _ := read(b, size)
			return got
		}
		whole := filtered([]string{string(text)}, 1<<20)
		if got := filtered(cut(string(text), seed), int(seed>>8%100)+1); got != whole {
			t.Errorf("in chunks %q passes as %q, whole as %q", text, got, whole)
		}
		before, atEnd, _ := referenceSSE(string(text))
		var want []recorded
		over := false
		for _, e := range append(before, atEnd...) {
			v := anthropic.class(&event{name: []byte(e.Name), data: []byte(e.Data), cut: e.Cut}, nil)
			if e.Form == bare && v.class != Failure {
				v.class = Lifecycle
			}
			if e.ID = ""; over || v.class != Keepalive || e.Sets {
				want = append(want, e)
			}
			over = over || v.class == Terminal || v.class == Failure
		}
		before, atEnd, _ = referenceSSE(whole)
		got := append(before, atEnd...)
		for i := range got {
			got[i].ID = ""
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q passes as %q, events %s, want %s", text, whole, brief(got), brief(want))
		}
	})
}
