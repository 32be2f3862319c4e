package clocktest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/weir-go/weir/clocktest"
)

// A crowd of callers, most of whose waits end at the same instants, against an
// upstream that misbehaves. Run it with -count=1000.
func TestDeterminism(t *testing.T) {
	Run(t, func(t *testing.T, c *Clock) {
		l := &timeline{c: c}
		const s = time.Second
		u := NewUpstream(t, c,
			Reply(503).After(s),
			Fail(ErrReset).After(s),
			Reply(200).After(s).Chunks(Drip("abcd", 1, s)...),
			NoReply(),
			Reply(200).Chunks(Chunk{s, "x"}, Chunk{s, "y"}).Silent(),
			Reply(200).ReadBody(1, s).Body("done"),
			FailDial(ErrRefused).Connect(s),
			Func(func(r *http.Request) Step { return Reply(200).After(s).Body(r.Header.Get("Caller")) }).Forever())
		ticker := c.Ticker(2 * s)
		defer ticker.Stop()

		var crowd sync.WaitGroup
		for i := range 6 {
			crowd.Add(1)
			c.AfterFunc(0, func() {
				defer crowd.Done()
				for attempt := range 3 {
					ctx, cancel := context.WithCancelCause(t.Context())
					limit := c.AfterFunc(4*s, func() {
						cancel(fmt.Errorf("caller %d: timeout", i))
					})
					req := request(ctx, strings.NewReader("body"))
					req.Header.Set("Caller", fmt.Sprint(i))
					resp, err := u.RoundTrip(req)
					var body []byte
					if err == nil {
						body, err = io.ReadAll(resp.Body)
						resp.Body.Close()
					}
					limit.Stop()
					cancel(nil)
					l.add("caller %d, attempt %d: %q, %v", i, attempt, body, err)
					if err == nil && resp.StatusCode == 200 {
						return
					}
					c.Sleep(s << attempt)
				}
			})
		}
		done := c.After(9 * s)
		for waiting := true; waiting; {
			select {
			case <-ticker.C:
				c.Sleep(0)
				l.add("tick, %d sent", len(u.Requests()))
			case <-done:
				waiting = false
			}
		}
		crowd.Wait()
		for i, r := range u.Requests() {
			l.add("#%d caller %s: %v to %v, read %q, canceled: %v", i, r.Header.Get("Caller"),
				r.At.Sub(c.Now())+c.Elapsed(), r.End.Sub(c.Now())+c.Elapsed(), r.Body, r.Canceled)
		}
		l.check(t, strings.Split(strings.TrimSpace(crowdTimeline), "\n")...)
	})
}

const crowdTimeline = `
1s caller 0, attempt 0: "", <nil>
1s caller 1, attempt 0: "", read tcp: read: connection reset by peer
2s tick, 8 sent
3s caller 0, attempt 1: "", dial tcp: connect: connection refused
3s caller 1, attempt 1: "1", <nil>
4s caller 2, attempt 0: "abc", caller 2: timeout
4s caller 3, attempt 0: "", caller 3: timeout
4s caller 4, attempt 0: "xy", caller 4: timeout
4s caller 5, attempt 0: "", caller 5: timeout
4s tick, 8 sent
6s caller 0, attempt 2: "0", <nil>
6s caller 2, attempt 1: "2", <nil>
6s caller 3, attempt 1: "3", <nil>
6s caller 4, attempt 1: "4", <nil>
6s caller 5, attempt 1: "5", <nil>
6s tick, 13 sent
8s tick, 13 sent
9s #0 caller 0: 0s to 1s, read "body", canceled: false
9s #1 caller 1: 0s to 1s, read "body", canceled: false
9s #2 caller 2: 0s to 4s, read "body", canceled: true
9s #3 caller 3: 0s to 4s, read "body", canceled: true
9s #4 caller 4: 0s to 4s, read "body", canceled: true
9s #5 caller 5: 0s to 4s, read "body", canceled: true
9s #6 caller 0: 2s to 3s, read "", canceled: false
9s #7 caller 1: 2s to 3s, read "body", canceled: false
9s #8 caller 0: 5s to 6s, read "body", canceled: false
9s #9 caller 2: 5s to 6s, read "body", canceled: false
9s #10 caller 3: 5s to 6s, read "body", canceled: false
9s #11 caller 4: 5s to 6s, read "body", canceled: false
9s #12 caller 5: 5s to 6s, read "body", canceled: false
`
