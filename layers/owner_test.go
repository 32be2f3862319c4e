package layers_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

// TestOwner: an error that a deadline is to blame for says whose it was,
// however it left no time.
func TestOwner(t *testing.T) {
	deadlines := []struct {
		name           string
		job, caller    time.Duration // 0: none
		policy, within time.Duration
		want           layers.Owner
	}{
		{name: "policy", policy: 10 * time.Second, within: 10 * time.Second, want: layers.OwnerPolicy},
		{name: "policy before the others", job: time.Minute, caller: time.Hour, policy: 10 * time.Second, within: 10 * time.Second, want: layers.OwnerPolicy},
		{name: "job", job: 5 * time.Second, policy: 10 * time.Second, within: 5 * time.Second, want: layers.OwnerJob},
		{name: "job without a policy's", job: 5 * time.Second, policy: policy.Off, within: 5 * time.Second, want: layers.OwnerJob},
		{name: "all at once", job: 5 * time.Second, caller: 5 * time.Second, policy: 5 * time.Second, within: 5 * time.Second, want: layers.OwnerJob},
		{name: "caller", caller: 5 * time.Second, policy: 10 * time.Second, within: 5 * time.Second, want: layers.OwnerContext},
	}
	causes := []struct {
		name string
		step func(within time.Duration) clocktest.Step
		own  bool // the end of the caller's context is the caller's own error
	}{
		{"it passes", func(time.Duration) clocktest.Step { return clocktest.NoReply() }, true},
		{"no time for a retry", func(within time.Duration) clocktest.Step {
			return clocktest.Fail(clocktest.ErrReset).After(within - 10*time.Millisecond)
		}, false},
	}
	for _, d := range deadlines {
		for _, cause := range causes {
			t.Run(d.name+"/"+cause.name, func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					ctx, cancel := t.Context(), func() {}
					if d.caller > 0 {
						ctx, cancel = c.WithTimeout(ctx, d.caller)
					}
					defer cancel()
					if d.job > 0 {
						ctx = layers.WithDeadline(ctx, c.Now().Add(d.job))
					}
					end := c.Now().Add(d.within)
					env := &layers.Env{Clock: c}
					rt := layers.Chain(clocktest.NewUpstream(t, c, cause.step(d.within)),
						layers.Deadline(env, d.policy), layers.Retry(env, policy.Retry{}))
					req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
					_, err := rt.RoundTrip(req)
					e, ok := errors.AsType[*layers.Error](err)
					if d.caller == d.within && cause.own {
						if ok || !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("got %v, want the caller's own error", err)
						}
						return
					}
					if !ok || e.Reason != layers.ReasonDeadline || e.Owner != d.want || !e.Deadline.Equal(end) {
						t.Errorf("got %+v, want the deadline of %q at %v", err, d.want, end)
					}
				})
			})
		}
	}
}

// TestNoOwner: what no deadline is to blame for has no deadline, and a call
// that has one says whose.
func TestNoOwner(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		env := &layers.Env{Clock: c}
		up := clocktest.NewUpstream(t, c, clocktest.Fail(clocktest.ErrReset), clocktest.Reply(200), clocktest.Reply(200))
		_, _, err := fetch(t, layers.Chain(up, layers.Deadline(env, time.Minute)))
		if e, ok := errors.AsType[*layers.Error](err); !ok || e.Owner != "" || !e.Deadline.IsZero() {
			t.Errorf("got %+v", err)
		}
		for d, want := range map[time.Duration]layers.Owner{time.Minute: layers.OwnerPolicy, policy.Off: ""} {
			resp, _, err := fetch(t, layers.Chain(up, layers.Deadline(env, d)))
			if err != nil {
				t.Fatal(err)
			}
			if call, ok := layers.CallFrom(resp.Request.Context()); !ok || call.Owner() != want {
				t.Errorf("got %q, want %q", call.Owner(), want)
			}
		}
	})
}
