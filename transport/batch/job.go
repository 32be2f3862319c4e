package batch

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/weir-go/weir/layers"
)

// A job is one run. One goroutine has all of its state, and takes decisions one
// after the other: those of the items, of the store and of the progress only
// send to it.
type job struct {
	Config

	ctx      context.Context // the caller's
	items    context.Context // that of the items
	cancel   context.CancelCauseFunc
	names    []string
	do       func(ctx context.Context, item int) error
	start    time.Time
	deadline instant
	results  chan result
	report   Report
	cursor   *Cursor

	queue   []int // what is to be started, first to last
	running int
	resting []instant   // when a worker goes on that a limit refused
	returns map[int]int // how often an item was sent, cut off and put back
	stop    error       // why nothing more is started
	broken  bool        // the store is why

	alarm alarm
	gate  gate
	guess guess
	saver saver
	show  *display
}

// instant is a time as the job counts it: since it began.
type instant = time.Duration

const never instant = math.MaxInt64

// result is the end of an item.
type result struct {
	item  int
	trial bool
	err   error
	verdict
	at    instant
	ended bool // the context had, too
}

func newJob(ctx context.Context, cfg Config, do func(context.Context, int) error) *job {
	j := &job{
		Config: cfg, ctx: ctx, do: do,
		start: cfg.Clock.Now(), deadline: never, returns: map[int]int{},
	}
	if cfg.Within > 0 {
		j.deadline = cfg.Within
	}
	if !cfg.Deadline.IsZero() {
		j.deadline = min(j.deadline, cfg.Deadline.Sub(j.start))
	}
	j.items, j.cancel = context.WithCancelCause(ctx)
	if at := j.deadlineTime(); !at.IsZero() {
		j.items = layers.WithDeadline(j.items, at)
	}
	j.alarm.wake = make(chan struct{}, 1)
	return j
}

func (j *job) now() instant { return j.Clock.Since(j.start) }

// deadlineTime returns the deadline, zero if there is none.
func (j *job) deadlineTime() time.Time {
	if j.deadline == never {
		return time.Time{}
	}
	return j.start.Add(j.deadline)
}

// ended says why the job is over by now; nil: it is not.
func (j *job) ended(now instant) error {
	switch {
	case j.ctx.Err() != nil:
		return context.Cause(j.ctx)
	case now >= j.deadline:
		return ErrDeadline
	}
	return nil
}

// endsAt reports that at is when the time is over for all items.
func (j *job) endsAt(at time.Time) bool {
	callers, _ := j.ctx.Deadline()
	return !at.IsZero() && (at.Equal(j.deadlineTime()) || at.Equal(callers))
}

func (j *job) run() (Report, error) {
	j.results = make(chan result, min(j.Workers, len(j.names)))
	if err := j.open(); err != nil {
		return Report{}, err
	}
	j.report = Report{Items: len(j.names), Resumed: j.cursor.Done(), Cursor: j.cursor}
	for i := range j.names {
		if !j.cursor.done.has(i) && !j.cursor.failed.has(i) {
			j.queue = append(j.queue, i)
		}
	}
	for _, r := range j.cursor.failed {
		for i := r.lo; i < r.hi; i++ {
			if !j.cursor.done.has(i) {
				j.queue = append(j.queue, i)
			}
		}
	}
	j.show = newDisplay(j.Progress, j.ProgressEvery)
	j.loop()
	err := j.close()
	j.show.end(j.progress(j.now()))
	return j.report, err
}

func (j *job) loop() {
	defer j.alarm.stop()
	ended := j.ctx.Done()
	for {
		j.collect()
		now := j.now()
		j.look(now)
		for j.mayStart(now) {
			j.startNext(now)
		}
		j.saveIfDue(now)
		if j.over() {
			return // which is shown, too
		}
		if j.show.due(now) {
			j.show.draw(j.progress(now), now)
		}
		j.alarm.set(j.Clock, now, j.next(now))
		select {
		case r := <-j.results:
			j.settle(r)
		case err := <-j.saver.ended:
			j.saved(err)
		case <-j.alarm.wake:
			j.alarm.stop()
		case <-ended:
			ended = nil // look sees it
		}
	}
}

