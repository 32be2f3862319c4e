//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package batch

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

var flock = syscall.Flock

// openLock opens a file that only one process has open at a time, unless its file
// system has no locks.
func openLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // The path is the caller's.
	if err != nil {
		return nil, err
	}
	for {
		err = flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) { // as on a network, or of FUSE
			break
		}
	}
	if err == nil || errors.Is(err, errors.ErrUnsupported) {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("%w: another job holds %s; wait for it to end", ErrInUse, path)
	}
	return nil, &os.PathError{Op: "flock", Path: path, Err: err}
}
