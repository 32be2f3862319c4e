package layers_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/stream"
)

const (
	word = `data: {"choices":[{"index":0,"delta":{"content":"word"}}]}` + "\n\n"
	done = "data: [DONE]\n\n"
)

func events(list ...string) clocktest.Step {
	return clocktest.Reply(200).Header("Content-Type", "text/event-stream").Chunks(clocktest.Chunk{Data: strings.Join(list, "")})
}

// fetch reads a response to its end.
func fetch(t *testing.T, rt http.RoundTripper) (resp *http.Response, text string, err error) {
	t.Helper()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if resp, err = rt.RoundTrip(req); err != nil {
		return nil, "", err
	}
	b, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	return resp, string(b), err
}

func wantStall(t *testing.T, err error, kind stream.StallKind) {
	t.Helper()
	var stall *stream.StallError
	if e := new(layers.Error); !errors.As(err, &e) || e.Layer != "stream" || !e.Timeout() || !errors.As(e, &stall) || stall.Kind != kind {
		t.Errorf("got %v, want a stall of kind %s", err, kind)
	}
}

// TestStreamGuardAlone: the layer needs no other, and has its defaults.
func TestStreamGuardAlone(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, events(word).Silent(), events().Silent(), events(word, done))
		rt := layers.Chain(up, layers.StreamGuard(&layers.Env{Clock: c}, policy.Stream{Gap: 3 * time.Second}))
		_, text, err := fetch(t, rt)
		if wantStall(t, err, stream.StallGap); text != word || c.Elapsed() != 3*time.Second {
			t.Errorf("got %q after %v", text, c.Elapsed())
		}
		_, _, err = fetch(t, rt)
		if wantStall(t, err, stream.StallFirstContent); c.Elapsed() != 123*time.Second {
			t.Errorf("the default expired after %v", c.Elapsed()-3*time.Second)
		}
		resp, text, err := fetch(t, rt)
		if stats, ok := stream.StatsOf(resp); err != nil || text != word+done || !ok || stats.Contents != 1 {
			t.Errorf("got %q, %v and %+v", text, err, stats)
		}
	})
}

// TestStreamGuardUnderRetry: two layers make a stack.
func TestStreamGuardUnderRetry(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		env := &layers.Env{Clock: c}
		up := clocktest.NewUpstream(t, c, events().Silent(), events().Reset(), events(word, done))
		rt := layers.Chain(up,
			layers.Retry(env, policy.Retry{BaseDelay: policy.Off}),
			layers.StreamGuard(env, policy.Stream{Hold: policy.On, FirstContent: 2 * time.Second}))
		_, text, err := fetch(t, rt)
		if err != nil || text != word+done || c.Elapsed() != 2*time.Second {
			t.Errorf("got %q, %v after %v", text, err, c.Elapsed())
		}
	})
}

// TestStreamGuardAroundLayers: a layer of the user's may stand further in, and
// a body that it makes is guarded by what it says.
func TestStreamGuardAroundLayers(t *testing.T) {
	rot := func(next http.RoundTripper) http.RoundTripper {
		return layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil {
				resp.Body = &translated{resp.Body}
			}
			return resp, err
		})
	}
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		env := &layers.Env{Clock: c}
		secret := strings.ToUpper(word)
		up := clocktest.NewUpstream(t, c, events(secret).Chunks(clocktest.Chunk{After: time.Second, Data: secret}).Silent())
		_, text, err := fetch(t, layers.Chain(up, layers.StreamGuard(env, policy.Stream{Gap: 3 * time.Second}), rot))
		wantStall(t, err, stream.StallGap)
		if text != word+word || c.Elapsed() != 4*time.Second {
			t.Errorf("got %q after %v", text, c.Elapsed())
		}
	})
	// Further out, it hides nothing: the statistics are those of what was guarded.
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		env := &layers.Env{Clock: c}
		up := clocktest.NewUpstream(t, c, events().Silent(), events(word).Silent())
		resp, text, err := fetch(t, layers.Chain(up,
			layers.Retry(env, policy.Retry{BaseDelay: policy.Off}),
			layers.Inner(env, rot),
			layers.StreamGuard(env, policy.Stream{Hold: policy.On, FirstContent: 2 * time.Second, Gap: 3 * time.Second})))
		wantStall(t, err, stream.StallGap)
		if text != strings.ToLower(word) || c.Elapsed() != 5*time.Second {
			t.Errorf("got %q after %v", text, c.Elapsed())
		}
		if stats, ok := stream.StatsOf(resp); !ok || stats.Contents != 1 || stats.Bytes != int64(len(word)) {
			t.Errorf("got %+v", stats)
		}
	})
}

