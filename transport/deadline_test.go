package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

func TestHopelessHintComesBackAtOnce(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).Header("Retry-After", "60").Body("busy"))
		tr := newTransport(t, c, up, settings(policy.Settings{Deadline: 2 * time.Second}))
		r := get(t, c, tr)
		wantStatus(t, r, 503)
		wantTook(t, r, 0)
		equal(t, "the body", r.body, "busy")
		equal(t, "the reason", r.call(t).Reason(), layers.ReasonDeadline)
		equal(t, "the number of sends", r.call(t).Attempts(), 1)
	})
}

func TestSendsAreCutToTheDeadline(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, clocktest.NoReply().Times(3))
			up.HTTP2 = http2
			tr := newTransport(t, c, up, settings(policy.Settings{
				Deadline: 10 * time.Second,
				Timeouts: policy.Timeouts{Read: 4 * time.Second},
				Retry:    policy.Retry{BaseDelay: policy.Off},
			}))
			_, err := (&http.Client{Transport: tr}).Get(url)
			equal(t, "the time", c.Elapsed(), 10*time.Second)
			equalTimes(t, times(c, up), 0, 4*time.Second, 8*time.Second)
			var timeout interface{ Timeout() bool }
			if !errors.As(err, &timeout) || !timeout.Timeout() {
				t.Errorf("%v is no timeout", err)
			}
			e := wantTimeout(t, err, layers.PhaseDeadline)
			equal(t, "the number of attempts", e.Attempts, 3)
			has(t, err.Error(), "deadline exceeded after 10s, in phase read of attempt 3")
		})
	}
}

func TestDefaultReadIsCutToTheDeadline(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.NoReply())
		r := get(t, c, newTransport(t, c, up, settings(policy.Settings{Deadline: 10 * time.Second})))
		wantTimeout(t, r.err, layers.PhaseDeadline)
		wantTook(t, r, 10*time.Second)
	})
}

func TestMinAttempt(t *testing.T) {
	for left, sends := range map[time.Duration]int{49 * time.Millisecond: 1, 50 * time.Millisecond: 2} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c,
				clocktest.Reply(503).After(time.Second-left), clocktest.Reply(200))
			r := get(t, c, newTransport(t, c, up, settings(policy.Settings{
				Deadline: time.Second, Timeouts: policy.Timeouts{Pool: policy.Off, Connect: policy.Off, Write: policy.Off, Read: policy.Off},
				Retry: policy.Retry{BaseDelay: policy.Off},
			})))
			equal(t, "the number of sends", len(up.Requests()), sends)
			if sends == 1 {
				wantStatus(t, r, 503)
				equal(t, "the reason", r.call(t).Reason(), layers.ReasonDeadline)
			} else {
				wantStatus(t, r, 200)
			}
		})
	}
}

func TestRedirectHopsShareTheDeadline(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		hop := clocktest.Reply(302).Header("Location", "/next").After(4 * time.Second)
		up := clocktest.NewUpstream(t, c, hop.Times(2), clocktest.NoReply())
		tr := newTransport(t, c, up, settings(policy.Settings{Deadline: 10 * time.Second, Retry: policy.Retry{MaxAttempts: 1}}))
		_, err := tr.Client().Get(url)
		e := wantTimeout(t, err, layers.PhaseDeadline)
		equal(t, "the time", c.Elapsed(), 10*time.Second)
		equal(t, "the number of attempts", e.Attempts, 3)
		equal(t, "the elapsed time told", e.Elapsed, 10*time.Second)
	})
}

func TestRedirectHopsShareTheAttempts(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c,
			clocktest.Reply(503), clocktest.Reply(302).Header("Location", "/next"),
			clocktest.Reply(503), clocktest.Reply(503).Body("last"))
		tr := newTransport(t, c, up, settings(policy.Settings{Retry: policy.Retry{MaxAttempts: 3, BaseDelay: policy.Off}}))
		resp, err := tr.Client().Get(url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		call, _ := layers.CallFrom(resp.Request.Context())
		equal(t, "the status", resp.StatusCode, 503)
		equal(t, "the number of attempts", call.Attempts(), 4)
		equal(t, "the reason", call.Reason(), layers.ReasonAttempts)
	})
}

// TestCallersDeadline: the caller's context stays in force whatever the policy
// says, and its end is the caller's own error.
func TestCallersDeadline(t *testing.T) {
	for _, deadline := range []time.Duration{policy.Off, time.Minute} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, clocktest.NoReply())
			tr := newTransport(t, c, up, policy.Policy{Routes: []policy.Route{{
				Pattern: "/v1", Settings: policy.Settings{Deadline: deadline, Timeouts: policy.Timeouts{Read: policy.Off}},
			}}})
			ctx, cancel := c.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			r := do(c, tr, request(t, ctx, "GET", url, nil))
			wantTook(t, r, 3*time.Second)
			if r.err != context.DeadlineExceeded {
				t.Errorf("got %v (%T), want context.DeadlineExceeded itself", r.err, r.err)
			}
		})
	}
}

func TestCallersDeadlineIsLookedAhead(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).Header("Retry-After", "5"))
		ctx, cancel := c.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		r := do(c, newTransport(t, c, up, policy.Policy{}), request(t, ctx, "GET", url, nil))
		wantStatus(t, r, 503)
		wantTook(t, r, 0)
		equal(t, "the reason", r.call(t).Reason(), layers.ReasonDeadline)
	})
}

