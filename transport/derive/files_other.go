//go:build !unix

package derive

// Files returns how many file descriptors the process may have open, for
// [policy.Room]; 0 if that is not known.
func Files() int { return 0 }
