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
// in several budgets is taken in all or none by one script.
//
// A turn that is waited for has the time in which the burst comes to be used in.
// Where that is less than an answer takes, or than 5 ms and a turn, or three turns
// in several budgets, it may be used that much later, and a window then have that
// much more.
//
// Where the server's clock is set, or another server takes over whose clock is
// another, what is to come is as far away as before: nobody waits for longer. At
// most a burst is there once more, where what was kept expires by the new time, or
// the first to ask is a process that has not used the budget before. A difference
// of up to a second is not noticed.
//
// # Circuits
//
// While a circuit is closed, each process counts what it sees, and asks nobody.
// The first to open it opens it for all. Probes are counted over all processes.
// Opening or closing one by hand, as (*layers.Breaker).ForceOpen does, is for the
// process in which it is done.
//
// # Without Redis
//
// A send waits no longer for Redis than Options.Timeout at a time, and never
// beyond its deadline. It asks for a circuit that is new here, for a probe, for
// turns that may be there, and in each budget for those that it queues for: once
// each, and again for a probe or turns after it has waited for a turn or a slot.
// An answer that is late makes Options.Fallback hold until Redis answers again
// in time, and nobody asks meanwhile: a Redis that hangs holds a call up once.
// Budgets begin without a burst then, both times. All processes end it together: from
// that time on, one takes no turn until it has its answer, or that is late.
//
// Shares go by the processes that were seen lately, of which there are at least
// Options.Processes. One that alone is cut off has its share beside what the
// others have: where the quota must hold even so, Fallback is Closed.
//
// # Cluster and Sentinel
//
// A store also works with the clients of Sentinel, and of a cluster or a ring, which
// has all of a namespace on one server. The fallback holds until another has taken
// over, and while the slot of a namespace moves. News is heard again within about a
// lease, also if the subscription stayed with a server that was left. As long as there
// are two masters, each gives the whole budget to those who ask it.
//
// # What Redis sees
//
// The keys are weir:{namespace}:…, with hashes of what they are made from; all
// expire. A hash hides a secret that cannot be guessed, and no other. The user of an
// ACL needs the keys and the channels weir:*, and no dangerous command.
//
// Slots of an in-flight limit are left to the process.
package redis
