package policy

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

func TestOccupancy(t *testing.T) {
	most := int(min(int64(31_536_000_000_000_000), math.MaxInt)) // which it is where int has 32 bits
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
		{Occupancy{PerSecond: 50}, 200, math.MaxInt, 4 * time.Second, "50/s without a bound on their stay are any number in flight, against the limit of 200; they fit if none stays longer than 4s"},
		{Occupancy{1e9, maxDuration}, 1, most, 0, fmt.Sprintf("1e+09/s x 8760h0m0s = %d in flight at worst, against the limit of 1; no deadline would fit", most)},
		{Occupancy{0, time.Second}, 1, 0, maxDuration, ""},
		{Occupancy{}, 1, 0, maxDuration, ""},
		{Occupancy{-1, time.Second}, 1, 0, maxDuration, ""},
		{Occupancy{math.NaN(), time.Second}, 1, 0, maxDuration, ""},
		{Occupancy{1.1, 50 * time.Second}, 55, 55, 50 * time.Second, ""},
		{Occupancy{math.Inf(1), time.Second}, 5, math.MaxInt, 0, fmt.Sprintf("+Inf/s x 1s = %d in flight at worst, against the limit of 5; no deadline would fit", math.MaxInt)},
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

// TestFittingFits: a stay that is said to fit does.
func TestFittingFits(t *testing.T) {
	for tenths := 1; tenths < 1000; tenths++ {
		for seconds := 1; seconds < 100; seconds++ {
			o := Occupancy{float64(tenths) / 10, time.Duration(seconds) * time.Second}
			if got, want := o.InFlight(), (tenths*seconds+9)/10; got != want {
				t.Fatalf("%v: %d in flight, want %d", o, got, want)
			}
			if o.Stay = o.Fitting(seconds); o.InFlight() > seconds {
				t.Fatalf("%v: %d in flight, want %d at most", o, o.InFlight(), seconds)
			}
		}
	}
}

func TestInAll(t *testing.T) {
	chat, search := Occupancy{50, 30 * time.Second}, Occupancy{150, 2 * time.Second}
	all := InAll(chat, search)
	if all != (Occupancy{200, 9 * time.Second}) || all.InFlight() != 1800 {
		t.Errorf("got %v, which is %d in flight, want 200/s x 9s = 1800", all, all.InFlight())
	}
	for name, test := range map[string]struct {
		kinds []Occupancy
		want  Occupancy
	}{
		"none":                  {nil, Occupancy{}},
		"one":                   {[]Occupancy{chat}, chat},
		"without bound":         {[]Occupancy{chat, {1, 0}}, Occupancy{PerSecond: 51}},
		"without bound or rate": {[]Occupancy{chat, {0, 0}}, chat},
		"forever":               {[]Occupancy{{1, maxDuration}, {1e9, maxDuration}}, Occupancy{1e9 + 1, maxDuration}},
	} {
		if got := InAll(test.kinds...); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func TestAgainst(t *testing.T) {
	o := Occupancy{50, 30 * time.Second}
	const worst = "50/s x 30s = 1500 in flight at worst, against "
	for _, test := range []struct {
		room Room
		want []string
	}{
		{Room{}, nil},
		{Room{InFlight: 1500, MaxConnsPerHost: 1500, Files: 1500, Memory: 1500 << 20, PerCall: 1 << 20}, nil},
		{Room{Memory: 1 << 30}, nil}, // it is not known what a call takes
		{Room{InFlight: 200, MaxConnsPerHost: 100, Files: 1024, Memory: 1 << 30, PerCall: 1 << 20}, []string{
			worst + "InFlight.Max 200; a deadline of 4s would fit",
			worst + "the base's MaxConnsPerHost 100; a deadline of 2s would fit",
			worst + "a file descriptor limit of 1024; a deadline of 20.48s would fit",
			worst + "memory of 1 GiB, 1 MiB a call, for 1024; a deadline of 20.48s would fit",
		}},
		{Room{Memory: 1 << 20, PerCall: 1025}, []string{
			worst + "memory of 1 MiB, 1025 bytes a call, for 1023; a deadline of 20.46s would fit",
		}},
	} {
		if got := o.Against(test.room); !slices.Equal(got, test.want) {
			t.Errorf("%+v: got %q, want %q", test.room, got, test.want)
		}
	}
}
