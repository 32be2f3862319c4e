package layers

import (
	"io"
	"net/http"
	"testing"

	"github.com/benbjohnson/clock"
)

// TestJoin: of several requests on the context of an attempt that a layer of the
// user's has, one at a time is the attempt's, and none once that is back.
func TestJoin(t *testing.T) {
	env := (&Env{Clock: clock.NewMock()}).ready()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.example/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	c, req, err := (&stage{env: env, ends: true}).begin(req)
	if err != nil {
		t.Fatal(err)
	}
	defer c.finish(outcome{})
	a := &c.first
	joins := func(want bool) rank {
		t.Helper()
		b, was, _ := a.join(rankStream, req)
		if (b != nil) != want {
			t.Errorf("it joins: %v, want %v", b != nil, want)
		}
		return was
	}
	if _, err := a.leave(rankInner); err != nil {
		t.Fatal(err)
	}
	was := joins(true)
	joins(false) // beside
	a.handOver(was, false)
	a.handOver(joins(true), true) // again
	c.mu.Lock()
	a.arrive()
	c.mu.Unlock()
	joins(false) // too late
}

// TestCloseBody: it closes a body, on an Env that no layer was built with too.
func TestCloseBody(t *testing.T) {
	for _, env := range []*Env{nil, new(Env)} {
		body := closedBody{closed: make(chan struct{})}
		env.CloseBody(&http.Request{Body: body})
		<-body.closed // which may be a moment later
		env.CloseBody(new(http.Request))
	}
}

type closedBody struct {
	io.Reader

	closed chan struct{}
}

func (b closedBody) Close() error {
	close(b.closed)
	return nil
}
