package batch

import (
	"slices"
	"sort"
)

// spans is a set of numbers as the ranges that they form, in order and with
// gaps between them. The items of a job end nearly in order, so that they form
// few.
type spans []span

// span is the numbers from lo up to, and without, hi.
type span struct{ lo, hi int }

// at returns the first range that ends at i or later.
func (s spans) at(i int) int {
	return sort.Search(len(s), func(k int) bool { return s[k].hi >= i })
}

func (s spans) has(i int) bool {
	k := s.at(i + 1)
	return k < len(s) && s[k].lo <= i
}

func (s spans) count() (n int) {
	for _, r := range s {
		n += r.hi - r.lo
	}
	return n
}

func (s *spans) add(i int) {
	list := *s
	k := list.at(i)
	switch {
	case list.has(i):
	case k < len(list) && list[k].hi == i:
		list[k].hi++
		if k+1 < len(list) && list[k+1].lo == i+1 {
			list[k].hi = list[k+1].hi
			*s = slices.Delete(list, k+1, k+2)
		}
	case k < len(list) && list[k].lo == i+1:
		list[k].lo = i
	default:
		*s = slices.Insert(list, k, span{i, i + 1})
	}
}

func (s *spans) remove(i int) {
	list := *s
	if !list.has(i) {
		return
	}
	k := list.at(i + 1)
	switch r := &list[k]; {
	case r.hi-r.lo == 1:
		*s = slices.Delete(list, k, k+1)
	case r.lo == i:
		r.lo++
	case r.hi == i+1:
		r.hi--
	default:
		first := span{r.lo, i}
		r.lo = i + 1
		*s = slices.Insert(list, k, first)
	}
}
