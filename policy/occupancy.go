package policy

import (
	"fmt"
	"math"
	"time"
)

// Occupancy is how many calls are under way at once if each stays as long as it
// may: by Little's law, the rate at which they begin times their stay.
type Occupancy struct {
	PerSecond float64
	Stay      time.Duration // 0: without bound
}

// InFlight returns the number of calls, rounded up. It is math.MaxInt if
// nothing bounds the stay.
func (o Occupancy) InFlight() int {
	n := math.Ceil(o.PerSecond * o.Stay.Seconds())
	if o.Stay <= 0 || n >= math.MaxInt {
		return math.MaxInt
	}
	return int(n)
}

// Fitting returns the longest stay at which no more than limit calls are under
// way, in whole milliseconds.
func (o Occupancy) Fitting(limit int) time.Duration {
	stay := min(float64(limit)/o.PerSecond, maxDuration.Seconds())
	return time.Duration(stay * float64(time.Second)).Truncate(time.Millisecond)
}

// Exceeds compares the number of calls with a limit that has a name, and says
// what it comes to and what would fit. It is empty if they fit.
func (o Occupancy) Exceeds(name string, limit int) string {
	switch {
	case o.InFlight() <= limit:
		return ""
	case o.Stay <= 0:
		return fmt.Sprintf("%g/s without a bound on their stay have none in flight, against %s %d; they fit if none stays longer than %v",
			o.PerSecond, name, limit, o.Fitting(limit))
	}
	return fmt.Sprintf("%g/s x %v = %d in flight at worst, against %s %d; a deadline of %v would fit",
		o.PerSecond, o.Stay, o.InFlight(), name, limit, o.Fitting(limit))
}
