package stream

import (
	"encoding/binary"
	"hash/crc32"
)

// eventStream is the framing application/vnd.amazon.eventstream: a prelude of
// two lengths and their CRC, headers, a payload, and a CRC of it all. Numbers are
// big-endian, CRCs those of IEEE 802.3.
// https://smithy.io/2.0/aws/amazon-eventstream.html
//
// There is nothing to find the next message by, so a prelude that cannot be
// right ends the framing for good; a message whose own CRC is wrong is an event
// that cannot be decoded.
type eventStream struct {
	buf     *buffers // the beginning of a message after its prelude, if there is one
	prelude [preludeLen]byte
	have    uint32 // bytes of this message so far
	total   uint32 // its length, known once the prelude is complete
	headers uint32 // that of its headers
	crc     uint32 // of the message without its last four bytes, so far
	want    uint32 // those four bytes, so far
	lost    bool
	event   event
}

const (
	preludeLen = 12
	crcLen     = 4
	// The longest that the AWS SDKs accept.
	maxHeaders = 128 << 10
	maxMessage = 24 << 20
)

func (f *eventStream) write(chunk []byte, s sink) {
	for len(chunk) > 0 {
		if f.lost {
			s.piece(lost, chunk, nil)
			return
		}
		if f.have < preludeLen {
			n := copy(f.prelude[f.have:], chunk)
			f.have += uint32(n)
			if f.have == preludeLen && !f.open() {
				f.lost = true
				continue
			}
			s.piece(partial, chunk[:n], nil)
			chunk = chunk[n:]
			continue
		}
		part := chunk[:min(len(chunk), int(f.total-f.have))]
		chunk = chunk[len(part):]
		f.sum(part)
		switch f.have += uint32(len(part)); {
		case f.have < f.total:
			f.hold(part)
			s.piece(partial, part, nil)
		case f.buf != nil:
			f.hold(part)
			f.emit(f.buf.data, part, s)
		default:
			f.emit(part, part, s)
		}
	}
}

// end finds nothing to class: a message is nothing before its CRC is checked.
func (f *eventStream) end(sink) { f.reset() }

func (f *eventStream) reset() {
	f.have = 0
	if f.buf != nil {
		f.buf.free()
		f.buf = nil
	}
}

// open reads the prelude and reports whether it can be right.
func (f *eventStream) open() bool {
	f.total = binary.BigEndian.Uint32(f.prelude[:])
	f.headers = binary.BigEndian.Uint32(f.prelude[4:])
	f.crc, f.want = crc32.ChecksumIEEE(f.prelude[:]), 0
	return binary.BigEndian.Uint32(f.prelude[8:]) == crc32.ChecksumIEEE(f.prelude[:8]) &&
		f.headers <= maxHeaders && f.total <= maxMessage &&
		f.total >= preludeLen+f.headers+crcLen
}

// sum adds the next part of the message, which f.have does not count yet.
func (f *eventStream) sum(part []byte) {
	body := min(len(part), max(int(f.total)-crcLen-int(f.have), 0))
	f.crc = crc32.Update(f.crc, crc32.IEEETable, part[:body])
	for _, c := range part[body:] {
		f.want = f.want<<8 | uint32(c)
	}
}

func (f *eventStream) hold(part []byte) {
	if f.buf == nil {
		f.buf = bufferPool.Get().(*buffers)
	}
	f.buf.data, _ = appendUpTo(f.buf.data, part, int(f.headers)+maxPrefix)
}

// emit ends the message, of whose headers and payload kept has the beginning.
func (f *eventStream) emit(kept, raw []byte, s sink) {
	e := &f.event
	if f.crc == f.want {
		length := int(f.total) - preludeLen - crcLen
		kept = kept[:min(len(kept), length)]
		if form, name, ok := readHeaders(kept[:f.headers]); ok {
			e.form, e.name = form, name
			e.data, _ = prefix(kept[f.headers:])
			e.cut = len(e.data) < length-int(f.headers)
		}
	}
	s.piece(whole, raw, e)
	*e = event{}
	f.reset()
}

// readHeaders returns the type of a message, and reports whether its headers
// can be read.
func readHeaders(h []byte) (form form, name []byte, ok bool) {
	for len(h) > 0 {
		n := 1 + int(h[0]) // the length of the name, and the name
		if len(h) < n+1 {
			return 0, nil, false
		}
		key, kind := h[1:n], h[n]
		h = h[n+1:]
		switch kind {
		case 0, 1: // true, false
			n = 0
		case 2: // byte
			n = 1
		case 3: // short
			n = 2
		case 4: // integer
			n = 4
		case 5, 8: // long, timestamp
			n = 8
		case 6, 7: // bytes, string
			if len(h) < 2 {
				return 0, nil, false
			}
			n = int(binary.BigEndian.Uint16(h))
			h = h[2:]
		case 9: // UUID
			n = 16
		default:
			return 0, nil, false
		}
		if len(h) < n {
			return 0, nil, false
		}
		value := h[:n]
		h = h[n:]
		switch string(key) {
		case ":event-type", ":exception-type", ":error-code":
			name = value
		case ":message-type":
			if string(value) != "event" {
				form = exception
			}
		}
	}
	return form, name, true
}
