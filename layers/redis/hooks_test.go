package redis_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/layers/redis"
	"github.com/weir-go/weir/policy"
)

// watch is a hook that counts what passes it, as one for metrics does.
type watch struct {
	mu sync.Mutex
	by map[string]int
}

func (w *watch) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == nil {
		w.by = map[string]int{}
	}
	w.by[what]++
}

func (w *watch) saw(what string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.by[what] > 0
}

func (w *watch) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		w.note("dial")
		return next(ctx, network, addr)
	}
}

func (w *watch) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		w.note(cmd.Name())
		return next(ctx, cmd)
	}
}

func (w *watch) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, list []goredis.Cmder) error {
		for _, cmd := range list {
			w.note("pipeline of " + cmd.Name())
		}
		return next(ctx, list)
	}
}

// TestHooks: what the user hung on the client sees the commands of the store.
func TestHooks(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := s.client()
	var w watch
	client.AddHook(&w)
	store := redis.New(client, redis.Options{Timeout: 2 * time.Second})
	defer store.Close()
	equal(t, "there is a turn", of(store).bucket("k", policy.Rate{PerSecond: 1, Burst: 1}).Take(1), true)
	_, admitted := send(of(store).circuit("k", policy.Breaker{Failures: 1, Open: time.Second, OpenMax: time.Second, Probes: 1}), new(layers.Pass))
	equal(t, "a send is admitted", admitted, true)
	store.Close()
	for _, what := range []string{"dial", "evalsha", "eval", "pipeline of evalsha", "zrem"} {
		equal(t, "the hook saw: "+what, w.saw(what), true)
	}
}
