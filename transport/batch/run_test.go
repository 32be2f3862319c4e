package batch_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport/batch"
)

var errMine = errors.New("mine")

func TestRun(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		var mu sync.Mutex
		var under, most int
		var order []string
		report, err := batch.Run(t.Context(), batch.Config{Workers: 3, Within: time.Hour, Clock: c},
			batch.Strings(numbered(10)), func(_ context.Context, item string) error {
				mu.Lock()
				order = append(order, item)
				under++
				most = max(most, under)
				mu.Unlock()
				c.Sleep(time.Second)
				mu.Lock()
				under--
				mu.Unlock()
				if item == "item 4" || item == "item 7" {
					return fmt.Errorf("%s: %w", item, errMine)
				}
				return nil
			})
		if err != nil {
			t.Error(err) // what failed is in the report
		}
		wantCounts(t, report, 0, 8, 2, 0)
		equal(t, "the most at once", most, 3)
		equal(t, "the time", c.Elapsed(), 4*time.Second)
		equal(t, "the time told", report.Elapsed, 4*time.Second)
		f := report.Failed[0]
		if f.Item != 4 || f.Name != "item 4" || !errors.Is(f.Err, errMine) {
			t.Errorf("the first failure is %+v", f)
		}
		slices.Sort(order)
		if !slices.Equal(order, numbered(10)) {
			t.Errorf("called for %q", order)
		}
		for i := range 10 {
			if report.Cursor.IsDone(i) == (i == 4 || i == 7) || report.Cursor.HasFailed(i) != (i == 4 || i == 7) {
				t.Errorf("item %d: done %v, failed %v", i, report.Cursor.IsDone(i), report.Cursor.HasFailed(i))
			}
		}
		equal(t, "the report", report.String(), "8 of 10 items done, 2 failed, 0 unprocessed, in 4s")
	})
}

func TestNoItems(t *testing.T) {
	var shown strings.Builder
	report, err := batch.Run(t.Context(), batch.Config{Within: time.Hour, Progress: &shown}, batch.Strings(nil), sleep(nil, 0))
	if err != nil || report.Items != 0 {
		t.Error(report, err)
	}
	equal(t, "what is shown", shown.String(), "0% done, 0/0, 0 unprocessed, in 0s\n")
}

// A window of 6 h, a deadline of 5.5 h, and items that are slower than planned.
func TestJobEndsAtItsDeadline(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		plan := batch.Plan{Items: 2000, Mean: 80 * time.Second, Workers: 8, Window: 6 * time.Hour, Deadline: 5*time.Hour + 30*time.Minute}
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(plan.Mean).Forever())
		do := get(client(t, c, up, policy.Batch()))
		store := &memory{}
		cfg := batch.Config{
			Job: "night", Workers: plan.Workers, Deadline: c.Now().Add(plan.Deadline), Store: store, Clock: c,
		}
		report, err := batch.Run(t.Context(), cfg, batch.Strings(numbered(plan.Items)), do)
		if !errors.Is(err, batch.ErrDeadline) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v", err)
		}
		equal(t, "the end", c.Elapsed(), plan.Deadline)
		// 247 rounds of 80 s; the 248th is cut off.
		wantCounts(t, report, 0, 8*247, 0, 2000-8*247)
		equal(t, "what was planned", plan.Unprocessed(), report.Unprocessed)
		has(t, err.Error(), "24 of 2000 items are unprocessed")
		requests := up.Requests()
		equal(t, "the number of sends", len(requests), 8*248)
		if last := requests[len(requests)-1]; !last.Canceled || !last.End.Equal(cfg.Deadline) {
			t.Errorf("the last call ended at %v, canceled %v; want the deadline, %v", last.End, last.Canceled, cfg.Deadline)
		}

		cfg.Deadline = c.Now().Add(time.Hour)
		cfg.Store = store
		report, err = batch.Run(t.Context(), cfg, batch.Strings(numbered(plan.Items)), do)
		if err != nil {
			t.Error(err)
		}
		wantCounts(t, report, 8*247, 24, 0, 0)
		equal(t, "the time of the second run", report.Elapsed, 3*plan.Mean)
	})
}

// Three calls of 8 s each under one deadline of 10 s: the second gets what is
// left, the third is not sent.
func TestHandlerDeadline(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(8*time.Second).Forever())
		do := get(client(t, c, up, policy.Settings{}))
		handler := layers.WithDeadline(t.Context(), c.Now().Add(10*time.Second))
		if err := do(handler, ""); err != nil || c.Elapsed() != 8*time.Second {
			t.Fatalf("the first call: %v after %v", err, c.Elapsed())
		}
		second, _ := errors.AsType[*layers.Error](do(handler, ""))
		if second == nil || !second.Timeout() || second.Phase != layers.PhaseDeadline || c.Elapsed() != 10*time.Second {
			t.Errorf("the second call: %v after %v", second, c.Elapsed())
		}
		third, _ := errors.AsType[*layers.Error](do(handler, ""))
		if third == nil || third.Sent != layers.Unsent || third.Attempts != 0 || c.Elapsed() != 10*time.Second {
			t.Errorf("the third call: %v after %v", third, c.Elapsed())
		}
		equal(t, "the number of sends", len(up.Requests()), 2)
	})
}

