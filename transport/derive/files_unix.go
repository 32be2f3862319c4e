//go:build unix

package derive

import (
	"math"
	"syscall"
)

// Files returns how many file descriptors the process may have open, for
// [policy.Room]; 0 if that is not known.
func Files() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(uint64(limit.Cur), math.MaxInt)) //nolint:unconvert // It is signed on FreeBSD.
}
