package batch

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// saver is what a job knows of its store. Items that have ended count up to
// changes; the store has the first of them.
type saver struct {
	changes, sealed, stored int
	since                   instant    // of the first that is not stored
	busy                    bool       // a write is under way, of those up to sealed
	ended                   chan error // how it ended; nil without a store
	failing                 bool       // the last one failed
	retry                   instant    // no other before this
}

// saveTime bounds one use of a store.
const saveTime = 30 * time.Second

func (s *saver) changed(now instant) {
	if s.ended == nil {
		return
	}
	if s.changes == s.stored {
		s.since = now
	}
	s.changes++
}

// holds returns how many workers wait for the store. Each waits for one item.
func (s *saver) holds(items int) int {
	if s.failing {
		return 0
	}
	return max(0, s.changes-s.stored-(items-1))
}

// due returns when the next write begins.
func (s *saver) due(items int, every time.Duration) instant {
	switch unsaved := s.changes - s.stored; {
	case s.busy || unsaved == 0:
		return never
	case unsaved >= items:
		return s.retry
	}
	return max(s.retry, after(s.since, every))
}

// open takes the store and its cursor. The first write comes before the first
// item, so that a store that cannot be written costs none.
func (j *job) open() error {
	j.cursor = &Cursor{job: j.Job, items: len(j.names), sum: sumOf(j.names)}
	if j.Store == nil {
		return nil
	}
	ctx, cancel := j.Clock.WithTimeout(j.ctx, saveTime)
	defer cancel()
	saved, err := j.Store.Open(ctx)
	if err != nil {
		return fmt.Errorf("batch: %s cannot be opened: %w", j.where(), err)
	}
	if saved != nil {
		var c Cursor
		if err = c.UnmarshalText(saved); err == nil {
			err = c.resume(j.cursor, j.names)
		}
		if err != nil {
			const undo = "; or move it away, to begin anew with all items"
			return errors.Join(fmt.Errorf("batch: %s is refused: %w%s", j.where(), err, undo), j.Store.Close())
		}
		j.cursor = &c
	}
	j.saver.ended = make(chan error, 1)
	text, _ := j.cursor.MarshalText()
	if err := j.write(text); err != nil {
		j.saved(err)
	}
	return nil
}

// where names the cursor in errors.
func (j *job) where() string {
	if s, ok := j.Store.(fmt.Stringer); ok {
		return "the cursor " + s.String()
	}
	return "the cursor"
}

// write has the store save a cursor.
func (j *job) write(text []byte) (err error) {
	defer recovered(&err)
	ctx, cancel := j.Clock.WithTimeout(context.WithoutCancel(j.ctx), saveTime)
	defer cancel()
	return j.Store.Save(ctx, text)
}

func (j *job) saveIfDue(now instant) {
	if now < j.saver.due(j.SaveItems, j.SaveEvery) {
		return
	}
	j.saver.busy, j.saver.sealed = true, j.saver.changes
	text, _ := j.cursor.MarshalText()
	go func() {
		err := errGoexit
		defer func() { j.saver.ended <- err }()
		err = j.write(text)
	}()
}

// saved takes the end of a write.
func (j *job) saved(err error) {
	now := j.now()
	j.saver.busy, j.saver.failing = false, err != nil
	if err == nil {
		j.saver.stored, j.saver.since = j.saver.sealed, now
		return
	}
	j.saver.retry = after(now, j.SaveEvery)
	err = j.saveError(err)
	if j.SaveFailed != nil {
		err = j.ask(err)
	}
	if err != nil && j.stop == nil {
		j.halt(err)
		j.broken = true
	}
}

// ask has the caller decide what a failure means. A panic stops the job.
func (j *job) ask(failure error) (err error) {
	defer recovered(&err)
	return j.SaveFailed(failure)
}

func (j *job) saveError(err error) error {
	if unsaved := j.saver.changes - j.saver.stored; unsaved > 0 {
		err = fmt.Errorf("a second run would repeat %d of the items: %w", unsaved, err)
	}
	return fmt.Errorf("batch: %s cannot be written: %w", j.where(), err)
}

// close writes the cursor for the last time, completes the report, and returns
// the error of the run.
func (j *job) close() error {
	now := j.now()
	j.report.Elapsed, j.report.Paused = now, j.gate.total(now)
	j.report.Unprocessed = j.report.Items - j.report.Resumed - j.report.Done - len(j.report.Failed)
	var err error
	if j.report.Unprocessed > 0 {
		if j.stop == nil {
			j.stop = ErrDeadline // the last items ended early, for lack of time
		}
		err = j.stop
		if !j.broken {
			err = fmt.Errorf("batch: %d of %d items are unprocessed: %w", j.report.Unprocessed, j.report.Items, err)
		}
	}
	if j.Store == nil {
		return err
	}
	if j.saver.changes > j.saver.stored || j.saver.failing {
		text, _ := j.cursor.MarshalText()
		if last := j.write(text); last != nil {
			last = j.saveError(last)
			if j.broken {
				err = nil // for the same reason
			}
			err = errors.Join(err, last)
		}
	}
	return errors.Join(err, j.Store.Close())
}
