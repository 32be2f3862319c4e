package route

import (
	"iter"
	"slices"
)

// Overlapping yields the indexes of every two patterns that one request can match,
// the more general by [Pattern.Compare] first and equivalent ones as they are given.
// It finds what comparing every two would, but soon even among thousands.
func Overlapping(patterns []Pattern) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		entries := make([]Entry[int], len(patterns))
		for i, p := range patterns {
			entries[i] = Entry[int]{p, i}
		}
		slices.SortStableFunc(entries, func(a, b Entry[int]) int { return a.Pattern.Compare(b.Pattern) })
		hosts := groups(entries, compareHosts)
		for i, a := range hosts {
			for j, b := range hosts[i:] {
				p, q := a[0].Pattern, b[0].Pattern
				if relateNames(p.name, q.name) != Disjoint && relatePorts(p.port, q.port) != Disjoint &&
					!overlapping(a, b, j == 0, 0, yield) {
					return
				}
			}
		}
	}
}

// overlapping yields the pairs of a and b, whose paths overlap before depth: a comes
// before b in order, or is the same. It reports whether to go on.
func overlapping(a, b []Entry[int], same bool, depth int, yield func(int, int) bool) bool {
	as, bs := groupsAt(depth, a), groupsAt(depth, b)
	for i, x := range as {
		if same {
			bs = as[i:]
		}
		for j, y := range bs {
			s, u := x[0].Pattern.at(depth), y[0].Pattern.at(depth)
			if len(s) > 0 && s[0].kind == literal && compareSegments(s, u) < 0 {
				break // what follows is other literals
			}
			if relatePaths(s, u) == Disjoint {
				continue
			}
			same := same && j == 0
			further := len(s) > 0 && s[0].kind != rest && u[0].kind != rest
			if further && !overlapping(x, y, same, depth+1, yield) || !further && !pair(x, y, same, yield) {
				return false
			}
		}
	}
	return true
}

// pair yields the pairs of a and b whose methods can meet.
func pair(a, b []Entry[int], same bool, yield func(int, int) bool) bool {
	for i, p := range a {
		if same {
			b = a[i+1:]
		}
		for _, q := range b {
			if relateMethods(p.Pattern.method, q.Pattern.method) != Disjoint && !yield(p.Value, q.Value) {
				return false
			}
		}
	}
	return true
}

// groups splits sorted entries where neighbours differ.
func groups[V any](entries []Entry[V], compare func(p, q Pattern) int) [][]Entry[V] {
	var out [][]Entry[V]
	from := 0
	for i := range entries {
		if i+1 == len(entries) || compare(entries[i].Pattern, entries[i+1].Pattern) != 0 {
			out = append(out, entries[from:i+1])
			from = i + 1
		}
	}
	return out
}

// groupsAt splits them by their segments at depth, those before being alike.
func groupsAt[V any](depth int, entries []Entry[V]) [][]Entry[V] {
	return groups(entries, func(p, q Pattern) int { return compareSegments(p.at(depth), q.at(depth)) })
}

// at returns the segment at depth, or none if the path ends there.
func (p Pattern) at(depth int) []segment {
	return p.segments[depth:min(depth+1, len(p.segments))]
}
