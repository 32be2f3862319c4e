package redis_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/layers/redis"
	"github.com/weir-go/weir/policy"
)

// startCluster starts two nodes, the first of which has all slots.
func startCluster(t testing.TB) (first, second *server) {
	t.Helper()
	ctx := context.Background()
	var nodes [2]*server
	for i := range nodes {
		nodes[i] = startServer(t, "--cluster-enabled", "yes")
	}
	first, second = nodes[0], nodes[1]
	if err := first.client().ClusterAddSlotsRange(ctx, 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(first.addr)
	if err := second.client().ClusterMeet(ctx, host, port).Err(); err != nil {
		t.Fatal(err)
	}
	for _, s := range nodes {
		c := s.client()
		eventually(t, "the cluster works", func() bool {
			info := c.ClusterInfo(ctx).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:2")
		})
	}
	return first, second
}

// pair are two processes with their own clients, and what they share.
type pair struct {
	said     [2]changes
	bucket   [2]layers.Bucket
	circuits [2]process
}

func newPair(t testing.TB, rate policy.Rate, client func() goredis.UniversalClient, set ...func(*redis.Options)) *pair {
	p := new(pair)
	for i := range p.said {
		c := client()
		// Two, also before they have seen each other.
		opts := redis.Options{Timeout: 500 * time.Millisecond, Lease: time.Second, Processes: 2}
		for _, f := range set {
			f(&opts)
		}
		p.said[i].note(&opts)
		store := redis.New(c, opts)
		t.Cleanup(func() { store.Close(); c.Close() })
		p.circuits[i] = of(store)
		p.bucket[i] = of(store).bucket("k", rate)
	}
	return p
}

// hears asserts that what opens in one process is heard in the other, which asks
// nobody.
func (p *pair) hears(t testing.TB) {
	t.Helper()
	set, key := policy.Breaker{Failures: 1, Open: time.Minute, OpenMax: time.Minute, OpenJitter: policy.Off, Probes: 1}, name()
	opens, hears := p.circuits[0].circuit(key, set), p.circuits[1].circuit(key, set)
	send(hears, new(layers.Pass)) // its state is known
	tell(t, opens, bad)
	eventually(t, "it is open for others", func() bool { return isOpen(hears) })
}

func (p *pair) wait(t testing.TB, want string) {
	t.Helper()
	for i := range p.said {
		p.said[i].wait(t, want)
	}
}

func clusterClient(nodes ...*server) func() goredis.UniversalClient {
	return func() goredis.UniversalClient {
		opts := &goredis.ClusterOptions{DialerRetries: 1}
		for _, s := range nodes {
			opts.Addrs = append(opts.Addrs, s.addr)
		}
		return goredis.NewClusterClient(opts)
	}
}

// TestCluster: all keys of a namespace, whatever it is called, are on one node.
func TestCluster(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--cluster-enabled", "yes")
	ctx := context.Background()
	node := s.client()
	if err := node.ClusterAddSlotsRange(ctx, 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cluster works", func() bool { return strings.Contains(node.ClusterInfo(ctx).Val(), "cluster_state:ok") })
	client := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{s.addr}})
	defer client.Close()
	for _, namespace := range []string{"", "a}b", "}", "{}", "%7D"} {
		var said changes
		opts := redis.Options{Namespace: namespace, Timeout: 2 * time.Second}
		said.note(&opts)
		store := redis.New(client, opts)
		defer store.Close()
		p := of(store)
		b, c := p.bucket("k", policy.Rate{PerSecond: 0.01, Burst: 2}), p.circuit("k", policy.Breaker{Failures: 1, Open: time.Minute, OpenMax: time.Minute, Probes: 1})
		equal(t, namespace+": there are two", b.Take(2), true)
		equal(t, namespace+": there is another", b.Take(1), false)
		tell(t, c, bad)
		other := redis.New(client, opts)
		defer other.Close()
		eventually(t, namespace+": it is open for others", func() bool {
			_, ok := send(of(other).circuit("k", policy.Breaker{Failures: 1, Open: time.Minute, OpenMax: time.Minute, Probes: 1}), new(layers.Pass))
			return !ok
		})
		equal(t, namespace+": there is another for others", of(other).bucket("k", policy.Rate{PerSecond: 0.01, Burst: 2}).Take(1), false)
		equal(t, "what was said", said.String(), "")
	}
}

