package transport_test

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/stream"
	"github.com/weir-go/weir/transport"
)

// TestClassifyUsesTheStream: a classifier may ask for the statistics of its
// stream, and close it.
func TestClassifyUsesTheStream(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		asked, ready := 0, make(chan io.ReadCloser, 1)
		p := streamed(policy.Stream{Classify: func(stream.Event) stream.Class {
			body := <-ready
			ready <- body
			asked++
			if s := body.(interface{ Stats() stream.Stats }).Stats(); s.Contents != asked-1 {
				t.Errorf("event %d: %+v", asked, s)
			}
			if asked == 2 {
				body.Close()
			}
			return stream.Content
		}}, noRetry)
		up := clocktest.NewUpstream(t, c, every(events(word), time.Second, word, 9))
		resp, err := newTransport(t, c, up, p).RoundTrip(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		ready <- resp.Body
		text, err := io.ReadAll(resp.Body)
		equal(t, "the text", string(text), word+word)
		if err == nil || asked != 2 {
			t.Errorf("%v after %d events", err, asked)
		}
	})
}

// TestClassifierThatBlocks: the caller's deadline and a Close do not wait for it,
// and nobody is told of the stream after its end.
func TestClassifierThatBlocks(t *testing.T) {
	for _, closes := range []bool{false, true} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			var kinds []layers.Kind
			p := streamed(limits, noRetry)
			p.Stream.Classify = func(stream.Event) stream.Class {
				c.Sleep(time.Hour)
				return stream.Content
			}
			up := clocktest.NewUpstream(t, c, every(events(word), time.Second, word, 9))
			tr, err := transport.New(transport.Config{
				Base: up, Policy: p, Clock: c,
				Observer: layers.ObserverFunc(func(_ context.Context, e layers.Event) { kinds = append(kinds, e.Kind) }),
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx := layers.WithDeadline(t.Context(), c.Now().Add(time.Minute))
			resp, err := tr.RoundTrip(request(t, ctx, "GET", url, nil))
			if err != nil {
				t.Fatal(err)
			}
			ended := 60 * time.Second
			if closes {
				ended = 3 * time.Second
				c.AfterFunc(ended, func() { resp.Body.Close() })
			}
			c.AfterFunc(2*time.Minute, func() {
				if s, ok := stream.StatsOf(resp); !ok || s.Contents != 0 {
					t.Errorf("meanwhile: %+v", s)
				}
				equal(t, "the end of the send", up.Requests()[0].End, c.Now().Add(ended-2*time.Minute))
				equal(t, "the last event", kinds[len(kinds)-1], layers.KindEnd)
			})
			text, err := io.ReadAll(resp.Body)
			equal(t, "the text", string(text), word)
			equal(t, "the time", c.Elapsed(), time.Hour)
			if !closes {
				wantTimeout(t, err, layers.PhaseDeadline)
			}
			equal(t, "the last event", kinds[len(kinds)-1], layers.KindEnd)
			if slices.Contains(kinds, layers.KindContent) {
				t.Error("content after the end")
			}
			resp.Body.Close()
		})
	}
}
