package redis_test

import (
	"context"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/policy"
)

// TestDeaf: news is heard though the subscription stayed with a server that nobody
// asks any more, and that is alive.
func TestDeaf(t *testing.T) {
	t.Parallel()
	first, second := startServer(t), startServer(t)
	proxy := startProxy(t, first.addr, func([]byte) bool { return true })
	p := newPair(t, policy.Rate{PerSecond: 100, Burst: 5}, func() goredis.UniversalClient {
		return goredis.NewClient(&goredis.Options{Addr: proxy.addr})
	})
	p.hears(t)
	proxy.server.Store(second.addr)
	first.client().ClientKillByFilter(context.Background(), "TYPE", "normal")
	p.hears(t)
}

// TestNoNews: a process that can subscribe no more, though Redis answers it on the
// connections that it has, asks now and then.
func TestNoNews(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := newPair(t, policy.Rate{PerSecond: 100, Burst: 5}, func() goredis.UniversalClient {
		return goredis.NewClient(&goredis.Options{Addr: s.addr})
	})
	equal(t, "there is one", p.bucket[0].Take(1), true)
	p.hears(t)
	ctx, admin := context.Background(), goredis.NewClient(&goredis.Options{Addr: s.addr, PoolSize: 1})
	defer admin.Close()
	admin.ConfigSet(ctx, "requirepass", "secret")
	admin.ClientKillByFilter(ctx, "TYPE", "pubsub")
	p.hears(t)
	p.wait(t, "")
}
