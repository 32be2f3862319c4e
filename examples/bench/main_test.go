package main

import (
	"strings"
	"testing"
	"time"
)

// TestRun: every subject does its work, and every row is in the table. What the
// figures are is for a quiet machine to say.
func TestRun(t *testing.T) {
	var out strings.Builder
	if _, err := run(&out, options{rounds: 1, slice: time.Millisecond}, ""); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows() {
		if !strings.Contains(out.String(), "\n| "+r.name+" | ") {
			t.Errorf("no row %q in\n%s", r.name, out.String())
		}
	}
}

// TestVerdict: a limit is met or not, and by how much; of a speed it is the
// least.
func TestVerdict(t *testing.T) {
	r := row{must: []must{{added, 600}, {speed, 3}, {allocs, 0}}}
	for want, f := range map[string]figures{
		"met":                                  {added: 600, speed: 3},
		"no: +900 ns is 1.5 x":                 {added: 900, speed: 4},
		"no: 1.5 GB/s is 2.0 x, 1 allocations": {speed: 1.5, allocs: 1},
	} {
		if got := r.verdict([]result{{figures: f}}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestSlower: a time is allowed as many times as the yardstick takes here, and
// never less than on its own machine; an allocation is one everywhere.
func TestSlower(t *testing.T) {
	r := row{must: []must{{added, 600}, {speed, 3}, {allocs, 5}}, than: yardstick{"peer", added, 1400}}
	for peer, want := range map[float64]string{2800: "+1200 ns, 1.5 GB/s, 5 allocations", 700: "+600 ns, 3.0 GB/s, 5 allocations"} {
		slower := r.than.slower([]result{{name: "weir"}, {"peer", figures{added: peer}}})
		if here := r.here(slower); list(here.must, here.limit) != want {
			t.Errorf("%v: got %q, want %q", peer, list(here.must, here.limit), want)
		}
	}
}
