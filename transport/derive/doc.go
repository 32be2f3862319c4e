// Package derive turns recorded durations into settings: a timeout is a claim
// about a distribution of latencies, and this package makes the claim from data.
//
// A [Recorder] is an Observer of a transport. It keeps, for every route and for
// every bucket that the caller divides a route into (by the size of a prompt,
// say), how long connects, headers, first contents, gaps and whole calls took. A
// [Snapshot] is what it has seen so far; snapshots are saved as JSON, and those
// of many processes merged. [Derive] makes a [Plan] of one: for each field of
// the policy
//
//	timeout = quantile(durations of successes) x safety
//
// together with how sure that is, how many healthy calls it ends, and how long it
// waits for a dead one. [Plan.Apply] puts the settings into a policy, and
// [Plan.Override] gives a bucket's to single calls. [Snapshot.Loads] holds what
// the deadlines allow at the measured rates against the room there is.
//
// # Successes only
//
// A duration counts if its call succeeded. One that a limit cut short says how
// long the limit was, not how long the server takes: mixed in, it would pull the
// quantile to the limit, and each review would find a smaller one than the
// review before. Those that were cut short are kept apart, as how long they had
// lasted. Leaving them out altogether has the same effect, only slower, once a
// limit cuts into the tail: what is left looks as if there were no tail. So the
// part of them that the tail of the successes accounts for is given back to the
// quantile, by the estimator of Kaplan and Meier; the rest were dead, and say
// nothing. And a limit in force is only changed when the data say that it is
// wrong, not when they could have said so by chance.
//
// # Gaps
//
// The gaps of a stream have two populations: the spacing of tokens, thousands of
// them and short, and pauses in its structure, few and long, where a model turns
// to a tool or starts a new block. A quantile of all gaps sees only the first
// and would end every stream at its first pause. Derive finds the two apart
// and sets the limit above both. The limit then also holds the share of streams,
// not of gaps, that it ends.
//
// # Errors
//
// [Derive] fails for each quantity that has too few samples, with a [*TooFewError]
// that says how many it takes; what could be derived is in the plan all the same.
//
// # Concurrency
//
// A Recorder is safe for concurrent use. A Snapshot and a Plan are plain data: safe
// to read concurrently, not to change.
package derive
