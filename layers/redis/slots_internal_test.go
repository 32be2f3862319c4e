package redis

import (
	"testing"
	"time"
)

// TestSlots: however runs are cut, no turn is lost or doubled, and each keeps
// its time.
func TestSlots(t *testing.T) {
	c := scale{period: 1000, slack: 3 * time.Millisecond, server: 5000, began: 0, ended: time.Millisecond}
	one, _ := parse("5000*4", c)
	two, _ := parse("12000*2", c)
	all := slots{}.add(slots{two}).add(slots{one})
	want := []instant{1, 1, 1, 1, 5, 6} // ms: 5 to 8 are due at once, 12 and 13 when only 3 ms are before them
	if all.turns() != len(want) {
		t.Fatalf("%d turns", all.turns())
	}
	for i, ms := range want {
		if got := all.due(i); got != ms*time.Millisecond {
			t.Errorf("turn %d is due at %v, want %d ms", i, got, ms)
		}
	}
	if got := all.until(5); got != 8*time.Millisecond {
		t.Errorf("the last is good until %v", got)
	}
	for n := range all.turns() + 1 {
		first, rest := all.cut(n)
		if first.turns() != n || rest.turns() != len(want)-n {
			t.Fatalf("cut at %d: %d and %d turns", n, first.turns(), rest.turns())
		}
		again := slots{}.add(rest).add(first)
		for i := range want {
			if again.due(i) != all.due(i) || again.until(i) != all.until(i) {
				t.Errorf("cut at %d: turn %d has another time", n, i)
			}
		}
		if m := all.before(func(o slot, i int) bool { return o.due(i) < all.due(n) }); n < len(want) && all.due(m) < all.due(n) {
			t.Errorf("%d turns are due before turn %d", m, n)
		}
	}
	for _, wrong := range []string{"", "5000", "5000*", "x*1", "5000*0", "5000*-1"} {
		if _, ok := parse(wrong, c); ok {
			t.Errorf("%q is a run", wrong)
		}
	}
}
