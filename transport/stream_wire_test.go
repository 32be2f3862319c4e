package transport_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/stream"
)

// speaker is a handler that speaks a stream, and notes when its client left.
type speaker struct {
	c     *clocktest.Clock
	speak func(n int, say func(string), r *http.Request) // n counts requests from 1
	zip   bool                                           // if the client takes it

	mu    sync.Mutex
	asked int
	left  []time.Duration
}

func (s *speaker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	s.mu.Lock()
	s.asked++
	n := s.asked
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	var out io.Writer = w
	flush := func() {}
	if s.zip && r.Header.Get("Accept-Encoding") == "gzip" {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer z.Close()
		out, flush = z, func() { z.Flush() }
	}
	s.speak(n, func(text string) {
		io.WriteString(out, text)
		flush()
		http.NewResponseController(w).Flush()
	}, r)
	if r.Context().Err() != nil {
		s.mu.Lock()
		s.left = append(s.left, s.c.Elapsed())
		s.mu.Unlock()
	}
}

// wantLeft checks when clients left, in any order of the handlers' ends.
func (s *speaker) wantLeft(t *testing.T, want ...time.Duration) {
	t.Helper()
	s.c.Add(0)
	s.mu.Lock()
	defer s.mu.Unlock()
	equalTimes(t, s.left, want...)
}

func waits(r *http.Request) { <-r.Context().Done() }

// TestWireStall: at the expiry the socket is closed, or the HTTP/2 stream
// reset, and the server sees it; what the transport decodes is guarded by its
// content, what the caller asked to be encoded by its bytes.
func TestWireStall(t *testing.T) {
	for _, accept := range []string{"", "gzip"} {
		for _, zip := range []bool{false, true} {
			eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
				s := &speaker{c: c, zip: zip, speak: func(n int, say func(string), r *http.Request) {
					if n > 1 {
						say(word + done)
						return
					}
					say(role)
					c.Sleep(time.Second)
					say(word)
					for range 3 {
						c.Sleep(8 * time.Second)
						say(ping)
					}
					waits(r)
				}}
				var opaque atomic.Bool
				w := newWire(t, c, kind, s, streamed(limits, noRetry), observer(func(_ context.Context, e layers.Event) {
					if e.Kind == layers.KindOpaque {
						opaque.Store(true)
					}
				}))
				req := request(t, t.Context(), "GET", url, nil)
				if accept != "" {
					req.Header.Set("Accept-Encoding", accept)
				}
				r := do(c, w, req)
				encoded := accept != "" && zip
				at := 31 * time.Second
				if encoded {
					at = 35 * time.Second
					wantStall(t, r.err, stream.StallGap, 10*time.Second)
				} else {
					wantStall(t, r.err, stream.StallPingedGap, 30*time.Second)
					equal(t, "the body", r.body, role+word+ping+ping+ping)
				}
				wantTook(t, r, at)
				s.wantLeft(t, at)
				stats, _ := stream.StatsOf(r.resp)
				equal(t, "whether the events could not be seen", stats.Encoded, encoded)
				equal(t, "whether the observer was told", opaque.Load(), encoded)
				equal(t, "whether it was decoded", r.resp.Uncompressed, zip && accept == "")
				// The pool is as a cancelled request leaves it.
				wantStatus(t, do(c, w, request(t, t.Context(), "GET", url, nil)), 200)
				dials := int32(2)
				if muxed(kind) {
					dials = 1
				}
				equal(t, "the number of dials", w.dials.Load(), dials)
			})
		}
	}
}

// TestWireHold: the attempt that dies before its content is gone from the wire
// before the next begins.
func TestWireHold(t *testing.T) {
	eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
		s := &speaker{c: c, zip: true, speak: func(n int, say func(string), r *http.Request) {
			switch n {
			case 1:
				say(role + ping)
				waits(r)
			case 2:
				say(role + busy)
			default:
				say(role)
				c.Sleep(time.Second)
				say(word + finish + done)
			}
		}}
		retry := twice
		retry.MaxAttempts = 3
		w := newWire(t, c, kind, s, streamed(held(), retry))
		r := do(c, w, request(t, t.Context(), "POST", url, strings.NewReader("prompt")))
		wantStatus(t, r, 200)
		equal(t, "the body", r.body, role+word+finish+done)
		equal(t, "the number of attempts", r.call(t).Attempts(), 3)
		wantTook(t, r, 6*time.Second)
		s.wantLeft(t, 5*time.Second)
	})
}

// TestWireLinger: a body that stays open after its terminal ends for its reader.
func TestWireLinger(t *testing.T) {
	eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
		s := &speaker{c: c, speak: func(_ int, say func(string), r *http.Request) {
			say(word + done)
			waits(r)
		}}
		r := do(c, newWire(t, c, kind, s, streamed(limits, noRetry)), request(t, t.Context(), "GET", url, nil))
		wantStatus(t, r, 200)
		equal(t, "the body", r.body, word+done)
		wantTook(t, r, 2*time.Second)
		s.wantLeft(t, 2*time.Second)
	})
}

