package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/weir-go/weir/clocktest"
)

var chatLimits = &Limits{FirstContent: 5 * s, Gap: 10 * s, PingedGap: 30 * s, Linger: 2 * s, Dialect: "openai-chat"}

// guardScript guards a body that is played by hand.
func guardScript(c clock.Clock, l *Limits, o Options) (*script, *Body) {
	body := newScript()
	o.Clock, o.Header = c, header("sse")
	return body, Guard(body, l, o)
}

func TestStallClosesTheBody(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		body, b := guardScript(c, chatLimits, Options{Sent: c.Now().Add(-3 * s)})
		body.arrive(arrival{data: role})
		got, err := read(b, 100)
		var stall *StallError
		if !errors.As(err, &stall) || stall.Kind != StallFirstContent || got != role || c.Elapsed() != 2*s {
			t.Errorf("%q and %v after %v", got, err, c.Elapsed())
		}
		if body.closed != 1 {
			t.Errorf("closed %d times", body.closed)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Bytes that a transport gives with the error of the cancellation are delivered
// before the stall.
func TestBytesBeforeStall(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		body := newScript()
		b := Guard(body, chatLimits, Options{Clock: c, Header: header("sse"), Cancel: func(error) {
			body.arrive(arrival{data: word})
			body.fail(context.Canceled)
		}})
		got, err := read(b, 100)
		if !errors.As(err, new(*StallError)) || got != word {
			t.Errorf("%q and %v", got, err)
		}
		if n := b.Stats().Contents; n != 0 {
			t.Errorf("%d contents after the stall", n)
		}
	})
}

// The caller's cancel wins over an expiry at the same instant, whichever timer is
// the first.
func TestCallersCancelWins(t *testing.T) {
	for _, first := range []bool{true, false} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			ctx, cancel := context.WithCancel(t.Context())
			body := newScript()
			at := func() {
				c.AfterFunc(5*s, func() {
					cancel()
					body.fail(ctx.Err())
				})
			}
			if first {
				at()
			}
			b := Guard(body, chatLimits, Options{Clock: c, Header: header("sse"), Context: ctx, Cancel: func(err error) {
				t.Errorf("cancelled with %v", err)
			}})
			if !first {
				c.AfterFunc(0, at) // once the Read waits
			}
			if _, err := b.Read(make([]byte, 10)); err != context.Canceled || c.Elapsed() != 5*s {
				t.Errorf("%v after %v", err, c.Elapsed())
			}
		})
	}
}

// Whoever reads late finds what has come in time.
func TestConsumerSleeps(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		body, b := guardScript(c, chatLimits, Options{})
		body.arrive(arrival{data: strings.Repeat(word, 5)})
		body.arrive(arrival{err: io.EOF})
		p := make([]byte, len(word))
		for range 5 {
			if n, err := b.Read(p); n != len(word) || err != nil {
				t.Fatal(n, err)
			}
			c.Sleep(time.Hour)
		}
		if _, err := b.Read(p); err != ErrTruncated {
			t.Error(err)
		}
	})
}

func TestSteadyStreamNeverStalls(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		body, b := guardScript(c, chatLimits, Options{})
		var list []arrival
		for i := range 1000 {
			list = append(list, arrival{at: time.Duration(i) * 9 * s, data: word})
		}
		body.play(c, c.Now(), append(list, arrival{at: 9000 * s, data: done}), true)
		got, err := read(b, 1000)
		if err != io.EOF || got != strings.Repeat(word, 1000)+done || c.Elapsed() != 9002*s {
			t.Errorf("%d bytes and %v after %v", len(got), err, c.Elapsed())
		}
	})
}

func TestClose(t *testing.T) {
	for _, drop := range []Toggle{Off, On} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			l := *chatLimits
			l.DropKeepalives = drop
			body, b := guardScript(c, &l, Options{})
			body.arrive(arrival{data: word + word + "data: half"})
			if _, err := b.Read(make([]byte, 10)); err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				if got, err := read(b, 1000); err == nil || errors.As(err, new(*StallError)) {
					t.Errorf("%q and %v", got, err)
				}
			})
			c.Sleep(s) // the other Read waits
			for range 3 {
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			}
			wg.Wait()
			if _, err := b.Read(make([]byte, 10)); err != http.ErrBodyReadAfterClose {
				t.Errorf("after Close: %v", err)
			}
			if body.closed != 1 {
				t.Errorf("closed %d times", body.closed)
			}
			c.Sleep(time.Hour)
		})
	}
}

