package batch_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-go/weir/transport/batch"
)

func nothing(context.Context, string) error { return nil }

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cursor")
	store := batch.File(path)
	if saved, err := store.Open(t.Context()); saved != nil || err != nil {
		t.Fatalf("a new one: %q, %v", saved, err)
	}
	for _, text := range []string{"a longer first", "second"} {
		if err := store.Save(t.Context(), []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); string(got) != text || err != nil {
			t.Errorf("the file has %q, %v", got, err)
		}
	}
	if _, err := os.Stat(path + ".tmp"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the other file stayed: %v", err)
	}
	// What a killed process left behind does no harm.
	if err := os.WriteFile(path+".tmp", []byte("half of somethi"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	again := batch.File(path)
	if saved, err := again.Open(t.Context()); string(saved) != "second" || err != nil {
		t.Errorf("opened again: %q, %v", saved, err)
	}
	if err := errors.Join(again.Save(t.Context(), []byte("x")), again.Close()); err != nil {
		t.Error(err)
	}
}

// A link stays one, also to a file that is still to come, and who comes by it has the
// same cursor and the same lock.
func TestFileByLink(t *testing.T) {
	volume := t.TempDir()
	file, link := filepath.Join(volume, "cursor"), filepath.Join(t.TempDir(), "cursor")
	if err := os.Symlink(file, link); err != nil {
		t.Skip(err)
	}
	for _, text := range []string{"first", "second"} {
		store := batch.File(link)
		if _, err := store.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := store.Save(t.Context(), []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, err := batch.File(file).Open(t.Context()); !errors.Is(err, batch.ErrInUse) {
			t.Errorf("opened by its own name: %v", err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		if got, err := os.ReadFile(file); string(got) != text || err != nil {
			t.Errorf("the file has %q, %v", got, err)
		}
	}
}

// The other file that is written first is the store's own, whatever was in its place.
func TestFileTempIsALink(t *testing.T) {
	path, other := filepath.Join(t.TempDir(), "cursor"), filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("not to be lost"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, path+".tmp"); err != nil {
		t.Skip(err)
	}
	store := batch.File(path)
	if _, err := store.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(store.Save(t.Context(), []byte("x")), store.Close()); err != nil {
		t.Error(err)
	}
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the cursor is %v, %v", info, err)
	}
	if got, err := os.ReadFile(other); string(got) != "not to be lost" {
		t.Errorf("the other file has %q, %v", got, err)
	}
}

// What a link leads to is counted from where it lies, also behind a link to its folder.
func TestFileByLinkInLinkedFolder(t *testing.T) {
	volume, job := t.TempDir(), t.TempDir()
	state := filepath.Join(volume, "a", "state")
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{
		filepath.Join(job, "state"): state, filepath.Join(job, "cursor"): filepath.Join("state", "cursor"), filepath.Join(state, "cursor"): filepath.Join("..", "cursor"),
	} {
		if err := os.Symlink(to, link); err != nil {
			t.Skip(err)
		}
	}
	store := batch.File(filepath.Join(job, "cursor"))
	if _, err := store.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Save(t.Context(), []byte("x")); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(volume, "a", "cursor")); string(got) != "x" {
		t.Errorf("the file has %q, %v", got, err)
	}
}

// Only one job at a time has the file, in one process or in two.
func TestFileInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cursor")
	first := batch.File(path)
	if _, err := first.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	cfg := batch.Config{Job: "j", Within: time.Hour, Store: batch.File(path)}
	_, err := batch.Run(t.Context(), cfg, batch.Strings(numbered(1)), nothing)
	if !errors.Is(err, batch.ErrInUse) {
		t.Fatalf("got error %v", err)
	}
	has(t, err.Error(), "batch: the cursor "+path+" cannot be opened", path+".lock", "wait for it to end")
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	report, err := batch.Run(t.Context(), cfg, batch.Strings(numbered(1)), nothing)
	if err != nil {
		t.Error(err)
	}
	wantCounts(t, report, 0, 1, 0, 0)
}

func TestFileWithoutDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "cursor")
	cfg := batch.Config{Job: "j", Within: time.Hour, Store: batch.File(path)}
	report, err := batch.Run(t.Context(), cfg, batch.Strings(numbered(1)), nothing)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("got error %v", err)
	}
	has(t, err.Error(), "batch: the cursor "+path+" cannot be written")
	wantCounts(t, report, 0, 0, 0, 1)
}

// A directory that becomes writable while the job goes on is used from then on,
// unless somebody else has used it.
func TestFileWritableLater(t *testing.T) {
	for _, taken := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "later")
		path := filepath.Join(dir, "cursor")
		store := batch.File(path)
		if _, err := store.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := store.Save(t.Context(), []byte("mine")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got error %v", err)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		want := "mine"
		if taken {
			want = "another's"
			if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := store.Save(t.Context(), []byte("mine")); taken != errors.Is(err, batch.ErrInUse) {
			t.Errorf("taken %v: got error %v", taken, err)
		}
		if got, err := os.ReadFile(path); string(got) != want || err != nil {
			t.Errorf("the file has %q, %v", got, err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}
