package main

import (
	"fmt"
	"strings"
)

// row is one work: what it must not exceed, and how weir and others are
// measured at it.
type row struct {
	name, work string
	must       []must
	// measure returns weir's result first.
	measure func(options) ([]result, error)
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

// best returns the cell of who is best at the first of the limits.
func (r row) best(others []result) string {
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