// Reads, Stats and Close may come together; upstream is read by one at a time,
// which the script checks. Outside a bubble, since a wait for a mutex does not count
// there as one.
func TestConcurrentUse(t *testing.T) {
	body, b := guardScript(clock.New(), chatLimits, Options{})
	const n = 1000
	var readers, others sync.WaitGroup
	var total atomic.Int64
	for range 4 {
		readers.Go(func() {
			got, err := read(b, 7)
			total.Add(int64(len(got)))
			if err != ErrTruncated {
				t.Error(err)
			}
		})
	}
	others.Go(func() {
		for range n {
			body.arrive(arrival{data: word})
			b.Stats()
		}
		body.arrive(arrival{err: io.EOF})
	})
	others.Wait()
	readers.Wait()
	for range 2 {
		others.Go(func() { b.Close() })
	}
	others.Wait()
	if want := int64(n * len(word)); total.Load() != want || b.Stats().Contents != n {
		t.Errorf("%d bytes, want %d; %+v", total.Load(), want, b.Stats())
	}
}

// Reads that come together have their turns in order, and a Close lets all go.
func TestReadsQueue(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		body, b := guardScript(c, chatLimits, Options{})
		results := make(chan string, 5)
		for i := range cap(results) {
			c.AfterFunc(time.Duration(i)*time.Millisecond, func() {
				p := make([]byte, 10)
				n, err := b.Read(p)
				results <- fmt.Sprint(i, " ", string(p[:n]), " ", err)
			})
		}
		for i, data := range []string{"a", "b", "c"} {
			c.Sleep(s)
			if len(results) != i {
				t.Errorf("%d Reads have returned after %v", len(results), c.Elapsed())
			}
			body.arrive(arrival{data: data})
		}
		c.Sleep(s)
		b.Close()
		c.Sleep(s)
		var got []string
		for range cap(results) {
			got = append(got, <-results)
		}
		slices.Sort(got[3:]) // let go at once, they return in any order
		closed := " " + http.ErrBodyReadAfterClose.Error()
		want := []string{"0 a <nil>", "1 b <nil>", "2 c <nil>", "3 " + closed, "4 " + closed}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// panics is a body whose first Read panics.
type panics struct{ chunked }

func (p *panics) Read(b []byte) (int, error) {
	if p.chunks[0] == "" {
		p.chunks = p.chunks[1:]
		panic("upstream")
	}
	return p.chunked.Read(b)
}

// A panic of upstream, or in a classifier, holds nothing up that comes after it.
func TestPanics(t *testing.T) {
	for _, chunks := range [][]string{{"", word}, {"data: panic\n\n", word}} {
		l := &Limits{Classify: func(e Event) Class {
			if string(e.Data) == "panic" {
				panic("classifier")
			}
			return Content
		}}
		b := Guard(&panics{chunked{chunks}}, l, Options{Header: header("sse")})
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_, _ = b.Read(make([]byte, 100))
		}()
		if n, err := b.Read(make([]byte, 100)); n != len(word) || err != nil || b.Stats().Contents != 1 {
			t.Errorf("%d, %v; %+v", n, err, b.Stats())
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestReadOfNothing(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		_, b := guardScript(c, chatLimits, Options{})
		if n, err := b.Read(nil); n != 0 || err != nil {
			t.Error(n, err)
		}
	})
}

func TestDropKeepalives(t *testing.T) {
	const ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n"
	const text = "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a\"}}\n\n"
	long := ": " + strings.Repeat("x", maxPrefix+50) + "\n"
	longPing := "event: ping\ndata: " + strings.Repeat(" ", maxPrefix+50) + "{}\n\n"
	bookmark := `{"type":"BOOKMARK"}` + "\n"
	added := `{"type":"ADDED"}` + "\n"
	tests := []struct {
		name, framing string
		classify      func(Event) Class
		text, want    string
	}{
		{"comments", "sse", nil, ": a\n\n" + text + ":\n" + text + ": b", text + text},
		{"comment in an event", "sse", nil, "event: x\n: a\r\ndata: {}\n\n", "event: x\ndata: {}\n\n"},
		{"comment between CR and LF", "sse", nil, "data: {}\r: a\n\ndata: {}\r: a\r\n: b\r\n\n", "data: {}\r\n\ndata: {}\r\n\n"},
		{"comment before what is no byte order mark", "sse", nil, ": a\n" + bom + "data: x\ndata: {}\n\n", bom + bom + "data: x\ndata: {}\n\n"},
		{"ping before what is no byte order mark", "sse", nil, bom + ping + bom + "data: x\ndata: {}\n\n", bom + bom + "data: x\ndata: {}\n\n"},
		{"long comment", "sse", nil, long + text + long, text + text[:0]},
		{"blank lines", "sse", nil, "\n\r\n\r" + text + "\n\n" + text, text + text},
		{"pings", "sse", nil, ping + text + ping + ping + text, text + text},
		{"pings of CRLF", "sse", nil, strings.ReplaceAll(ping+text+ping+text, "\n", "\r\n"), strings.ReplaceAll(text+text, "\n", "\r\n")},
		{"a ping too long to be one", "sse", nil, longPing + text, longPing + text},
		{"events without data", "sse", nil, "event: x\n\n" + "id: 5\n\n" + "retry: 5\n\n" + text, "id: 5\n\nretry: 5\n\n" + text},
		{"pings to resume from", "sse", nil, "id: 5\n" + ping + text + "retry: 5\n" + ping, "id: 5\n" + ping + text + "retry: 5\n" + ping},
		{"unfinished ping", "sse", nil, text + "event: ping\ndata: {}", text},
		{"unfinished event", "sse", nil, text + "data: {}", text + "data: {}"},
		{"what looks like them", "sse", nil, "data: : a\n\ndata:\n\nevent: pin\ndata: g\n\n", "data: : a\n\ndata:\n\nevent: pin\ndata: g\n\n"},
		{"blank lines of NDJSON", "ndjson", kubernetes, "\n" + added + " \r\n\n" + added, added + added},
		{"bookmarks", "ndjson", kubernetes, bookmark + added + bookmark + added, added + added},
		{"JSON array", "json-array", kubernetes, "\n[" + bookmark + "," + added + "]", "\n[" + bookmark + "," + added + "]"},
		{"event stream", "eventstream", func(e Event) Class {
			if e.Name == "HeartbeatEvent" {
				return Keepalive
			}
			return Content
		}, message("", ":event-type", "HeartbeatEvent") + message("x", ":event-type", "x"), message("x", ":event-type", "x")},
		{"no stream", "none", nil, "\n: a\n\n", "\n: a\n\n"},
		{"after the terminal", "sse", nil, "data: {\"type\":\"message_stop\"}\n\n: a\n\n" + ping, "data: {\"type\":\"message_stop\"}\n\n" + ping},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := &Limits{DropKeepalives: On, Dialect: "anthropic", Classify: tt.classify}
			if tt.classify != nil {
				l.Dialect = ""
			}
			h := header(tt.framing)
			if tt.framing == "none" {
				h.Set("Content-Encoding", "gzip")
			}
			for name, chunks := range chunkings(tt.text) {
				sizes := []int{3, 1 << 20}
				if len(tt.text) > maxPrefix {
					sizes = []int{1 << 10}
				}
				for _, size := range sizes {
					b := Guard(&chunked{slices.Clone(chunks)}, l, Options{Header: h})
					got, _ := read(b, size)
					if got != tt.want {
						t.Fatalf("%s, read %d at a time: %.300q, want %.300q", name, size, got, tt.want)
					}
					b.Close()
					if b.monitor.extra.filter.buf != nil {
						t.Errorf("%s: a buffer is kept", name)
					}
				}
			}
		})
	}
}