// translated is a body in lower case.
type translated struct{ io.ReadCloser }

func (b *translated) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	copy(p, strings.ReplaceAll(strings.ToLower(string(p[:n])), "[done]", "[DONE]"))
	return n, err
}

// TestStreamGuardOnAMock: a clock that is moved by hand ends a stream too, and
// no sooner than its limit.
func TestStreamGuardOnAMock(t *testing.T) {
	mock := clock.NewMock()
	reading := make(chan struct{}, 1)
	base := layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		body := &signaled{ctx: req.Context(), reading: reading, text: word}
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body}, nil
	})
	rt := layers.Chain(base, layers.StreamGuard(&layers.Env{Clock: mock}, policy.Stream{Gap: 10 * time.Second}))
	failed := make(chan error, 1)
	go func() {
		_, _, err := fetch(t, rt)
		failed <- err
	}()
	<-reading
	mock.Add(10*time.Second - 1)
	select {
	case err := <-failed:
		t.Fatalf("ended early: %v", err)
	default:
	}
	mock.Add(1)
	wantStall(t, <-failed, stream.StallGap)
}

// signaled is a body that gives its text, and then says that it is being read.
type signaled struct {
	ctx     context.Context
	reading chan struct{}
	text    string
}

func (b *signaled) Read(p []byte) (int, error) {
	if b.text == "" {
		b.reading <- struct{}{}
		<-b.ctx.Done()
		return 0, context.Cause(b.ctx)
	}
	n := copy(p, b.text)
	b.text = b.text[n:]
	return n, nil
}

func (*signaled) Close() error { return nil }

// counted is a clock that counts how often it is read.
type counted struct {
	clock.Clock
	reads int
}

func (c *counted) Now() time.Time {
	c.reads++
	return c.Clock.Now()
}

func (c *counted) Since(t time.Time) time.Duration {
	c.reads++
	return c.Clock.Since(t)
}

// TestReadsOfTheClock: they are most of what a Read of a body costs.
func TestReadsOfTheClock(t *testing.T) {
	guard := func(e *layers.Env) layers.Layer { return layers.StreamGuard(e, policy.Stream{}) }
	timeouts := func(e *layers.Env) layers.Layer { return layers.Timeouts(e, policy.Timeouts{}) }
	untimed := func(e *layers.Env) layers.Layer { return layers.Timeouts(e, policy.Timeouts{Read: policy.Off}) }
	observer := layers.ObserverFunc(func(context.Context, layers.Event) {})
	for _, c := range []struct {
		name     string
		observer layers.Observer
		stack    []func(*layers.Env) layers.Layer
		want     int // a Read
	}{
		{"guarded", nil, []func(*layers.Env) layers.Layer{guard, timeouts}, 2},
		{"guarded and observed", observer, []func(*layers.Env) layers.Layer{guard, timeouts}, 2},
		{"timed", nil, []func(*layers.Env) layers.Layer{timeouts}, 1},
		{"observed", observer, []func(*layers.Env) layers.Layer{timeouts}, 2},
		{"untimed", nil, []func(*layers.Env) layers.Layer{untimed}, 0},
	} {
		k := &counted{Clock: clock.New()}
		env := &layers.Env{Clock: k, Observer: c.observer}
		base := layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			body := io.NopCloser(iotest.OneByteReader(strings.NewReader(strings.Repeat(word, 3))))
			h := http.Header{"Content-Type": {"text/event-stream"}}
			return &http.Response{StatusCode: 200, Header: h, ContentLength: -1, Body: body, Request: req}, nil
		})
		var stack []layers.Layer
		for _, l := range c.stack {
			stack = append(stack, l(env))
		}
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		resp, err := layers.Chain(base, stack...).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 10)
		read := func(n int) {
			for range n {
				if _, err := resp.Body.Read(p); err != nil {
					t.Fatal(err)
				}
			}
		}
		read(len(word)) // and with it the first content
		before := k.reads
		if read(len(word)); k.reads-before != c.want*len(word) {
			t.Errorf("%s: %d in %d Reads, want %d for each", c.name, k.reads-before, len(word), c.want)
		}
		resp.Body.Close()
	}
}
