package stream

import "time"

// Toggle switches something on or off. The zero value says nothing: in a
// policy the setting is inherited, on its own it is off.
type Toggle int8

// The two settings of a [Toggle].
const (
	Off Toggle = -1
	On  Toggle = 1
)

// Limits says how a guarded body is told apart from a dead one.
//
// Durations are in the usual units of [time.Duration]. On its own a zero limit
// is off; in a policy a zero limit inherits and a negative one is off. Limits
// merge field by field.
//
// Only time in which a Read of the body waits counts against a limit, and, for
// FirstContent, the wait for the headers: a caller that takes its time between
// Reads is not a slow server.
type Limits struct {
	// Enabled turns the guard on. It is the section's main setting: no other
	// field enables it. [Guard] does not ask for it.
	Enabled Toggle

	// FirstContent bounds the time from the sending of the request to the
	// first event with content, the wait for headers included. Until then no
	// other limit applies but MinRate.
	FirstContent time.Duration
	// Gap bounds the time between two events with content or progress. Where
	// events cannot be told apart, it bounds the time between two bytes.
	Gap time.Duration
	// PingedGap takes the place of Gap when keepalives arrived since the last
	// content or progress. At least Gap. Zero leaves Gap in its place; negative
	// sets no limit to such a gap. Of PingedGap and ThinkingGap or ToolGap, the
	// longer applies.
	PingedGap time.Duration
	// ThinkingGap takes the place of Gap while the last content or opened
	// block is thinking. At least Gap. Zero and negative are as for PingedGap.
	ThinkingGap time.Duration
	// ToolGap takes the place of Gap while the last content or opened block is
	// the input of a tool. At least Gap. Zero and negative are as for PingedGap.
	ToolGap time.Duration
	// Linger bounds how long a body may stay open after its terminal event, or
	// after a failure. It then ends as if it had been closed.
	Linger time.Duration

	// MinRate is the least number of bytes a second, measured over
	// MinRateWindow of waiting. Zero: none.
	MinRate int64
	// MinRateWindow is the window of MinRate: that many seconds' bytes must come
	// in each. A window ends as soon as they have come, so that what came in a
	// burst does not count for the time after it.
	MinRateWindow time.Duration

	// Hold keeps the response back until its first content, so that an attempt
	// that dies before it can be retried.
	Hold Toggle
	// HoldLimit is the most bytes that are held back. On its own, zero: 256 KiB.
	HoldLimit int64

	// Dialect names the classifier, one of [Dialects]; "" detects it.
	Dialect string
	// Classify decides first; Unknown asks the dialect. It is not shown what is
	// between events, nor, in a stream of server-sent events, JSON without a field
	// name, which no client of one sees. It is called during
	// Read, and must not read the body; it may close it or ask for its
	// statistics, which know nothing yet of what this Read brought. No limit and
	// no Close waits for it, but the Read does, or with Hold the RoundTrip. It
	// cannot be written in JSON.
	Classify func(Event) Class

	// DropKeepalives removes keepalives from the bytes that the caller reads,
	// for clients that fail on comments and blank lines. One that has an id or a
	// delay for the client to resume with stays. In a JSON array, and in a body of
	// no known framing, it removes nothing.
	DropKeepalives Toggle
	// AllowTruncated accepts an end without a finish or terminal event.
	AllowTruncated Toggle
}

// Event is one event of a stream, as a classifier sees it.
type Event struct {
	// Name is the event's type: the SSE event field, or of an AWS event stream
	// message the header :event-type, or for an error :exception-type or
	// :error-code. Empty where the framing has none.
	Name string
	// Data is the payload, cut to a bounded prefix. It is valid only during
	// the call that receives it.
	Data []byte
	// Truncated reports that Data is only a prefix of the payload.
	Truncated bool
	// Offset is the number of bytes of the stream up to the event's end.
	Offset int64
}

// Class is what an event means to the guard.
type Class uint8

// The classes of an event.
const (
	// Unknown leaves the decision to the dialect.
	Unknown Class = iota
	// Content ends the wait for first content and resets the gap.
	Content
	// Progress resets the gap but does not end the wait for first content.
	Progress
	// Lifecycle resets nothing.
	Lifecycle
	// Keepalive resets nothing, but selects PingedGap.
	Keepalive
	// Finish makes the end of the body clean.
	Finish
	// Terminal disarms the guard; Linger bounds what follows.
	Terminal
	// Failure is an error that the stream itself reports.
	Failure
)
