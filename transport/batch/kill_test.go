package batch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport/batch"
)

// What a child process is told by.
const childDir = "WEIR_BATCH_CHILD"

const (
	childItems   = 1500
	childWorkers = 4
)

// child runs the job of TestKill in a process of its own. Each item is written
// to a log before it is done.
func child(dir string) {
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	os.Stdout.WriteString("ready\n")
	_, err = batch.Run(context.Background(), batch.Config{
		Job: "child", Workers: childWorkers, Within: policy.Off, Store: batch.File(filepath.Join(dir, "cursor")),
	}, batch.Strings(numbered(childItems)), func(_ context.Context, item string) error {
		time.Sleep(rand.N(2 * time.Millisecond))
		_, err := fmt.Fprintln(log, item)
		return err
	})
	if err != nil {
		panic(err)
	}
}

// Killed at any moment, a job loses nothing: its cursor can be read, whatever is
// done according to it was done, and the items that are done again are no more
// than there are workers.
func TestKill(t *testing.T) {
	kills, atMost := 100, 15*time.Second
	if testing.Short() {
		kills = 10
	}
	begin := time.Now()
	n, rounds, repeats := 0, 0, 0
	for ; n < kills && time.Since(begin) < atMost; rounds++ {
		dir := t.TempDir()
		killed := 0
		for {
			// The last run of a round ends by itself.
			last := n+killed >= kills || time.Since(begin) > atMost
			if !run(t, dir, !last) {
				break
			}
			killed++
			check(t, dir)
		}
		n += killed
		repeats += check(t, dir)
		cursor := readCursor(t, dir)
		if cursor.Done() != childItems {
			t.Fatalf("%d of %d items are done in the end", cursor.Done(), childItems)
		}
		if repeats > n*childWorkers {
			t.Fatalf("%d items were done again after %d kills of %d workers", repeats, n, childWorkers)
		}
	}
	t.Logf("%d kills of %d jobs of %d items: %d items were done again", n, rounds, childItems, repeats)
	if n < 5 {
		t.Errorf("only %d kills in %v", n, time.Since(begin))
	}
}

// run runs the child, and reports whether it was killed.
func run(t *testing.T, dir string, kill bool) bool {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	io.ReadFull(stdout, make([]byte, len("ready\n")))
	if kill {
		time.Sleep(rand.N(40 * time.Millisecond))
		cmd.Process.Kill()
	}
	err = cmd.Wait()
	exit, _ := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return false
	case exit != nil && exit.ExitCode() == -1 && stderr.Len() == 0:
		return true
	}
	t.Fatalf("%v\n%s", err, &stderr)
	return false
}

// check compares the cursor of a job with its log, and counts the items that
// were done again.
func check(t *testing.T, dir string) (repeats int) {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	times := make([]int, childItems)
	for line := range bytes.Lines(log) {
		i, err := strconv.Atoi(string(bytes.TrimSpace(bytes.TrimPrefix(line, []byte("item ")))))
		if err != nil {
			t.Fatalf("the log has %q", line)
		}
		times[i]++
	}
	cursor := readCursor(t, dir)
	ahead := 0
	for i, n := range times {
		switch isDone := cursor.IsDone(i); {
		case isDone && n == 0:
			t.Fatalf("item %d is done only according to the cursor", i)
		case !isDone && n > 0:
			ahead++
		}
		repeats += max(0, n-1)
	}
	if ahead > childWorkers {
		t.Fatalf("%d items were done without the cursor's knowing, with %d workers", ahead, childWorkers)
	}
	return repeats
}

// readCursor reads the cursor of a job, which may not have begun.
func readCursor(t *testing.T, dir string) *batch.Cursor {
	t.Helper()
	c := new(batch.Cursor)
	text, err := os.ReadFile(filepath.Join(dir, "cursor"))
	if err == nil {
		err = c.UnmarshalText(text)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return c
}
