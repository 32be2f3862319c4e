package stream

import (
	"hash/maphash"
	"slices"
)

// A dialect says what the events of one family of servers mean.
type dialect struct {
	name string
	// framings are what it streams as. In any other, an answer is in one piece.
	framings []framing
	class    func(*event, *memory) verdict
	typed    bool // each event has a type, which says whether it is a finish
}

var dialects = []*dialect{anthropic, bedrock, cohere, gemini, ollama, openAIChat, openAIResponses}

// Dialects returns the names that [Limits].Dialect may have, sorted.
func Dialects() []string {
	names := make([]string, len(dialects))
	for i, d := range dialects {
		names[i] = d.name
	}
	return names
}

// dialectOf returns the dialect of that name, or nil.
func dialectOf(name string) *dialect {
	if i := slices.IndexFunc(dialects, func(d *dialect) bool { return d.name == name }); i >= 0 {
		return dialects[i]
	}
	return nil
}

// memory is what a dialect remembers of a stream from event to event.
type memory struct {
	name  uint64 // a hash of the item or state that the last such event named
	count int64  // how far the server has come, by its own count
}

// changed reports whether name is not the one that it was last called with.
func (m *memory) changed(name []byte) bool {
	hash := maphash.Bytes(hashSeed, name)
	defer func() { m.name = hash }()
	return hash != m.name
}

// grown reports whether n is more than it has ever been.
func (m *memory) grown(n int64) bool {
	defer func() { m.count = max(m.count, n) }()
	return n > m.count
}

// A verdict is what a dialect says of an event.
type verdict struct {
	class   Class
	known   bool // the event shows that this is the stream's dialect
	carries bool // content comes with the Finish or the Terminal
	bad     bool // the payload cannot be decoded
	kind    kind // of the content, or of the block that opens
	failure *FailureError
	// from and to are where in the payload the string is that is its content, if
	// the verdict stays the same whatever the string, as long as there is one.
	from, to int
}

// A kind of content selects the gap. Of the kinds in one event the largest counts.
type kind uint8

const (
	noKind kind = iota
	thinking
	text
	tool
)

// content notes that the event carries content of kind k.
func (v *verdict) content(k kind) {
	v.carries, v.kind = true, max(v.kind, k)
	if v.class == Lifecycle || v.class == Progress {
		v.class = Content
	}
}

// progress notes that the event shows progress.
func (v *verdict) progress() {
	if v.class == Lifecycle {
		v.class = Progress
	}
}

// undecodable is the verdict on a payload that is not what it should be.
var undecodable = verdict{class: Lifecycle, bad: true}
