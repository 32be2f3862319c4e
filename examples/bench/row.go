package main

import (
	"fmt"
	"slices"
	"strings"
)

// row is one work: what it must not exceed, and how weir and others are
// measured at it.
type row struct {
	name, work string
	must       []must
	than       yardstick
	// measure returns weir's result first.
	measure func(options) ([]result, error)
}

// yardstick is what the best of the others took on the machine that the limits
// are from. Only ratios carry over to another: where that one takes twice as
// long, twice the time is allowed.
type yardstick struct {
	name string // of the subject; empty: there is none
	figure
	value float64
}

// slower returns how many times as long the yardstick takes here, and 1 if it
// is faster.
func (y yardstick) slower(results []result) float64 {
	for _, r := range results {
		if v := r.of(y.figure); r.name == y.name && v > 0 {
			if y.figure == speed {
				return max(1, y.value/v)
			}
			return max(1, v/y.value)
		}
	}
	return 1
}

// result is what was measured of one subject.
type result struct {
	name string
	figures
}

// figure is a kind of number.
type figure int

const (
	added     figure = iota // ns beyond the base
	ns                      // ns
	cpuTime                 // ns of CPU time beyond the base
	percent                 // time beyond the base, in percent
	speed                   // GB/s
	allocs                  // beyond the base
	size                    // bytes, beyond the base
	goroutine               // beyond the base
	lastFigure
)

type figures [lastFigure]float64

func (f figures) of(k figure) float64 { return f[k] }

// show writes a number as a cell of the table.
func (k figure) show(v float64) string {
	switch k {
	case added:
		return fmt.Sprintf("%+.0f ns", v)
	case cpuTime:
		return fmt.Sprintf("%+.0f ns CPU", v)
	case percent:
		return fmt.Sprintf("%+.1f %%", v)
	case ns:
		return fmt.Sprintf("%.0f ns", v)
	case speed:
		return fmt.Sprintf("%.1f GB/s", v)
	case allocs:
		return fmt.Sprintf("%.0f allocations", v)
	case size:
		return fmt.Sprintf("%.0f B", v)
	default:
		return fmt.Sprintf("%.0f goroutines", v)
	}
}

// must is a limit: the most, but of a speed the least.
type must struct {
	figure

	limit float64
}

func (m must) meets(v float64) bool {
	if m.figure == speed {
		return v >= m.limit
	}
	return v <= m.limit
}

// here returns the limits of a machine that is so many times slower.
func (r row) here(slower float64) row {
	r.must = slices.Clone(r.must)
	for i, m := range r.must {
		switch m.figure {
		case speed:
			r.must[i].limit /= slower
		case allocs, size, goroutine:
		default:
			r.must[i].limit *= slower
		}
	}
	return r
}

func (r row) limit(k figure) float64 {
	for _, m := range r.must {
		if m.figure == k {
			return m.limit
		}
	}
	return 0
}

const isMet = "met"

// verdict says which of the limits weir does not meet, and by how much.
func (r row) verdict(results []result) string {
	var missed []string
	for _, m := range r.must {
		v := results[0].of(m.figure)
		if m.meets(v) {
			continue
		}
		times := v / m.limit
		if m.figure == speed {
			times = m.limit / v
		}
		text := m.show(v)
		if m.limit > 0 {
			text = fmt.Sprintf("%s is %.1f x", text, times)
		}
		missed = append(missed, text)
	}
	if missed == nil {
		return isMet
	}
	return "no: " + strings.Join(missed, ", ")
}

// floor returns the cell of the least that is possible.
func (r row) floor(results []result) string {
	for _, o := range results {
		if o.name == least.name {
			return list(r.must, o.of)
		}
	}
	return ""
}

// best returns the cell of who is best at the first of the limits.
func (r row) best(others []result) string {
	others = slices.DeleteFunc(slices.Clone(others), func(o result) bool { return o.name == least.name })
	if len(others) == 0 {
		return "none does it"
	}
	first := r.must[0].figure
	best := others[0]
	for _, o := range others[1:] {
		if more := o.of(first) > best.of(first); more == (first == speed) {
			best = o
		}
	}
	return best.name + ": " + list(r.must, best.of)
}

// list writes the figures that a row has limits for.
func list(musts []must, of func(figure) float64) string {
	var cells []string
	for _, m := range musts {
		cells = append(cells, m.show(of(m.figure)))
	}
	return strings.Join(cells, ", ")
}
