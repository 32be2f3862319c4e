//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package batch

import "os"

// openLock opens a file. There is no lock here that ends with its process.
func openLock(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}
