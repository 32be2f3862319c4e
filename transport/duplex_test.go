package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

// quietBody is the body of a request whose Read goes on until the test is over, whoever
// closes it.
type quietBody struct{ over <-chan struct{} }

func (b quietBody) Read([]byte) (int, error) {
	<-b.over
	return 0, io.EOF
}

// TestAnswerBesideAQuietUpload: over HTTP/2, net/http sees no end of a request while it
// waits for more of its body. A Read of the answer ends all the same.
func TestAnswerBesideAQuietUpload(t *testing.T) {
	const s = time.Second
	canceled := func(ctx context.Context) (context.Context, func()) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(2*s, cancel)
		return ctx, cancel
	}
	limited := func(ctx context.Context) (context.Context, func()) { return context.WithTimeout(ctx, 2*s) }
	layer := around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		ctx, cancel := context.WithCancel(req.Context())
		time.AfterFunc(2*s, cancel)
		return next.RoundTrip(req.WithContext(ctx))
	})
	for name, test := range map[string]struct {
		settings policy.Settings
		caller   func(context.Context) (context.Context, func())
		inner    []layers.Layer
		rests    time.Duration // before it reads on
		want     error
	}{
		"deadline":            {settings: policy.Settings{Deadline: 2 * s}, want: context.DeadlineExceeded},
		"read":                {settings: policy.Settings{Timeouts: policy.Timeouts{Read: 2 * s}}, want: context.DeadlineExceeded},
		"gap":                 {settings: policy.Settings{Stream: policy.Stream{Enabled: policy.On, Gap: 2 * s}}, want: context.DeadlineExceeded},
		"caller's end":        {caller: canceled, want: context.Canceled},
		"caller's deadline":   {caller: limited, want: context.DeadlineExceeded},
		"no deadline of ours": {settings: policy.Settings{Deadline: policy.Off}, caller: canceled, want: context.Canceled},
		"layer's end":         {inner: []layers.Layer{layer}, want: context.Canceled},
		"read on afterwards":  {caller: canceled, rests: 2 * s, want: context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				w := newWire(t, c, "http2", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					_, _ = rw.Write([]byte("first"))
					_ = http.NewResponseController(rw).Flush()
					gone(r)
				}), settings(test.settings), inner(test.inner...))
				ctx, cancel := t.Context(), func() {}
				if test.caller != nil {
					ctx, cancel = test.caller(ctx)
				}
				defer cancel()
				over := make(chan struct{})
				defer close(over)
				resp, err := w.RoundTrip(request(t, ctx, "POST", "https://api.test", quietBody{over}))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				time.Sleep(test.rests)
				got, err := io.ReadAll(resp.Body)
				if string(got) != "first" || !errors.Is(err, test.want) {
					t.Errorf("read %q, %v; want what had come, and %v", got, err, test.want)
				}
				equal(t, "the time", c.Elapsed(), 2*s+time.Millisecond)
			})
		})
	}
}
