// Package layers holds the layers that a call passes, and what they share: the
// [Call], its attempts, the [Event]s that they tell an [Observer], and the
// [Error] that a call ends in. Each layer also works alone. Package transport
// puts them together by a policy. It is package policy that validates settings; the
// constructors here take them as they are.
//
// # Order
//
// From the outermost to the innermost:
//
//	match, outer layers, deadline, retry, hedge, breaker, rate budget,
//	in-flight, inner layers, deadline header, stream guard, timeouts, base
//
// Each stands where it does for the sake of its neighbours:
//
//   - match before all: one resolved set of settings serves the whole call.
//   - outer layers around the deadline: they see one call, whatever becomes of
//     it inside.
//   - deadline around retry: every attempt, backoff and wait counts. A retry
//     outside it would start the clock anew.
//   - retry around hedge: a hedge is one attempt's business, and both spend
//     from one budget of extra sends.
//   - hedge around the breaker: each competing send is admitted, and judged, by
//     itself.
//   - breaker around the rate budget: an open circuit is the cheapest refusal,
//     and spends no turn.
//   - rate budget around in-flight: a slot is never held while waiting for a
//     turn, or a pause of the budget would pin every slot.
//   - in-flight around the inner layers: what they do for a send is part of it.
//   - inner layers around the timeouts: a signature is made after the waits,
//     and fresh for each send.
//   - deadline header inside the inner layers: the time that it tells is the
//     time left once they have done what they do.
//   - stream guard around the timeouts: it takes the place of Read before first
//     content and after it, and reads the bytes as they come.
//   - timeouts next to the base: waiting for a gate of ours is not slowness of
//     the server.
//
// A layer that stands inside one that belongs inside it refuses every call and
// says so.
//
// # Context
//
// A context carries facts about a call, never settings. The request that a
// layer of the user's sees has the call in its context: [CallFrom] finds it. A
// RoundTrip on that context that enters the stack again, such as a token mint,
// is a call of its own under the same deadline.
//
// # Errors
//
// Whatever ends a call comes back as an [*Error], but for the end of the caller's
// own context, by its deadline too, which comes back as it is: the error of the
// context, and its cause; and for what the connection fails with while the body is
// read, such as [io.ErrUnexpectedEOF].
//
// # Concurrency
//
// Everything here is safe for concurrent use. User code is never called under
// a lock, but that which makes the Reads of one guarded body follow one another:
// a Classify that blocks holds up its Read, and no Close, limit or other call. No
// goroutine or timer outlives a call, but one that waits in a Read of a caller's
// request body that does not answer its Close, in that Close, or in the Close of an
// answer over HTTP/2 while the socket takes nothing: it ends when these return. A body
// that is still being sent when its answer has ended is cut off 50 ms later.
package layers
