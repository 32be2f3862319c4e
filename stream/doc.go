// Package stream tells a slow stream from a dead one by its content.
//
// A timeout for the whole of a streamed answer kills a healthy one that is long,
// and one for the gap between bytes is satisfied for ever by keepalives. A guard
// reads the events as the bytes pass, without changing them, and runs its clocks
// on what the events say. [Guard] guards one body; it needs nothing else of weir.
// A [Monitor] is the same without clock and body, for whoever has these already.
//
// # Classes
//
// Each event has a [Class]. Only Content ends the wait for first content. Content
// and Progress, such as the opening of a block, start the gap anew. Lifecycle,
// such as a role or the usage, does nothing; so does an event that is of an
// unknown type or cannot be decoded. A Keepalive does nothing either, but from
// then on the longer PingedGap applies: servers ping both while they think and
// while they hang. What the last content or opened block was, thinking or the
// input of a tool, selects ThinkingGap or ToolGap. After a Finish the body may end,
// after a Terminal it should, and after a Failure nothing more is expected of it.
//
// # Framings
//
// Server-sent events, newline-delimited JSON, a JSON array (or JSON values one
// after the other), and the AWS event stream. A framing is found by Content-Type,
// or else by the first bytes. It is one pass over the bytes, whatever the chunks.
// Events are looked at where they are; only one that comes in several Reads is
// put together, in a buffer from a pool, and of one longer than 64 KiB only so
// much is kept. No event is too long.
//
// # Dialects
//
// anthropic, bedrock, cohere, gemini, ollama, openai-chat and openai-responses; see
// [Dialects]. A dialect is named in [Limits], or shown by one of the first events.
// [Limits].Classify may decide before it, and is all that a stream of another kind
// needs.
//
// If neither a dialect is known nor a Classify is given, because the stream is of
// no kind that is built in, or still compressed, or because the answer came in one
// piece as plain JSON, then every byte counts as content. [Stats] says so. As long
// as no dialect is known, so do those of one JSON value, or of one message of the AWS
// event stream, beyond its first 64 KiB.
//
// # Errors
//
// A limit that is exceeded aborts the request, and Read returns a [*StallError],
// which is a timeout, after all bytes that came before. What has arrived at the
// instant of the expiry is read first and may avert it. A body of a known dialect
// that ends without Finish or Terminal ends in [ErrTruncated], which is no timeout.
// A failure that the stream reports is a [*FailureError] in [Stats], and its bytes
// still reach the caller. Errors of the body itself are returned as they are.
//
// # Concurrency
//
// A [Body] may be closed, and asked for its statistics, during a Read, also while
// that runs a Classify or by it: the only lock that is held then makes the Reads of
// one body follow one another. A Body has no goroutine, and one timer, which is left
// to fire early rather than be reset for every Read. A [Monitor] is for one goroutine
// at a time, but see its Under.
package stream