func TestCallerCancels(t *testing.T) {
	cause := errors.New("the user went away")
	steps := map[string][]clocktest.Step{
		"backoff": {clocktest.Reply(503)},
		"send":    {clocktest.NoReply()},
		"body":    {clocktest.Reply(200).Silent()},
	}
	for name, step := range steps {
		for _, http2 := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					up := clocktest.NewUpstream(t, c, step...)
					up.HTTP2 = http2
					tr := newTransport(t, c, up, settings(policy.Settings{
						Retry: policy.Retry{BaseDelay: 5 * time.Second, MaxDelay: 5 * time.Second},
					}), observer(func(_ context.Context, e layers.Event) {
						if e.Kind == layers.KindEnd {
							equal(t, "whether the end is told as the caller's", e.Abandoned, true)
						}
					}))
					ctx, cancel := context.WithCancelCause(t.Context())
					c.AfterFunc(2*time.Second, func() { cancel(cause) })
					r := do(c, tr, request(t, ctx, "GET", url, nil))
					wantTook(t, r, 2*time.Second)
					if !errors.Is(r.err, context.Canceled) || !errors.Is(r.err, cause) {
						t.Errorf("got %v, want the caller's cancellation and its cause", r.err)
					}
					if e := new(layers.Error); errors.As(r.err, &e) {
						t.Errorf("the caller's cancellation came back as %v", e)
					}
					equal(t, "the number of sends", len(up.Requests()), 1)
				})
			})
		}
	}
}

func TestCanceledBeforehand(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		body := &closeCounter{}
		r := do(c, newTransport(t, c, up, policy.Policy{}), request(t, ctx, "POST", url, body))
		if r.err != context.Canceled {
			t.Errorf("got %v, want context.Canceled itself", r.err)
		}
		equal(t, "the number of closes", int(body.closes.Load()), 1)
	})
}

func TestDeadlineInterruptsTheBody(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Chunks(clocktest.Chunk{Data: "half"}).Silent())
		r := get(t, c, newTransport(t, c, up, settings(policy.Settings{
			Deadline: 5 * time.Second, Timeouts: policy.Timeouts{Read: policy.Off},
		})))
		wantTook(t, r, 5*time.Second)
		equal(t, "the body", r.body, "half")
		wantTimeout(t, r.err, layers.PhaseDeadline)
	})
}

// TestAbandonedBody: a body that nobody reads or closes ends at the deadline.
func TestAbandonedBody(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Silent())
		tr := newTransport(t, c, up, settings(policy.Settings{Deadline: 5 * time.Second}))
		resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		c.Add(time.Hour)
		sent := up.Requests()[0]
		if !sent.Canceled || !sent.End.Equal(sent.At.Add(5*time.Second)) {
			t.Errorf("the attempt ended at %v, canceled %v; want its deadline", sent.End, sent.Canceled)
		}
		if _, err = resp.Body.Read(make([]byte, 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a late Read got %v", err)
		}
		resp.Body.Close()
	})
}

func TestWithDeadline(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c,
			clocktest.Reply(200).After(8*time.Second), clocktest.NoReply())
		tr := newTransport(t, c, up, policy.Policy{})
		job := layers.WithDeadline(t.Context(), c.Now().Add(10*time.Second))
		wantStatus(t, do(c, tr, request(t, job, "GET", url, nil)), 200)
		second := do(c, tr, request(t, job, "GET", url, nil))
		wantTook(t, second, 2*time.Second)
		wantTimeout(t, second.err, layers.PhaseDeadline)
		third := do(c, tr, request(t, job, "POST", url, nil))
		wantTook(t, third, 0)
		e := wantTimeout(t, third.err, layers.PhaseDeadline)
		equal(t, "what was sent", e.Sent, layers.Unsent)
		equal(t, "whether it can be repeated", e.Retryable, true)
		has(t, e.Error(), "before attempt 1 was sent")
		// An outer deadline is not lifted by an inner one.
		later := layers.WithDeadline(job, c.Now().Add(time.Hour))
		wantTook(t, do(c, tr, request(t, later, "GET", url, nil)), 0)
	})
}

// TestClientTimeout: http.Client.Timeout over weir is what users see today.
func TestClientTimeout(t *testing.T) {
	bare := func(t *testing.T, rt http.RoundTripper) error {
		client := &http.Client{Transport: rt, Timeout: 2 * time.Second}
		resp, err := client.Get(url)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		return err
	}
	for name, step := range map[string]clocktest.Step{
		"headers": clocktest.NoReply(),
		"backoff": clocktest.Reply(503),
		"body":    clocktest.Reply(200).Silent(),
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, step)
				err := bare(t, newTransport(t, c, up, settings(policy.Settings{
					Retry: policy.Retry{BaseDelay: 3 * time.Second, MinAttempt: policy.Off},
				})))
				if name == "backoff" { // cannot fit: the answer comes back
					if err != nil {
						t.Error(err)
					}
					return
				}
				equal(t, "the time", c.Elapsed(), 2*time.Second)
				var timeout interface{ Timeout() bool }
				if !errors.As(err, &timeout) || !timeout.Timeout() || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v (%T) is no timeout", err, err)
				}
				has(t, err.Error(), "context deadline exceeded")
			})
		})
	}
}

// TestMockMovedByHand: weir keeps time on a plain clock.Mock too.
func TestMockMovedByHand(t *testing.T) {
	mock := clock.NewMock()
	entered := make(chan struct{}, 1)
	tr, err := transport.New(transport.Config{
		Clock:  mock,
		Policy: settings(policy.Settings{Deadline: 2 * time.Second}),
		Base: layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			entered <- struct{}{}
			<-req.Context().Done()
			return nil, context.Cause(req.Context())
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() {
		_, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
		failed <- err
	}()
	<-entered
	mock.Add(2*time.Second - 1)
	select {
	case err := <-failed:
		t.Fatalf("ended early: %v", err)
	default:
	}
	mock.Add(time.Hour)
	wantTimeout(t, <-failed, layers.PhaseDeadline)
}
