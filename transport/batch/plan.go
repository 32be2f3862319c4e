package batch

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Plan is the arithmetic of a job before it runs: whether it fits the window in
// which its results are of use, and what it may cost at worst. What is below zero
// counts as zero. The zero value has nothing to do.
type Plan struct {
	// Items is how many there are, and Mean how long one takes on average.
	Items int
	Mean  time.Duration
	// Workers is how many items are under way at once. Zero: 1.
	Workers int
	// Allowance is the longest that one item may take, its retries and waits
	// included: what the policy's Deadline allows. Zero: not known.
	Allowance time.Duration
	// Window is the time from the start of the job until its results are needed.
	// Zero: any.
	Window time.Duration
	// Deadline is the time after which the job gives up. Zero: it does not.
	Deadline time.Duration
}

// Work is the time of the workers that the job takes: Items times Mean.
func (p Plan) Work() time.Duration { return times(p.Items, p.Mean) }

// WallClock is how long the job takes if each item takes Mean. More workers
// shorten it, and leave the work as it is.
func (p Plan) WallClock() time.Duration {
	w := p.workers()
	rounds := p.Items / w
	if p.Items%w > 0 {
		rounds++
	}
	return times(rounds, p.Mean)
}

// Slack is what the wall clock leaves of the window, negative if the job does
// not fit. Without a window it is zero.
func (p Plan) Slack() time.Duration {
	if p.Window <= 0 {
		return 0
	}
	return p.Window - p.WallClock()
}

// Unprocessed is how many items the deadline leaves if each takes Mean.
func (p Plan) Unprocessed() int {
	if p.Deadline <= 0 || p.WallClock() <= p.Deadline {
		return 0
	}
	return p.Items - p.workers()*int(p.Deadline/p.Mean)
}

// Unbounded is the time of the workers that the job takes at worst, each item
// all of its allowance, if no deadline ends it: no number of workers changes it.
func (p Plan) Unbounded() time.Duration { return times(p.Items, p.Allowance) }

// Bounded is the time of the workers that the job takes at worst with its
// deadline. Without one it is Unbounded.
func (p Plan) Bounded() time.Duration {
	if p.Deadline <= 0 {
		return p.Unbounded()
	}
	bound := times(p.workers(), p.Deadline)
	if p.Allowance <= 0 {
		return bound
	}
	return min(bound, p.Unbounded())
}

// Spare is how many items may take all of their allowance without the job
// missing its deadline.
func (p Plan) Spare() int {
	extra := p.Allowance - p.Mean
	if extra <= 0 || p.Deadline <= 0 || p.Deadline <= p.WallClock() {
		return 0
	}
	return int(min(time.Duration(max(0, p.Items)), times(p.workers(), p.Deadline-p.WallClock())/extra))
}

func (p Plan) workers() int { return max(1, p.Workers) }

func (p Plan) crew() string {
	if p.workers() == 1 {
		return "1 worker"
	}
	return fmt.Sprintf("%d workers", p.workers())
}

// times is n times d, or the longest duration if that is longer. What is below
// zero counts as zero.
func times(n int, d time.Duration) time.Duration {
	switch {
	case n <= 0 || d <= 0:
		return 0
	case d > math.MaxInt64/time.Duration(n):
		return math.MaxInt64
	}
	return time.Duration(n) * d
}

// String is the plan for whoever has to agree to it, one line for each thing
// that follows from its numbers.
func (p Plan) String() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s"+format+"\n", append([]any{name}, args...)...)
	}
	line("work", "%s items x %s = %s", grouped(p.Items), length(p.Mean), workerTime(p.Work()))
	line("wall clock", "%s on %s", length(p.WallClock()), p.crew())
	if p.Window > 0 {
		if p.Slack() >= 0 {
			line("window", "%s, which leaves %s of slack", length(p.Window), length(p.Slack()))
		} else {
			line("window", "%s, which is %s too short", length(p.Window), length(-p.Slack()))
		}
	}
	switch n := p.Unprocessed(); {
	case p.Deadline <= 0:
		line("deadline", "none: nothing bounds the job")
	case n > 0:
		line("deadline", "%s, which leaves %s items unprocessed", length(p.Deadline), grouped(n))
	case p.Window > 0 && p.Deadline > p.Window:
		line("deadline", "%s, which is %s after the window ends", length(p.Deadline), length(p.Deadline-p.Window))
	case p.Window > 0:
		line("deadline", "%s, which is %s before the window ends", length(p.Deadline), length(p.Window-p.Deadline))
	default:
		line("deadline", "%s", length(p.Deadline))
	}
	if p.Allowance <= 0 {
		return b.String()
	}
	line("at worst", "%s items x %s = %s without a deadline", grouped(p.Items), length(p.Allowance), workerTime(p.Unbounded()))
	if p.Deadline > 0 && p.Bounded() < p.Unbounded() {
		line("", "%s x %s = %s with it", p.crew(), length(p.Deadline), workerTime(p.Bounded()))
	}
	switch {
	case p.Allowance < p.Mean:
		line("allowance", "%s is less than an item takes", length(p.Allowance))
	case p.Deadline > 0:
		line("allowance", "%s each; %s items may use it up before any is left at the deadline", length(p.Allowance), grouped(p.Spare()))
	}
	return b.String()
}

// length is a duration without the units that are zero.
func length(d time.Duration) string {
	if d >= time.Minute {
		d = d.Round(time.Second)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-len("0s")]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-len("0m")]
	}
	return s
}

// workerTime is the time of many workers in the unit that suits it.
func workerTime(d time.Duration) string {
	const day = 24 * time.Hour
	switch days := d.Hours() / day.Hours(); {
	case d == math.MaxInt64:
		return "over 292 worker-years"
	case days >= 100:
		return grouped(int(math.Round(days))) + " worker-days"
	case days >= 1:
		return fmt.Sprintf("%.1f worker-days", days)
	case d >= time.Hour:
		return fmt.Sprintf("%.1f worker-hours", d.Hours())
	case d >= time.Minute:
		return fmt.Sprintf("%.1f worker-minutes", d.Minutes())
	}
	return fmt.Sprintf("%.1f worker-seconds", d.Seconds())
}

// grouped is a number with a comma between thousands.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
