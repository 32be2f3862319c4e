package stream

// A filter takes the keepalives out of a stream. Whether an event is one is known
// at its end, so the filter holds an unfinished event back, up to maxPrefix bytes:
// a longer one is no keepalive.
type filter struct {
	buf   *buffers // its data: what may pass, then what is held back
	off   int      // what of it has been taken
	ready int      // where what is held back begins
	long  bool     // this event is too long to be held back
	gone  bool     // something has been taken out behind the last byte that is left
	end   byte     // the last byte that may pass, taken or not; 0: there was none
	last  fate
}

// A fate is what becomes of a piece.
type fate uint8

const (
	passes fate = iota
	waits
	goes
)

// add takes the next piece; keepalive says that it is the end of one.
func (f *filter) add(k pieceKind, raw []byte, keepalive bool) {
	if k != tail {
		switch {
		case k == comment || k == padding:
			f.last, f.gone = goes, true // whatever event is held back around it
			return
		case k == partial:
			f.last = waits
		case keepalive && !f.long && f.held()+len(raw) <= maxPrefix:
			f.last, f.gone = goes, true
			if f.buf != nil {
				f.buf.data = f.buf.data[:f.ready]
			}
			f.free()
			return
		default:
			f.last, f.long = passes, false
		}
	}
	if f.last == goes {
		return
	}
	if f.buf == nil {
		f.buf = bufferPool.Get().(*buffers)
	}
	if f.gone && len(raw) > 0 {
		f.buf.data = append(f.buf.data, f.seam(raw[0])...)
		f.gone = false
	}
	f.buf.data = append(f.buf.data, raw...)
	if f.last == waits && f.held() > maxPrefix {
		f.long = true
	}
	if f.last == passes || f.long {
		f.ready = len(f.buf.data)
		if f.ready > f.off {
			f.end = f.buf.data[f.ready-1]
		}
	}
	f.free()
}

// seam returns what has to stand where something was taken out, before a byte
// that would otherwise become part of a line end, or of a byte order mark, that
// it is not.
func (f *filter) seam(next byte) string {
	before := f.end
	if f.held() > 0 {
		before = f.buf.data[len(f.buf.data)-1]
	}
	switch {
	case before == '\r' && next == '\n':
		return "\n"
	case before == 0 && next == bom[0]:
		return bom
	}
	return ""
}

// held returns how many bytes are held back.
func (f *filter) held() int {
	if f.buf == nil {
		return 0
	}
	return len(f.buf.data) - f.ready
}

// take copies what may pass to p.
func (f *filter) take(p []byte) int {
	if f.buf == nil {
		return 0
	}
	n := copy(p, f.buf.data[f.off:f.ready])
	f.off += n
	if f.off == f.ready {
		f.buf.data = f.buf.data[:copy(f.buf.data, f.buf.data[f.off:])]
		f.off, f.ready = 0, 0
	}
	f.free()
	return n
}

// flush lets all pass that is held back.
func (f *filter) flush() { f.add(setting, nil, false) }

// free gives the buffer back when nothing is in it.
func (f *filter) free() {
	if f.buf != nil && f.off == len(f.buf.data) {
		f.buf.free()
		f.buf, f.off, f.ready = nil, 0, 0
	}
}
