package batch

import (
	"fmt"
	"strings"
	"time"
)

// Report says what became of the items of a job: Resumed, Done, Failed and
// Unprocessed together are all of them.
type Report struct {
	// Items is how many the job has.
	Items int
	// Resumed is how many were done when the run began, Done how many it did.
	Resumed, Done int
	// Failed are those that failed in this run, in the order in which they did.
	Failed []Failure
	// Unprocessed is how many were not tried, or were under way when the job
	// stopped. A later run with the cursor tries them first, then the failed.
	Unprocessed int
	// PutBack is how often a limit refused an item, which was put back.
	PutBack int
	// Elapsed is how long the run took, Paused how much of that circuits took.
	Elapsed, Paused time.Duration
	// Cursor is where the next run goes on, whether the store has it or not. It is
	// nil if the job did not begin.
	Cursor *Cursor
}

// Failure is how an item failed.
type Failure struct {
	Item int    // counted from zero
	Name string // of the item
	Err  error  // as its function returned it, or a PanicError
}

// String is the numbers of the report, in one line.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d items done", r.Resumed+r.Done, r.Items)
	if r.Resumed > 0 {
		fmt.Fprintf(&b, " (%d of them before)", r.Resumed)
	}
	fmt.Fprintf(&b, ", %d failed, %d unprocessed, in %v", len(r.Failed), r.Unprocessed, r.Elapsed.Round(time.Millisecond))
	if r.Paused > 0 {
		fmt.Fprintf(&b, ", %v of it paused", r.Paused.Round(time.Millisecond))
	}
	if r.PutBack > 0 {
		fmt.Fprintf(&b, ", %d put back", r.PutBack)
	}
	return b.String()
}
