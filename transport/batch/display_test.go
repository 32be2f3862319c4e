package batch_test

import (
	"bytes"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/transport/batch"
)

// frames notes when it was written to.
type frames struct {
	c     *clocktest.Clock
	takes time.Duration
	mu    sync.Mutex
	at    []time.Duration
	text  bytes.Buffer
}

func (f *frames) Write(p []byte) (int, error) {
	f.mu.Lock()
	f.at = append(f.at, f.c.Elapsed())
	f.text.Write(p)
	f.mu.Unlock()
	if f.takes > 0 {
		f.c.Sleep(f.takes)
	}
	return len(p), nil
}

// writer is a function that is written to.
type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestProgressLines(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		f := &frames{c: c}
		_, err := batch.Run(t.Context(), batch.Config{Job: "night", Workers: 10, Within: time.Hour, Clock: c, Progress: f},
			batch.Strings(numbered(1000)), sleep(c, time.Second))
		if err != nil {
			t.Error(err)
		}
		want := `night: 0% done, 0/1000, 0/s, deadline in 1h0m0s
night: 30% done, 300/1000, 10/s, 1m10s left
night: 60% done, 600/1000, 10/s, 40s left
night: 90% done, 900/1000, 10/s, 10s left
night: 100% done, 1000/1000, 0 unprocessed, in 1m40s
`
		if got := f.text.String(); !near(got, want) {
			t.Errorf("got\n%s", got)
		}
	})
}

// near reports that two texts have the same number of lines, and the same first
// and last: what ended at the very instant of a line may be in it or not.
func near(got, want string) bool {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	return len(g) == len(w) && g[0] == w[0] && g[len(g)-2] == w[len(w)-2]
}

// A writer that is slow, or blocks, does not hold up the items.
func TestProgressIsSlow(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		f := &frames{c: c, takes: time.Minute}
		report, err := batch.Run(t.Context(), batch.Config{Within: time.Hour, Clock: c, Progress: f, ProgressEvery: 100 * time.Millisecond},
			batch.Strings(numbered(10)), sleep(c, time.Second))
		if err != nil || report.Elapsed != 10*time.Second {
			t.Errorf("%v, %v", report, err)
		}
		if len(f.at) > 3 {
			t.Errorf("written at %v", f.at)
		}
	})
}

// A writer that panics costs the job nothing.
func TestProgressBreaks(t *testing.T) {
	for name, breaks := range map[string]func(){"a panic": func() { panic(errMine) }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				w := writer(func([]byte) (int, error) { breaks(); return 0, nil })
				report, err := batch.Run(t.Context(), batch.Config{Within: time.Hour, Progress: w, ProgressEvery: time.Second, Clock: c},
					batch.Strings(numbered(10)), sleep(c, time.Second))
				if err != nil {
					t.Error(err)
				}
				wantCounts(t, report, 0, 10, 0, 0)
			})
		})
	}
}

func TestProgressRate(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		f := &frames{c: c}
		_, err := batch.Run(t.Context(), batch.Config{Workers: 50, Within: time.Hour, Clock: c, Progress: f, ProgressEvery: time.Second},
			batch.Strings(numbered(5000)), sleep(c, 70*time.Millisecond))
		if err != nil {
			t.Error(err)
		}
		if len(f.at) > 9 || len(f.at) < 8 { // one a second, and the last
			t.Errorf("written at %v", f.at)
		}
	})
}

// A file is no terminal.
func TestProgressToFile(t *testing.T) {
	path := t.TempDir() + "/log"
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err = batch.Run(t.Context(), batch.Config{Within: time.Hour, Progress: f}, batch.Strings(numbered(3)), nothing); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || bytes.ContainsAny(text, "\r[") || !strings.HasPrefix(string(text), "0% done, 0/3") {
		t.Errorf("%q, %v", text, err)
	}
}
