package transport_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// slowUpload is the body of a request that a server hands on: while its client is
// silent, a Read blocks, and a Close waits for it or for the client.
type slowUpload struct {
	turn  chan struct{} // held by a Read or a Close
	heard chan struct{} // closed when the client goes on
	waits bool          // in a Close too
}

func newSlowUpload(c *clocktest.Clock, silent time.Duration, waits bool) *slowUpload {
	u := &slowUpload{make(chan struct{}, 1), make(chan struct{}), waits}
	c.AfterFunc(silent, func() { close(u.heard) })
	return u
}

func (u *slowUpload) Read([]byte) (int, error) {
	u.turn <- struct{}{}
	<-u.heard
	<-u.turn
	return 0, io.EOF
}

func (u *slowUpload) Close() error {
	u.turn <- struct{}{}
	if u.waits {
		<-u.heard
	}
	<-u.turn
	return nil
}

// TestCloseThatBlocks: a call has its outcome when it has, whatever the Close of its
// body waits for.
func TestCloseThatBlocks(t *testing.T) {
	refuses := around(func(_ http.RoundTripper, req *http.Request) (*http.Response, error) { return nil, io.ErrClosedPipe })
	attempt := policy.Timeouts{Attempt: time.Second}
	for name, test := range map[string]struct {
		policy.Settings
		layers func(*transport.Config)
		took   time.Duration
	}{
		"attempts":    {policy.Settings{Timeouts: attempt, Retry: noWait}, inner(), 3 * time.Second},
		"one attempt": {policy.Settings{Timeouts: attempt, Retry: policy.Retry{Enabled: policy.Off}}, inner(), time.Second},
		"no turn for another": {
			policy.Settings{Timeouts: attempt, Retry: noWait, Rate: policy.Rate{PerSecond: 0.001, Burst: 2, MaxWait: policy.Off}}, inner(), time.Second,
		},
		"no turn": {policy.Settings{Rate: policy.Rate{PerSecond: 0.001, Burst: 1, MaxWait: policy.Off}}, inner(), 0},
		"no slot": {policy.Settings{InFlight: policy.InFlight{Max: 1, MaxWait: time.Second}}, inner(), time.Second},
		"a layer": {policy.Settings{Retry: policy.Retry{MaxAttempts: 1}}, inner(refuses), 0},
		"around":  {policy.Settings{Retry: policy.Retry{MaxAttempts: 1}}, outer(refuses), 0},
	} {
		for _, waits := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
					if test.Deadline == 0 {
						test.Deadline = policy.Off
					}
					up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Chunks(clocktest.Chunk{After: time.Hour}), clocktest.Reply(200).Times(9))
					tr := newTransport(t, c, up, settings(test.Settings), test.layers)
					first, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
					if err == nil {
						defer first.Body.Close()
					}
					req := request(t, t.Context(), "PUT", url, nil)
					body := newSlowUpload(c, time.Minute, waits)
					req.Body, req.ContentLength = body, -1
					r := do(c, tr, req)
					wantError(t, r.err)
					if over := r.took - test.took; over < 0 || over > 10*time.Millisecond {
						t.Errorf("the call took %v, want %v", r.took, test.took)
					}
					time.Sleep(time.Hour)
				})
			})
		}
	}
}