func TestStatsOf(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		body, b := guardScript(c, &Limits{}, Options{})
		thought := strings.Replace(word, "content", "reasoning", 1)
		call := strings.Replace(word, `"content":"word"`, `"tool_calls":[{"id":"1","function":{"name":"f"}}]`, 1)
		body.play(c, c.Now(), []arrival{
			{at: s, data: role + ping}, {at: 3 * s, data: thought}, {at: 7 * s, data: word}, {at: 9 * s, data: word},
			{at: 14 * s, data: call}, {at: 20 * s, data: "data: {\n\ndata: {\"x\":1}\n\n"}, {at: 21 * s, data: word + done}, {at: 21 * s, err: io.EOF},
		}, false)
		got, err := read(b, 1<<10)
		if err != io.EOF {
			t.Fatal(err)
		}
		want := Stats{
			Dialect: "openai-chat", Framing: "sse", FirstContent: 3 * s,
			Gap: 5 * s, ThinkingGap: 4 * s, ToolGap: 7 * s,
			Contents: 5, Lifecycles: 3, Keepalives: 1, Unknown: 1, Undecodable: 1,
			Bytes: int64(len(got)), Finished: true,
		}
		if stats, ok := StatsOf(&http.Response{Body: b}); !ok || stats != want {
			t.Errorf("got %+v,\nwant %+v", stats, want)
		}
		for name, resp := range map[string]*http.Response{"a body that is not guarded": {Body: http.NoBody}, "no body": {}, "no response": nil} {
			if _, ok := StatsOf(resp); ok {
				t.Errorf("%s has statistics", name)
			}
		}
	})
}

