package batch_test

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/weir-go/weir/transport/batch"
)

// A directory that cannot be written can be read, and says so when it matters.
func TestReadOnlyDirectory(t *testing.T) {
	const path = "cursor" // as another user may not get to where it lies
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile(path, []byte("saved"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o755)
	if os.Geteuid() == 0 { // who may write everywhere, but for this thread
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := syscall.Setfsuid(65534); err != nil {
			t.Skip("root may write everywhere, and cannot be another user here: ", err)
		}
		defer syscall.Setfsuid(0)
	}
	store := batch.File(path)
	if saved, err := store.Open(t.Context()); string(saved) != "saved" || err != nil {
		t.Errorf("opened: %q, %v", saved, err)
	}
	if err := store.Save(t.Context(), nil); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("saved: %v", err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}
