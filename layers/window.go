package layers

import "time"

// window counts verdicts over a length of time, in slices of a tenth.
type window struct {
	at        int64 // the newest slice since the epoch
	n, failed int   // of all slices that are not too old
	slices    [windowSlices]struct {
		at        int64 // which slice since the epoch
		n, failed int
	}
}

const windowSlices = 10

func sliceOf(length time.Duration) time.Duration { return max(1, length/windowSlices) }

// count counts a verdict, and returns how many there are.
func (w *window) count(now instant, length time.Duration, bad bool) (n, failed int) {
	w.advance(int64(now / sliceOf(length)))
	one := 0
	if bad {
		one = 1
	}
	w.add(w.at, 1, one)
	return w.n, w.failed
}

// advance forgets the slices that are too old at a newer one.
func (w *window) advance(at int64) {
	if at == w.at {
		return
	}
	w.at = at
	for i := range w.slices {
		if s := &w.slices[i]; at-s.at >= windowSlices {
			w.n -= s.n
			w.failed -= s.failed
			s.n, s.failed = 0, 0
		}
	}
}

// add adds to a slice that is not too old.
func (w *window) add(at int64, n, failed int) {
	s := &w.slices[at%windowSlices]
	s.at = at
	s.n += n
	s.failed += failed
	w.n += n
	w.failed += failed
}

// over returns the same counts, those of them that are not too old, for another
// length.
func (w *window) over(now instant, from, to time.Duration) (o window) {
	o.at = int64(now / sliceOf(to))
	for _, s := range w.slices {
		began := instant(s.at) * sliceOf(from)
		if at := int64(began / sliceOf(to)); now-began < from && o.at-at < windowSlices {
			o.add(at, s.n, s.failed)
		}
	}
	return o
}
