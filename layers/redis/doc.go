// Package redis keeps rate budgets and circuits in Redis, for all processes
// that share a server's quota: the [Store] of a transport.Config. It needs
// Redis 6 or later, or Valkey, and runs scripts.
//
// # Budgets
//
// A budget is exact: by the server's clock, no window of time has more turns
// than its length times the rate, plus the burst, however many processes there
// are. A process reserves turns for those who wait in it, first come, first
// served, a few at a time; at most what comes in 50 ms is leased ahead, and what
// is not used goes back. Such a lease comes out of the burst. A turn that is
// given back after its time is of use only if no later one was given out. A turn
// in several budgets is taken in all or none by one script; where it has to be
// waited for, it may be used up to two turns late.
//
// # Circuits
//
// While a circuit is closed, each process counts what it sees, and asks nobody.
// The first to open it opens it for all. Probes are counted over all processes.
//
// # Without Redis
//
// A send waits no longer for Redis than Options.Timeout at a time, and never
// beyond its deadline. Then Options.Fallback holds until Redis answers again in
// time. Budgets begin without a burst then, both times.
//
// # What Redis sees
//
// The keys are weir:{namespace}:…, with hashes of what they are made from; all
// expire. A hash hides a secret that cannot be guessed, and no other.
//
// Slots of an in-flight limit are left to the process.
package redis
