package batch

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// openLock opens a file that only one process has open at a time.
func openLock(path string) (*os.File, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	const shared = 0 // with nobody
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, shared, nil,
		syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	const sharingViolation syscall.Errno = 32
	if errors.Is(err, sharingViolation) {
		return nil, fmt.Errorf("%w: another job holds %s; wait for it to end", ErrInUse, path)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(h), path), nil
}
