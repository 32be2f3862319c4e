package batch_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/transport/batch"
)

// sealed adds to the lines of a cursor the one that makes them whole.
func sealed(lines string) []byte {
	return fmt.Appendf(nil, "%ssum %x\n", lines, sha256.Sum256([]byte(lines)))
}

// written returns the cursor of a job of five items, of which 1, 2 and 4 are
// done, and 3 failed.
func written(t *testing.T) []byte {
	t.Helper()
	store := &memory{}
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		_, err := batch.Run(t.Context(), batch.Config{Job: "the \"job\"", Workers: 5, Within: 90 * time.Second, Store: store, Clock: c},
			batch.Strings(numbered(5)), func(ctx context.Context, item string) error {
				switch item {
				case "item 0":
					return sleep(c, time.Hour)(ctx, item)
				case "item 3":
					return errMine
				}
				return nil
			})
		if !errors.Is(err, batch.ErrDeadline) {
			t.Error(err)
		}
	})
	return store.data
}

func TestCursorText(t *testing.T) {
	text := written(t)
	lines := strings.Split(string(text), "\n")
	if len(lines) != 7 || lines[0] != "weir batch cursor, format 1" || lines[1] != `job "the \"job\""` ||
		!strings.HasPrefix(lines[2], "items 5 ") || lines[3] != "done 1-2 4" || lines[4] != "failed 3" {
		t.Errorf("got\n%s", text)
	}
	var c batch.Cursor
	if err := c.UnmarshalText(text); err != nil {
		t.Fatal(err)
	}
	equal(t, "the job", c.Job(), `the "job"`)
	equal(t, "the number of items", c.Items(), 5)
	equal(t, "the number of those done", c.Done(), 3)
	for i, want := range []bool{false, true, true, false, true, false} {
		if c.IsDone(i) != want || c.HasFailed(i) != (i == 3) {
			t.Errorf("item %d: done %v, failed %v", i, c.IsDone(i), c.HasFailed(i))
		}
	}
	if again, err := c.MarshalText(); err != nil || !bytes.Equal(again, text) {
		t.Errorf("got %s, %v", again, err)
	}
}

// Any byte that is changed, left out or added is noticed, and any cut.
func TestCorrupt(t *testing.T) {
	text := written(t)
	try := func(what string, damaged []byte) {
		t.Helper()
		c := new(batch.Cursor)
		if err := c.UnmarshalText(damaged); !errors.Is(err, batch.ErrCorrupt) && !errors.Is(err, batch.ErrNewer) {
			t.Errorf("%s: got %v", what, err)
		}
		if c.Items() != 0 || c.Done() != 0 {
			t.Errorf("%s: the cursor was changed", what)
		}
	}
	for i := range text {
		try(fmt.Sprint("cut at ", i), text[:i])
		for bit := range 8 {
			damaged := bytes.Clone(text)
			damaged[i] ^= 1 << bit
			try(fmt.Sprintf("bit %d of byte %d", bit, i), damaged)
		}
		try(fmt.Sprint("without byte ", i), append(bytes.Clone(text[:i]), text[i+1:]...))
	}
	try("with more", append(bytes.Clone(text), 'x'))
	try("twice", append(bytes.Clone(text), text...))
	try("zeros", make([]byte, len(text)))

	// What is whole, but not as it is written.
	head := strings.Join(strings.SplitAfter(string(text), "\n")[:3], "")
	for name, lines := range map[string]string{
		"out of order":   "done 3 1\nfailed\n",
		"touching":       "done 1 2\nfailed\n",
		"overlapping":    "done 1-3 3-4\nfailed\n",
		"backwards":      "done 3-1\nfailed\n",
		"beyond the end": "done 1-5\nfailed\n",
		"negative":       "done -1\nfailed\n",
		"no number":      "done 1-x\nfailed\n",
		"a range of one": "done 1-1\nfailed\n",
		"spaces":         "done  1\nfailed\n",
		"a sign":         "done +1\nfailed\n",
		"zeros":          "done 01\nfailed\n",
		"too large":      "done 99999999999999999999\nfailed\n",
		"no failed":      "done 1\n",
		"another line":   "done 1\nfailed\nmore\n",
	} {
		try(name, sealed(head+lines))
	}
	first, job := head[:strings.Index(head, "job")], "job \"j\"\n"
	for name, lines := range map[string]string{
		"a negative number": first + job + "items -5 " + strings.Repeat("0", 64) + "\n",
		"no sum":            first + job + "items 5\n",
		"a short sum":       first + job + "items 5 00\n",
		"a long sum":        first + job + "items 5 " + strings.Repeat("0", 66) + "\n",
		"an unquoted job":   first + "job j\nitems 5 " + strings.Repeat("0", 64) + "\n",
		"format 0":          "weir batch cursor, format 0\n" + job + "items 5 " + strings.Repeat("0", 64) + "\n",
	} {
		try(name, sealed(lines+"done\nfailed\n"))
	}
}

// Run refuses what it must not go on with, says why and what to do, and leaves
// it as it is.
func TestRefusedCursors(t *testing.T) {
	text := written(t)
	other := numbered(5)
	other[2], other[3] = other[3], other[2]
	for name, test := range map[string]struct {
		stored []byte
		job    string
		items  []string
		err    error
		says   []string
	}{
		"corrupt":      {text[:len(text)-1], `the "job"`, numbered(5), batch.ErrCorrupt, []string{"checksum", "move it away"}},
		"empty":        {[]byte{}, `the "job"`, numbered(5), batch.ErrCorrupt, []string{"does not begin", "move it away"}},
		"newer":        {[]byte("weir batch cursor, format 2\n???"), `the "job"`, numbered(5), batch.ErrNewer, []string{"format 2", "knows 1", "run the program that wrote it"}},
		"another job":  {text, "mine", numbered(5), batch.ErrForeign, []string{`belongs to "the \"job\""`, `this is "mine"`, "a place of its own"}},
		"other items":  {text, `the "job"`, other, batch.ErrForeign, []string{"other names, or another order", "restore"}},
		"fewer items":  {text, `the "job"`, numbered(4), batch.ErrForeign, []string{"has 5 items", "there are 4"}},
		"other prefix": {text, `the "job"`, append([]string{"new"}, numbered(5)...), batch.ErrForeign, []string{"add new ones at the end"}},
	} {
		t.Run(name, func(t *testing.T) {
			store := &memory{data: test.stored}
			report, err := batch.Run(t.Context(), batch.Config{Job: test.job, Within: time.Hour, Store: store},
				batch.Strings(test.items), func(context.Context, string) error {
					t.Error("an item was started")
					return nil
				})
			if !errors.Is(err, test.err) {
				t.Fatalf("got error %v", err)
			}
			has(t, err.Error(), append(test.says, "batch: the cursor is refused: ")...)
			if report.Cursor != nil || !bytes.Equal(store.data, test.stored) || store.closes != 1 {
				t.Errorf("report %v, %d closes; stored now\n%s", report, store.closes, store.data)
			}
		})
	}
}
