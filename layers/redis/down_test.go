package redis_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/layers/redis"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// changes are what a store said of Redis.
type changes struct {
	mu   sync.Mutex
	list []redis.Change
}

func (c *changes) note(o *redis.Options) {
	o.OnChange = func(change redis.Change) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.list = append(c.list, change)
	}
}

func (c *changes) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var s strings.Builder
	for _, change := range c.list {
		if change.Up {
			s.WriteString("up ")
		} else {
			s.WriteString("down ")
		}
	}
	return strings.TrimSpace(s.String())
}

func (c *changes) wait(t testing.TB, want string) {
	t.Helper()
	eventually(t, "the store said "+want, func() bool { return c.String() == want })
}

// TestFallbacks: what was chosen holds once Redis is killed, and Redis's answer
// once it is back: with one change told for each, however many calls there are.
func TestFallbacks(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	rate := policy.Rate{PerSecond: 40, Burst: 4}
	set := policy.Breaker{Failures: 1, Open: time.Minute, OpenMax: time.Minute, OpenJitter: policy.Off, Probes: 1}
	type kind struct {
		fallback redis.Fallback
		said     changes
		bucket   layers.Bucket
		circuit  layers.Circuit
	}
	kinds := []*kind{{fallback: redis.Share}, {fallback: redis.Open}, {fallback: redis.Closed}}
	for _, k := range kinds {
		p := of(s.store(k.said.note, func(o *redis.Options) {
			o.Fallback = k.fallback
			o.Namespace = name()
			o.Timeout = time.Second
		}))
		k.bucket, k.circuit = p.bucket("k", rate), p.circuit("k", set)
		equal(t, "there is a turn", k.bucket.Take(1), true)
	}
	s.kill()
	for _, k := range kinds {
		eventually(t, "it is noticed", func() bool { k.bucket.Take(1); return k.said.String() == "down" })
	}
	share, opened, closed := kinds[0], kinds[1], kinds[2]

	n := 0
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if share.bucket.Take(1) {
			n++
		}
	}
	if n < 20 || n > 46 {
		t.Errorf("%d turns in a second, of 40", n)
	}
	granted(t, share.bucket.Join(3, time.Time{}, 1, false))
	tell(t, share.circuit, bad)
	equal(t, "the circuit is open", isOpen(share.circuit), true)

	for range 100 {
		equal(t, "open: there is a turn", opened.bucket.Take(1), true)
	}
	granted(t, opened.bucket.Join(1, time.Time{}, 1, false))
	tell(t, opened.circuit, bad, bad, bad)

	equal(t, "closed: there is a turn", closed.bucket.Take(1), false)
	if wait(t, closed.bucket.Join(1, time.Time{}, 1, false)) == 0 {
		t.Error("closed: not refused")
	}
	_, ok := send(closed.circuit, new(layers.Pass))
	equal(t, "closed: a send is admitted", ok, false)

	s.start()
	for _, k := range kinds {
		k.said.wait(t, "down up")
	}
	// All is as Redis has it, and what opened meanwhile opens for all.
	other := of(s.store()).bucket("k", rate)
	other.Take(1)
	eventually(t, "there is no burst, and then a turn", func() bool { return closed.bucket.Take(1) })
	tell(t, opened.circuit, bad)
	equal(t, "the circuit is open", isOpen(opened.circuit), true)
	equal(t, "the circuit is open still", isOpen(share.circuit), true)
}

// TestKilledRedis: three processes go on at the quota while Redis is killed and
// restarted without what it knew, and those who wait lose nothing by it.
func TestKilledRedis(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	f, ctx, end := lasting(t)
	said := make([]changes, 3)
	for i := range said {
		f.work(ctx, clock.New(), i, of(s.store(said[i].note, func(o *redis.Options) { o.Timeout = time.Second })).bucket("k", f.rate), 6, 1)
	}
	time.Sleep(time.Second) // so that all are seen
	s.kill()
	for i := range said {
		said[i].wait(t, "down")
		equal(t, "the processes that were seen", said[i].list[0].Processes, 3)
	}
	f.mu.Lock()
	before, began := len(f.turns), time.Now()
	f.mu.Unlock()
	time.Sleep(2 * time.Second)
	f.mu.Lock()
	passed := time.Since(began)
	if n := len(f.turns) - before; n < 120 || float64(n) > 90*passed.Seconds()+20 {
		t.Errorf("%d turns in %v by the shares", n, passed)
	}
	f.mu.Unlock()
	s.start()
	for i := range said {
		said[i].wait(t, "down up")
	}
	time.Sleep(time.Second)
	end()
	f.check(0.75, 0.75)
}

