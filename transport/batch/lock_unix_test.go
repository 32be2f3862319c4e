//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package batch

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
)

// TestNoLocks: a file system without locks, as some that clusters share, has the
// cursor all the same; one that fails to lock has not, as NFS without its daemon,
// where another host may have the lock.
func TestNoLocks(t *testing.T) {
	defer func() { flock = syscall.Flock }()
	for _, fails := range []error{syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.EIO, syscall.ENOLCK} {
		flock = func(int, int) error { return fails }
		store := File(filepath.Join(t.TempDir(), "cursor"))
		if _, err := store.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := fails
		if errors.Is(fails, errors.ErrUnsupported) {
			want = nil
		}
		if err := store.Save(t.Context(), []byte("mine")); !errors.Is(err, want) {
			t.Errorf("%v: got %v", fails, err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLockInterrupted: a signal to the process is no reason not to lock.
func TestLockInterrupted(t *testing.T) {
	defer func() { flock = syscall.Flock }()
	calls := 0
	flock = func(fd, how int) error {
		if calls++; calls < 3 {
			return syscall.EINTR
		}
		return syscall.Flock(fd, how)
	}
	store := File(filepath.Join(t.TempDir(), "cursor"))
	if _, err := store.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(store.Save(t.Context(), []byte("mine")), store.Close()); err != nil || calls != 3 {
		t.Errorf("%v after %d calls", err, calls)
	}
}
