package redis

import (
	"cmp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// slot is a run of turns in a budget, one after the other: see turns.lua.
type slot struct {
	name  string  // of the run that the script gave, of which this may be a part
	v     float64 // of the first turn, by the server's clock
	n     int     // turns
	scale scale
}

// scale says when the turns of an answer may be used.
type scale struct {
	period       float64 // in microseconds
	slack        time.Duration
	server       float64 // the server's clock, between
	began, ended instant // of the exchange
}

// due is from when on a turn may be used, until is till when. Neither is too early
// or too late, however long the way of the answer was, unless the burst comes in
// less time than that.
func (s slot) due(i int) instant { return after(s.scale.ended, max(0, s.ahead(i)-s.scale.slack)) }

func (s slot) until(i int) instant { return max(s.due(i), after(s.scale.began, s.ahead(i))) }

func (s slot) ahead(i int) time.Duration { return micros(s.at(i) - s.scale.server) }

func (s slot) at(i int) float64 { return s.v + float64(i)*s.scale.period }

// from returns what is left without the first turns.
func (s slot) from(i int) slot {
	s.v, s.n = s.at(i), s.n-i
	return s
}

// parse reads a run as the script writes it.
func parse(name string, c scale) (s slot, ok bool) {
	v, n, _ := strings.Cut(name, "*")
	first, bad := strconv.ParseFloat(v, 64)
	length, none := strconv.Atoi(n)
	return slot{name, first, length, c}, bad == nil && none == nil && length > 0
}

// slots are runs in order.
type slots []slot

// turns is how many there are.
func (s slots) turns() (n int) {
	for _, o := range s {
		n += o.n
	}
	return n
}

// due and until are those of a turn that there is.
func (s slots) due(i int) instant {
	o, i := s.find(i)
	return o.due(i)
}

func (s slots) until(i int) instant {
	o, i := s.find(i)
	return o.until(i)
}

func (s slots) find(i int) (slot, int) {
	for _, o := range s {
		if i < o.n {
			return o, i
		}
		i -= o.n
	}
	return slot{}, 0
}

// before is how many turns, from the first on, are such; those after them are
// not.
func (s slots) before(such func(o slot, i int) bool) (n int) {
	for _, o := range s {
		m := sort.Search(o.n, func(i int) bool { return !such(o, i) })
		n += m
		if m < o.n {
			break
		}
	}
	return n
}

// cut returns the first n turns, and the others.
func (s slots) cut(n int) (first, rest slots) {
	for i, o := range s {
		switch {
		case n == 0:
			return s[:i:i], s[i:]
		case n < o.n:
			rest = append(slots{o.from(n)}, s[i+1:]...)
			o.n = n
			return append(s[:i:i], o), rest
		}
		n -= o.n
	}
	return s, nil
}

// add puts runs where they belong.
func (s slots) add(list slots) slots {
	for _, n := range list {
		i, _ := slices.BinarySearchFunc(s, n.v, func(o slot, v float64) int { return cmp.Compare(o.v, v) })
		s = slices.Insert(s, i, n)
	}
	return s
}
