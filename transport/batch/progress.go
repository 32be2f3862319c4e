package batch

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// progress is the state of a job as it is shown.
type progress struct {
	job                 string
	items, done, failed int           // done in this run or before, failed in this one
	rate                float64       // items that end a second, of late
	deadline            time.Duration // until it; never without one
	paused              time.Duration // until the pause is over; 0: there is none
	ended               bool
	elapsed             time.Duration
}

// left estimates how long the items will take that are left.
func (p progress) left() (d time.Duration, known bool) {
	n := p.items - p.done - p.failed
	if n == 0 {
		return 0, true
	}
	seconds := float64(n) / p.rate
	if p.rate <= 0 || seconds >= never.Seconds() {
		return 0, false
	}
	return time.Duration(seconds * float64(time.Second)), true
}

// facts is what both forms say.
func (p progress) facts() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d/%d", p.done, p.items)
	if p.failed > 0 {
		fmt.Fprintf(&b, ", %d failed", p.failed)
	}
	if p.ended {
		fmt.Fprintf(&b, ", %d unprocessed, in %v", p.items-p.done-p.failed, whole(p.elapsed))
		return b.String()
	}
	fmt.Fprintf(&b, ", %.3g/s", p.rate)
	left, known := p.left()
	switch {
	case p.paused >= least:
		fmt.Fprintf(&b, ", paused for %v", whole(p.paused))
	case known:
		fmt.Fprintf(&b, ", %v left", whole(left))
	}
	if p.deadline < never && (!known || left > p.deadline) {
		fmt.Fprintf(&b, ", deadline in %v", whole(p.deadline))
	}
	return b.String()
}

func whole(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}

func (p progress) percent() int { return 100 * p.done / max(1, p.items) }

// line is the state as a line of a log.
func (p progress) line() string {
	name := ""
	if p.job != "" {
		name = p.job + ": "
	}
	return fmt.Sprintf("%s%d%% done, %s\n", name, p.percent(), p.facts())
}

// The columns of a terminal that are used, and of them those of the bar.
const (
	columns    = 79
	barColumns = 30
)

// bar is the state as a line of a terminal, which takes the place of the last.
func (p progress) bar() string {
	text := fmt.Sprintf("%3d%%  %s", p.percent(), p.facts())
	if room := min(barColumns, columns-len(text)-len("[] ")); room >= 5 {
		full := room * p.done / max(1, p.items)
		text = fmt.Sprintf("[%s%s] %s", strings.Repeat("#", full), strings.Repeat("-", room-full), text)
	}
	end := ""
	if p.ended {
		end = "\n"
	}
	return fmt.Sprintf("\r%-*.*s%s", columns, columns, text, end)
}

// progress returns the state of the job.
func (j *job) progress(now instant) progress {
	p := progress{
		job: j.Job, items: j.report.Items, done: j.report.Resumed + j.report.Done, failed: len(j.report.Failed),
		deadline: never, elapsed: now, ended: j.over(),
	}
	if j.deadline != never {
		p.deadline = max(0, j.deadline-now)
	}
	if j.gate.shut {
		p.paused = max(0, j.gate.until-now)
	}
	return p
}

// display writes the progress, without ever making the job wait.
type display struct {
	form   func(progress) string // nil: nothing is written
	every  time.Duration
	next   instant
	speed  speed
	frames chan string
	done   chan struct{}
}

func newDisplay(w io.Writer, every time.Duration) *display {
	d := &display{next: never}
	if w == nil {
		return d
	}
	d.next, d.every = 0, 30*time.Second
	d.form = progress.line
	if isTerminal(w) {
		d.form, d.every = progress.bar, 200*time.Millisecond
	}
	if every > 0 {
		d.every = every
	}
	d.frames, d.done = make(chan string, 1), make(chan struct{})
	go func() {
		defer close(d.done)
		for text := range d.frames {
			put(w, text)
		}
	}()
	return d
}

// put writes text. A writer that fails, or panics, costs the job nothing.
func put(w io.Writer, text string) {
	defer func() { _ = recover() }()
	_, _ = io.WriteString(w, text)
}

// isTerminal reports that w is a device which shows characters.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (d *display) due(now instant) bool { return now >= d.next }

// draw writes the progress, unless the writer is still busy with the last.
func (d *display) draw(p progress, now instant) {
	d.next = now + d.every
	p.rate = d.speed.at(now, p.done+p.failed)
	select {
	case d.frames <- d.form(p):
	default:
	}
}

// end writes the progress for the last time, and waits for it.
func (d *display) end(p progress) {
	if d.form == nil {
		return
	}
	select {
	case d.frames <- d.form(p):
	case <-d.done: // the writer ended its goroutine
	}
	close(d.frames)
	<-d.done
}

// speed is how many items end a second, over the last half to full minute.
type speed struct {
	old, recent struct {
		at instant
		n  int
	}
	begun bool
}

const speedOver = 30 * time.Second

func (s *speed) at(now instant, n int) float64 {
	if !s.begun {
		s.begun = true
		s.recent.at, s.recent.n = now, n // done before
		s.old = s.recent
	}
	if now-s.recent.at >= speedOver {
		s.old = s.recent
		s.recent.at, s.recent.n = now, n
	}
	if now == s.old.at {
		return 0
	}
	return float64(n-s.old.n) / (now - s.old.at).Seconds()
}
