package batch_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
	"github.com/weir-go/weir/transport/batch"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		child(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

const url = "http://api.example/v1"

// numbered returns the names of n items.
func numbered(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint("item ", i)
	}
	return list
}

// client returns a client over weir, without chance.
func client(t *testing.T, c *clocktest.Clock, base http.RoundTripper, s policy.Settings) *http.Client {
	t.Helper()
	tr, err := transport.New(transport.Config{
		Base: base, Clock: c, Policy: policy.Policy{Settings: s}, Rand: func() float64 { return 1 },
	})
	if err != nil {
		t.Fatal(err)
	}
	return tr.Client()
}

// get makes the call of an item.
func get(client *http.Client) func(context.Context, string) error {
	return func(ctx context.Context, _ string) error {
		req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 {
			return batch.StatusError(resp)
		}
		return nil
	}
}

// sleep is the work of an item that takes d.
func sleep(c *clocktest.Clock, d time.Duration) func(context.Context, string) error {
	return func(ctx context.Context, _ string) error {
		ctx, cancel := c.WithTimeout(ctx, d)
		defer cancel()
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) || errors.Is(context.Cause(ctx), batch.ErrDeadline) {
			return context.Cause(ctx)
		}
		return nil
	}
}

// memory is a store that can be made to fail, or to be slow.
type memory struct {
	mu     sync.Mutex
	data   []byte
	open   bool
	saves  []time.Duration
	clock  *clocktest.Clock // nil: when does not matter
	takes  time.Duration
	fails  func() error // nil: does not
	closes int
}

func (m *memory) Open(context.Context) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open {
		return nil, batch.ErrInUse
	}
	m.open = true
	return m.data, nil
}

func (m *memory) Save(_ context.Context, cursor []byte) error {
	m.mu.Lock()
	if m.clock != nil {
		m.saves = append(m.saves, m.clock.Elapsed())
	}
	m.mu.Unlock()
	if m.takes > 0 {
		m.clock.Sleep(m.takes)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails != nil {
		if err := m.fails(); err != nil {
			return err
		}
	}
	m.data = cursor
	return nil
}

func (m *memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open = false
	m.closes++
	return nil
}

// cursor is what the store has.
func (m *memory) cursor(t *testing.T) *batch.Cursor {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	c := new(batch.Cursor)
	if err := c.UnmarshalText(m.data); err != nil {
		t.Fatal(err)
	}
	return c
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func has(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q does not have %q", text, p)
		}
	}
}

// wantCounts checks the numbers of a report.
func wantCounts(t *testing.T, r batch.Report, resumed, done, failed, unprocessed int) {
	t.Helper()
	if r.Resumed != resumed || r.Done != done || len(r.Failed) != failed || r.Unprocessed != unprocessed {
		t.Errorf("got %v; want %d done before, %d now, %d failed, %d unprocessed", r, resumed, done, failed, unprocessed)
	}
	if r.Resumed+r.Done+len(r.Failed)+r.Unprocessed != r.Items {
		t.Errorf("the numbers do not add up: %v", r)
	}
}
