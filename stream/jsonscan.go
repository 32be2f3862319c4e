package stream

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// A scanner walks once over a JSON text without building anything from it: the
// caller asks for the members that it knows, and everything else is skipped.
//
// It is strict about what keeps the walk right, which is strings with their
// escapes, nesting, and the commas and colons of the objects and lists that it
// enters, and lenient about the rest: the inside of numbers, and UTF-8.
//
//	for key := range s.members {
//		// take exactly one value
//	}
type scanner struct {
	b     []byte
	i     int
	cut   bool // b is a prefix: its end is not malformed
	bad   bool // what has been walked over is malformed
	depth int  // of filled
}

// scan returns a scanner of an event's payload.
func (e event) scan() scanner { return scanner{b: e.data, cut: e.cut} }

// fail ends the walk: every later question is answered as at an end.
func (s *scanner) fail() {
	s.bad = s.bad || !s.cut || s.i < len(s.b)
	s.i = len(s.b)
}

// ok reports whether the whole text was one value, and nothing in it malformed.
func (s *scanner) ok() bool {
	return s.peek() == 0 && s.i == len(s.b) && !s.bad
}

// peek returns the next byte that is no white space, or 0 at the end.
func (s *scanner) peek() byte {
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; c {
		case ' ', '\n', '\r', '\t':
		default:
			return c
		}
	}
	return 0
}

// open enters an object or a list, or skips a value that is none.
func (s *scanner) open(bracket byte) bool {
	if s.peek() != bracket {
		s.skip()
		return false
	}
	s.i++
	return true
}

// more goes to the next member or element, and leaves the object or list at its
// end.
func (s *scanner) more(bracket, end byte) bool {
	first := s.i > 0 && s.b[s.i-1] == bracket
	c := s.peek()
	switch {
	case c == end:
		s.i++
		return false
	case first && c != 0:
		return true
	case c == ',':
		s.i++
		return true
	}
	s.fail()
	return false
}

// elem goes to the next element of a list.
func (s *scanner) elem() bool { return s.more('[', ']') }

// member goes to the value of the next member of an object, and returns its key,
// nil at the end.
func (s *scanner) member() []byte {
	if !s.more('{', '}') {
		return nil
	}
	if s.peek() != '"' {
		s.fail()
		return nil
	}
	key, escaped := s.str()
	if s.peek() != ':' {
		s.fail()
		return nil
	}
	s.i++
	if escaped {
		key = unescape(key)
	}
	return key
}

// members takes an object, and yields each key for the caller to take the value.
// A value that is no object has no members.
func (s *scanner) members(yield func(key []byte) bool) {
	if s.open('{') {
		for key := s.member(); key != nil && yield(key); key = s.member() {
		}
	}
}

// elems takes a list, and yields for the caller to take each element.
func (s *scanner) elems(yield func() bool) {
	if s.open('[') {
		for s.elem() && yield() {
		}
	}
}

// str takes a string, whose quote is next, and returns what is between the
// quotes, and whether it has escapes in it.
func (s *scanner) str() (raw []byte, escaped bool) {
	start := s.i + 1
	for i := start; ; {
		j := bytes.IndexByte(s.b[i:], '"')
		if j < 0 {
			s.i = len(s.b)
			s.fail()
			return s.b[start:], false
		}
		i += j
		// The quote ends the string unless an odd number of backslashes is before it.
		n := i
		for s.b[n-1] == '\\' {
			n--
		}
		if (i-n)%2 == 0 {
			s.i = i + 1
			return s.b[start:i], bytes.IndexByte(s.b[start:i], '\\') >= 0
		}
		i++
	}
}

// unescape decodes what is between the quotes of a string. It allocates, but no
// server escapes a key, or a value that has to be compared.
func unescape(raw []byte) []byte {
	quoted := append(append([]byte{'"'}, raw...), '"')
	var v string
	if json.Unmarshal(quoted, &v) != nil {
		return raw
	}
	return append([]byte{}, v...)
}

// text takes a value and returns it if it is a string.
func (s *scanner) text() []byte {
	if s.peek() != '"' {
		s.skip()
		return nil
	}
	v, escaped := s.str()
	if escaped {
		v = unescape(v)
	}
	return v
}

// word takes a value and returns it if it is a string, a number, or true.
func (s *scanner) word() []byte {
	switch c := s.peek(); c {
	case '"', '{', '[':
		return s.text()
	default:
		v := s.literal()
		if c == 'n' || c == 'f' {
			return nil
		}
		return v
	}
}

// number takes a value and returns it if it is an integer, and 0 if not.
func (s *scanner) number() int64 {
	n, _ := strconv.ParseInt(string(s.word()), 10, 64)
	return n
}

// literal takes a number, true, false or null.
func (s *scanner) literal() []byte {
	start := s.i
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ',', '}', ']', ' ', '\n', '\r', '\t':
			goto end
		}
		s.i++
	}
end:
	v := s.b[start:s.i]
	switch {
	case len(v) == 0:
		s.fail()
	case '0' <= v[0] && v[0] <= '9', v[0] == '-':
	case string(v) == "null", string(v) == "true", string(v) == "false":
	default:
		s.fail()
	}
	return v
}

// skip takes a value.
func (s *scanner) skip() {
	switch s.peek() {
	case '"':
		s.str()
	case '{', '[':
		s.skipNested()
	default:
		s.literal()
	}
}

// skipNested takes an object or a list, and checks that its brackets match down
// to a depth of 64.
func (s *scanner) skipNested() {
	var open uint64 // bit n is set if the bracket n levels up is a brace
	for depth := 0; s.i < len(s.b); {
		switch c := s.b[s.i]; c {
		case '"':
			s.str()
			continue
		case '{', '[':
			if depth++; depth <= 64 {
				open <<= 1
				if c == '{' {
					open |= 1
				}
			}
		case '}', ']':
			if depth <= 64 {
				if (open&1 == 1) != (c == '}') {
					s.fail()
					return
				}
				open >>= 1
			}
			if depth--; depth == 0 {
				s.i++
				return
			}
		}
		s.i++
	}
	s.fail()
}

// maxFilled is how deep filled looks; nothing that a classifier asks for is
// nearly so deep.
const maxFilled = 32

// filled takes a value and reports whether it carries anything: a string that is
// not empty, or a list or an object with such a string in it. What only labels
// the rest does not count, nor do numbers, which only count the rest.
func (s *scanner) filled() bool {
	if s.depth == maxFilled {
		s.skip()
		return false
	}
	s.depth++
	any := false
	switch s.peek() {
	case '"':
		v, _ := s.str()
		any = len(v) > 0
	case '[':
		for range s.elems {
			any = s.filled() || any
		}
	case '{':
		for key := range s.members {
			switch string(key) {
			case "type", "id", "index", "format", "role":
				s.skip()
			default:
				any = s.filled() || any
			}
		}
	default:
		s.literal()
	}
	s.depth--
	return any
}
