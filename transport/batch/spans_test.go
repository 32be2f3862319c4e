package batch

import (
	"math/rand/v2"
	"testing"
)

// A set of ranges is what a map would be, and its ranges are in order and apart.
func TestSpans(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		var s spans
		naive := map[int]bool{}
		for range 200 {
			i := r.IntN(40)
			if r.IntN(3) > 0 {
				s.add(i)
				naive[i] = true
			} else {
				s.remove(i)
				delete(naive, i)
			}
			for i := -1; i <= 40; i++ {
				if s.has(i) != naive[i] {
					t.Fatalf("seed %d: %v has %d: %v", seed, s, i, s.has(i))
				}
			}
			if s.count() != len(naive) {
				t.Fatalf("seed %d: %v counts %d, want %d", seed, s, s.count(), len(naive))
			}
			for k, r := range s {
				if r.lo >= r.hi || k > 0 && r.lo <= s[k-1].hi {
					t.Fatalf("seed %d: %v", seed, s)
				}
			}
		}
	}
}

// Fifty thousand items that forty workers end in any order, one in a thousand of
// them failing, need a cursor of a few hundred bytes.
func TestCursorIsSmall(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	c := Cursor{job: "job", items: 50_000}
	next, longest := 0, 0
	var under []int
	for n := range c.items {
		for len(under) < 40 && next < c.items {
			under = append(under, next)
			next++
		}
		k := r.IntN(len(under))
		if i := under[k]; i%1000 == 999 {
			c.failed.add(i)
		} else {
			c.done.add(i)
		}
		under[k] = under[len(under)-1]
		under = under[:len(under)-1]
		if n%50 == 0 {
			text, _ := c.MarshalText()
			longest = max(longest, len(text))
		}
	}
	if c.Done() != 49_950 || longest > 1700 {
		t.Errorf("%d done; %d bytes", c.Done(), longest)
	}
	t.Log(longest, "bytes")
}
