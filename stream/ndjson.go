package stream

import "bytes"

// ndjson is the framing of newline-delimited JSON: a line is an event, and a
// line of white space a keepalive.
type ndjson struct {
	buf   *buffers // the beginning of a line, if there is one
	event event
}

func (f *ndjson) write(chunk []byte, s sink) {
	for len(chunk) > 0 {
		i := bytes.IndexByte(chunk, '\n')
		if i < 0 {
			f.hold(chunk)
			s.piece(partial, chunk, nil)
			return
		}
		line := chunk[:i]
		if f.buf == nil {
			line, f.event.cut = prefix(line)
		} else {
			f.hold(line)
			line = f.buf.line
		}
		f.emit(line, chunk[:i+1], s)
		chunk = chunk[i+1:]
	}
}

func (f *ndjson) end(s sink) {
	if f.buf != nil {
		f.emit(f.buf.line, nil, s)
	}
}

func (f *ndjson) hold(part []byte) {
	if f.buf == nil {
		f.buf = bufferPool.Get().(*buffers)
	}
	var cut bool
	f.buf.line, cut = appendUpTo(f.buf.line, part, maxPrefix)
	f.event.cut = f.event.cut || cut
}

func (f *ndjson) emit(line, raw []byte, s sink) {
	if len(bytes.TrimSpace(line)) == 0 && !f.event.cut {
		s.piece(idle, raw, nil)
	} else {
		f.event.data = line
		s.piece(whole, raw, &f.event)
	}
	f.event = event{}
	if f.buf != nil {
		f.buf.free()
		f.buf = nil
	}
}
