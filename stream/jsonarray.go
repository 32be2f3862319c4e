package stream

// jsonArray is the framing of a body that is one JSON array: each element is an
// event as soon as it is complete, and the closing bracket is the end. Values
// that stand one after the other without an array around them are events too,
// since a server answers with a bare object to report an error, and a Kubernetes
// watch says application/json and sends nothing else.
//
// Nesting is counted, not checked: a classifier sees to that.
type jsonArray struct {
	buf    *buffers // the beginning of a value, if there is one
	depth  int      // of brackets inside the value
	state  jsonState
	event  event
	array  bool // the brackets of an array are around the values
	closed bool
	values uint8 // that have ended; 2 is more than one
}

// A jsonState says where in the text a byte is.
type jsonState uint8

const (
	atStart  jsonState = iota // before the first value or bracket
	between                   // between values
	inValue                   // in a value, not in a string of it
	inString                  // in a string
	inEscape                  // after a backslash in a string
)

func (f *jsonArray) write(chunk []byte, s sink) {
	from, value := 0, 0 // where the next piece and this value begin
	for i, c := range chunk {
		switch f.state {
		case inEscape:
			f.state = inString
		case inString:
			switch c {
			case '\\':
				f.state = inEscape
			case '"':
				f.state = inValue
				if f.depth == 0 {
					f.emit(chunk[value:i+1], chunk[from:i+1], s)
					from = i + 1
				}
			}
		case inValue:
			switch c {
			case '"':
				f.state = inString
			case '{', '[':
				f.depth++
			case '}', ']':
				f.depth--
				if f.depth == 0 {
					f.emit(chunk[value:i+1], chunk[from:i+1], s)
					from = i + 1
				} else if f.depth < 0 { // after a number or a literal
					f.depth = 0
					f.emit(chunk[value:i], chunk[from:i], s)
					from = f.outside(c, chunk, i, i, s)
				}
			case ' ', '\t', '\r', '\n', ',':
				if f.depth == 0 {
					f.emit(chunk[value:i], chunk[from:i], s)
					from = i
				}
			}
		default:
			if !f.closed {
				value = i
				from = f.outside(c, chunk, from, i, s)
			}
		}
	}
	if f.state >= inValue {
		f.hold(chunk[value:])
	}
	if from < len(chunk) {
		s.piece(partial, chunk[from:], nil)
	}
}

// outside takes a byte that is in no value, and returns where the next piece
// begins.
func (f *jsonArray) outside(c byte, chunk []byte, from, i int, s sink) int {
	switch c {
	case ' ', '\t', '\r', '\n', ',':
		return from
	case '[':
		if f.state == atStart {
			f.array, f.state = true, between
			return from
		}
		fallthrough
	case '{':
		f.state, f.depth = inValue, 1
	case '"':
		f.state = inString
	case ']', '}':
		f.state = between
		if c == ']' && f.array {
			f.closed = true
			s.piece(closing, chunk[from:i+1], nil)
			return i + 1
		}
	default:
		f.state = inValue
	}
	return from
}

// onePiece reports whether the body was one value, which is whole, and no array.
func (f *jsonArray) onePiece() bool { return f.values == 1 && f.state == between && !f.array }

func (f *jsonArray) end(s sink) {
	if f.state >= inValue {
		f.emit(nil, nil, s)
	}
}

func (f *jsonArray) hold(part []byte) {
	if f.buf == nil {
		f.buf = bufferPool.Get().(*buffers)
	}
	var cut bool
	f.buf.data, cut = appendUpTo(f.buf.data, part, maxPrefix)
	f.event.cut = f.event.cut || cut
}

func (f *jsonArray) emit(value, raw []byte, s sink) {
	if f.buf != nil {
		f.hold(value)
		value = f.buf.data
	} else {
		value, f.event.cut = prefix(value)
	}
	f.event.data = value
	f.values = min(f.values+1, 2)
	s.piece(whole, raw, &f.event)
	f.event, f.state = event{}, between
	if f.buf != nil {
		f.buf.free()
		f.buf = nil
	}
}
