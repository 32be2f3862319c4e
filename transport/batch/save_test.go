package batch_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/transport/batch"
)

// By default, every item is in the store before its worker takes another.
func TestSaveEachItem(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		store := &memory{clock: c, takes: 300 * time.Millisecond}
		var ended, most atomic.Int32
		report, err := batch.Run(t.Context(), batch.Config{Job: "j", Workers: 4, Within: time.Hour, Store: store, Clock: c},
			batch.Strings(numbered(40)), func(context.Context, string) error {
				c.Sleep(time.Second)
				store.mu.Lock()
				kept := new(batch.Cursor)
				if err := kept.UnmarshalText(store.data); err != nil {
					t.Error(err)
				}
				store.mu.Unlock()
				most.Store(max(most.Load(), ended.Add(1)-int32(kept.Done())))
				return nil
			})
		if err != nil {
			t.Error(err)
		}
		wantCounts(t, report, 0, 40, 0, 0)
		equal(t, "the most that a kill would repeat", most.Load(), 4)
		if n := len(store.saves); n < 11 || n > 22 {
			t.Errorf("%d writes: items that end together share one", n)
		}
	})
}

// The two ways of asking for fewer writes.
func TestSaveSeldom(t *testing.T) {
	for name, test := range map[string]struct {
		items int
		every time.Duration
		saves []time.Duration
	}{
		"by number": {10, time.Hour, []time.Duration{0, 10 * time.Second, 20 * time.Second, 25 * time.Second}},
		"by time":   {1000, 10 * time.Second, []time.Duration{0, 11 * time.Second, 22 * time.Second, 25 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				store := &memory{clock: c}
				_, err := batch.Run(t.Context(), batch.Config{
					Job: "j", Within: time.Hour, Store: store, SaveItems: test.items, SaveEvery: test.every, Clock: c,
				}, batch.Strings(numbered(25)), sleep(c, time.Second))
				if err != nil {
					t.Error(err)
				}
				if !slices.Equal(store.saves, test.saves) {
					t.Errorf("written at %v, want %v", store.saves, test.saves)
				}
				equal(t, "what is stored", store.cursor(t).Done(), 25)
			})
		})
	}
}

// A disk that is full from the fifth second to the ninth.
func TestDiskFull(t *testing.T) {
	full := func(c *clocktest.Clock) func() error {
		return func() error {
			if at := c.Elapsed(); at >= 5*time.Second && at < 9*time.Second {
				return syscall.ENOSPC
			}
			return nil
		}
	}
	t.Run("stops", func(t *testing.T) {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			store := &memory{clock: c, fails: full(c)}
			report, err := batch.Run(t.Context(), batch.Config{Job: "j", Workers: 2, Within: time.Hour, Store: store, Clock: c},
				batch.Strings(numbered(100)), sleep(c, time.Second))
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("got error %v", err)
			}
			has(t, err.Error(), "the cursor cannot be written: a second run would repeat 2 of the items: no space left on device")
			equal(t, "the number of causes", strings.Count(err.Error(), "no space"), 1)
			wantCounts(t, report, 0, 10, 0, 90)
			equal(t, "what is stored", store.cursor(t).Done(), 8)
			equal(t, "what the report has", report.Cursor.Done(), 10)
			equal(t, "the number of closes", store.closes, 1)
		})
	})
	t.Run("goes on", func(t *testing.T) {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			store := &memory{clock: c, fails: full(c)}
			var told []error
			report, err := batch.Run(t.Context(), batch.Config{
				Job: "j", Workers: 2, Within: time.Hour, Store: store, Clock: c,
				SaveFailed: func(err error) error { told = append(told, err); return nil },
			}, batch.Strings(numbered(100)), sleep(c, time.Second))
			if err != nil {
				t.Error(err)
			}
			wantCounts(t, report, 0, 100, 0, 0)
			equal(t, "the time", c.Elapsed(), 50*time.Second)
			equal(t, "what is stored", store.cursor(t).Done(), 100)
			if len(told) != 4 || !errors.Is(told[0], syscall.ENOSPC) {
				t.Errorf("told of %v", told)
			}
			has(t, told[2].Error(), "a second run would repeat ")
		})
	})
}

