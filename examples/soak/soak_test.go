package main

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
)

// TestDay is a day of the same faults, in virtual time.
func TestDay(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, _ *clocktest.Clock) {
		network := clocktest.NewNetwork(t)
		faulty := newServer()
		server := network.Serve("api.example", faulty)
		w := world{
			url: "http://api.example", base: network.Transport(), server: faulty,
			workers: 64, length: 24 * time.Hour, think: 20 * time.Minute, virtual: true, seed: 1,
			stop: func() { _ = server.Close() },
		}
		if testing.Short() {
			w.length = time.Hour
		}
		r, err := run(w)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := r.print(&out); err != nil {
			t.Errorf("%v\n%s", err, &out)
		}
		if r.late > 0 {
			t.Errorf("a call outlived its deadline by %v of virtual time", r.late)
		}
		t.Logf("\n%s", &out)
	})
}
