package clocktest_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/weir-go/weir/clocktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A timeline is what happened in a test, with the time at which it did.
type timeline struct {
	c     *clocktest.Clock
	mu    sync.Mutex
	lines []string
}

func (l *timeline) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprint(l.c.Elapsed(), " ", fmt.Sprintf(format, args...)))
}

func (l *timeline) check(t *testing.T, want ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.lines, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(l.lines, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// failing runs a test of this binary, which fails if it knows that it is run on
// purpose, and returns its output.
func failing(t *testing.T, name string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+name+"$", "-test.timeout=20s")
	cmd.Env = append(os.Environ(), onPurpose+"="+name)
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); !errors.As(err, &exit) {
		t.Fatalf("%s did not fail: %v\n%s", name, err, out)
	}
	return string(out)
}

const onPurpose = "CLOCKTEST_FAIL"

// onlyOnPurpose skips a test that exists to fail.
func onlyOnPurpose(t *testing.T) {
	if os.Getenv(onPurpose) != t.Name() {
		t.Skip("fails on purpose, when run by another test")
	}
}
