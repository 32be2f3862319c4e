package derive

import (
	"iter"
	"math"
	"math/bits"
	"time"
)

// A histogram is linear below 256 ns and logarithmic above: each doubling is
// divided into 128 bins, so that the middle of a bin is within 0.4 % of every
// duration in it. The last bin ends after 39 hours, and takes what is longer.
const (
	perOctave = 128
	octaves   = 41 // the first two are linear
	bins      = octaves * perOctave
	longest   = time.Duration(1)<<47 - 1
)

// A Histogram counts durations in bins of at most 0.8 % width. Its memory is
// bounded, however many it counts: a kilobyte for each doubling of the duration
// that occurs, 41 kB at most. Above 39 hours all are in one bin, and only Max tells
// them apart. The zero value is empty and ready to use.
// It is not safe for concurrent use.
type Histogram struct {
	octaves [octaves]*[perOctave]uint64
	count   uint64
	max     time.Duration
}

// A Bin is a range of durations, from From up to but not including To.
type Bin struct{ From, To time.Duration }

// binOf returns the index of the bin of a duration.
func binOf(d time.Duration) int {
	v := uint64(min(max(d, 0), longest))
	shift := max(bits.Len64(v)-8, 0)
	return shift*perOctave + int(v>>shift)
}

func binAt(i int) Bin {
	shift := max(i/perOctave-1, 0)
	from := time.Duration(i-shift*perOctave) << shift
	return Bin{from, from + 1<<shift}
}

// middle stands for all durations of the bin.
func (b Bin) middle() time.Duration { return b.From + (b.To-b.From)/2 }

// Add counts a duration. One below zero counts as zero.
func (h *Histogram) Add(d time.Duration) { h.add(binOf(d), 1, max(d, 0)) }

func (h *Histogram) add(bin int, n uint64, longest time.Duration) {
	o := &h.octaves[bin/perOctave]
	if *o == nil {
		*o = new([perOctave]uint64)
	}
	(*o)[bin%perOctave] = plus((*o)[bin%perOctave], n)
	h.count = plus(h.count, n)
	h.max = max(h.max, longest)
}

// plus adds, and stays at the largest number there is.
func plus(a, b uint64) uint64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxUint64
}

// Count returns how many durations there are.
func (h *Histogram) Count() uint64 { return h.count }

// Max returns the longest duration, exactly; 0 if there is none.
func (h *Histogram) Max() time.Duration { return h.max }

// Bins yields the bins that are not empty and their counts, in ascending order.
func (h *Histogram) Bins() iter.Seq2[Bin, uint64] {
	return func(yield func(Bin, uint64) bool) {
		for i, n := range h.all {
			if !yield(binAt(i), n) {
				return
			}
		}
	}
}

// all yields the indices of the bins that are not empty, and their counts.
func (h *Histogram) all(yield func(int, uint64) bool) {
	for o, octave := range h.octaves {
		if octave == nil {
			continue
		}
		for i, n := range octave {
			if n > 0 && !yield(o*perOctave+i, n) {
				return
			}
		}
	}
}

// Quantile returns the duration that the share q of all, from 0 to 1, is not above,
// within 0.4 %; 0 if there is none.
func (h *Histogram) Quantile(q float64) time.Duration {
	return newCurve(h, new(Histogram), 0, bins).quantile(q).at
}

// Merge adds what is in other.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range other.all {
		h.add(i, n, other.max)
	}
}

// between counts the durations in the bins from one index up to, but not
// including, another.
func (h *Histogram) between(from, to int) (n uint64) {
	for i := max(from, 0); i < min(to, bins); i++ {
		if o := h.octaves[i/perOctave]; o != nil {
			n = plus(n, o[i%perOctave])
		}
	}
	return n
}