// TestEndsTogether: a process that hears of the end of a fallback later than others,
// but in time, uses nothing of its share beside what they have of Redis by then.
func TestEndsTogether(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	f, ctx, end := lasting(t)
	var far atomic.Bool
	proxy := startProxy(t, s.addr, func([]byte) bool {
		if far.Load() {
			time.Sleep(300 * time.Millisecond)
		}
		return true
	})
	addrs := []string{s.addr, proxy.addr}
	p := newPair(t, f.rate, func() goredis.UniversalClient {
		addr := addrs[0]
		addrs = addrs[1:]
		return goredis.NewClient(&goredis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1}) // what was asked before fails
	}, func(o *redis.Options) { o.Timeout = 1500 * time.Millisecond }) // twice that of two answers, and more
	for i, b := range p.bucket {
		f.work(ctx, clock.New(), i, b, 6, 1)
	}
	p.hears(t)
	s.kill()
	p.wait(t, "down")
	far.Store(true)
	s.start()
	p.wait(t, "down up")
	end() // since turns may be used as late as answers are
	f.check(0.5, 0.4)
}

// TestLongFallback: those who shared a quota before Redis was killed share it until
// all of them are at Redis again, however long it was down.
func TestLongFallback(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	f, ctx, end := lasting(t)
	p := newPair(t, f.rate, func() goredis.UniversalClient {
		return goredis.NewClient(&goredis.Options{Addr: s.addr, DialerRetries: 1})
	}, func(o *redis.Options) { o.Timeout, o.Processes = time.Second, 0 })
	for i, b := range p.bucket {
		f.work(ctx, clock.New(), i, b, 6, 1)
	}
	time.Sleep(time.Second) // so that both are seen
	s.kill()
	p.wait(t, "down")
	for i := range p.said {
		equal(t, "the processes that were seen", p.said[i].list[0].Processes, 2)
	}
	time.Sleep(4 * time.Second)
	s.start()
	p.wait(t, "down up")
	for i := range p.said {
		equal(t, "the processes that were seen", p.said[i].list[1].Processes, 2)
	}
	time.Sleep(time.Second)
	end()
	f.check(0.5, 0.4)
}

// TestEndWakes: all who wait for a turn of the share hear that it is Redis again that
// they wait for, in whatever order they came.
func TestEndWakes(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	var said changes
	b := of(s.store(said.note, func(o *redis.Options) { o.Timeout = time.Second })).bucket("k", policy.Rate{PerSecond: 0.01, Burst: 5})
	s.kill()
	said.wait(t, "down")
	signals := map[uint64]<-chan struct{}{}
	for _, ticket := range []uint64{2, 7, 5, 6, 1} {
		turn := b.Join(1, time.Time{}, ticket, ticket == 1)
		defer turn.Leave()
		signals[ticket] = turn.Signal()
	}
	for _, signal := range signals {
		select {
		case <-signal: // as it came, or lost its place
		default:
		}
	}
	s.start()
	for ticket, signal := range signals {
		eventually(t, fmt.Sprintf("%d is woken", ticket), func() bool { return len(signal) > 0 })
	}
	said.wait(t, "down up")
}

