package stream

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/clocktest"
)

// Through a real client and server: a stall is the guard's error whatever the
// protocol makes of the cancellation, the server sees it at once, and what the
// transport decompresses is guarded by its content.
func TestGuardOverHTTP(t *testing.T) {
	for _, tt := range []struct {
		url, accept string
		kind        StallKind
		at          time.Duration
		content     int
	}{
		{"http://a.test/", "", StallPingedGap, 31 * s, 1},
		{"https://a.test/", "", StallPingedGap, 31 * s, 1},
		{"http://a.test/", "gzip", StallGap, 35 * s, 0}, // the caller's gzip hides the events
	} {
		t.Run(tt.url+tt.accept, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				start := time.Now()
				var left time.Duration
				n := clocktest.NewNetwork(t)
				n.Serve("a.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					w.Header().Set("Content-Encoding", "gzip")
					z := gzip.NewWriter(w)
					say := func(text string) {
						io.WriteString(z, text)
						z.Flush()
						w.(http.Flusher).Flush()
					}
					say(role)
					time.Sleep(s)
					say(word)
					for range 3 {
						time.Sleep(8 * s)
						say(ping)
					}
					<-r.Context().Done()
					left = time.Since(start)
				}))
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				req, _ := http.NewRequestWithContext(ctx, "GET", tt.url, http.NoBody)
				if tt.accept != "" {
					req.Header.Set("Accept-Encoding", tt.accept)
				}
				resp, err := n.Transport().RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				b := Guard(resp.Body, chatLimits, Options{Sent: start, Header: resp.Header, Context: ctx, Cancel: cancel})
				_, err = io.Copy(io.Discard, b)
				stall, ok := errors.AsType[*StallError](err)
				if !ok || stall.Kind != tt.kind || stall.Contents != tt.content || time.Since(start) != tt.at {
					t.Errorf("%v after %v", err, time.Since(start))
				}
				b.Close()
				synctest.Wait()
				if left != tt.at {
					t.Errorf("the server has seen it after %v", left)
				}
			})
		})
	}
}