// The calls of an item share the deadline of the job in the same way.
func TestItemOfManyCalls(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(8*time.Second).Forever())
		call := get(client(t, c, up, policy.Settings{}))
		var errs []error
		report, err := batch.Run(t.Context(), batch.Config{Within: 10 * time.Second, Clock: c},
			batch.Strings(numbered(2)), func(ctx context.Context, item string) error {
				for range 3 {
					errs = append(errs, call(ctx, item))
				}
				return errors.Join(errs...)
			})
		wantCounts(t, report, 0, 0, 0, 2)
		equal(t, "the time", c.Elapsed(), 10*time.Second)
		equal(t, "the number of sends", len(up.Requests()), 2)
		if len(errs) != 3 || errs[0] != nil || errs[1] == nil || errs[2] == nil || !errors.Is(err, batch.ErrDeadline) {
			t.Errorf("the calls came to %v, the job to %v", errs, err)
		}
	})
}

// What an item did in spite of the deadline is done.
func TestDoneAfterTheDeadline(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		report, err := batch.Run(t.Context(), batch.Config{Workers: 2, Within: time.Second, Clock: c},
			batch.Strings(numbered(2)), func(ctx context.Context, _ string) error {
				<-ctx.Done() // it knows
				if !errors.Is(context.Cause(ctx), batch.ErrDeadline) {
					t.Errorf("ended by %v", context.Cause(ctx))
				}
				c.Sleep(time.Second)
				return nil
			})
		if err != nil {
			t.Error(err)
		}
		wantCounts(t, report, 0, 2, 0, 0)
	})
}

func TestDeadlineHasPassed(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		report, err := batch.Run(t.Context(), batch.Config{Deadline: c.Now(), Within: time.Hour, Clock: c},
			batch.Strings(numbered(2)), func(context.Context, string) error {
				t.Error("an item was started")
				return nil
			})
		wantCounts(t, report, 0, 0, 0, 2)
		if !errors.Is(err, batch.ErrDeadline) {
			t.Error(err)
		}
	})
}

// An answer whose retries no longer fit the job is not the item's failure; one
// whose own ceiling was too low is.
func TestCutByTheDeadline(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).After(time.Second).Forever())
		patient := policy.Settings{Retry: policy.Retry{BaseDelay: 10 * time.Second, MaxDelay: 10 * time.Second}}
		report, err := batch.Run(t.Context(), batch.Config{Within: 8 * time.Second, Clock: c},
			batch.Strings(numbered(1)), get(client(t, c, up, patient)))
		wantCounts(t, report, 0, 0, 0, 1)
		equal(t, "the time", c.Elapsed(), time.Second)
		if !errors.Is(err, batch.ErrDeadline) {
			t.Error(err)
		}
		patient.Deadline = 8 * time.Second
		report, err = batch.Run(t.Context(), batch.Config{Within: time.Hour, Clock: c},
			batch.Strings(numbered(1)), get(client(t, c, up, patient)))
		wantCounts(t, report, 0, 0, 1, 0)
		if err != nil {
			t.Error(err)
		}
		has(t, report.Failed[0].Err.Error(), "the answer is 503", layers.ReasonDeadline)
	})
}

