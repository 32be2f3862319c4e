package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
)

func client(t *testing.T, c *clocktest.Clock, steps ...clocktest.Step) (*Reports, *clocktest.Upstream) {
	t.Helper()
	up := clocktest.NewUpstream(t, c, steps...)
	r, err := NewReports("http://reports.test", time.Minute, up, c)
	if err != nil {
		t.Fatal(err)
	}
	return r, up
}

// Nobody waits for real: the hours pass as soon as every goroutine waits.
func TestReportThatTakesHours(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		r, up := client(t, c,
			clocktest.Reply(202).Times(6*60),
			clocktest.Reply(200).Body("all is well"))
		text, err := r.Report(t.Context(), "yearly")
		if text != "all is well" || err != nil {
			t.Errorf("got %q, %v", text, err)
		}
		if c.Elapsed() != 6*time.Hour || len(up.Requests()) != 361 {
			t.Errorf("took %v and %d requests", c.Elapsed(), len(up.Requests()))
		}
	})
}

func TestUnavailableIsRetried(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		r, up := client(t, c,
			clocktest.Reply(503).Times(2),
			clocktest.Reply(200).Body("all is well"))
		if _, err := r.Report(t.Context(), "daily"); err != nil {
			t.Error(err)
		}
		// The waits are random, up to 100 ms and 200 ms.
		if n := len(up.Requests()); n != 3 || c.Elapsed() > 300*time.Millisecond {
			t.Errorf("took %v and %d requests", c.Elapsed(), n)
		}
	})
}

// The server asks for more time than the call has, so there is no use in
// waiting.
func TestLongRetryAfterEndsTheCall(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		r, _ := client(t, c, clocktest.Reply(503).Header("Retry-After", "3600"))
		if _, err := r.Report(t.Context(), "daily"); err == nil || c.Elapsed() != 0 {
			t.Errorf("got %v after %v", err, c.Elapsed())
		}
	})
}

func TestSilentServer(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		r, up := client(t, c, clocktest.NoReply().Times(3))
		_, err := r.Report(t.Context(), "daily")
		e, ok := errors.AsType[*layers.Error](err)
		if !ok || e.Phase != layers.PhaseDeadline || !e.Timeout() || e.Attempts != 3 {
			t.Errorf("got %v", err)
		}
		if c.Elapsed() != 10*time.Second {
			t.Errorf("took %v", c.Elapsed())
		}
		for i, req := range up.Requests() {
			t.Logf("request %d went out after %v", i+1, req.At.Sub(up.Requests()[0].At))
		}
	})
}

func TestCallerGivesUp(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		r, _ := client(t, c, clocktest.Reply(202).Forever())
		ctx, cancel := context.WithCancel(t.Context())
		c.AfterFunc(90*time.Minute+time.Second, cancel)
		_, err := r.Report(ctx, "yearly")
		if !errors.Is(err, context.Canceled) || c.Elapsed() != 90*time.Minute+time.Second {
			t.Errorf("got %v after %v", err, c.Elapsed())
		}
	})
}

func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil || out.String() != "after 4 requests: \"all is well\"\n" {
		t.Errorf("got %q, %v", &out, err)
	}
}
