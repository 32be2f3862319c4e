package page_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/transport/derive"
	"github.com/weir-go/weir/transport/page"
)

// TestLive: a viewer sees a circuit open and close without asking.
func TestLive(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		s := newSite(t, c, rules, page.Options{},
			clocktest.Reply(500).Times(2), clocktest.Reply(200).Forever())
		ctx, cancel := context.WithCancel(t.Context())
		r, w := io.Pipe()
		var viewer sync.WaitGroup
		viewer.Go(func() {
			s.ServeHTTP(stream{w, http.Header{}}, httptest.NewRequestWithContext(ctx, http.MethodGet, "/weir/live/state", nil))
			w.Close()
		})
		events := bufio.NewReader(r)
		next := func() string {
			var text strings.Builder
			for {
				line, err := events.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				if line == "\n" {
					return squeeze(text.String())
				}
				text.WriteString(strings.TrimPrefix(line, "data: "))
			}
		}
		has := func(want string) {
			t.Helper()
			if got := next(); !strings.Contains(got, want) {
				t.Errorf("at %v there is no %q: %s", c.Elapsed(), want, got)
			}
		}
		has("No circuit is in use")
		s.call("POST", "http://api.example/", 0)
		has("http://api.example api.example/ closed 1")
		s.call("POST", "http://api.example/", 0)
		has("http://api.example api.example/ open")
		c.Add(500 * time.Millisecond) // between two events
		for c.Elapsed() < 11*time.Second {
			next()
		}
		s.call("POST", "http://api.example/", 0)
		next() // may be from before
		has("http://api.example api.example/ closed")
		cancel()
		_, _ = io.Copy(io.Discard, r)
		viewer.Wait()
	})
}

// stream is a writer of a response that is read as it comes.
type stream struct {
	io.Writer
	header http.Header
}

func (s stream) Header() http.Header { return s.header }
func (s stream) WriteHeader(int)     {}
func (s stream) Flush()              {}

// timed is the connection of a server whose timeouts have begun.
type timed struct {
	stream
	read, write time.Time
}

func (d *timed) SetReadDeadline(t time.Time) error  { d.read = t; return nil }
func (d *timed) SetWriteDeadline(t time.Time) error { d.write = t; return nil }

// TestServerTimeouts: those of a server, which are for answers that end, do not
// end what is live.
func TestServerTimeouts(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		s := newSite(t, c, rules, page.Options{})
		w := &timed{stream{io.Discard, http.Header{}}, time.Now().Add(time.Second), time.Now().Add(time.Second)}
		ctx, leave := context.WithCancel(t.Context())
		c.AfterFunc(time.Minute, leave)
		s.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/weir/live/state", nil))
		if !w.read.IsZero() || !w.write.IsZero() {
			t.Errorf("it ends at %v or %v", w.read, w.write)
		}
	})
}

// stuck is the connection of a viewer that reads nothing: a write ends only with
// its deadline.
type stuck struct {
	stream
	late chan struct{}
}

func (s stuck) Write([]byte) (int, error) {
	<-s.late
	return 0, os.ErrDeadlineExceeded
}

func (s stuck) SetWriteDeadline(t time.Time) error {
	if !t.IsZero() && t.Before(time.Now()) {
		close(s.late)
	}
	return nil
}

// TestStuckViewers: viewers that do not read are let go, and make room.
func TestStuckViewers(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		s := newSite(t, c, rules, page.Options{}, clocktest.Reply(200).Forever())
		var viewers sync.WaitGroup
		ask := func() *http.Request {
			return httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/weir/live/state", nil)
		}
		for range 32 {
			viewers.Go(func() { s.ServeHTTP(stuck{stream{io.Discard, http.Header{}}, make(chan struct{})}, ask()) })
		}
		c.Add(time.Second)
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, ask()); w.Code != http.StatusServiceUnavailable {
			t.Errorf("a viewer too many: status %d", w.Code)
		}
		before := c.Elapsed()
		s.call("GET", "http://api.example/", 0)
		if took := c.Elapsed() - before; took > 0 {
			t.Errorf("they delay a call by %v", took)
		}
		viewers.Wait()
		if c.Elapsed() != 5*time.Second {
			t.Errorf("they were let go after %v", c.Elapsed())
		}
	})
}

// TestStuckPicture: who does not read the picture, which is large, keeps it from
// nobody else.
func TestStuckPicture(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		s := newSite(t, c, rules, page.Options{Recorder: new(derive.Recorder)}, clocktest.Reply(200).After(time.Second).Forever())
		for range 300 { // as many as it takes
			s.call("GET", "http://api.example/reports/7", 0)
		}
		if !strings.HasPrefix(s.get("/weir/distributions.svg"), "<svg") {
			t.Fatal("there is no picture")
		}
		w := stuck{stream{io.Discard, http.Header{}}, make(chan struct{})}
		var viewer sync.WaitGroup
		viewer.Go(func() {
			s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/weir/distributions.svg", nil))
		})
		c.Add(time.Second)
		s.want("/weir/distributions", "reports")
		close(w.late)
		viewer.Wait()
	})
}
