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
// nothing bounds the stay, and 0 if the rate is not above zero.
func (o Occupancy) InFlight() int {
	n := o.PerSecond * o.Stay.Seconds()
	if whole := math.Round(n); math.Abs(n-whole) <= n*tiny {
		n = whole
	}
	n = math.Ceil(n)
	switch {
	case !(o.PerSecond > 0): // NaN, too
		return 0
	case o.Stay <= 0 || n >= math.MaxInt:
		return math.MaxInt
	}
	return int(n)
}

// tiny is what the arithmetic of floating point may be off by: 1.1 x 50 is 55.
const tiny = 1e-12

// Fitting returns the longest stay at which no more than limit calls are under
// way, in whole milliseconds.
func (o Occupancy) Fitting(limit int) time.Duration {
	if !(o.PerSecond > 0) {
		return maxDuration
	}
	stay := min(float64(max(0, limit))/o.PerSecond*(1+tiny), maxDuration.Seconds())
	return time.Duration(stay * float64(time.Second)).Truncate(time.Millisecond)
}

// InAll returns the occupancy of several kinds of calls together. Its Stay is
// their mean.
func InAll(kinds ...Occupancy) (all Occupancy) {
	var calls float64
	bounded := true
	for _, o := range kinds {
		all.PerSecond += o.PerSecond
		calls += o.PerSecond * o.Stay.Seconds()
		bounded = bounded && (o.Stay > 0 || o.PerSecond == 0)
	}
	if bounded && all.PerSecond > 0 {
		all.Stay = time.Duration(min(calls/all.PerSecond, maxDuration.Seconds()) * float64(time.Second))
	}
	return all
}

// Room is what there is for calls that are under way. Zero is room for any
// number, or not known.
type Room struct {
	InFlight        int   // InFlight.Max
	MaxConnsPerHost int   // of the base
	Files           int   // descriptors, of which a call takes one unless it shares a connection
	Memory, PerCall int64 // bytes in all, and those that a call takes
}

// Against compares the number of calls with each kind of room, and says of each
// that is too small what [Occupancy.Exceeds] says.
func (o Occupancy) Against(r Room) (excess []string) {
	calls := 0
	if r.Memory > 0 && r.PerCall > 0 {
		calls = int(max(1, min(r.Memory/r.PerCall, math.MaxInt)))
	}
	for _, room := range []struct {
		name  string
		limit int
	}{
		{"InFlight.Max", r.InFlight},
		{"the base's MaxConnsPerHost", r.MaxConnsPerHost},
		{"a file descriptor limit of", r.Files},
		{fmt.Sprintf("memory of %s, %s a call, for", size(r.Memory), size(r.PerCall)), calls},
	} {
		if room.limit <= 0 {
			continue
		}
		if e := o.Exceeds(room.name, room.limit); e != "" {
			excess = append(excess, e)
		}
	}
	return excess
}

// size is a number of bytes in the largest unit that divides it.
func size(bytes int64) string {
	for _, u := range []struct {
		shift int
		name  string
	}{{30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if n := bytes >> u.shift; n > 0 && n<<u.shift == bytes {
			return fmt.Sprintf("%d %s", n, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", bytes)
}

// Exceeds compares the number of calls with a limit that has a name, and says
// what it comes to and what would fit. It is empty if they fit.
func (o Occupancy) Exceeds(name string, limit int) string {
	fitting := o.Fitting(limit)
	switch {
	case o.InFlight() <= limit:
		return ""
	case o.Stay <= 0:
		return fmt.Sprintf("%g/s without a bound on their stay are any number in flight, against %s %d; they fit if none stays longer than %v",
			o.PerSecond, name, limit, fitting)
	case fitting == 0:
		return fmt.Sprintf("%g/s x %v = %d in flight at worst, against %s %d; no deadline would fit",
			o.PerSecond, o.Stay, o.InFlight(), name, limit)
	}
	return fmt.Sprintf("%g/s x %v = %d in flight at worst, against %s %d; a deadline of %v would fit",
		o.PerSecond, o.Stay, o.InFlight(), name, limit, fitting)
}
