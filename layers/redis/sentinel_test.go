package redis_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/benbjohnson/clock"
	goredis "github.com/redis/go-redis/v9"
)

// startSentinel has somebody watch over a server and its replica.
func startSentinel(t testing.TB, master *server) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = l.Addr().String()
	l.Close()
	_, own, _ := net.SplitHostPort(addr)
	host, port, _ := net.SplitHostPort(master.addr)
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	conf := fmt.Sprintf("bind 127.0.0.1\nport %s\nsentinel monitor weir %s %s 1\nsentinel down-after-milliseconds weir 300\n", own, host, port)
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("redis-server", file, "--sentinel")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	client := goredis.NewSentinelClient(&goredis.Options{Addr: addr})
	defer client.Close()
	eventually(t, "it knows of the replica", func() bool {
		list := client.Replicas(context.Background(), "weir").Val()
		return len(list) == 1 && list[0]["master-link-status"] == "ok"
	})
	return addr
}

// TestSentinel: two processes keep to the quota while their Redis is killed and its
// replica takes its place, and hear from each other then.
func TestSentinel(t *testing.T) {
	t.Parallel()
	first, second := startServer(t, "--repl-diskless-sync-delay", "0"), startServer(t)
	host, port, _ := net.SplitHostPort(first.addr)
	replica, ctx := second.client(), context.Background()
	replica.ReplicaOf(ctx, host, port)
	eventually(t, "it is a replica", func() bool { return strings.Contains(replica.Info(ctx, "replication").Val(), "master_link_status:up") })
	sentinel := startSentinel(t, first)
	f, work, end := lasting(t)
	p := newPair(t, f.rate, func() goredis.UniversalClient {
		return goredis.NewFailoverClient(&goredis.FailoverOptions{MasterName: "weir", SentinelAddrs: []string{sentinel}, DialerRetries: 1})
	})
	for i, b := range p.bucket {
		f.work(work, clock.New(), i, b, 4, 1)
	}
	p.hears(t)
	first.kill()
	p.wait(t, "down")
	p.wait(t, "down up")
	p.hears(t)
	end()
	f.check(0.5, 0.4)
}
