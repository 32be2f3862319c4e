// Batch has 500 documents summarized by a loopback server that stops answering
// in the middle. The job runs three times, each in a process of its own: the
// first is killed with kill -9, the second reaches a deadline that is too short
// for all, the third finishes. A cursor in a file takes the job from one to the
// next. In the end, batch compares what the server did with what the cursor
// knew, and exits with status 1 unless each document was summarized, and none
// twice but those that were in flight when a run ended.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/weir-go/weir/transport/batch"
)

func main() {
	if j, ok := jobFromEnv(); ok {
		os.Exit(j.run(context.Background()))
	}
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "batch:", err)
		os.Exit(1)
	}
}

// The three runs of the job.
var runs = []struct {
	what   string
	within time.Duration
	kill   bool // once the server has done killAt
	exit   int
}{
	{"killed on its way", time.Minute, true, -1},
	{"with a deadline too short for all", 1200 * time.Millisecond, false, exitDeadline},
	{"with the time it needs", time.Minute, false, exitDone},
}

func run(ctx context.Context, w io.Writer) error {
	dir, err := os.MkdirTemp("", "batch")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	api := newAPI()
	// Documents that the server had done when a run ended, and which the cursor
	// did not know of: how often each, and how many at the end of each run.
	inFlight := map[string]int{}
	atEnd := make([]int, len(runs))
	for i, r := range runs {
		fmt.Fprintf(w, "run %d, %s\n", i+1, r.what)
		server := httptest.NewServer(api)
		j := job{server.URL, filepath.Join(dir, "summaries.cursor"), r.within}
		exit, err := j.start(ctx, w, r.kill, api.half)
		server.Close() // when all that is under way there has ended
		if err != nil {
			return err
		}
		if exit != r.exit {
			return fmt.Errorf("run %d ended with status %d, not %d", i+1, exit, r.exit)
		}
		cursor, err := readCursor(j.cursor)
		if err != nil {
			return err
		}
		if r.kill {
			fmt.Fprintf(w, "\n  killed; its cursor has %d of %d documents\n", cursor.Done(), len(documents))
		}
		for k, name := range documents {
			switch done := api.count(name); {
			case cursor.IsDone(k) && done == 0:
				return fmt.Errorf("%s is done for the cursor, and not for the server", name)
			case !cursor.IsDone(k) && done > inFlight[name]:
				inFlight[name]++
				atEnd[i]++
			}
		}
		if r.exit == exitDone && cursor.Done() != len(documents) {
			return fmt.Errorf("%d of %d documents are done in the end", cursor.Done(), len(documents))
		}
	}
	return api.report(w, inFlight, atEnd)
}

// start runs the job in a process of its own and returns its exit status, -1 if
// it was killed.
func (j job) start(ctx context.Context, w io.Writer, kill bool, at <-chan struct{}) (exit int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), j.env()...)
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if !kill {
		at = nil
	}
	select {
	case <-at:
		_ = cmd.Process.Kill() // kill -9
		err = <-ended
	case err = <-ended:
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// readCursor reads the cursor of the job, as anybody may.
func readCursor(path string) (*batch.Cursor, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c := new(batch.Cursor)
	return c, c.UnmarshalText(text)
}