// collect takes what has ended meanwhile, so that it is saved together.
func (j *job) collect() {
	for {
		select {
		case r := <-j.results:
			j.settle(r)
		default:
			return
		}
	}
}

// look notes what time has brought.
func (j *job) look(now instant) {
	j.resting = slices.DeleteFunc(j.resting, func(until instant) bool { return until <= now })
	switch why := j.ended(now); {
	case why != nil:
		j.halt(why)
		j.cancel(why)
	case j.running == 0 && len(j.queue) > 0 && j.deadline != never && j.earliest() >= j.deadline:
		j.halt(ErrDeadline) // a wait that cannot end in time does not begin
	}
}

func (j *job) halt(why error) {
	if j.stop == nil {
		j.stop = why
	}
}

// earliest is before when no item is started, as far as is known.
func (j *job) earliest() instant {
	at := instant(0)
	if j.gate.shut {
		at = j.gate.until
	}
	if len(j.resting) >= j.Workers {
		at = max(at, slices.Min(j.resting))
	}
	return at
}

func (j *job) mayStart(now instant) bool {
	busy := j.running + len(j.resting) + j.saver.holds(j.SaveItems)
	return j.stop == nil && len(j.queue) > 0 && busy < j.Workers && j.gate.open(now)
}

func (j *job) startNext(now instant) {
	i := j.queue[0]
	j.queue = j.queue[1:]
	j.running++
	trial := j.gate.started(now)
	go func() {
		r := result{item: i, trial: trial, err: errGoexit, verdict: verdict{outcome: failed}}
		defer func() {
			r.at, r.ended = j.now(), j.ctx.Err() != nil
			j.results <- r
		}()
		defer recovered(&r.err)
		r.err = j.do(j.items, i)
		r.verdict = judge(r.err, j.endsAt) // here, as the error's methods are the caller's, too
	}()
}

// settle takes the end of an item.
func (j *job) settle(r result) {
	j.running--
	o, wait, sent := r.outcome, r.wait, r.sent
	if o != done && (r.at >= j.deadline || r.ended) {
		o = stopped
	}
	if wait <= 0 && (o == circuit || o == limited) {
		wait = j.guess.wait(r.at, sent)
	}
	if o == circuit {
		j.gate.met(r.at, wait)
	} else if r.trial {
		j.gate.passed(r.at)
	}
	if o == circuit && sent || o == failed && r.trial && r.call {
		o = circuit
		if j.returns[r.item]++; j.returns[r.item] > mostReturns {
			o = failed
		}
	}
	switch o {
	case done:
		j.guess.n = 0
		j.report.Done++
		j.cursor.done.add(r.item)
		j.cursor.failed.remove(r.item)
		j.saver.changed(r.at)
	case failed:
		j.report.Failed = append(j.report.Failed, Failure{r.item, j.names[r.item], r.err})
		j.cursor.failed.add(r.item)
		j.saver.changed(r.at)
	case stopped: // a later run has it
	case circuit, limited:
		j.report.PutBack++
		j.queue = append(j.queue, r.item)
		if o == limited {
			j.resting = append(j.resting, after(r.at, wait))
		}
	}
}

// over reports that nothing is under way, and nothing will be.
func (j *job) over() bool {
	return j.running == 0 && !j.saver.busy && (j.stop != nil || len(j.queue) == 0)
}

// next returns when there is something to do, if nothing ends before.
func (j *job) next(now instant) instant {
	at := never
	for _, t := range slices.Concat(j.resting, []instant{
		j.gate.until, j.deadline, j.saver.due(j.SaveItems, j.SaveEvery), j.show.next,
	}) {
		if t > now {
			at = min(at, t)
		}
	}
	return at
}

// alarm wakes the job at an instant.
type alarm struct {
	wake  chan struct{}
	at    instant
	timer *clock.Timer
}

func (a *alarm) set(c clock.Clock, now, at instant) {
	if a.timer != nil && a.at == at {
		return
	}
	a.stop()
	if a.at = at; at < never {
		a.timer = c.AfterFunc(at-now, func() {
			select {
			case a.wake <- struct{}{}:
			default:
			}
		})
	}
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
}
