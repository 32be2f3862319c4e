package redis_test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/weir-go/weir/layers/redis"
)

// TestMain: the client complains of what the tests do to Redis, and they wait
// more than they compute.
func TestMain(m *testing.M) {
	goredis.SetLogger(&logging.VoidLogger{})
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "8")
	}
	os.Exit(m.Run())
}

// server is a redis-server on loopback that keeps nothing on disk.
type server struct {
	t    testing.TB
	addr string
	dir  string // for what a replica is sent
	args []string
	cmd  *exec.Cmd
	over chan struct{} // closed when it has ended
}

func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed: apt-get install redis-server")
	}
	s := &server{t: t, dir: t.TempDir(), args: args}
	t.Cleanup(s.kill)
	for range 5 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s.addr = l.Addr().String()
		l.Close() // and somebody else may have it at once
		if s.launch() {
			return s
		}
	}
	t.Fatal("redis-server does not start")
	return nil
}

func (s *server) start() {
	s.t.Helper()
	if !s.launch() {
		s.t.Fatal("redis-server does not start again")
	}
}

// launch reports whether it answers, rather than somebody else who has the port.
func (s *server) launch() bool {
	s.t.Helper()
	_, port, _ := net.SplitHostPort(s.addr)
	args := append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"}, s.args...)
	s.cmd = exec.Command("redis-server", args...)
	s.cmd.Dir = s.dir
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.over = make(chan struct{})
	go func(cmd *exec.Cmd, over chan struct{}) { _ = cmd.Wait(); close(over) }(s.cmd, s.over)
	client := goredis.NewClient(&goredis.Options{Addr: s.addr})
	defer client.Close()
	answers := false
	eventually(s.t, "redis-server answers, or has ended", func() bool {
		text, _ := client.Info(context.Background(), "server").Result()
		answers = strings.Contains(text, fmt.Sprintf("process_id:%d\r\n", s.cmd.Process.Pid))
		select {
		case <-s.over:
			return true
		default:
			return answers
		}
	})
	return answers
}

// kill ends it as kill -9 does.
func (s *server) kill() {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		<-s.over
		s.cmd = nil
	}
}

func (s *server) client() *goredis.Client {
	c := goredis.NewClient(&goredis.Options{Addr: s.addr})
	s.t.Cleanup(func() { c.Close() })
	return c
}

// store is that of one process. It does not take a busy machine for a Redis
// that hangs.
func (s *server) store(set ...func(*redis.Options)) *redis.Store {
	opts := redis.Options{Timeout: 2 * time.Second}
	for _, f := range set {
		f(&opts)
	}
	store := redis.New(s.client(), opts)
	s.t.Cleanup(func() { store.Close() })
	return store
}

// now is the server's time.
func now(t testing.TB, c *goredis.Client) time.Time {
	t.Helper()
	at, err := c.Time(context.Background()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it is not so after 10 s: %s", what)
		}
	}
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func within(t testing.TB, what string, got, least, most time.Duration) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s: %v, want %v to %v", what, got, least, most)
	}
}

var names atomic.Int64

// name is not used twice.
func name() string { return fmt.Sprint("key ", names.Add(1)) }
