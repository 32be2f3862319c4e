package stream

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strings"
	"testing"
)

func TestNDJSON(t *testing.T) {
	long := `{"a":"` + strings.Repeat("x", maxPrefix) + `"}`
	tests := []struct {
		name, text    string
		before, atEnd []recorded
	}{
		{"lines", "{\"a\":1}\n{\"b\":2}\r\n", []recorded{{Data: `{"a":1}`}, {Data: "{\"b\":2}\r"}}, nil},
		{"no last line end", "{\"a\":1}\n[2]", []recorded{{Data: `{"a":1}`}}, []recorded{{Data: "[2]"}}},
		{"blank lines", "\n \t\r\n{}\n\n", []recorded{{Data: "{}"}}, nil},
		{"nothing", "", nil, nil},
		{"long line", long + "\n{}\n", []recorded{{Data: long[:maxPrefix], Cut: true}, {Data: "{}"}}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			checkFraming(t, func() framer { return new(ndjson) }, tt.text, tt.before, tt.atEnd)
		})
	}
}

func TestJSONArray(t *testing.T) {
	long := `{"a":"` + strings.Repeat("x", maxPrefix) + `"}`
	tests := []struct {
		name, text    string
		before, atEnd []recorded
	}{
		{"objects", "[{\"a\":1}\r\n,\n{\"b\":[2,{}]}\n]\n", []recorded{{Data: `{"a":1}`}, {Data: `{"b":[2,{}]}`}}, nil},
		{"brackets and quotes in strings", `[{"a":"]}\"\\"},{"b":"\\\"{["}]`, []recorded{{Data: `{"a":"]}\"\\"}`}, {Data: `{"b":"\\\"{["}`}}, nil},
		{"not only objects", `[1, "a,]" ,null,[[]],-2e3]`, []recorded{{Data: "1"}, {Data: `"a,]"`}, {Data: "null"}, {Data: "[[]]"}, {Data: "-2e3"}}, nil},
		{"empty", " [ ] ", nil, nil},
		{"what follows the end", `[{}] {"a":1}`, []recorded{{Data: "{}"}}, nil},
		{"bare objects", "{\n \"a\": 1\n}\n{}", []recorded{{Data: "{\n \"a\": 1\n}"}, {Data: "{}"}}, nil},
		{"unfinished", `[{},{"a":"`, []recorded{{Data: "{}"}}, []recorded{{Data: `{"a":"`}}},
		{"unbalanced", `]}{}`, []recorded{{Data: "{}"}}, nil},
		{"long", "[" + long + ",{}]", []recorded{{Data: long[:maxPrefix], Cut: true}, {Data: "{}"}}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			checkFraming(t, func() framer { return new(jsonArray) }, tt.text, tt.before, tt.atEnd)
		})
	}
}

func checkFraming(t *testing.T, f func() framer, text string, before, atEnd []recorded) {
	t.Helper()
	for name, chunks := range chunkings(text) {
		if b, e := feed(t, f(), chunks); !slices.Equal(b, before) || !slices.Equal(e, atEnd) {
			t.Errorf("%s: %s, then %s; want %s, then %s", name, brief(b), brief(e), brief(before), brief(atEnd))
		}
	}
}

// message encodes a message of an AWS event stream; pairs are names and values of
// headers that are strings.
func message(payload string, pairs ...string) string {
	var h []byte
	for i := 0; i < len(pairs); i += 2 {
		h = append(h, byte(len(pairs[i])))
		h = append(append(h, pairs[i]...), 7)
		h = binary.BigEndian.AppendUint16(h, uint16(len(pairs[i+1])))
		h = append(h, pairs[i+1]...)
	}
	return rawMessage(payload, string(h))
}

func rawMessage(payload, headers string) string {
	m := binary.BigEndian.AppendUint32(nil, uint32(preludeLen+len(headers)+len(payload)+crcLen))
	m = binary.BigEndian.AppendUint32(m, uint32(len(headers)))
	m = binary.BigEndian.AppendUint32(m, crc32.ChecksumIEEE(m))
	m = append(append(m, headers...), payload...)
	return string(binary.BigEndian.AppendUint32(m, crc32.ChecksumIEEE(m)))
}

// flip returns s with one bit of byte i the other way, i from the end if negative.
func flip(s string, i int) string {
	b := []byte(s)
	if i < 0 {
		i += len(b)
	}
	b[i] ^= 1
	return string(b)
}

func TestEventStream(t *testing.T) {
	// One header of each type, and the name that counts.
	all := "\x01a\x00" + "\x01b\x01" + "\x01c\x02x" + "\x01d\x03xx" + "\x01e\x04xxxx" + "\x01f\x05xxxxxxxx" +
		"\x01g\x06\x00\x02xx" + "\x01h\x08xxxxxxxx" + "\x01i\x09xxxxxxxxxxxxxxxx" + "\x0b:event-type\x07\x00\x01n"
	long := strings.Repeat("x", maxPrefix+100)
	tests := []struct {
		name, text string
		want       []recorded
	}{
		{"event", message("{}", ":event-type", "chunk", ":message-type", "event"), []recorded{{Name: "chunk", Data: "{}"}}},
		{"empty message", message("") + message("a"), []recorded{{}, {Data: "a"}}},
		{"exception", message("{}", ":message-type", "exception", ":exception-type", "throttlingException"),
			[]recorded{{Name: "throttlingException", Data: "{}", Form: exception}}},
		{"error", message("", ":message-type", "error", ":error-code", "500"), []recorded{{Name: "500", Form: exception}}},
		{"all types of headers", rawMessage("a", all), []recorded{{Name: "n", Data: "a"}}},
		{"long payload", message(long, ":event-type", "chunk") + message("a"),
			[]recorded{{Name: "chunk", Data: long[:maxPrefix], Cut: true}, {Data: "a"}}},
		{"corrupt payload", flip(message("{}", ":event-type", "chunk"), -5) + message("a"), []recorded{{}, {Data: "a"}}},
		{"corrupt CRC", flip(message("{}"), -1) + message("a"), []recorded{{}, {Data: "a"}}},
		{"header beyond the headers", rawMessage("a", "\x05a\x00"), []recorded{{}}},
		{"header of no type", rawMessage("a", "\x01a\x0a"), []recorded{{}}},
		{"header value beyond the headers", rawMessage("a", "\x01a\x07\x00\x02x"), []recorded{{}}},
		{"unfinished", message("a") + message("b")[:15], []recorded{{Data: "a"}}},
		{"corrupt length", message("a") + flip(message("b"), 3) + message("c"), []recorded{{Data: "a"}}},
		{"corrupt prelude CRC", flip(message("b"), 8) + message("c"), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			checkFraming(t, func() framer { return new(eventStream) }, tt.text, tt.want, nil)
		})
	}
	for _, lengths := range [][2]uint32{{maxMessage + 1, 0}, {maxHeaders + 1<<10, maxHeaders + 1}, {20, 8}, {15, 0}, {1<<32 - 1, 1<<32 - 1}} {
		prelude := binary.BigEndian.AppendUint32(nil, lengths[0])
		prelude = binary.BigEndian.AppendUint32(prelude, lengths[1])
		prelude = binary.BigEndian.AppendUint32(prelude, crc32.ChecksumIEEE(prelude))
		r := new(recorder)
		f := new(eventStream)
		f.write(prelude, r)
		if !slices.Equal(r.pieces, []pieceKind{lost}) {
			t.Errorf("lengths %d: pieces %v", lengths, r.pieces)
		}
	}
}
