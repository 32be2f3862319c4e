package stream

import "sync"

// maxPrefix is how much of one event's payload is kept. No event is too long:
// what lies beyond is counted, looked through for the end, and forgotten.
const maxPrefix = 64 << 10

// A framer cuts a stream into events. It never fails and never looks at a byte
// twice, so its cost is linear in the stream whatever the chunks.
type framer interface {
	// write takes the next chunk, and hands all of its bytes to s in order.
	write(chunk []byte, s sink)
	// end hands s the event that the end of the stream leaves unfinished, if
	// there is one, and gives back what the framer holds.
	end(s sink)
}

// A sink receives a stream in consecutive pieces, and with a whole event what it
// says. Nothing is valid after the call.
type sink interface {
	piece(kind pieceKind, raw []byte, e *event)
}

// An event is what a classifier looks at.
type event struct {
	name, data []byte
	cut        bool // data is a prefix
	sets       bool // SSE: an id or a delay comes with it
	typed      bool // it has a type that is known, whatever is lost of it
	form       form
}

// A form is a way to carry an event that says something about its meaning.
type form uint8

const (
	plain     form = iota
	bare           // SSE: JSON lines without a field name
	exception      // AWS event stream: a message of type exception or error
)

// A pieceKind says what the end of a piece is the end of.
type pieceKind uint8

const (
	partial pieceKind = iota // nothing yet: part of an event
	whole                    // an event; nil: the end of the stream ends it
	comment                  // a keepalive between or inside events
	padding                  // what surrounds a comment; part of no event
	idle                     // a keepalive, with the partial pieces before it
	setting                  // a block that carries no event, but sets an id or a delay
	tail                     // whatever the piece before it was
	closing                  // the stream, by its own word
	lost                     // the framing: what follows cannot be cut into events
)

// buffers hold what has arrived of an unfinished event. A framer owns some only
// while there is one, so that an idle stream has none.
type buffers struct{ line, name, data []byte }

var bufferPool = sync.Pool{New: func() any { return new(buffers) }}

func (b *buffers) free() {
	if cap(b.data) > 4*maxPrefix { // a filter's, for a caller that reads very much at once
		b.data = nil
	}
	b.line, b.name, b.data = b.line[:0], b.name[:0], b.data[:0]
	bufferPool.Put(b)
}

// appendUpTo appends as much of p to b as limit leaves room for, and reports
// whether that was less than all.
func appendUpTo(b, p []byte, limit int) ([]byte, bool) {
	room := max(limit-len(b), 0)
	return append(b, p[:min(len(p), room)]...), len(p) > room
}

// prefix returns at most maxPrefix bytes of p, and whether that is less than all.
func prefix(p []byte) ([]byte, bool) {
	return p[:min(len(p), maxPrefix)], len(p) > maxPrefix
}