// TestHung: a call waits for a Redis that hangs no longer than it may.
func TestHung(t *testing.T) {
	s := startServer(t)
	var said changes
	store := s.store(said.note, func(o *redis.Options) { o.Timeout = 50 * time.Millisecond })
	p := of(store)
	rate := policy.Rate{PerSecond: 50, Burst: 50}
	b := p.bucket("k", rate)
	b.Take(1)
	upstream := func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
	}
	tr, err := transport.New(transport.Config{
		Base: layers.RoundTripperFunc(upstream), Store: store,
		Policy: policy.Policy{Settings: policy.Settings{Deadline: 5 * time.Second, Rate: rate, Breaker: policy.Breaker{Failures: 3}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	call := func() error {
		resp, err := tr.Client().Get("http://api.example/")
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	if err := call(); err != nil {
		t.Fatal(err)
	}
	s.cmd.Process.Signal(syscall.SIGSTOP)
	began := time.Now()
	for range 20 {
		if err := call(); err != nil {
			t.Error(err)
		}
	}
	within(t, "20 calls took", time.Since(began), 0, 3*time.Second)
	said.wait(t, "down")
	// A circuit and a budget that are new cost no more.
	p.circuit(name(), policy.Breaker{Failures: 1, Open: time.Second, OpenMax: time.Second, Probes: 1})
	p.bucket(name(), rate).Take(1)
	s.cmd.Process.Signal(syscall.SIGCONT)
	eventually(t, "it recovers", func() bool { return strings.HasSuffix(said.String(), "up") })
	eventually(t, "turns are there again", func() bool { return b.Take(1) })

	// Within the deadline, which may come first.
	s.cmd.Process.Signal(syscall.SIGSTOP)
	defer s.cmd.Process.Signal(syscall.SIGCONT)
	patient := of(s.store(func(o *redis.Options) { o.Timeout = time.Minute })).bucket("k", rate)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	equal(t, "there is a turn", patient.(layers.Joint).TakeAll(ctx, []layers.Claim{{Bucket: patient, N: 1}}), false)
}

// proxy stands between a client and a server.
type proxy struct {
	addr   string
	server atomic.Value      // address
	passes func([]byte) bool // whether an answer does; or else the connection ends
}

func startProxy(t testing.TB, server string, passes func([]byte) bool) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := &proxy{addr: l.Addr().String(), passes: passes}
	p.server.Store(server)
	go func() {
		for {
			down, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(down)
		}
	}()
	return p
}

func (p *proxy) serve(down net.Conn) {
	defer down.Close()
	up, err := net.Dial("tcp", p.server.Load().(string))
	if err != nil {
		return
	}
	defer up.Close()
	go func() { io.Copy(up, down); up.Close() }()
	buf := make([]byte, 1<<16)
	for {
		n, err := up.Read(buf)
		if err != nil || !p.passes(buf[:n]) {
			return
		}
		down.Write(buf[:n])
	}
}

// TestLostReply: a script that was run, and whose answer was lost, counts once.
func TestLostReply(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	var lose atomic.Bool
	var lost atomic.Int64
	p := startProxy(t, s.addr, func(answer []byte) bool {
		if len(answer) < 60 || !lose.Swap(false) {
			return true
		}
		lost.Add(1)
		return false
	})
	client := goredis.NewClient(&goredis.Options{Addr: p.addr})
	defer client.Close()
	store := redis.New(client, redis.Options{Timeout: 2 * time.Second})
	defer store.Close()
	b := of(store).bucket("k", policy.Rate{PerSecond: 0.001, Burst: 8})
	for range 3 {
		equal(t, "there is one", b.Take(1), true)
		lose.Store(true)
		equal(t, "there is one", b.Take(1), true)
	}
	if lost.Load() == 0 {
		t.Error("no answer was lost")
	}
	t.Logf("%d answers were lost", lost.Load())
	other := of(s.store()).bucket("k", policy.Rate{PerSecond: 0.001, Burst: 8})
	equal(t, "two are left", other.Take(2), true)
	equal(t, "and no more", other.Take(1), false)
}

// TestFailover: a replica that lags behind the server that it stands in for
// gives nothing out twice.
func TestFailover(t *testing.T) {
	t.Parallel()
	first, second := startServer(t, "--repl-diskless-sync-delay", "0"), startServer(t)
	p := startProxy(t, first.addr, func([]byte) bool { return true })
	client := goredis.NewClient(&goredis.Options{Addr: p.addr})
	defer client.Close()
	store := redis.New(client, redis.Options{Timeout: 2 * time.Second})
	defer store.Close()
	rate := policy.Rate{PerSecond: 0.01, Burst: 5}
	b := of(store).bucket("k", rate)
	equal(t, "there is one", b.Take(1), true)
	returned := of(store).bucket("returned", rate)
	equal(t, "there are three", returned.Take(3), true)
	equal(t, "there are two", of(first.store()).bucket("returned", rate).Take(2), true)
	returned.Refund(2)
	admin := first.client()
	eventually(t, "Redis has them", func() bool { return len(admin.Keys(context.Background(), "*:free").Val()) > 0 })
	host, port, _ := net.SplitHostPort(first.addr)
	replica, ctx := second.client(), context.Background()
	replica.ReplicaOf(ctx, host, port)
	eventually(t, "the replica has it all", func() bool { return replica.DBSize(ctx).Val() == admin.DBSize(ctx).Val() })
	replica.ReplicaOf(ctx, "NO", "ONE")
	equal(t, "there are four more", b.Take(4), true)
	equal(t, "there are those that were returned", returned.Take(2), true)
	p.server.Store(second.addr)
	first.kill()
	for range 5 {
		time.Sleep(100 * time.Millisecond)
		equal(t, "there is another", b.Take(1), false)
		equal(t, "there is another that was returned", returned.Take(1), false)
	}
	eventually(t, "the new server knows", func() bool { return replica.DBSize(ctx).Val() >= 2 })
	equal(t, "there is another for others", of(second.store()).bucket("k", rate).Take(1), false)
}

// TestForgetful: a Redis that lost what it knew gives no second burst to who
// has had the first, and lets no pause end.
func TestForgetful(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := s.client()
	rate := policy.Rate{PerSecond: 0.01, Burst: 5}
	b := of(s.store()).bucket("k", rate)
	equal(t, "there are five", b.Take(5), true)
	client.FlushAll(context.Background())
	time.Sleep(100 * time.Millisecond) // what is known is old
	equal(t, "there is one", b.Take(1), false)
	equal(t, "there is one for others", of(s.store()).bucket("k", rate).Take(1), false)
	client.ScriptFlush(context.Background())
	time.Sleep(100 * time.Millisecond)
	equal(t, "there is one", b.Take(1), false)

	// Also those ask that know less than others of who waits.
	slow := policy.Rate{PerSecond: 0.02, Burst: 1}
	least := of(s.store()).bucket("line", slow)
	equal(t, "there is one", least.Take(1), true)
	for i := range 2 {
		turn := of(s.store()).bucket("line", slow).Join(1, time.Time{}, 1, false)
		defer turn.Leave()
		eventually(t, "one waits", func() bool {
			_, _, again := turn.Due()
			return time.Until(again) > time.Duration(50*i+25)*time.Second // and not for an answer
		})
	}
	client.ClientKillByFilter(context.Background(), "TYPE", "pubsub") // and so nobody hears of it at once
	client.FlushAll(context.Background())
	turn := least.Join(1, time.Time{}, 1, false)
	defer turn.Leave()
	eventually(t, "Redis knows of all who wait", func() bool {
		other := of(s.store()).bucket("line", slow)
		other.Take(1)
		return other.Predict(1) > 110*time.Second
	})

	fast := policy.Rate{PerSecond: 100, Burst: 10}
	paused := of(s.store()).bucket("paused", fast)
	paused.Pause(time.Now().Add(time.Minute))
	paused.Take(1)
	client.FlushAll(context.Background())
	later := paused.Join(1, time.Time{}, 1, false)
	defer later.Leave()
	eventually(t, "Redis knows of the pause again", func() bool {
		other := of(s.store()).bucket("paused", fast)
		other.Take(1)
		return other.Predict(1) > 30*time.Second
	})

	c := of(s.store()).circuit("k", policy.Breaker{Failures: 1, Open: time.Minute, OpenMax: time.Minute, OpenJitter: policy.Off, Probes: 1})
	tell(t, c, bad)
	equal(t, "it is open", isOpen(c), true)
}

// TestEarlier: a budget that an earlier weir has left in Redis is no budget that it
// has lost: what a process gives back, another can take.
func TestEarlier(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client, ctx := s.client(), context.Background()
	rate := policy.Rate{PerSecond: 0.01, Burst: 4}
	equal(t, "there is one", of(s.store()).bucket("k", rate).Take(1), true)
	for _, key := range client.Keys(ctx, "weir:*").Val() {
		if client.HExists(ctx, key, "born").Val() {
			client.HDel(ctx, key, "born")
			client.HSet(ctx, key, "version", 57)
		}
	}
	a, b := of(s.store()).bucket("k", rate), of(s.store()).bucket("k", rate)
	equal(t, "there are three", a.Take(3), true)
	equal(t, "there is another", b.Take(1), false)
	a.Refund(2)
	eventually(t, "two are back", func() bool { return b.Take(2) })
}

// TestFull: neither a Redis that is out of memory, or refuses for another reason, nor
// keys of others in the place of ours stop a call, and the fallback holds for as long as
// they last.
func TestFull(t *testing.T) {
	t.Parallel()
	rate := policy.Rate{PerSecond: 100, Burst: 10}
	set := policy.Breaker{Failures: 1, Open: 100 * time.Millisecond, OpenMax: time.Minute, Probes: 1}
	foreign := func(ctx context.Context, c *goredis.Client, ours func(key string) bool) {
		keys, _ := c.Keys(ctx, "weir:*").Result()
		for _, k := range keys {
			if ours(k) {
				c.Del(ctx, k)
				c.LPush(ctx, k, "somebody else's")
			}
		}
	}
	for what, c := range map[string]struct {
		spoil, mend func(ctx context.Context, c *goredis.Client)
	}{
		"a password": {
			func(ctx context.Context, c *goredis.Client) {
				c.ConfigSet(ctx, "requirepass", "secret")
				c.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes")
			},
			func(ctx context.Context, c *goredis.Client) { c.ConfigSet(ctx, "requirepass", "") },
		},
		"a foreign circuit": {
			func(ctx context.Context, c *goredis.Client) {
				foreign(ctx, c, func(k string) bool { return c.HExists(ctx, k, "opens").Val() })
			},
			func(ctx context.Context, c *goredis.Client) { c.FlushAll(ctx) },
		},
		"a foreign list of processes": {
			func(ctx context.Context, c *goredis.Client) {
				foreign(ctx, c, func(k string) bool { return strings.HasSuffix(k, ":processes") })
			},
			func(ctx context.Context, c *goredis.Client) { c.FlushAll(ctx) },
		},
		"out of memory": {
			func(ctx context.Context, c *goredis.Client) { c.ConfigSet(ctx, "maxmemory", "1") },
			func(ctx context.Context, c *goredis.Client) { c.ConfigSet(ctx, "maxmemory", "0") },
		},
		"a demoted master": {
			func(ctx context.Context, c *goredis.Client) { c.ReplicaOf(ctx, "127.0.0.1", "1") },
			func(ctx context.Context, c *goredis.Client) { c.ReplicaOf(ctx, "NO", "ONE") },
		},
		"a replica whose master is down": {
			func(ctx context.Context, c *goredis.Client) {
				c.ConfigSet(ctx, "replica-serve-stale-data", "no")
				c.ReplicaOf(ctx, "127.0.0.1", "1")
			},
			func(ctx context.Context, c *goredis.Client) { c.ReplicaOf(ctx, "NO", "ONE") },
		},
		"too few replicas": {
			func(ctx context.Context, c *goredis.Client) { c.ConfigSet(ctx, "min-replicas-to-write", "1") },
			func(ctx context.Context, c *goredis.Client) { c.ConfigSet(ctx, "min-replicas-to-write", "0") },
		},
		"a long script": {
			func(ctx context.Context, c *goredis.Client) {
				c.ConfigSet(ctx, "lua-time-limit", "10")
				go c.Eval(ctx, "while true do end", nil) // until it is killed
			},
			func(ctx context.Context, c *goredis.Client) {
				other := goredis.NewClient(c.Options()) // c waits for its script
				defer other.Close()
				other.ScriptKill(ctx)
			},
		},
		"no rights": {
			func(ctx context.Context, c *goredis.Client) {
				c.Do(ctx, "ACL", "SETUSER", "admin", "on", "nopass", "~*", "&*", "+@all")
				c.Do(ctx, "AUTH", "admin", "any")
				c.Do(ctx, "ACL", "SETUSER", "default", "resetkeys")
			},
			func(ctx context.Context, c *goredis.Client) { c.Do(ctx, "ACL", "SETUSER", "default", "~*") },
		},
		"foreign keys": {
			func(ctx context.Context, c *goredis.Client) {
				foreign(ctx, c, func(k string) bool { return !strings.HasSuffix(k, ":processes") && !strings.Contains(k, ":answer:") })
			},
			func(ctx context.Context, c *goredis.Client) { c.FlushAll(ctx) },
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			client := goredis.NewClient(&goredis.Options{Addr: s.addr, PoolSize: 1})
			defer client.Close()
			ctx := context.Background()
			var said changes
			p := of(s.store(said.note, func(o *redis.Options) { o.Timeout = time.Second }))
			b, circuit := p.bucket("k", rate), p.circuit("k", set)
			b.Take(1)
			tell(t, circuit, bad)
			eventually(t, "Redis knows of it", func() bool { keys, _ := client.Keys(ctx, "weir:*").Result(); return len(keys) >= 4 })
			c.spoil(ctx, client)
			for range 50 {
				pass(ctx, clock.New(), b, 1, 1)
				send(circuit, new(layers.Pass))
			}
			said.wait(t, "down")
			for range 100 {
				pass(ctx, clock.New(), b, 1, 1)
				send(circuit, new(layers.Pass))
			}
			equal(t, "what was said", said.String(), "down")
			c.mend(ctx, client)
			said.wait(t, "down up")
			eventually(t, "there is a turn", func() bool { return b.Take(1) })
			equal(t, "what was said", said.String(), "down up")
		})
	}
}

// TestTransport: two stacks over one Redis share a budget, refuse at once what
// would come too late, and wait for no turn where no wait is allowed.
func TestTransport(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	upstream := func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
	}
	var fleet []*http.Client
	for range 2 {
		tr, err := transport.New(transport.Config{
			Base: layers.RoundTripperFunc(upstream), Store: s.store(),
			Policy: policy.Policy{Settings: policy.Settings{
				Rate:    policy.Rate{PerSecond: 0.1, Burst: 3, MaxWait: policy.Off},
				Budgets: map[string]policy.Rate{"tokens": {PerSecond: 0.1, Burst: 50, Cost: func(*http.Request) int { return 10 }}},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		fleet = append(fleet, tr.Client())
	}
	for i := range 3 {
		resp, err := fleet[i%2].Get("http://api.example/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	for _, c := range fleet {
		_, err := c.Get("http://api.example/")
		if err == nil || !strings.Contains(err.Error(), "no turn in time") {
			t.Errorf("the error: %v", err)
		}
	}
}

// TestTwoBudgets: those who need turns in two budgets get all that the scarcer
// one allows, and those who need one of them are not held up.
func TestTwoBudgets(t *testing.T) {
	s := startServer(t)
	slow := policy.Rate{PerSecond: 30, Burst: 3}
	var both, one atomic.Int64
	upstream := func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/both" {
			both.Add(1)
		} else {
			one.Add(1)
		}
		return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
	}
	began := time.Now()
	// goes on for two seconds, or longer on a machine that leaves it less time.
	goesOn := func() bool {
		passed := time.Since(began)
		return passed < 2*time.Second || passed < 20*time.Second && (both.Load() < 30 || both.Load()+one.Load() < 120)
	}
	var group sync.WaitGroup
	for range 2 {
		tr, err := transport.New(transport.Config{
			Base: layers.RoundTripperFunc(upstream), Store: s.store(),
			Policy: policy.Policy{
				Settings: policy.Settings{Rate: policy.Rate{PerSecond: 100, Burst: 5}},
				Routes:   []policy.Route{{Pattern: "/both", Settings: policy.Settings{Budgets: map[string]policy.Rate{"slow": slow}}}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			group.Go(func() {
				for goesOn() {
					req, _ := http.NewRequest("GET", "http://api.example/"+[]string{"one", "both"}[i%2], nil)
					if resp, err := tr.Client().Do(req); err == nil {
						resp.Body.Close()
					}
				}
			})
		}
	}
	group.Wait()
	t.Logf("%d with both, %d with one", both.Load(), one.Load())
	passed := time.Since(began).Seconds()
	if n, most := float64(both.Load()), 30*passed+3; n < 30 || n > most+3 {
		t.Errorf("%v sends in two budgets, of at most %.0f", n, most)
	}
	if n, most := float64(both.Load()+one.Load()), 100*passed+5; n < 120 || n > most+5 {
		t.Errorf("%v sends in all, of at most %.0f", n, most)
	}
}

// TestSlow: of a Redis that always takes longer than a send can wait for, that is
// said once. A circuit that is new costs a send no more than its deadline.
func TestSlow(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := startProxy(t, s.addr, func([]byte) bool { time.Sleep(350 * time.Millisecond); return true })
	client := goredis.NewClient(&goredis.Options{Addr: p.addr})
	defer client.Close()
	var said changes
	opts := redis.Options{Timeout: 500 * time.Millisecond}
	said.note(&opts)
	store := redis.New(client, opts)
	defer store.Close()
	time.Sleep(2 * time.Second) // it is connected
	b := of(store).bucket("k", policy.Rate{PerSecond: 100, Burst: 10})
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			time.Sleep(time.Duration(i) * 100 * time.Millisecond)
			for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
				pass(t.Context(), clock.New(), b, 1, uint64(i+1))
			}
		})
	}
	group.Wait()
	equal(t, "what was said", said.String(), "down")

	s.cmd.Process.Signal(syscall.SIGSTOP)
	defer s.cmd.Process.Signal(syscall.SIGCONT)
	patient := of(s.store(func(o *redis.Options) { o.Timeout = time.Minute }))
	c := patient.circuit("k", policy.Breaker{Failures: 1, Open: time.Second, OpenMax: time.Second, Probes: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	c.Admit(ctx, false, new(layers.Pass))
	within(t, "it took", time.Since(began), 50*time.Millisecond, 30*time.Second)
}

// TestACL: a user who may do what is documented can do all, and what one cannot is
// said at once.
func TestACL(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for user, channels := range map[string]string{"may": "&weir:*", "maynot": "resetchannels"} {
		if err := s.client().Do(t.Context(), "ACL", "SETUSER", user, "on", "nopass", "~weir:*", channels, "+@all", "-@dangerous").Err(); err != nil {
			t.Fatal(err)
		}
		var said changes
		process := func() process {
			client := goredis.NewClient(&goredis.Options{Addr: s.addr, Username: user, Password: "any"})
			opts := redis.Options{Namespace: user, Timeout: 2 * time.Second}
			said.note(&opts)
			store := redis.New(client, opts)
			t.Cleanup(func() { store.Close(); client.Close() })
			return of(store)
		}
		one, other := process(), process()
		b := one.bucket("k", policy.Rate{PerSecond: 0.01, Burst: 1})
		if user == "maynot" {
			b.Take(1)
			said.wait(t, "down")
			continue
		}
		equal(t, "there is one", b.Take(1), true)
		set := policy.Breaker{Failures: 1, Open: time.Minute, OpenMax: time.Minute, Probes: 1}
		opens, hears := one.circuit("k", set), other.circuit("k", set)
		admin := s.client()
		eventually(t, "both are subscribed", func() bool {
			return admin.PubSubNumSub(context.Background(), "weir:{may}:news").Val()["weir:{may}:news"] == 2
		})
		tell(t, opens, bad)
		eventually(t, "it is open for others", func() bool { return isOpen(hears) })
		equal(t, "what was said", said.String(), "")
	}
}

// TestStartsWithout: a process that has never seen Redis takes the share that it
// was told.
func TestStartsWithout(t *testing.T) {
	t.Parallel()
	client := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	var said changes
	opts := redis.Options{Processes: 10}
	said.note(&opts)
	store := redis.New(client, opts)
	defer store.Close()
	said.wait(t, "down")
	b := of(store).bucket("k", policy.Rate{PerSecond: 1, Burst: 10})
	within(t, "the wait for a turn", b.Predict(1), 9*time.Second, 10*time.Second)
	fast := of(store).bucket("fast", policy.Rate{PerSecond: 1e6, Burst: 100})
	eventually(t, "there is its share", func() bool { return fast.Take(10) })
	fast.Set(policy.Rate{PerSecond: 1e6, Burst: 5})
	time.Sleep(time.Millisecond)
	equal(t, "there is more than the burst, which is smaller by now", fast.Take(6), false)
	said.mu.Lock()
	equal(t, "the processes", said.list[0].Processes, 10)
	said.mu.Unlock()
}

// TestStartsSlow: a process whose Redis is too slow from the start still hears how many
// share the quota, and uses no more than its part from then on.
func TestStartsSlow(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	rate := policy.Rate{PerSecond: 1, Burst: 10}
	equal(t, "there is one for another process", of(s.store()).bucket("k", rate).Take(1), true)
	p := startProxy(t, s.addr, func([]byte) bool { time.Sleep(150 * time.Millisecond); return true })
	client := goredis.NewClient(&goredis.Options{Addr: p.addr})
	defer client.Close()
	store := redis.New(client, redis.Options{Timeout: 200 * time.Millisecond})
	defer store.Close()
	b := of(store).bucket("k", rate)
	b.Take(1)
	eventually(t, "its share is a half", func() bool { return b.Predict(10) > 15*time.Second })
}

// told has what is written to it, a write after the other.
type told chan string

func (c told) Write(p []byte) (int, error) { c <- string(p); return len(p), nil }

// TestShown: a transport's circuits are seen and switched by hand, also those in
// Redis, and a log says which one has changed.
func TestShown(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	log := make(told, 9)
	status := http.StatusInternalServerError
	tr, err := transport.New(transport.Config{
		Base: layers.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
		}),
		Store:  s.store(func(o *redis.Options) { o.Observer = layers.Log(slog.New(slog.NewTextHandler(log, nil))) }),
		Policy: policy.Policy{Settings: policy.Settings{Breaker: policy.Breaker{Failures: 2, Open: time.Minute}, Retry: policy.Retry{Enabled: policy.Off}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	call := func() (passed bool) {
		resp, err := tr.Client().Get("http://api.example/")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	}
	call()
	b := tr.Breakers()[0]
	equal(t, "the key", b.Key(), "http://api.example")
	equal(t, "the failures", b.Status().Failures, 1)
	equal(t, "the state", b.State(), layers.StateClosed)
	call()
	equal(t, "the state", b.State(), layers.StateOpen)
	within(t, "until", time.Until(b.Status().Until), 30*time.Second, 70*time.Second)
	if b.Status().ID.Section == "" {
		t.Error("the identity is not known")
	}
	b.ForceClosed()
	status = http.StatusOK
	equal(t, "forced closed: a call passes", call(), true)
	equal(t, "the state", tr.Breakers()[0].State(), layers.StateClosed)
	b.ForceOpen()
	equal(t, "forced open: a call passes", call(), false)
	b.Auto()
	equal(t, "the state", b.State(), layers.StateOpen)
	equal(t, "it is forced", b.Status().Forced, false)
	equal(t, "a call passes", call(), false)
	for _, want := range []string{
		`state=open for=\S+ origin=http://api.example why=".+"`,
		"state=closed origin=http://api.example forced=true",
		"state=open origin=http://api.example forced=true",
		`state=open for=\S+ origin=http://api.example why=".+"`,
	} {
		if line := <-log; !regexp.MustCompile(want).MatchString(line) {
			t.Errorf("logged %s, want %s", line, want)
		}
	}
}
