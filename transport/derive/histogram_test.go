package derive

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestBins(t *testing.T) {
	next := time.Duration(0)
	for i := range bins {
		b := binAt(i)
		if b.From != next || b.To <= b.From {
			t.Fatalf("bin %d is %d to %d, and the one before ends at %d", i, b.From, b.To, next)
		}
		if binOf(b.From) != i || binOf(b.To-1) != i {
			t.Fatalf("bin %d: %d is in %d, %d in %d", i, b.From, binOf(b.From), b.To-1, binOf(b.To-1))
		}
		if off := float64(b.To-1-b.middle()) / float64(max(b.From, 1)); b.From >= 256 && off > 0.004 {
			t.Fatalf("bin %d: its middle is off by %g", i, off)
		}
		next = b.To
	}
	if next != longest+1 || longest < 39*time.Hour {
		t.Errorf("the last bin ends at %v", next)
	}
	for d, want := range map[time.Duration]int{-1: 0, math.MinInt64: 0, longest + 1: bins - 1, math.MaxInt64: bins - 1} {
		if got := binOf(d); got != want {
			t.Errorf("%d is in bin %d, want %d", d, got, want)
		}
	}
}

// TestQuantile: whatever the durations, a quantile is within 1 % of that of the
// sorted list.
func TestQuantile(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for name, draw := range distributions {
		var h Histogram
		list := make([]time.Duration, 5_000)
		for i := range list {
			list[i] = draw(r)
			h.Add(list[i])
		}
		slices.Sort(list)
		for _, q := range []float64{0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1} {
			want := list[max(0, int(math.Ceil(q*5_000-tiny))-1)]
			if got := h.Quantile(q); !near(got, want, 0.01) {
				t.Errorf("%s: p%g is %v, want %v", name, q*100, got, want)
			}
		}
		if h.Max() != list[len(list)-1] || h.Count() != 5_000 {
			t.Errorf("%s: %d, at most %v; want 5000, at most %v", name, h.Count(), h.Max(), list[len(list)-1])
		}
		var n uint64
		for b, c := range h.Bins() {
			if n += c; b.From > h.Max() {
				t.Errorf("%s: a bin begins at %v, beyond the maximum", name, b.From)
			}
		}
		if n != 5_000 {
			t.Errorf("%s: %d in the bins", name, n)
		}
	}
	if got := new(Histogram).Quantile(0.5); got != 0 {
		t.Errorf("of nothing, the median is %v", got)
	}
}

// TestMemory: a histogram does not grow with what it counts.
func TestMemory(t *testing.T) {
	var h Histogram
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		h.Add(time.Duration(r.Int64N(int64(time.Hour))) >> r.IntN(30))
	}
	if n := testing.AllocsPerRun(100, func() { h.Add(time.Duration(r.Int64N(int64(time.Hour)))) }); n > 0 {
		t.Errorf("a further duration takes %g allocations", n)
	}
}

func TestCountsDoNotWrap(t *testing.T) {
	var h Histogram
	h.add(7, math.MaxUint64-1, 7)
	h.Merge(&h)
	if h.Count() != math.MaxUint64 || h.between(7, 8) != math.MaxUint64 {
		t.Errorf("the count is %d", h.Count())
	}
}

var distributions = map[string]func(*rand.Rand) time.Duration{
	"uniform":     func(r *rand.Rand) time.Duration { return time.Duration(r.Int64N(int64(time.Second))) },
	"exponential": func(r *rand.Rand) time.Duration { return time.Duration(r.ExpFloat64() * float64(time.Second)) },
	"log-normal":  logNormal(400*time.Millisecond, 0.7),
	"pareto":      pareto(100*time.Millisecond, 1.5),
	"nanoseconds": func(r *rand.Rand) time.Duration { return time.Duration(r.IntN(500)) },
	"constant":    func(*rand.Rand) time.Duration { return 1234567 },
}

func logNormal(median time.Duration, sigma float64) func(*rand.Rand) time.Duration {
	return func(r *rand.Rand) time.Duration {
		return time.Duration(float64(median) * math.Exp(sigma*r.NormFloat64()))
	}
}

func pareto(least time.Duration, alpha float64) func(*rand.Rand) time.Duration {
	return func(r *rand.Rand) time.Duration {
		return time.Duration(float64(least) * math.Pow(1-r.Float64(), -1/alpha))
	}
}

func near(a, b time.Duration, share float64) bool {
	return math.Abs(float64(a-b)) <= share*float64(b)+1
}
