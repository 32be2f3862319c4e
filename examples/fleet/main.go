// Fleet has four processes call an API whose quota they share: 100 requests a
// second for all of them. It starts a redis-server on loopback that keeps their
// budget, kills one of the processes, then Redis, and brings Redis back, all
// while they go on calling. It prints who sent how much, second by second, and
// exits with status 1 if the quota was ever exceeded by more than the burst, or
// if less than 90 % of it was used while there was nothing to recover from.
//
// What the processes run is in the folder worker, a module of its own.
package main

//ci:args -for 20s

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	quota = 100 // requests a second
	burst = 20  // that the API takes at once; the budget of the fleet has half of it
	fleet = 4
)

func main() {
	length := flag.Duration("for", 20*time.Second, "how long the fleet calls")
	worker := flag.String("worker", "", "folder of the worker's source; empty: the go command finds it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *worker, *length)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

// run starts everything, and breaks some of it. Whatever ends it, nothing is left.
func run(ctx context.Context, out io.Writer, source string, length time.Duration) error {
	w := &lines{w: out}
	dir, err := os.MkdirTemp("", "fleet")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	redis, err := startRedis(dir)
	if err != nil {
		return err
	}
	defer redis.kill()
	worker, err := build(w, source, dir)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	api := newAPI()
	server := &http.Server{Handler: api}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()

	var processes []*process
	defer func() {
		for _, p := range processes {
			p.kill()
		}
	}()
	for i := range fleet {
		p, err := startProcess(w, worker, redis.addr, "http://"+listener.Addr().String(), strconv.Itoa(i+1))
		if err != nil {
			return err
		}
		processes = append(processes, p)
	}
	if err := api.awaitAll(ctx); err != nil {
		return err
	}

	fmt.Fprintf(w, "%d processes, a quota of %d a second and a burst of %d for all\n\n", fleet, quota, burst)
	acts := []act{
		{what: "all is well", share: 0.3, healthy: true, begin: func() error { return nil }},
		{what: "process 4 is killed", share: 0.2, healthy: true, begin: func() error { processes[fleet-1].kill(); return nil }},
		{what: "Redis is killed", share: 0.2, begin: func() error { redis.kill(); return nil }},
		{what: "Redis is back, and knows nothing", share: 0.3, healthy: true, begin: redis.start},
	}
	for i := range acts {
		a := &acts[i]
		if err := a.begin(); err != nil {
			return err
		}
		a.from = time.Since(api.start)
		if err := pause(ctx, time.Duration(float64(length)*a.share)); err != nil {
			return err
		}
		a.to = time.Since(api.start)
	}
	return api.report(w, acts)
}

// pause lets time pass, but for an interrupt.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lines is written to by all processes.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// act is a part of the play.
type act struct {
	what     string
	share    float64 // of the time
	healthy  bool    // so that the quota should be used
	begin    func() error
	from, to time.Duration
}

// process is one of ours, or Redis.
type process struct{ cmd *exec.Cmd }

// kill ends it as kill -9 does.
func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.cmd = nil
}

func startProcess(w io.Writer, worker, redis, api, name string) (*process, error) {
	cmd := exec.Command(worker, "-redis", redis, "-api", api, "-name", name, "-quota", strconv.Itoa(quota), "-burst", strconv.Itoa(burst/2))
	cmd.Stdout, cmd.Stderr = w, w
	if _, err := cmd.StdinPipe(); err != nil { // which ends with this process, and the other with it
		return nil, err
	}
	return &process{cmd}, cmd.Start()
}

// redisServer keeps nothing on disk.
type redisServer struct {
	process

	addr, dir string
}

func startRedis(dir string) (*redisServer, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, errors.New("redis-server is not to be found: install it, on Debian with apt-get install redis-server, on macOS with brew install redis, or put it on the PATH")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	_ = l.Close()
	r := &redisServer{addr: l.Addr().String(), dir: dir}
	return r, r.start()
}

func (r *redisServer) start() error {
	_, port, err := net.SplitHostPort(r.addr)
	if err != nil {
		return err
	}
	cmd := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	cmd.Dir = r.dir // which has no dump of another's
	if err := cmd.Start(); err != nil {
		return err
	}
	r.cmd = cmd
	for range 100 {
		c, err := net.Dial("tcp", r.addr)
		if err == nil {
			return c.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	r.kill()
	return errors.New("redis-server does not answer")
}
