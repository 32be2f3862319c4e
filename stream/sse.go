package stream

import (
	"bytes"
	"math"
	"strconv"
)

// sse is the framing of server-sent events, after the WHATWG HTML standard,
// section 9.2.6 "Interpreting an event stream".
//
// It departs from the standard where a guard must see more than a reader: the
// block that the end of the stream leaves unfinished is an event too, since
// `[DONE]` and errors often come without their empty line; the field "error",
// which llama.cpp sends, is data of an event of that name; and a block that
// begins with a brace is data without a field name, as Gemini ends a stream with.
type sse struct {
	buf    *buffers
	event  event // of this block: in the chunk, or in buf
	resume *resume
	mark   uint8 // how many bytes of the byte order mark have been seen; len(bom): it is past

	afterCR   bool // the last byte was a CR, so an LF belongs to it
	inComment bool

	block block
}

// block is what is known of the lines since the last empty one.
type block struct {
	kept      bool // the event is in buf
	fields    bool // there is a line that is no comment
	comments  bool
	hasData   bool
	setsState bool // there is an id or a delay
}

// resume is what a client would resume a stream with.
type resume struct {
	id    []byte // of the last event that is whole
	next  []byte // the last that a line has set, for the event that it is in
	retry int64  // the last reconnection time, in milliseconds; -1: none
}

const bom = "\xEF\xBB\xBF"

// maxLine is enough of a line to see that its value is longer than maxPrefix.
const maxLine = len("error: ") + maxPrefix + 1

func (f *sse) write(chunk []byte, s sink) {
	from, i := 0, 0 // where the next piece and the next line begin
	if f.afterCR && len(chunk) > 0 {
		f.afterCR = false
		if chunk[0] == '\n' {
			s.piece(tail, chunk[:1], nil)
			from, i = 1, 1
		}
	}
	if int(f.mark) < len(bom) {
		if i = f.skipMark(chunk); i > 0 {
			s.piece(partial, chunk[:i], nil)
			from = i
		}
	}
	// Where the next LF and the next CR are is found once for each, not once a
	// line: there may be none of the one kind and many of the other.
	lf, cr := i-1, i-1
	for i < len(chunk) {
		if lf < i {
			lf = index(chunk, i, '\n')
		}
		if cr < i {
			cr = index(chunk, i, '\r')
		}
		end := min(lf, cr)
		line := chunk[i:end]
		if lf < cr && lf+1 < len(chunk) && chunk[lf+1] == '\n' && f.between() && isData(line) {
			// The usual block: one line of data, and the empty one.
			f.event.data, f.event.cut = prefix(value(line, len("data")))
			i = lf + 2
			s.piece(whole, chunk[from:i], &f.event)
			f.event, f.block.comments = event{}, false
			from = i
			continue
		}
		startsComment := !f.inLine() && !f.inComment && chunk[i] == ':'
		if startsComment && from < i {
			s.piece(partial, chunk[from:i], nil)
			from = i
		}
		inComment := f.inComment || startsComment
		if end == len(chunk) {
			f.inComment = inComment
			if inComment {
				s.piece(padding, chunk[from:], nil)
			} else {
				f.hold(line)
				s.piece(partial, chunk[from:], nil)
			}
			from = end
			break
		}
		next := end + 1
		if end == cr {
			if next == len(chunk) {
				f.afterCR = true
			} else if chunk[next] == '\n' {
				next++
			}
		}
		switch {
		case inComment:
			f.inComment = false
			f.block.comments = true
			s.piece(comment, chunk[from:next], nil)
			from = next
		case f.inLine():
			f.hold(line)
			f.heldLine()
		case len(line) > 0:
			f.line(line)
		default:
			f.dispatch(chunk[from:next], s)
			from = next
		}
		i = next
	}
	if from < len(chunk) {
		s.piece(partial, chunk[from:], nil)
	}
	if f.block.fields {
		f.keep()
	} else if f.buf != nil && !f.inLine() {
		f.buf.free()
		f.buf = nil
	}
}

func (f *sse) end(s sink) {
	if f.inLine() {
		f.heldLine()
	}
	if f.block.hasData {
		f.dispatch(nil, s)
	}
	if f.buf != nil {
		f.buf.free()
		f.buf = nil
	}
}

// between reports whether no line and no block is unfinished.
func (f *sse) between() bool { return !f.inLine() && !f.inComment && !f.block.fields }

// index returns where c is next in p from i on, or len(p).
func index(p []byte, i int, c byte) int {
	if j := bytes.IndexByte(p[i:], c); j >= 0 {
		return i + j
	}
	return len(p)
}

