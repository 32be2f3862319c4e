package layers

import (
	"testing"
	"time"
)

// TestNoTimeLeft: the deadline may pass just before the header is written, and
// is still not told as no limit.
func TestNoTimeLeft(t *testing.T) {
	for _, left := range []time.Duration{0, -1, -time.Hour} {
		for name, want := range map[string]string{grpcTimeout: "1n", envoyTimeout: "1"} {
			if got := timeLeft(name, left); got != want {
				t.Errorf("%s with %v left is %q, want %q", name, left, got, want)
			}
		}
	}
}