// Between events, and while it classes them, a guard allocates nothing.
func TestNoAllocations(t *testing.T) {
	if poolsLeak {
		t.Skip("under the race detector, a sync.Pool drops some of what it is given")
	}
	one, _ := deltas(1, false)
	wires := map[string]string{"openai-chat/sse of OpenAI": string(one)}
	for _, c := range load[dialectCase](t, "dialects.json") {
		if c.Prefix == "" && !c.EOF && (c.Class == "content" || c.Class == "progress" || c.Class == "keepalive" || c.Class == "lifecycle") {
			wires[c.Dialect+"/"+c.Framing+" "+c.Class+" "+c.Why] = c.Wire + string(c.WireBase64)
		}
	}
	for name, wire := range wires {
		dialect, rest, _ := strings.Cut(name, "/")
		framing, _, _ := strings.Cut(rest, " ")
		limits := &Limits{Gap: time.Hour, PingedGap: time.Hour, FirstContent: time.Hour, Dialect: dialect}
		if dialect == "k8s-watch" {
			limits.Classify = func(e Event) Class { return Class(len(e.Name)%2) + Content }
		}
		for _, size := range []int{len(wire), 4<<10 - 1} {
			body := &pieces{size: size}
			b := Guard(body, limits, Options{Header: header(framing)})
			if strings.HasPrefix(wire, "[") { // only the first element has the bracket
				body.data = []byte("[")
				b.Read([]byte{0})
				wire = "," + wire[1:]
			}
			stream := []byte(strings.Repeat(wire, 100))
			p := make([]byte, 4<<10)
			each := testing.AllocsPerRun(50, func() {
				for body.data = stream; len(body.data) > 0; {
					if _, err := b.Read(p); err != nil {
						t.Fatal(err)
					}
				}
			})
			// A garbage collection takes buffers from the pool.
			if each >= 1 {
				t.Errorf("%s, %d bytes a Read: %v allocations for 100 events", name, size, each)
			}
			b.Close()
		}
	}
}