// TestWireCancelAtExpiry: the caller's own error, and nothing is sent again.
func TestWireCancelAtExpiry(t *testing.T) {
	eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
		s := &speaker{c: c, speak: func(_ int, say func(string), r *http.Request) {
			say(role)
			waits(r)
		}}
		w := newWire(t, c, kind, s, streamed(held(), twice))
		ctx, cancel := context.WithCancel(t.Context())
		c.AfterFunc(5*time.Second, cancel)
		r := do(c, w, request(t, ctx, "POST", url, nil))
		if r.err != context.Canceled {
			t.Errorf("got %v (%T), want context.Canceled itself", r.err, r.err)
		}
		s.wantLeft(t, 5*time.Second)
		equal(t, "the number of requests", s.asked, 1)
	})
}

// TestWireEndAfterCancel: a server that ends its stream when it sees the client
// leave has not completed it.
func TestWireEndAfterCancel(t *testing.T) {
	for _, text := range []string{word, "data: tick\n\n"} { // of a dialect, and of none
		eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
			s := &speaker{c: c, speak: func(_ int, say func(string), r *http.Request) {
				say(text)
				waits(r)
			}}
			w := newWire(t, c, kind, s, streamed(limits, noRetry))
			ctx, cancel := context.WithCancel(t.Context())
			c.AfterFunc(time.Second, cancel)
			if r := do(c, w, request(t, ctx, "GET", url, nil)); r.err != context.Canceled {
				t.Errorf("got %v, want the caller's cancellation", r.err)
			}
			wantStall(t, do(c, w, request(t, t.Context(), "GET", url, nil)).err, stream.StallGap, 10*time.Second)
			s.wantLeft(t, time.Second, 11*time.Second)
		})
	}
}

// TestWireStreamsPassUnchanged: large events, in large chunks and small ones,
// with a trailer after them; and the connection is free again.
func TestWireStreamsPassUnchanged(t *testing.T) {
	eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
		event := strings.Replace(word, "word", strings.Repeat("long ", 300_000), 1)
		text := role + event + ping + strings.Repeat(word, 10_000) + event + finish + done
		w := newWire(t, c, kind, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Trailer", "Checksum")
			for rest := []byte(text); len(rest) > 0; {
				n := min(len(rest), 1+len(rest)/3)
				w.Write(rest[:n])
				rest = rest[n:]
			}
			w.Header().Set("Checksum", "abc")
		}), streamed(held(), noRetry))
		for range 3 {
			r := do(c, w, request(t, t.Context(), "GET", url, nil))
			wantStatus(t, r, 200)
			equal(t, "whether the body is what was sent", r.body == text, true)
			equal(t, "the trailer", r.resp.Trailer.Get("Checksum"), "abc")
			stats, _ := stream.StatsOf(r.resp)
			equal(t, "the number of contents", stats.Contents, 10_002)
		}
		equal(t, "the number of dials", w.dials.Load(), 1)
	})
}

// TestWireCloseOfAStream: it returns at once, and the server sees it.
func TestWireCloseOfAStream(t *testing.T) {
	eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
		s := &speaker{c: c, speak: func(_ int, say func(string), r *http.Request) {
			say(word)
			waits(r)
		}}
		resp, err := newWire(t, c, kind, s, streamed(limits, noRetry)).RoundTrip(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		failed := make(chan error, 1)
		c.AfterFunc(0, func() {
			_, err := io.Copy(io.Discard, resp.Body)
			failed <- err
		})
		c.Add(time.Second)
		resp.Body.Close()
		if err := <-failed; err == nil || errors.As(err, new(*stream.StallError)) {
			t.Errorf("the Read got %v", err)
		}
		resp.Body.Close()
		s.wantLeft(t, time.Second)
	})
}

// TestWireHeldBuffersAreNotShared: what one stream holds back is never seen in
// another.
func TestWireHeldBuffersAreNotShared(t *testing.T) {
	eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
		w := newWire(t, c, kind, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			own := strings.Replace(word, "word", r.URL.Query().Get("n"), 1)
			for range 50 {
				io.WriteString(w, ping+own)
				http.NewResponseController(w).Flush()
				c.Sleep(time.Millisecond)
			}
			io.WriteString(w, done)
		}), streamed(policy.Stream{Hold: policy.On, DropKeepalives: policy.On}, twice))
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				n := strings.Repeat(string(rune('a'+i)), 10+i)
				r := do(c, w, request(t, t.Context(), "GET", url+"?n="+n, nil))
				own := []byte(strings.Replace(word, "word", n, 1))
				if r.err != nil || r.body != string(bytes.Repeat(own, 50))+done {
					t.Errorf("stream %d: %v, %.300q", i, r.err, r.body)
				}
			})
		}
		wg.Wait()
	})
}
