package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// here is the import path of this program.
const here = "github.com/weir-go/weir/examples/fleet"

// build builds the worker into a directory. from is where its source is; empty:
// the go command knows.
func build(out io.Writer, from, into string) (program string, err error) {
	if _, err := exec.LookPath("go"); err != nil {
		return "", errors.New("the go command, which builds the worker, is not to be found: install Go 1.26 or later, and put it on the PATH")
	}
	if from == "" {
		from, err = source()
	}
	if err == nil {
		_, err = os.Stat(filepath.Join(from, "go.mod"))
	}
	if err != nil {
		return "", fmt.Errorf("the source of the worker is not to be found: run this in a clone of the repository, or say -worker DIR/examples/fleet/worker: %w", err)
	}
	program = filepath.Join(into, "worker")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	fmt.Fprintln(out, "building the worker, which needs a client of Redis that weir does not")
	cmd := exec.Command("go", "build", "-C", from, "-mod=readonly", "-o", program, ".")
	cmd.Env = append(os.Environ(), "GOWORK=off") // it is a module of its own
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build -C %s .: %w\n%s", from, err, text)
	}
	return program, nil
}

// source returns the directory of the worker's source, which is beside this
// program's.
func source() (string, error) {
	var wrong strings.Builder
	cmd := exec.Command("go", "list", "-f", "{{.Dir}}", here)
	cmd.Stderr = &wrong
	dir, err := cmd.Output()
	if err != nil {
		return "", errors.New(cmp.Or(strings.TrimSpace(wrong.String()), err.Error()))
	}
	return filepath.Join(strings.TrimSpace(string(dir)), "worker"), nil
}
