package policy

import (
	"math"
	"testing"
	"time"
)

func TestOccupancy(t *testing.T) {
	tests := []struct {
		o       Occupancy
		limit   int
		calls   int
		fitting time.Duration
		exceeds string
	}{
		{Occupancy{50, 30 * time.Second}, 200, 1500, 4 * time.Second, "50/s x 30s = 1500 in flight at worst, against the limit of 200; a deadline of 4s would fit"},
		{Occupancy{50, 4 * time.Second}, 200, 200, 4 * time.Second, ""},
		{Occupancy{0.3, 10 * time.Second}, 2, 3, 6666 * time.Millisecond, "0.3/s x 10s = 3 in flight at worst, against the limit of 2; a deadline of 6.666s would fit"},
		{Occupancy{PerSecond: 50}, 200, math.MaxInt, 4 * time.Second, "50/s without a bound on their stay have none in flight, against the limit of 200; they fit if none stays longer than 4s"},
		{Occupancy{1e9, maxDuration}, 1, 31536000000000000, 0, "1e+09/s x 8760h0m0s = 31536000000000000 in flight at worst, against the limit of 1; a deadline of 0s would fit"},
		{Occupancy{0, time.Second}, 1, 0, maxDuration, ""},
	}
	for _, test := range tests {
		if got := test.o.InFlight(); got != test.calls {
			t.Errorf("%v: %d in flight, want %d", test.o, got, test.calls)
		}
		if got := test.o.Fitting(test.limit); got != test.fitting {
			t.Errorf("%v: %v fit, want %v", test.o, got, test.fitting)
		}
		if got := test.o.Exceeds("the limit of", test.limit); got != test.exceeds {
			t.Errorf("%v: got %q, want %q", test.o, got, test.exceeds)
		}
	}
}
