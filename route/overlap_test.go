package route

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestOverlapping(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	pick := func(from []string) string { return from[random.IntN(len(from))] }
	for n := range 200 {
		var patterns []Pattern
		for range n {
			patterns = append(patterns, parse(t, pick(patternMethods)+pick(append(patternHosts, "a.b:82"))+pick(patternPaths)))
		}
		var want [][2]int
		for j, q := range patterns {
			for i, p := range patterns[:j] {
				if p.Relation(q) == Disjoint {
					continue
				}
				if p.Compare(q) > 0 {
					want = append(want, [2]int{j, i})
				} else {
					want = append(want, [2]int{i, j})
				}
			}
		}
		var got [][2]int
		for i, j := range Overlapping(patterns) {
			got = append(got, [2]int{i, j})
		}
		compare := func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }
		slices.SortFunc(got, compare)
		slices.SortFunc(want, compare)
		if !slices.Equal(got, want) {
			t.Fatalf("%q:\ngot  %v\nwant %v", patterns, got, want)
		}
		count := 0
		for range Overlapping(patterns) {
			if count++; count > n {
				break // it would panic if the loop were called again
			}
		}
	}
}
