package derive

import (
	"math"
	"slices"
	"time"
)

// A curve is the distribution that the successes, and those of the cut that are
// deemed healthy, are a sample of. It is the estimate of Kaplan and Meier: one
// that was cut short after d says that it would have taken longer than d, and no
// more. (E. L. Kaplan, P. Meier: Nonparametric estimation from incomplete
// observations, 1958.)
type curve struct {
	done, cut *Histogram
	from, to  int // the bins that count
	healthy   []censored
}

// censored are durations that were cut short in the bin.
type censored struct {
	bin int
	n   float64
}

func newCurve(done, cut *Histogram, from, to int) *curve {
	c := &curve{done: done, cut: cut, from: from, to: to}
	c.deem(0)
	return c
}

// deem finds out how many of the cut were healthy. Those that a limit cut and
// that would have succeeded are the tail of the successes beyond the limit. How
// long that is shows in the tail before it: how many fewer there are in each
// doubling than in the one before, and how that pace changes. All that were cut
// beyond that number were dead. If successes end long before the limit, all were.
//
// The tail is taken to be so many standard deviations longer than that; if any,
// with a pace that stays as it has been, as in the thickest tails.
func (c *curve) deem(deviations float64) {
	c.healthy = nil
	var list []censored
	for i, n := range c.cut.all {
		if c.from <= i && i < c.to {
			list = append(list, censored{i, float64(n)})
		}
	}
	slices.Reverse(list)
	var sum, beyond float64 // of the healthy, and of the successes beyond the bin
	end := bins
	for _, b := range list {
		beyond += float64(c.done.between(b.bin+1, end))
		end = b.bin + 1
		last, before, first := c.doubling(b.bin, 0), c.doubling(b.bin, 1), c.doubling(b.bin, 2)
		pace, earlier := last/max(before, 1), before/max(first, 1)
		if deviations > 0 {
			pace = (last + before) / max(before+first, 1)
		} else if pace < 1 {
			pace *= min(1, pace/earlier)
		}
		pace = min(pace, 0.9)
		tail := last * pace / (1 - pace)
		// The two numbers vary by their roots, and the tail with both.
		vary := math.Sqrt(square(1+1/(1-pace))/max(last, 1) + square(1/(1-pace))/max(before, 1))
		tail = max(0, tail*(1+deviations*vary))
		if n := min(b.n, beyond+tail-sum); n > 0 {
			c.healthy = append(c.healthy, censored{b.bin, n})
			sum += n
		}
	}
	slices.Reverse(c.healthy)
}

func square(x float64) float64 { return x * x }

// doubling counts the successes in the doubling that ends with a bin, or in one
// of those before.
func (c *curve) doubling(bin, ago int) float64 {
	end := bin + 1 - ago*perOctave
	return float64(c.done.between(end-perOctave, end))
}

// deemed returns how many of the cut count as healthy.
func (c *curve) deemed() (n float64) {
	for _, h := range c.healthy {
		n += h.n
	}
	return n
}

// size returns how many the curve is made from.
func (c *curve) size() float64 {
	return float64(c.done.between(c.from, c.to)) + c.deemed()
}

// walk yields the bins with successes, and the share that takes longer than the
// durations in them and all before.
func (c *curve) walk(yield func(bin int, survival float64) bool) {
	risk, survival := c.size(), 1.0
	healthy := c.healthy
	for i, n := range c.done.all {
		if i < c.from || i >= c.to {
			continue
		}
		for len(healthy) > 0 && healthy[0].bin < i {
			risk -= healthy[0].n
			healthy = healthy[1:]
		}
		survival *= max(0, 1-float64(n)/risk)
		risk -= float64(n)
		if !yield(i, survival) {
			return
		}
	}
}

// point is a quantile. beyond means that it is longer than at, since too many
// were cut short there.
type point struct {
	at     time.Duration
	beyond bool
}

// tiny makes up for what the arithmetic of floating point loses.
const tiny = 1e-9

// quantile returns the duration that the share q is not above.
func (c *curve) quantile(q float64) point {
	last := -1
	for i, survival := range c.walk {
		last = i
		if 1-survival >= q-tiny {
			return point{at: c.middle(i)}
		}
	}
	p := point{beyond: true}
	if last >= 0 {
		p.at = c.middle(last)
	}
	if n := len(c.healthy); n > 0 {
		p.at = max(p.at, binAt(c.healthy[n-1].bin).middle())
	}
	return p
}

func (c *curve) middle(bin int) time.Duration { return min(binAt(bin).middle(), c.done.max) }

// above returns the share that takes longer than d.
func (c *curve) above(d time.Duration) float64 {
	share := 1.0
	for i, survival := range c.walk {
		if i > binOf(d) {
			break
		}
		share = survival
	}
	if share < tiny {
		return 0
	}
	return share
}

// bounds returns what the quantile q is not below, and not above, with the given
// confidence for each side. They are order statistics whose ranks are those of
// the binomial distribution, whatever the distribution of the durations; how
// many of the cut are healthy is taken to be as few, or as many, as is likely.
func (c *curve) bounds(q, confidence float64) (low, high point) {
	deviations := normal(confidence)
	fewest, most := *c, *c
	fewest.deem(-deviations)
	most.deem(deviations)
	// Of n durations, so many are longer than the quantile:
	if n := math.Round(fewest.size()); n > 0 {
		if many := binomial(n, 1-q, confidence); many < n {
			low = fewest.quantile((n - many) / n)
		}
	}
	n := math.Round(most.size())
	if few := binomial(n, 1-q, 1-confidence); few > 0 {
		return low, most.quantile((n - few + 1) / n)
	}
	return low, point{at: most.quantile(1).at, beyond: true}
}

// needed returns how many durations it takes until one of them is above the
// quantile with the given confidence.
func needed(q, confidence float64) uint64 {
	return uint64(math.Ceil(math.Log(1-confidence)/math.Log(q) - tiny))
}

// binomial returns the smallest number that of n draws with chance p no more
// succeed with the probability c.
func binomial(n, p, c float64) float64 {
	deviation := math.Sqrt(n * p * (1 - p))
	if deviation > 1000 { // the normal distribution is as good
		return min(n, math.Ceil(n*p+normal(c)*deviation))
	}
	// What lies ten standard deviations off does not count: the sum may come to less
	// than c there, by what arithmetic loses.
	k, last := max(0, math.Floor(n*p-10*deviation-10)), min(n, math.Ceil(n*p+10*deviation+10))
	mass := math.Exp(logChoose(n, k) + k*math.Log(p) + (n-k)*math.Log1p(-p))
	sum := mass
	for sum < c && k < last {
		mass *= (n - k) / (k + 1) * p / (1 - p)
		k++
		sum += mass
	}
	return k
}

// normal returns the quantile of the standard normal distribution.
func normal(q float64) float64 { return math.Sqrt2 * math.Erfinv(2*q-1) }

func logChoose(n, k float64) float64 {
	a, _ := math.Lgamma(n + 1)
	b, _ := math.Lgamma(k + 1)
	c, _ := math.Lgamma(n - k + 1)
	return a - b - c
}
