//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package batch

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
)

// TestNoLocks: a file system without locks, as some that clusters share, has the
// cursor all the same; one that fails to lock has not.
func TestNoLocks(t *testing.T) {
	defer func() { flock = syscall.Flock }()
	for _, fails := range []error{syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.EIO} {
		flock = func(int, int) error { return fails }
		store := File(filepath.Join(t.TempDir(), "cursor"))
		if _, err := store.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := store.Save(t.Context(), []byte("mine")); errors.Is(err, syscall.EIO) != errors.Is(fails, syscall.EIO) {
			t.Errorf("%v: got %v", fails, err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}
