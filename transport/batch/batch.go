package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/weir-go/weir/policy"
)

// ErrDeadline is why a job stopped that its deadline left without the time for
// all of its items. It is context.DeadlineExceeded to errors.Is.
var ErrDeadline error = deadlineError{}

type deadlineError struct{}

func (deadlineError) Error() string        { return "the time of the job is up" }
func (deadlineError) Timeout() bool        { return true }
func (deadlineError) Is(target error) bool { return target == context.DeadlineExceeded }

// Config says how a job runs.
type Config struct {
	// Job names the job. A cursor belongs to one name, so let the name change
	// with what is to be done: a nightly job has the date in it. Required if
	// there is a Store.
	Job string
	// Workers is how many items are under way at once. Zero: 1.
	Workers int
	// Deadline is when the job ends, as an instant on Clock; Within says it as a
	// duration from the start of Run. The earlier of the two counts. One of them
	// is required: policy.Off in Within is a job that nothing but its context
	// stops.
	Deadline time.Time
	Within   time.Duration
	// Store keeps the cursor. Nil: nobody does, and the job cannot be resumed.
	Store Store
	// SaveItems and SaveEvery say when the cursor is written: when so many items
	// have been done or have failed since the last time, or so long after the
	// first of them. Zero: 1, and 1 s. A process that is killed repeats fewer
	// than Workers + SaveItems items; workers wait for the store when there
	// would be more. Items that end during a write share the next one.
	SaveItems int
	SaveEvery time.Duration
	// SaveFailed is told that the store failed, and decides: an error stops the
	// job, nil lets it go on and write again SaveEvery later, with the risk that
	// a kill repeats all that was done meanwhile. Without it, the job stops. In either
	// case items under way are let end, and Run fails if the last write does.
	SaveFailed func(error) error
	// Progress is where the progress is written: a bar with the rate and the
	// time left if it is a terminal, else a line now and then. Nil: nowhere. What it
	// fails with is ignored. Run waits for it only when it ends.
	Progress io.Writer
	// ProgressEvery is how often, 100 ms at the least. Zero: 200 ms for a bar,
	// 30 s for lines.
	ProgressEvery time.Duration
	// Clock gives the time, and must be that of the transport which serves the
	// calls. Nil: the real clock.
	Clock clock.Clock
}

// least is how long the progress on display stays there.
const least = 100 * time.Millisecond

// ready returns the configuration with its defaults, or what is wrong with it.
func (cfg Config) ready() (Config, error) {
	var faults []error
	fault := func(wrong bool, text string, value ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf("batch: "+text, value...))
		}
	}
	fault(cfg.Deadline.IsZero() && cfg.Within == 0, "the job has no deadline: set Deadline or Within, or Within to policy.Off for none")
	fault(cfg.Within < 0 && cfg.Within != policy.Off, "Within is %v: it must be positive, or policy.Off", cfg.Within)
	fault(cfg.Workers < 0, "Workers is %d: it must be positive", cfg.Workers)
	fault(cfg.Store != nil && cfg.Job == "", "the cursor needs the name of its job: set Job")
	fault(cfg.SaveItems < 0, "SaveItems is %d: it must be positive", cfg.SaveItems)
	fault(cfg.SaveEvery < 0, "SaveEvery is %v: it must be positive", cfg.SaveEvery)
	fault(cfg.ProgressEvery != 0 && cfg.ProgressEvery < least, "ProgressEvery is %v, below %v: nobody reads that fast", cfg.ProgressEvery, least)
	cfg.Workers = cmp.Or(cfg.Workers, 1)
	cfg.SaveItems = cmp.Or(cfg.SaveItems, 1)
	cfg.SaveEvery = cmp.Or(cfg.SaveEvery, time.Second)
	if cfg.Clock == nil {
		cfg.Clock = clock.New()
	}
	return cfg, errors.Join(faults...)
}

// Items returns the items of a list with their names. A name is what makes an
// item the same one in a later run.
func Items[T any](list []T, name func(T) string) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		for _, item := range list {
			if !yield(name(item), item) {
				return
			}
		}
	}
}

// Strings returns items that are their own names.
func Strings(list []string) iter.Seq2[string, string] {
	return Items(list, func(s string) string { return s })
}

// Run calls fn for each of the items, which come with their names, and reports
// what became of them. An item is done when fn returns nil, and has failed when
// it returns an error or panics.
//
// Run takes all items before it starts the first, and starts them in their
// order. A nil error means that each of them was tried. The report is valid
// whatever the error is; it is zero if the job did not begin, since cfg is
// wrong, the cursor refused, or the time over before all items were there.
func Run[T any](ctx context.Context, cfg Config, items iter.Seq2[string, T], fn func(ctx context.Context, item T) error) (Report, error) {
	cfg, err := cfg.ready()
	if err != nil {
		return Report{}, err
	}
	var list []T
	j := newJob(ctx, cfg, func(ctx context.Context, i int) error { return fn(ctx, list[i]) })
	defer j.cancel(nil)
	vain := j.ended(j.now()) != nil // then they are only counted
	for name, item := range items {
		if why := j.ended(j.now()); why != nil && !vain {
			return Report{}, fmt.Errorf("batch: there are more than %d items: %w", len(list), why)
		}
		j.names = append(j.names, name)
		list = append(list, item)
	}
	return j.run()
}