// skipMark returns how many bytes at the chunk's start are, or begin like, a byte
// order mark. Those that only began like one are the beginning of a line.
func (f *sse) skipMark(chunk []byte) int {
	for i, c := range chunk {
		if c != bom[f.mark] {
			if f.mark > 0 {
				f.hold([]byte(bom[:f.mark]))
			}
			f.mark = uint8(len(bom))
			return i
		}
		f.mark++
		if int(f.mark) == len(bom) {
			return i + 1
		}
	}
	return len(chunk)
}

// inLine reports whether there is the beginning of a line in buf.
func (f *sse) inLine() bool { return f.buf != nil && len(f.buf.line) > 0 }

// hold keeps part of a line for when the rest of it comes.
func (f *sse) hold(part []byte) {
	f.buffers()
	f.buf.line, _ = appendUpTo(f.buf.line, part, maxLine)
}

// heldLine takes the line that hold has put together.
func (f *sse) heldLine() {
	f.line(f.buf.line)
	f.keep()
	f.buf.line = f.buf.line[:0]
}

func (f *sse) buffers() {
	if f.buf == nil {
		f.buf = bufferPool.Get().(*buffers)
	}
}

// keep moves what is known of the block to memory of our own.
func (f *sse) keep() {
	if f.block.kept {
		return
	}
	f.block.kept = true
	f.buffers()
	f.buf.name = append(f.buf.name[:0], f.event.name...)
	f.buf.data = append(f.buf.data[:0], f.event.data...)
	f.event.name, f.event.data = f.buf.name, f.buf.data
}

// line takes a line that is neither empty nor a comment.
func (f *sse) line(line []byte) {
	f.block.fields = true
	if f.event.form == bare {
		f.addData(line)
		return
	}
	if isData(line) {
		f.addData(value(line, len("data")))
		return
	}
	colon := bytes.IndexByte(line, ':')
	if colon < 0 {
		colon = len(line)
	}
	field, value := line[:colon], value(line, colon)
	switch string(field) {
	case "data":
		f.addData(value)
	case "event":
		f.setName(value)
	case "error":
		f.setName(field)
		f.addData(value)
	case "id":
		f.block.setsState = true
		if len(value) <= maxPrefix && bytes.IndexByte(value, 0) < 0 {
			r := f.resumption()
			r.next = append(r.next[:0], value...)
		}
	case "retry":
		f.block.setsState = true
		f.setRetry(value)
	default:
		if line[0] == '{' && !f.block.hasData {
			f.event.form = bare
			f.addData(line)
		}
	}
}

// isData reports whether a line is of the field that most lines are of, and has a
// value.
func isData(line []byte) bool {
	return len(line) >= len("data:") && string(line[:len("data:")]) == "data:"
}

// value returns what is behind the colon of a line, less one space.
func value(line []byte, colon int) []byte {
	v := line[min(colon+1, len(line)):]
	if len(v) > 0 && v[0] == ' ' {
		v = v[1:]
	}
	return v
}

func (f *sse) setName(v []byte) {
	v, _ = prefix(v)
	if f.block.kept {
		f.buf.name = append(f.buf.name[:0], v...)
		v = f.buf.name
	}
	f.event.name = v
}

func (f *sse) addData(v []byte) {
	if !f.block.hasData && !f.block.kept {
		f.block.hasData = true
		f.event.data, f.event.cut = prefix(v)
		return
	}
	f.keep()
	if f.block.hasData {
		f.append([]byte("\n"))
	}
	f.append(v)
	f.block.hasData = true
	f.event.data = f.buf.data
}

func (f *sse) append(p []byte) {
	var cut bool
	f.buf.data, cut = appendUpTo(f.buf.data, p, maxPrefix)
	f.event.cut = f.event.cut || cut
}

// setRetry takes digits only, saturating.
func (f *sse) setRetry(v []byte) {
	for _, c := range v {
		if c < '0' || c > '9' {
			return
		}
	}
	if len(v) == 0 {
		return
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		n = math.MaxInt64
	}
	f.resumption().retry = n
}

func (f *sse) resumption() *resume {
	if f.resume == nil {
		f.resume = &resume{retry: -1}
	}
	return f.resume
}

// dispatch ends the block; raw ends with its empty line. It is nil at the end of the
// stream, which would resume before such a block.
func (f *sse) dispatch(raw []byte, s sink) {
	if f.block.setsState && raw != nil && f.resume != nil {
		f.resume.id = append(f.resume.id[:0], f.resume.next...)
	}
	switch b := &f.block; {
	case b.hasData:
		f.event.sets = b.setsState
		s.piece(whole, raw, &f.event)
	case b.setsState:
		s.piece(setting, raw, nil)
	case b.fields:
		s.piece(idle, raw, nil)
	case b.comments:
		s.piece(padding, raw, nil)
	default:
		s.piece(comment, raw, nil)
	}
	f.event, f.block = event{}, block{}
}
