// Package batch runs a job: the same call for each of many items, by a deadline
// that belongs to the job and not to any of its calls.
//
//	report, err := batch.Run(ctx, batch.Config{
//		Job:      "summaries of 2026-01-05",
//		Workers:  40,
//		Deadline: sevenOClock.Add(-30 * time.Minute),
//		Store:    batch.File("summaries.cursor"),
//	}, batch.Items(documents, Document.Name), summarize)
//
// How long one item may take and how often its calls are sent again is the
// policy's business. A policy for a batch is generous, since nobody waits for
// one item, and it can be because the job's deadline bounds their sum: [Plan]
// does the arithmetic.
//
// # Deadline
//
// Every call that an item makes with its context inherits the deadline, through
// [layers.WithDeadline]. When it passes, no further item is started, the calls
// under way end, and the context is canceled, with [ErrDeadline] as its cause.
// Items that fail from then on are unprocessed: they did not fail by
// themselves. The end of the caller's context stops the job likewise; with that
// of signal.NotifyContext, an interrupt does. Run returns when every function
// that it called has returned, of the items and of the store, and does not end one
// that heeds no context.
//
// # Cursor
//
// A [Store] keeps the [Cursor], which says what is done, while the job runs. A
// process that is killed repeats at most the items that were in flight: those
// under way, and those done which the cursor in the store does not have yet. By
// default no worker takes another item before its last one is there, so that
// they are no more than the workers. An item counts as done when its function
// has returned nil, and never before. What the function produces must be kept
// safe by then, and must bear being produced twice.
//
// A second run with the same cursor goes on where the first stopped: first the
// items that were not tried, then those that failed. Items may have been added
// at the end. Any other change of their names or order is refused, with
// [ErrForeign].
//
// # Pauses
//
// A circuit that is open does not burn the items of the job. An item whose call
// it refuses, or cuts off from its retries, is put back, and no other is started
// until the circuit may let a call pass. Then one goes first, and the rest
// follow when it has passed; if its call fails, it is put back as well. None is put
// back for ever: the fourth time, it has failed. An item that a rate budget or an in-flight limit
// refuses is put back too, and one worker pauses for as long as was said. A
// MaxWait in the policy spares it that: a job has the time to wait in line.
//
// # Errors
//
// What becomes of single items is in the [Report]. Run fails if it did not try
// them all: at the deadline with [ErrDeadline], at the end of its context with
// that one's cause, and when the cursor cannot be read or written. A panic in
// the function of an item, or in its error as Run looks into that, is the error of
// the item, a [PanicError], and does not stop the others. One in a Store that
// saves is a failure to save, and one in SaveFailed stops the job.
//
// # Concurrency
//
// The function is called by as many goroutines at once as there are workers;
// each other thing of the caller's in the [Config] is called by one at a time.
// Several jobs may run at once, with a store each.
package batch
