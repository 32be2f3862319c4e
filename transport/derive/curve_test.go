package derive

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func histogramOf(n int, draw func(*rand.Rand) time.Duration, r *rand.Rand) *Histogram {
	h := new(Histogram)
	for range n {
		h.Add(draw(r))
	}
	return h
}

func TestNeeded(t *testing.T) {
	for _, test := range []struct {
		q, confidence float64
		want          uint64
	}{{0.99, 0.95, 299}, {0.999, 0.95, 2995}, {0.5, 0.5, 1}, {0.5, 0.95, 5}, {0.99, 0.99, 459}} {
		if got := needed(test.q, test.confidence); got != test.want {
			t.Errorf("%v: %d, want %d", test, got, test.want)
		}
	}
}

// TestBoundsExist: with as many as are needed, and not with one less, the
// largest bounds the quantile.
func TestBoundsExist(t *testing.T) {
	for _, q := range []float64{0.5, 0.9, 0.99, 0.999} {
		n := needed(q, 0.95)
		for _, m := range []uint64{n - 1, n} {
			var h Histogram
			h.add(binOf(time.Second), m, time.Second)
			if _, high := newCurve(&h, new(Histogram), 0, bins).bounds(q, 0.95); high.beyond != (m < n) {
				t.Errorf("%g: with %d the bound is known: %v", q, m, !high.beyond)
			}
		}
	}
}

// TestBinomial: against the sum of its definition.
func TestBinomial(t *testing.T) {
	for _, n := range []float64{1, 7, 50} {
		for _, p := range []float64{0.001, 0.1, 0.5} {
			for _, c := range []float64{0.001, 0.05, 0.5, 0.95, 0.999} {
				want, sum := -1.0, 0.0
				for sum < c && want < n {
					want++
					choose := 1.0
					for i := range int(want) {
						choose *= (n - float64(i)) / (float64(i) + 1)
					}
					sum += choose * math.Pow(p, want) * math.Pow(1-p, n-want)
				}
				if got := binomial(n, p, c); got != want {
					t.Errorf("n %g, p %g, c %g: %g, want %g", n, p, c, got, want)
				}
			}
		}
	}
	// The normal distribution is a good one for many.
	n, p := 1e9, 0.01
	if got := binomial(1<<41, 1e-7, 1-1e-12); got > 230_000 { // beyond what the sum comes to
		t.Errorf("got %v, far beyond what counts", got)
	}
	if got, want := binomial(n, p, 0.95), n*p+1.6449*math.Sqrt(n*p*(1-p)); math.Abs(got-want) > 50 {
		t.Errorf("of a billion: %g, want %g", got, want)
	}
}

// TestBoundsHold: each bound is right about as often as it says.
func TestBoundsHold(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	truth := time.Duration(-math.Log(0.01) * float64(time.Second))
	const rounds = 1_000
	low, high := 0, 0
	for range rounds {
		c := newCurve(histogramOf(1_000, distributions["exponential"], r), new(Histogram), 0, bins)
		l, h := c.bounds(0.99, 0.95)
		if l.at <= truth {
			low++
		}
		if h.at >= truth {
			high++
		}
	}
	// The ranks are whole numbers, so that a bound may be a little safer.
	for name, n := range map[string]int{"lower": low, "upper": high} {
		if n < rounds*93/100 {
			t.Errorf("the %s bound holds %d times of %d, want 95 %%", name, n, rounds)
		}
	}
}

// TestHealthy: of those that were cut short, as many count as the tail before
// accounts for.
func TestHealthy(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, test := range []struct {
		name     string
		draw     func(*rand.Rand) time.Duration
		limit    time.Duration
		dead     int
		low, top float64 // of the truth
	}{
		{"far beyond the tail", logNormal(time.Second, 0.5), time.Minute, 400, 0, 0},
		{"within a thick tail", pareto(time.Second, 1.5), 20 * time.Second, 0, 0.7, 1.3},
		{"within a thick tail, and dead ones", pareto(time.Second, 1.5), 20 * time.Second, 5_000, 0.7, 1.3},
		{"within a thin tail", logNormal(time.Second, 0.5), 2500 * time.Millisecond, 0, 0.9, 1.1},
		{"below the median", logNormal(time.Second, 0.5), 800 * time.Millisecond, 0, 0.9, 1.1},
	} {
		var done, cut Histogram
		truth := 0.0
		for range 20_000 {
			if d := test.draw(r); d <= test.limit {
				done.Add(d)
			} else {
				cut.Add(test.limit)
				truth++
			}
		}
		for range test.dead {
			cut.Add(test.limit)
		}
		if got := newCurve(&done, &cut, 0, bins).deemed(); got < test.low*truth-tiny || got > test.top*truth+tiny {
			t.Errorf("%s: %g of %d count, and %g were healthy", test.name, got, cut.Count(), truth)
		}
	}
}

// TestKaplanMeier: the textbook case, where some are cut short early.
func TestKaplanMeier(t *testing.T) {
	var done, cut Histogram
	for _, d := range []time.Duration{1, 2, 4, 5, 8} {
		done.Add(d * time.Second)
	}
	for _, d := range []time.Duration{3, 6} {
		cut.Add(d * time.Second)
	}
	c := &curve{done: &done, to: bins, healthy: []censored{{binOf(3 * time.Second), 1}, {binOf(6 * time.Second), 1}}}
	want := []float64{6. / 7, 5. / 7, 5. / 7 * 3 / 4, 5. / 7 * 2 / 4, 0}
	i := 0
	for _, survival := range c.walk {
		if math.Abs(survival-want[i]) > tiny {
			t.Errorf("after %d, %g survive, want %g", i+1, survival, want[i])
		}
		i++
	}
	if got := c.above(4500 * time.Millisecond); math.Abs(got-want[2]) > tiny {
		t.Errorf("%g are above 4.5s", got)
	}
}
