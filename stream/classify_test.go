package stream

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
)

// A classifier may ask for the statistics of the body that it is called for, and
// close it. They are those from before the Read, whole.
func TestClassifyUsesTheBody(t *testing.T) {
	const event = "id: %\ndata: x\n\n"
	for _, drop := range []Toggle{Off, On} {
		var b *Body
		asked := 0
		l := &Limits{DropKeepalives: drop, Classify: func(e Event) Class {
			asked++
			s := b.Stats()
			id := []string{"", "1", "2", "3"}[asked-1]
			if s.Contents != asked-1 || s.LastEventID != id {
				t.Errorf("event %d: %+v", asked, s)
			}
			if asked == 4 { // the end leaves it unfinished
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			}
			return Content
		}}
		body := &chunked{}
		for _, n := range []string{"1", "2", "3", "4"} {
			body.chunks = append(body.chunks, strings.Replace(event, "%", n, 1))
		}
		body.chunks[3] = strings.TrimSpace(body.chunks[3])
		b = Guard(body, l, Options{Header: header("sse")})
		if _, err := read(b, 1<<10); err != http.ErrBodyReadAfterClose || asked != 4 {
			t.Errorf("%v after %d events", err, asked)
		}
		if s := b.Stats(); s.Contents != 4 || s.LastEventID != "3" {
			t.Errorf("at the end: %+v", s)
		}
		if b.monitor.framer.(*sse).buf != nil {
			t.Error("a buffer is kept")
		}
	}
}

// Whatever a classifier waits for, a Close and a limit do not wait for it, and its
// time is not the server's.
func TestClassifyBlocks(t *testing.T) {
	for _, drop := range []Toggle{Off, On} {
		for _, end := range []bool{false, true} {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				l := *chatLimits
				l.Dialect, l.DropKeepalives = "", drop
				l.Classify = func(Event) Class {
					c.Sleep(time.Hour)
					return Content
				}
				body, b := guardScript(c, &l, Options{})
				body.play(c, c.Now(), []arrival{{at: s, data: word}}, false)
				closed := make(chan time.Duration, 1)
				if end {
					c.AfterFunc(time.Minute, func() {
						b.Close()
						closed <- c.Elapsed()
					})
				}
				n, err := b.Read(make([]byte, 1<<10))
				if at := time.Hour + s; c.Elapsed() != at {
					t.Errorf("the Read returned after %v, want %v", c.Elapsed(), at)
				}
				switch {
				case end && drop == On && err != http.ErrBodyReadAfterClose:
					t.Errorf("after Close: %d, %v", n, err)
				case !(end && drop == On) && (n != len(word) || err != nil):
					t.Errorf("got %d, %v", n, err)
				}
				if !end {
					if _, err := b.Read(make([]byte, 1)); err == nil || c.Elapsed() != time.Hour+11*s {
						t.Errorf("%v after %v", err, c.Elapsed())
					}
				} else if at := <-closed; at != time.Minute || body.closed != 1 {
					t.Errorf("closed %d times, after %v", body.closed, at)
				}
				b.Close()
			})
		}
	}
}

// What a classifier is shown stays as it is while others end the stream.
func TestClassifyDuringClose(t *testing.T) {
	text := "data: " + strings.Repeat("x", 100) + "\n\n"
	entered, leave := make(chan struct{}), make(chan struct{})
	l := &Limits{DropKeepalives: On, Classify: func(e Event) Class {
		entered <- struct{}{}
		<-leave
		if string(e.Data) != text[6:106] {
			t.Errorf("it has become %q", e.Data)
		}
		return Content
	}}
	b := Guard(&chunked{[]string{text[:50], text[50:]}}, l, Options{Header: header("sse")})
	over := make(chan struct{})
	go func() {
		defer close(over)
		io.Copy(io.Discard, struct{ io.Reader }{b})
	}()
	<-entered
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	for range 10 { // who take what was given back
		other := bufferPool.Get().(*buffers)
		other.data = append(other.data, strings.Repeat("y", 200)...)
		other.free()
	}
	close(leave)
	<-over
}