// The same goes for an error, and for the deadline of the caller's context. One
// that the item set itself is the item's.
func TestErrorCutByTheDeadline(t *testing.T) {
	within := func(d time.Duration) batch.Config { return batch.Config{Within: d} }
	for name, cut := range map[string]struct {
		cfg                 batch.Config
		caller, item        time.Duration
		failed, unprocessed int
	}{
		"the job's":     {cfg: within(8 * time.Second), unprocessed: 1},
		"the caller's":  {cfg: within(time.Hour), caller: 8 * time.Second, unprocessed: 1},
		"the item's":    {cfg: within(time.Hour), item: 8 * time.Second, failed: 1},
		"the policy's":  {cfg: within(time.Hour), failed: 1},
		"neither's":     {cfg: within(time.Hour), caller: 2 * time.Hour, item: 3 * time.Hour, failed: 1},
		"nobody's else": {cfg: within(policy.Off), failed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, clocktest.Fail(clocktest.ErrReset).After(time.Second).Forever())
				call := get(client(t, c, up, policy.Settings{
					Deadline: 30 * time.Second,
					Retry:    policy.Retry{BaseDelay: 10 * time.Second, MaxDelay: 10 * time.Second, MaxAttempts: 10},
				}))
				ctx, cancel := t.Context(), func() {}
				if cut.caller > 0 {
					ctx, cancel = c.WithTimeout(ctx, cut.caller)
				}
				defer cancel()
				cut.cfg.Clock = c
				report, err := batch.Run(ctx, cut.cfg, batch.Strings(numbered(1)), func(ctx context.Context, item string) error {
					if cut.item > 0 {
						ctx = layers.WithDeadline(ctx, c.Now().Add(cut.item))
					}
					return fmt.Errorf("item: %w", call(ctx, item))
				})
				wantCounts(t, report, 0, 0, cut.failed, cut.unprocessed)
				if errors.Is(err, batch.ErrDeadline) != (cut.unprocessed > 0) {
					t.Error(err)
				}
				if c.Elapsed() >= 30*time.Second {
					t.Errorf("it took %v", c.Elapsed())
				}
			})
		})
	}
}

// Items may be endless, or slow to list: the time of the job counts.
func TestListing(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		endless := func(yield func(string, int) bool) {
			for i := 0; yield(fmt.Sprint(i), i); i++ {
				c.Sleep(time.Second)
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		c.AfterFunc(90*time.Second, func() { cancel(errMine) })
		for _, want := range []struct {
			within, at time.Duration
			why        error
		}{{time.Minute, time.Minute, batch.ErrDeadline}, {policy.Off, 90 * time.Second, errMine}} {
			report, err := batch.Run(ctx, batch.Config{Within: want.within, Clock: c}, endless,
				func(context.Context, int) error { panic("an item was started") })
			if !errors.Is(err, want.why) || report.Items != 0 {
				t.Errorf("got %v, %v", report, err)
			}
			equal(t, "the time", c.Elapsed(), want.at)
		}
		slow := func(yield func(string, int) bool) {
			for i := range 3 {
				c.Sleep(10 * time.Second)
				yield(fmt.Sprint(i), i)
			}
		}
		report, err := batch.Run(t.Context(), batch.Config{Workers: math.MaxInt, Within: 40 * time.Second, Clock: c}, slow,
			func(_ context.Context, i int) error {
				c.Sleep(time.Duration(i*8) * time.Second)
				if i == 2 {
					return errMine
				}
				return nil
			})
		wantCounts(t, report, 0, 2, 0, 1) // 46 s after the start, the last one was too late
		equal(t, "what it took", report.Elapsed, 46*time.Second)
		if !errors.Is(err, batch.ErrDeadline) {
			t.Error(err)
		}
	})
}

func TestCallerCancels(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		store := &memory{}
		ctx, cancel := context.WithCancelCause(t.Context())
		c.AfterFunc(2500*time.Millisecond, func() { cancel(errMine) })
		report, err := batch.Run(ctx, batch.Config{Job: "j", Workers: 4, Within: time.Hour, Store: store, Clock: c},
			batch.Strings(numbered(100)), sleep(c, time.Second))
		if !errors.Is(err, errMine) {
			t.Errorf("got error %v", err)
		}
		wantCounts(t, report, 0, 8, 0, 92)
		equal(t, "the time", c.Elapsed(), 2500*time.Millisecond)
		equal(t, "what is stored", store.cursor(t).Done(), 8)
	})
}

func TestCanceledBeforehand(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	report, err := batch.Run(ctx, batch.Config{Within: policy.Off}, batch.Strings(numbered(3)), func(context.Context, string) error {
		t.Error("an item was started")
		return nil
	})
	wantCounts(t, report, 0, 0, 0, 3)
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestPanic(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		report, err := batch.Run(t.Context(), batch.Config{Workers: 2, Within: time.Hour, Clock: c},
			batch.Strings(numbered(5)), func(_ context.Context, item string) error {
				switch item {
				case "item 1":
					panic("in the function")
				case "item 3":
					runtime.Goexit()
				}
				return nil
			})
		if err != nil {
			t.Error(err)
		}
		wantCounts(t, report, 0, 3, 2, 0)
		slices.SortFunc(report.Failed, func(a, b batch.Failure) int { return a.Item - b.Item })
		p, ok := errors.AsType[*batch.PanicError](report.Failed[0].Err)
		if !ok || p.Value != "in the function" || !strings.Contains(string(p.Stack), "run_test.go") {
			t.Errorf("got %v", report.Failed[0].Err)
		}
		has(t, p.Error(), "panic: in the function")
		if errors.Is(p, errMine) || !errors.Is(&batch.PanicError{Value: errMine}, errMine) {
			t.Error("a panic is the error that it was called with, if it was one")
		}
		has(t, report.Failed[1].Err.Error(), "Goexit")
	})
}

