package derive

import (
	"testing"
	"time"
)

func TestSensible(t *testing.T) {
	for in, want := range map[string]string{
		"0s": "0s", "7ns": "7ns", "83ns": "80ns", "1.23ms": "1.2ms", "48.3ms": "50ms", "260ms": "250ms", "960ms": "1s",
		"1.04s": "1s", "1.26s": "1.3s", "2.2s": "2s", "2.3s": "2.5s", "4.8s": "5s", "7.4s": "7s", "9s": "9s", "9.7s": "10s",
		"18.2s": "18s", "21s": "20s", "43s": "45s", "56s": "1m0s", "1m18s": "1m20s", "2m10s": "2m15s", "5m50s": "6m0s",
		"12m40s": "13m0s", "1h13m": "1h15m0s", "5h40m": "5h45m0s", "2562047h": "2562047h0m0s",
	} {
		d, err := time.ParseDuration(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := sensible(d).String(); got != want {
			t.Errorf("%s is rounded to %s, want %s", in, got, want)
		}
	}
}

// TestSensibleIsNear: rounding takes an eighth at most, and is done once.
func TestSensibleIsNear(t *testing.T) {
	last := time.Duration(0)
	for d := time.Duration(1); d < 1<<50; d += d/97 + 1 {
		s := sensible(d)
		if !near(s, d, 0.125) || sensible(s) != s || s < last {
			t.Fatalf("%v is rounded to %v, that to %v, and a smaller one to %v", d, s, sensible(s), last)
		}
		last = s
	}
}
