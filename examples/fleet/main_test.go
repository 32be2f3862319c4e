package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestFleet: the quota is kept to, whatever is killed, and used. A machine that has
// no time for the fleet lets some of it go, which is not so each time.
func TestFleet(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed: apt-get install redis-server")
	}
	const most = 3
	for n := 1; ; n++ {
		var out strings.Builder
		err := run(t.Context(), &out, "", 10*time.Second)
		t.Logf("\n%s", &out)
		switch {
		case err == nil:
			return
		case n == most || errors.Is(err, errExceeded) || !errors.Is(err, errUnused):
			t.Fatal(err)
		}
	}
}

// TestInterrupted: an interrupt ends it, and neither a process nor a file is left.
func TestInterrupted(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed: apt-get install redis-server")
	}
	t.Setenv("TMPDIR", t.TempDir())
	ctx, interrupt := context.WithCancel(t.Context())
	out := &onLine{"4 processes", interrupt}
	if err := run(ctx, out, "", time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("there is left %v, %v", left, err)
	}
}

// TestSilent: a Redis that does not answer is ended.
func TestSilent(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a shell script takes the place of redis-server, and there is no shell")
	}
	dir := t.TempDir()
	script := "#!/bin/sh\necho $$ >pid\nexec sleep 60\n" // in the folder of the server's files
	if err := os.WriteFile(filepath.Join(dir, "redis-server"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	_, err := startRedis(dir)
	says(t, err, "does not answer")
	var pid int
	if text, err := os.ReadFile(filepath.Join(dir, "pid")); err != nil {
		t.Fatal(err)
	} else if pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.Signal(0)); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("it is there still: %v", err)
		_ = p.Kill()
	}
}

// onLine does something when it is told of something.
type onLine struct {
	on string
	do func()
}

func (l *onLine) Write(p []byte) (int, error) {
	if strings.HasPrefix(string(p), l.on) {
		l.do()
	}
	return len(p), nil
}

// TestMissing: what is missing is named, and what to do about it.
func TestMissing(t *testing.T) {
	command, err := exec.LookPath("go")
	if err != nil {
		t.Skip("the go command, which builds the worker, is not in the PATH: ", err)
	}
	elsewhere := t.TempDir()
	t.Chdir(elsewhere) // which is in no module
	_, err = build(t.Output(), "", elsewhere)
	says(t, err, "-worker DIR/examples/fleet/worker")
	_, err = build(t.Output(), elsewhere, elsewhere)
	says(t, err, "-worker DIR/examples/fleet/worker")

	t.Setenv("PATH", elsewhere)
	_, err = startRedis(elsewhere)
	says(t, err, "apt-get install redis-server")
	_, err = build(t.Output(), "", elsewhere)
	says(t, err, "install Go")

	t.Setenv("PATH", filepath.Dir(command))
	if err := os.WriteFile("go.mod", []byte("module broken\n\ngo 1.26\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = build(t.Output(), elsewhere, elsewhere)
	says(t, err, "no Go files")
}

func says(t *testing.T, err error, what string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), what) {
		t.Errorf("the error does not say %q: %v", what, err)
	}
}