// TestMovedSlot: while the slot of a namespace moves, the fallback holds, and then
// all goes on at the node that has it.
func TestMovedSlot(t *testing.T) {
	t.Parallel()
	first, second := startCluster(t)
	p := newPair(t, policy.Rate{PerSecond: 0.01, Burst: 5}, clusterClient(first))
	equal(t, "there are two", p.bucket[0].Take(2), true)
	p.hears(t)
	ctx, from, to := context.Background(), first.client(), second.client()
	slot := from.ClusterKeySlot(ctx, "weir:{weir}:news").Val()
	move := func(c *goredis.Client, args ...any) {
		t.Helper()
		if err := c.Do(ctx, append([]any{"CLUSTER", "SETSLOT", slot}, args...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	us, them := from.ClusterMyID(ctx).Val(), to.ClusterMyID(ctx).Val()
	move(to, "IMPORTING", us)
	move(from, "MIGRATING", them)
	host, port, _ := net.SplitHostPort(second.addr)
	p.bucket[0].Take(1)
	p.bucket[1].Take(1)
	eventually(t, "all keys are there", func() bool {
		keys := from.ClusterGetKeysInSlot(ctx, int(slot), 100).Val()
		for _, key := range keys {
			from.Migrate(ctx, host, port, key, 0, 5*time.Second)
		}
		return len(keys) == 0 && p.said[0].String() == "down" && p.said[1].String() == "down"
	})
	move(to, "NODE", them)
	move(from, "NODE", them)
	p.wait(t, "down up")
	p.bucket[1].Take(1) // to know how things stand
	within(t, "the wait for what was there before", p.bucket[1].Predict(5), 450*time.Second, 2000*time.Second)
	p.hears(t)
	first.kill() // which was left, and not all know
	p.hears(t)
	equal(t, "what was said", fmt.Sprint(&p.said[0], &p.said[1]), "down up down up")
}

// TestKilledNode: once another node has the slots of one that was killed, it is
// asked, by a client that would find that out in a minute.
func TestKilledNode(t *testing.T) {
	t.Parallel()
	first, second := startCluster(t)
	p := newPair(t, policy.Rate{PerSecond: 100, Burst: 5}, clusterClient(first, second))
	equal(t, "there is one", p.bucket[0].Take(1), true)
	p.hears(t)
	first.kill()
	p.wait(t, "down")
	ctx, c := context.Background(), second.client()
	c.ConfigSet(ctx, "cluster-node-timeout", "500") // after which it works
	for _, err := range []error{c.ClusterDelSlotsRange(ctx, 0, 16383).Err(), c.ClusterAddSlotsRange(ctx, 0, 16383).Err()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	p.wait(t, "down up")
	eventually(t, "there is one", func() bool { return p.bucket[0].Take(1) })
	p.hears(t)
}

// TestOtherNode: a node that hangs, and has nothing of a namespace, is not asked.
func TestOtherNode(t *testing.T) {
	t.Parallel()
	first, second := startCluster(t)
	ctx, other := context.Background(), second.client()
	id := other.ClusterMyID(ctx).Val()
	for _, c := range []*goredis.Client{other, first.client()} {
		if err := c.Do(ctx, "CLUSTER", "SETSLOT", 0, "NODE", id).Err(); err != nil {
			t.Fatal(err)
		}
	}
	second.cmd.Process.Signal(syscall.SIGSTOP)
	p := newPair(t, policy.Rate{PerSecond: 0.01, Burst: 5}, func() goredis.UniversalClient {
		// Or the client itself asks any node, for what it knows of commands.
		return goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{first.addr}, DisableRoutingPolicies: true})
	})
	equal(t, "there is one", p.bucket[0].Take(1), true)
	p.hears(t)
	p.wait(t, "")
}
