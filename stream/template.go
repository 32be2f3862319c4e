package stream

import (
	"bytes"
	"hash/maphash"
)

// A template is the last event with content without the one string that made it
// content. A model that writes sends the same JSON around each piece of text, and
// an event that differs in that string only has the same class, so most need no
// walk through their JSON at all.
//
// To remember the JSON would take more memory than the rest of a stream together;
// its hash does, under a key that no server knows. Only while one write brings
// event after event is there a copy, since to compare is quicker than to hash.
type template struct {
	hash       uint64
	head, tail uint16 // how long the JSON is before and after the string, without its quotes
	kind       kind
	again      bool     // an event has fitted in this write
	copy       *buffers // of the JSON without the string, once another has
}

var hashSeed = maphash.MakeSeed()

// learn makes t the template of e, which is content by v.
func (t *template) learn(e *event, v *verdict) {
	t.rest()
	*t = template{
		head: uint16(v.from), tail: uint16(len(e.data) - v.to), kind: v.kind,
		hash: t.sum(e, e.data[:v.from], e.data[v.to:]),
	}
}

// fits reports whether e is of the template, with a string that is not empty.
func (t *template) fits(e *event) bool {
	from := int(t.head)
	if from == 0 || from >= len(e.data) {
		return false
	}
	to, _ := endOfString(e.data, from)
	return to > from && len(e.data)-to == int(t.tail) && t.same(e, e.data[:from], e.data[to:])
}

// same reports whether an event is of the template by its name and the JSON before
// and after the string.
func (t *template) same(e *event, head, tail []byte) bool {
	if c := t.copy; c != nil {
		return bytes.Equal(head, c.data[:t.head]) && bytes.Equal(tail, c.data[t.head:]) && bytes.Equal(e.name, c.name)
	}
	if t.sum(e, head, tail) != t.hash {
		return false
	}
	if t.again {
		t.copy = bufferPool.Get().(*buffers)
		t.copy.name = append(t.copy.name, e.name...)
		t.copy.data = append(append(t.copy.data, head...), tail...)
	}
	t.again = true
	return true
}

// rest ends a write.
func (t *template) rest() {
	t.again = false
	if t.copy != nil {
		t.copy.free()
		t.copy = nil
	}
}

func (*template) sum(e *event, head, tail []byte) uint64 {
	sum := maphash.Bytes(hashSeed, head) + 3*maphash.Bytes(hashSeed, tail)
	if len(e.name) > 0 {
		sum += 5 * maphash.Bytes(hashSeed, e.name)
	}
	return sum
}