// broken is an error whose methods need more than it has.
type broken struct{ err error }

func (b *broken) Error() string { return b.err.Error() }
func (b *broken) Unwrap() error { return b.err }

// TestErrorThatPanics: looking into an error runs code of the caller's, too.
func TestErrorThatPanics(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		store := &memory{}
		report, err := batch.Run(t.Context(), batch.Config{Job: "night", Store: store, Workers: 2, Within: time.Hour, Clock: c},
			batch.Strings(numbered(4)), func(_ context.Context, item string) error {
				switch item {
				case "item 0":
					return (*layers.Error)(nil)
				case "item 1":
					return fmt.Errorf("%s: %w", item, (*broken)(nil))
				case "item 2":
					panic((*broken)(nil))
				}
				return nil
			})
		if err != nil {
			t.Error(err)
		}
		wantCounts(t, report, 0, 1, 3, 0)
		for _, f := range report.Failed {
			if _, ok := f.Err.(*batch.PanicError); !ok { // to look further would panic
				t.Errorf("%s: %T", f.Name, f.Err)
			}
		}
		equal(t, "the store's last word", store.cursor(t).Done(), 1)
		equal(t, "how often it was closed", store.closes, 1)
	})
}

func TestConfigFaults(t *testing.T) {
	_, err := batch.Run(t.Context(), batch.Config{
		Within: -5, Workers: -1, Store: &memory{}, SaveItems: -1, SaveEvery: -1, ProgressEvery: time.Millisecond,
	}, batch.Strings(nil), sleep(nil, 0))
	if err == nil {
		t.Fatal("accepted")
	}
	has(t, err.Error(), "Within is -5ns", "Workers is -1", "set Job", "SaveItems is -1", "SaveEvery is -1ns", "ProgressEvery is 1ms, below 100ms")
	_, err = batch.Run(t.Context(), batch.Config{}, batch.Strings(nil), sleep(nil, 0))
	if err == nil {
		t.Fatal("accepted without a deadline")
	}
	has(t, err.Error(), "set Deadline or Within, or Within to policy.Off")
}

// The clock may be a plain mock, moved by hand.
func TestMockMovedByHand(t *testing.T) {
	mock := clock.NewMock()
	ended := make(chan error)
	go func() {
		_, err := batch.Run(t.Context(), batch.Config{Within: time.Hour, Clock: mock},
			batch.Strings(numbered(2)), func(ctx context.Context, _ string) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
		ended <- err
	}()
	for {
		select {
		case err := <-ended:
			if !errors.Is(err, batch.ErrDeadline) {
				t.Error(err)
			}
			return
		default:
			mock.Add(time.Minute)
		}
	}
}

// Jobs of many workers whose items end in all ways, at the same instants.
func TestManyAtOnce(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		const n = 2000
		var tried [n]atomic.Int32
		store := &memory{clock: c, takes: 3 * time.Millisecond}
		list := make([]int, n)
		for i := range list {
			list[i] = i
		}
		names := func(i int) string { return fmt.Sprint(i) }
		do := func(ctx context.Context, i int) error {
			c.Sleep(time.Duration(i%5) * time.Millisecond)
			switch n := tried[i].Add(1); {
			case i%97 == 0:
				panic(i)
			case i%13 == 0:
				return errMine
			case i%7 == 0 && n == 1:
				return &layers.Error{Layer: "breaker", RetryAfter: 20 * time.Millisecond, Err: errMine}
			case i%11 == 0 && n == 1:
				return &layers.Error{Phase: layers.PhaseRate, RetryAfter: 10 * time.Millisecond, Err: errMine}
			}
			return nil
		}
		left, runs := n, 0
		for left > 0 {
			runs++
			report, err := batch.Run(t.Context(), batch.Config{
				Job: "many", Workers: 32, Within: 500 * time.Millisecond, Store: store, SaveItems: 10, Clock: c,
			}, batch.Items(list, names), do)
			if err != nil && !errors.Is(err, batch.ErrDeadline) {
				t.Fatal(err)
			}
			left = report.Unprocessed
			if report.Resumed+report.Done != store.cursor(t).Done() {
				t.Fatalf("the store has %d, the report is %v", store.cursor(t).Done(), report)
			}
		}
		if runs < 2 {
			t.Errorf("all in %d run", runs)
		}
		cursor := store.cursor(t)
		for i := range n {
			bad := i%97 == 0 || i%13 == 0
			if cursor.IsDone(i) == bad {
				t.Errorf("item %d: done %v", i, !bad)
			}
		}
	})
}
