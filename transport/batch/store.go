package batch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// Store keeps the cursor of a job. Its methods are called one at a time, Open with
// a context that ends with the job's or after 30 s, and Save with one that ends
// after 30 s alone: the last write comes when that of the job has ended.
//
// Run waits for a method until it returns, also after its context has ended: a write
// that is left behind could put an old cursor in the place of a later job's. So let
// the context end it, as one of database/sql does if its driver heeds contexts.
type Store interface {
	// Open takes the store for one job alone, and returns what was saved last:
	// nil if nothing was. It fails with ErrInUse if another job has the store.
	Open(ctx context.Context) (saved []byte, err error)
	// Save puts a cursor in the place of the last one. Whenever the process
	// dies, Open returns one of the two, whole. After Save has returned nil, it
	// returns the new one, even if the machine loses its power. It may keep the bytes.
	Save(ctx context.Context, cursor []byte) error
	// Close gives the store up. It is called once, if Open did not fail.
	Close() error
}

// File returns a store in a file, in a directory that exists. The file is
// replaced as a whole: path with .tmp added is written beside it, then renamed.
// A path that is a symbolic link stays one: the file is the one that it leads to.
// A lock on path with .lock added, which stays behind, keeps other processes
// out on Unix and Windows; elsewhere, on a file system without locks, and where
// that file cannot be written, nothing does. The lock ends with the process,
// however that ends.
//
// A store that cannot be written, as in a directory that is read-only, or on NFS
// that has locks and does not give them, can be opened; Save then fails. No context
// ends the use of a file: a file system that hangs holds Run up.
func File(path string) Store { return &file{path: path} }

type file struct {
	path   string
	lock   *os.File // nil: not held
	opened []byte
}

// String returns the path.
func (f *file) String() string { return f.path }

func (f *file) Open(context.Context) ([]byte, error) {
	f.path = target(f.path)
	err := f.take()
	if errors.Is(err, ErrInUse) {
		return nil, err
	}
	f.opened, err = f.read()
	if err != nil {
		_ = f.Close()
	}
	return f.opened, err
}

// target is where a path leads, which need not exist yet.
func target(path string) string {
	for range 40 { // as many as systems follow
		to, err := os.Readlink(path)
		if err != nil { // it is none
			break
		}
		if !filepath.IsAbs(to) {
			folder, _ := filepath.Split(path) // not Join, for which a/.. is nothing, also if a is a link
			to = folder + to
		}
		path = to
	}
	return path
}

// take takes the lock.
func (f *file) take() error {
	lock, err := openLock(f.path + ".lock")
	if err != nil {
		return err
	}
	f.lock = lock
	return nil
}

func (f *file) read() ([]byte, error) {
	data, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if data == nil {
		data = []byte{} // an empty file is not a new one
	}
	return data, err
}

func (f *file) Save(_ context.Context, cursor []byte) error {
	if f.lock == nil {
		// It could not be written when the job began. Another may have come.
		if err := f.take(); err != nil {
			return err
		}
		if now, err := f.read(); err != nil || !bytes.Equal(now, f.opened) {
			_ = f.Close()
			return errors.Join(fmt.Errorf("%w: another job has written it", ErrInUse), err)
		}
	}
	temp := f.path + ".tmp"
	err := write(temp, cursor)
	if err == nil {
		err = os.Rename(temp, f.path)
	}
	if err != nil {
		_ = os.Remove(temp)
		return err
	}
	return syncDir(filepath.Dir(f.path))
}

func (f *file) Close() error {
	if f.lock == nil {
		return nil
	}
	err := f.lock.Close() // which unlocks it
	f.lock = nil
	return err
}

// write makes a file anew, and waits until the disk has it. Another that is there is
// what a killed process left, or a link to what is not ours.
func write(path string, data []byte) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // The path is the caller's.
	if err != nil {
		return err
	}
	_, err = out.Write(data)
	return errors.Join(err, out.Sync(), out.Close())
}

// syncDir waits until the disk has the names in a directory. Windows has no
// such call, and some file systems refuse it.
func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	dir, err := os.Open(path) //nolint:gosec // It is the caller's.
	if err != nil {
		return err
	}
	err = dir.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, dir.Close())
}