func TestErrors(t *testing.T) {
	var err error = fmt.Errorf("read: %w", &StallError{
		Kind: StallPingedGap, Limit: 30 * s, Waited: 30 * s, SinceLastByte: 5 * s, Elapsed: 40 * s,
		Contents: 3, Keepalives: 6, Bytes: 1234, Dialect: "anthropic", Attempt: 2,
	})
	var timeout net.Error
	for target, want := range map[error]bool{
		os.ErrDeadlineExceeded: true, context.DeadlineExceeded: true, context.Canceled: false, io.ErrUnexpectedEOF: false,
	} {
		if errors.Is(err, target) != want {
			t.Errorf("a stall is %v: %v", target, !want)
		}
	}
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Error("a stall is no timeout")
	}
	if errors.As(ErrTruncated, &timeout) || !errors.Is(ErrTruncated, io.ErrUnexpectedEOF) || errors.Is(ErrTruncated, os.ErrDeadlineExceeded) {
		t.Error("ErrTruncated")
	}
	for err, want := range map[error]string{
		errors.Unwrap(err): "stream stalled: no content in 30s (pinged-gap limit 30s; before: 3 contents, 6 keepalives, 1234 bytes, the last 5s ago; anthropic; attempt 2)",
		&StallError{Kind: StallFirstContent, Limit: s, Waited: s, SinceLastByte: s, Dialect: "gemini"}:               "stream stalled: no first content in 1s (first-content limit 1s; before: 0 contents, 0 keepalives, 0 bytes, the last 1s ago; gemini)",
		&StallError{Kind: StallGap, Limit: s, Waited: s, SinceLastByte: s, Bytes: 5}:                                 "stream stalled: no bytes in 1s (gap limit 1s; before: 0 contents, 0 keepalives, 5 bytes, the last 1s ago)",
		&StallError{Kind: StallFirstContent, Limit: 9 * s, Waited: 9 * s, SinceLastByte: s, Keepalives: 2, Bytes: 5}: "stream stalled: no first content in 9s (first-content limit 9s; before: 0 contents, 2 keepalives, 5 bytes, the last 1s ago)",
		&StallError{Kind: StallMinRate, Limit: s, Waited: s, SinceLastByte: s, Bytes: 5}:                             "stream stalled: too few bytes in 1s (min-rate limit 1s; before: 0 contents, 0 keepalives, 5 bytes, the last 1s ago)",
		ErrTruncated: "stream ended before it was finished: unexpected EOF",
		&FailureError{Type: "a_error", Code: "503"}: "stream reports a failure: a_error (code 503)",
		&FailureError{Code: "503"}:                  "stream reports a failure (code 503)",
		&FailureError{}:                             "stream reports a failure",
	} {
		if got := err.Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// What a server says in an error is not repeated, for it may repeat the request.
func TestFailuresKeepSecrets(t *testing.T) {
	const secret = "sk-secret 42"
	for _, c := range load[dialectCase](t, "dialects.json") {
		if c.Class != "failure" || c.Dialect == "k8s-watch" {
			continue
		}
		wire := c.Wire
		for _, key := range []string{"message", "error", "failed_generation", "type", "code", "status"} {
			for _, colon := range []string{`":"`, `": "`} {
				wire = strings.ReplaceAll(wire, key+colon, key+colon+secret)
			}
		}
		m := begun(&Limits{Dialect: c.Dialect})
		e := &event{data: []byte(strings.TrimSpace(strings.TrimPrefix(wire, "data:")))}
		v := dialectOf(c.Dialect).class(e, new(memory))
		m.effect(v)
		if text := fmt.Sprintf("%+v %+v %v", v.failure, m.Stats(), v.failure); strings.Contains(text, "secret") {
			t.Errorf("%s: %s", wire, text)
		}
	}
}

// undue is a clock on which no timer is made that is due. In a bubble of
// testing/synctest, the race detector would not survive that for long.
type undue struct {
	clock.Clock
	t *testing.T
}

func (c undue) AfterFunc(d time.Duration, f func()) *clock.Timer {
	if d <= 0 {
		c.t.Errorf("a timer of %v is made", d)
	}
	return c.Clock.AfterFunc(d, f)
}

// A stream whose wait for first content was over before it was read.
func TestStallBeforeTheFirstRead(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		_, b := guardScript(undue{c, t}, chatLimits, Options{Sent: c.Now().Add(-time.Hour)})
		if _, err := read(b, 100); !errors.As(err, new(*StallError)) || c.Elapsed() != 0 {
			t.Errorf("%v after %v", err, c.Elapsed())
		}
	})
}

// Bytes that came before an error are the caller's, also if too few of them came to
// tell the framing, or if an event among them was not over.
func TestBytesBeforeAnError(t *testing.T) {
	for _, text := range []string{"dat", "data: a\n\nda", "event: ping\ndata", ": ping"} {
		want := strings.TrimSuffix(text, ": ping") // which is dropped
		b := Guard(&breaks{chunked{[]string{text}}}, &Limits{DropKeepalives: On}, Options{})
		if got, err := read(b, 100); got != want || err != io.ErrUnexpectedEOF {
			t.Errorf("%q passes as %q, then %v", text, got, err)
		}
	}
}

// breaks is a body that breaks at its end.
type breaks struct{ chunked }

func (b *breaks) Read(p []byte) (int, error) {
	n, err := b.chunked.Read(p)
	if err != nil {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
