package stream

// A filter takes the keepalives out of a stream. Whether an event is one is known
// at its end, so the filter holds an unfinished event back, up to maxPrefix bytes:
// a longer one is no keepalive.
type filter struct {
	buf   *buffers // its data: what may pass, then what is held back
	off   int      // what of it has been taken
	ready int      // where what is held back begins
	long  bool     // this event is too long to be held back
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
			f.last = goes // whatever event is held back around it
			return
		case k == partial:
			f.last = waits
		case keepalive && !f.long && f.held()+len(raw) <= maxPrefix:
			f.last = goes
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
	f.buf.data = append(f.buf.data, raw...)
	if f.last == waits && f.held() > maxPrefix {
		f.long = true
	}
	if f.last == passes || f.long {
		f.ready = len(f.buf.data)
	}
	f.free()
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
		*f = filter{long: f.long, last: f.last}
	}
}
