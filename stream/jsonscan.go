package stream

import (
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"strconv"
)

// A scanner walks once over a JSON text without building anything from it: the
// caller asks for the members that it knows, and everything else is skipped.
//
//	for key := s.object(); key != nil; key = s.member() {
//		// take exactly one value
//	}
//
// It is strict about what keeps the walk right, which is strings with their
// escapes, nesting, and the commas and colons of the objects and lists that it
// enters, and lenient about the rest: the inside of numbers and strings, and the
// separators in what it skips.
type scanner struct {
	b     []byte
	i     int
	cut   bool // b is a prefix: its end is not malformed
	bad   bool // what has been walked over is malformed
	depth int  // of filled

	from, to int // the last string that filled has found not to be empty
}

// scan returns a scanner of an event's payload.
func (e *event) scan() scanner { return scanner{b: e.data, cut: e.cut} }

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
	if s.i < len(s.b) && s.b[s.i] > ' ' {
		return s.b[s.i]
	}
	return s.peekOn()
}

func (s *scanner) peekOn() byte {
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; c {
		case ' ', '\n', '\r', '\t':
		default:
			return c
		}
	}
	return 0
}

// object enters an object and returns the key of its first member, nil if there
// is none. A value that is no object is skipped and has none.
func (s *scanner) object() (key []byte) {
	if s.peek() != '{' {
		s.skip()
		return nil
	}
	s.i++
	if s.peek() == '}' {
		s.i++
		return nil
	}
	return s.key()
}

// member goes on to the next member and returns its key; nil: the object is left.
func (s *scanner) member() (key []byte) {
	switch s.peek() {
	case ',':
		s.i++
		return s.key()
	case '}':
		s.i++
		return nil
	}
	s.fail()
	return nil
}

func (s *scanner) key() []byte {
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

// list enters a list and reports whether it has an element. A value that is no
// list is skipped and has none.
func (s *scanner) list() bool {
	if s.peek() != '[' {
		s.skip()
		return false
	}
	s.i++
	switch c := s.peek(); {
	case c == ']':
		s.i++
		return false
	case s.i == len(s.b):
		s.fail()
		return false
	}
	return true
}

// elem goes on to the next element; false: the list is left.
func (s *scanner) elem() bool {
	switch s.peek() {
	case ',':
		s.i++
		return true
	case ']':
		s.i++
		return false
	}
	s.fail()
	return false
}

// str takes a string, whose quote is next, and returns what is between the
// quotes, and whether it has escapes in it.
func (s *scanner) str() (raw []byte, escaped bool) {
	start := min(s.i+1, len(s.b))
	end, escaped := endOfString(s.b, start)
	if s.i = end + 1; end == len(s.b) {
		s.i = end
		s.fail()
	}
	return s.b[start:end], escaped
}

// endOfString returns where in b the string ends whose inside begins at i: where
// its quote is, or len(b) if it has none. escaped reports escapes before it.
func endOfString(b []byte, i int) (end int, escaped bool) {
	for i < len(b) {
		if rest := b[i:]; len(rest) >= 8 {
			word := binary.LittleEndian.Uint64(rest)
			found := matches(word, '"') | matches(word, '\\')
			if found == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(found) / 8
		}
		switch b[i] {
		case '"':
			return i, escaped
		case '\\':
			escaped = true
			i++
		}
		i++
	}
	return len(b), escaped
}

// matches sets the high bit of each byte of word that is c, and maybe of later
// ones. See Bit Twiddling Hacks, "Determine if a word has a byte equal to n".
func matches(word uint64, c byte) uint64 {
	const ones = 0x0101010101010101
	word ^= ones * uint64(c)
	return (word - ones) &^ word & (ones << 7)
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
	start, i := s.i, s.i
	for i < len(s.b) && !delimits[s.b[i]] {
		i++
	}
	s.i = i
	v := s.b[start:i]
	if len(v) > 0 && (v[0] == '-' || '0' <= v[0] && v[0] <= '9') {
		return v
	}
	switch string(v) {
	case "null", "true", "false":
	default:
		s.fail()
	}
	return v
}

// delimits says which bytes end a literal, rightly or wrongly.
var delimits = [256]bool{
	',': true, '}': true, ']': true, ' ': true, '\n': true, '\r': true, '\t': true,
	'"': true, '{': true, '[': true, ':': true,
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
	if s.peek() == '"' {
		from := s.i + 1
		v, _ := s.str()
		if len(v) == 0 {
			return false
		}
		s.from, s.to = from, from+len(v)
		return true
	}
	if s.depth == maxFilled {
		s.skip()
		return false
	}
	s.depth++
	filled := false
	switch s.peek() {
	case '[':
		for more := s.list(); more; more = s.elem() {
			filled = s.filled() || filled
		}
	case '{':
		for key := s.object(); key != nil; key = s.member() {
			switch string(key) {
			case "type", "id", "index", "format", "role":
				s.skip()
			default:
				filled = s.filled() || filled
			}
		}
	default:
		s.literal()
	}
	s.depth--
	return filled
}