// Whoever is asked what a failure means may panic over it.
func TestSaveFailedPanics(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		fails := true
		store := &memory{fails: func() error {
			if fails {
				return syscall.ENOSPC
			}
			return nil
		}}
		report, err := batch.Run(t.Context(), batch.Config{
			Job: "j", Within: time.Hour, Store: store, Clock: c,
			SaveFailed: func(error) error { fails = false; panic(errMine) },
		}, batch.Strings(numbered(3)), sleep(c, time.Second))
		if !errors.Is(err, errMine) {
			t.Error(err)
		}
		wantCounts(t, report, 0, 0, 0, 3)
		equal(t, "the number of closes", store.closes, 1)
	})
}

// A store that panics, or ends its goroutine, has failed.
func TestStoreBreaks(t *testing.T) {
	for name, breaks := range map[string]func(){"a panic": func() { panic(errMine) }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				var saves int
				store := &memory{fails: func() error {
					if saves++; saves == 3 {
						breaks()
					}
					return nil
				}}
				var told error
				report, err := batch.Run(t.Context(), batch.Config{
					Job: "j", Within: time.Hour, Store: store, Clock: c,
					SaveFailed: func(err error) error { told = err; return nil },
				}, batch.Strings(numbered(10)), sleep(c, time.Second))
				if err != nil || told == nil {
					t.Errorf("got %v, and was told %v", err, told)
				}
				wantCounts(t, report, 0, 10, 0, 0)
				equal(t, "what is stored", store.cursor(t).Done(), 10)
			})
		})
	}
}

// A store that cannot be written at all is found before the first item.
func TestStoreNeverWorks(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		store := &memory{clock: c, fails: func() error { return syscall.EROFS }}
		cfg := batch.Config{Job: "j", Within: time.Hour, Store: store, Clock: c}
		report, err := batch.Run(t.Context(), cfg, batch.Strings(numbered(10)), func(context.Context, string) error {
			t.Error("an item was started")
			return nil
		})
		if !errors.Is(err, syscall.EROFS) {
			t.Error(err)
		}
		wantCounts(t, report, 0, 0, 0, 10)

		// Going on is possible, but Run says in the end that nothing is stored.
		cfg.SaveFailed = func(error) error { return nil }
		report, err = batch.Run(t.Context(), cfg, batch.Strings(numbered(10)), sleep(c, time.Second))
		if !errors.Is(err, syscall.EROFS) {
			t.Error(err)
		}
		has(t, err.Error(), "would repeat 10 of the items: read-only file system")
		wantCounts(t, report, 0, 10, 0, 0)
		equal(t, "what the report has", report.Cursor.Done(), 10)
	})
}

// A second run takes what was not tried first, then what failed.
func TestResume(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		store := &memory{}
		var order []string
		do := func(fail ...string) func(context.Context, string) error {
			order = nil
			return func(ctx context.Context, item string) error {
				order = append(order, item)
				c.Sleep(time.Second)
				if slices.Contains(fail, item) {
					return errMine
				}
				return ctx.Err()
			}
		}
		cfg := batch.Config{Job: "j", Within: 4500 * time.Millisecond, Store: store, Clock: c}
		report, err := batch.Run(t.Context(), cfg, batch.Strings(numbered(7)), do("item 0", "item 2"))
		if !errors.Is(err, batch.ErrDeadline) {
			t.Error(err)
		}
		wantCounts(t, report, 0, 2, 2, 3)

		cfg.Within = time.Hour
		report, err = batch.Run(t.Context(), cfg, batch.Strings(numbered(9)), do("item 2")) // two were added
		if err != nil {
			t.Error(err)
		}
		if want := []string{"item 4", "item 5", "item 6", "item 7", "item 8", "item 0", "item 2"}; !slices.Equal(order, want) {
			t.Errorf("tried %q, want %q", order, want)
		}
		wantCounts(t, report, 2, 6, 1, 0)
		equal(t, "the report", report.String(), "8 of 9 items done (2 of them before), 1 failed, 0 unprocessed, in 7s")

		report, err = batch.Run(t.Context(), cfg, batch.Strings(numbered(9)), do())
		if err != nil || len(order) != 1 {
			t.Errorf("%v; tried %q", err, order)
		}
		wantCounts(t, report, 8, 1, 0, 0)
		report, err = batch.Run(t.Context(), cfg, batch.Strings(numbered(9)), do())
		if err != nil || order != nil {
			t.Errorf("%v; tried %q, though all was done", err, order)
		}
		wantCounts(t, report, 9, 0, 0, 0)
		equal(t, "the number of closes", store.closes, 4)
	})
}
