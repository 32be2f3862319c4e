// Package policy holds what users of weir write: how long a call may take, how
// often it is sent and at what rate, and for which requests.
//
// A [Policy] is the [Settings] of all calls, and those of single [Route]s. Most
// fields are left zero, which means that the value of the next more general
// level holds. [Compile] checks the policy as a whole and makes a [Table] of it,
// in which [Table.Line] finds the routes that a request matches and
// [Line.Resolve] the settings that they come to. [Parse] reads a policy from
// JSON.
//
// # Order
//
// From the most specific to the least, a field has its value from the first of
// these that sets it:
//
//   - the [Override] in the context of the call
//   - the view that the call goes through
//   - the routes that match, the most specific first: by host, then path, then
//     method, as package route has it
//   - the policy itself
//   - [Defaults]
//
// The order in which the routes stand in the policy never matters, so that a
// host's rate budget and the deadline of one endpoint live side by side.
//
// # Refusals
//
// A policy that could not work is refused with an error that lists all its
// faults; the rules are those of [Compile]. Nothing is adjusted in silence. A
// policy that works, but perhaps not as it was meant to, gets advice in the
// [Explanation] of a request.
//
// # Shared state
//
// The breaker, the rate budgets and the in-flight slots have state that calls
// share. The level that sets a section's main number owns the state, so that an
// endpoint with a rate of its own has a bucket of its own, while one that
// inherits the rate of its host draws on the host's. A [KeyFunc] divides it
// further, by default among origins.
//
// # Concurrency
//
// Tables, lines and overrides are safe for concurrent use. What Settings refer
// to must not change once it has been handed in.
package policy
