package clocktest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http/httptrace"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A Network is an in-memory network on which a real http.Transport and a real
// http.Server meet in a bubble. (Over a real socket, even loopback, the bubble's
// time stands still for as long as somebody waits for the other end.)
//
// A host that does not listen refuses connections. One that listens takes them
// even before Accept, as a kernel does. What a hung server looks like:
//
//   - Listen alone: it connects and then neither reads nor writes, nor does it
//     answer a TLS handshake
//   - Blackhole: it does not even connect
//   - Serve with a handler that waits for the request's context
//
// A connection that a handler hijacks from HTTP/1 has a method Reset, which drops
// it so that the client finds it reset by its peer.
//
// Only [NewNetwork] makes one. It may be used concurrently.
type Network struct {
	t    testing.TB
	done chan struct{} // closed at the test's end

	mu        sync.Mutex
	listeners map[string]*listener
	delays    map[string]time.Duration // negative: for ever
	conns     map[*conn]bool           // those that are open
	made      int                      // connections
}

// NewNetwork returns an empty network for a test in [Run]. At the test's end all
// its connections are closed.
func NewNetwork(t testing.TB) *Network {
	t.Helper()
	if bubbleOf(stack(false)) == "" {
		t.Fatal("clocktest: NewNetwork outside of the bubble; call it in the function that Run calls")
	}
	n := &Network{
		t:         t,
		done:      make(chan struct{}),
		listeners: make(map[string]*listener),
		delays:    make(map[string]time.Duration),
		conns:     make(map[*conn]bool),
	}
	t.Cleanup(n.close)
	return n
}

func (n *Network) close() {
	close(n.done)
	n.mu.Lock()
	conns, listeners := slices.Collect(maps.Keys(n.conns)), slices.Collect(maps.Values(n.listeners))
	n.mu.Unlock()
	for _, l := range listeners {
		l.Close()
	}
	for _, c := range conns {
		c.Close()
	}
	// An http.Server sleeps for 500 ms before it lets go of a connection, and time
	// stops when the cleanups have returned.
	time.Sleep(time.Second)
}

// Listen makes addr, a host and port, accept connections.
func (n *Network) Listen(addr string) net.Listener {
	mustHavePort(addr)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[addr] != nil {
		panic("clocktest: already listening on " + addr)
	}
	l := &listener{n: n, addr: address(addr)}
	l.changed.L = &n.mu
	n.listeners[addr] = l
	return l
}

// Delay makes connecting to addr, a host and port, take d.
func (n *Network) Delay(addr string, d time.Duration) {
	mustHavePort(addr)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delays[addr] = d
}

// mustHavePort panics if addr is not one that anybody dials.
func mustHavePort(addr string) {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		panic("clocktest: " + err.Error())
	}
}

// Blackhole makes connecting to addr, a host and port, take for ever.
func (n *Network) Blackhole(addr string) { n.Delay(addr, -1) }

// DialContext connects to addr. It is for http.Transport's field of this name,
// and fires the ConnectStart and ConnectDone hooks of ctx, which net/http leaves
// to the dialer.
// Wrapped in layers.DialContext, as in transport.Base, it gives up with its request;
// an http.Transport by itself goes on dialing.
func (n *Network) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	trace := httptrace.ContextClientTrace(ctx)
	if trace != nil && trace.ConnectStart != nil {
		trace.ConnectStart(network, addr)
	}
	conn, err := n.dial(ctx, addr)
	if err != nil {
		err = &net.OpError{Op: "dial", Net: network, Addr: address(addr), Err: err}
	}
	if trace != nil && trace.ConnectDone != nil {
		trace.ConnectDone(network, addr, err)
	}
	return conn, err
}

// dial connects to a host and port.
func (n *Network) dial(ctx context.Context, to string) (net.Conn, error) {
	n.mu.Lock()
	delay := n.delays[to]
	n.mu.Unlock()
	at := time.Now().Add(delay)
	var there <-chan time.Time
	switch {
	case delay > 0:
		there = time.After(delay)
	case delay == 0: // no timer: see Clock.AfterFunc
		now := make(chan time.Time, 1)
		now <- at
		there = now
	}
	select {
	case <-there:
	case <-ctx.Done():
		if there == nil || time.Now().Before(at) {
			return nil, ctx.Err()
		}
	case <-n.done:
		return nil, net.ErrClosed
	}

	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.listeners[to]
	if l == nil {
		return nil, os.NewSyscallError("connect", syscall.ECONNREFUSED)
	}
	client, server := newConns(address(fmt.Sprint("client:", 49152+2*n.made)), address(to))
	n.made++
	for _, c := range []*conn{client, server} {
		n.conns[c] = true
		c.gone = func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			delete(n.conns, c)
		}
	}
	l.queue = append(l.queue, server)
	l.changed.Signal()
	return client, nil
}

// A listener is a host and port that takes connections. Its queue has no limit.
type listener struct {
	n       *Network
	addr    address
	changed sync.Cond // of n.mu
	queue   []*conn
	closed  bool
}

func (l *listener) Addr() net.Addr { return l.addr }

func (l *listener) Accept() (net.Conn, error) {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	for len(l.queue) == 0 && !l.closed {
		l.changed.Wait()
	}
	if l.closed {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
	}
	c := l.queue[0]
	l.queue = l.queue[1:]
	return c, nil
}

// Close resets the connections that nobody has accepted.
func (l *listener) Close() error {
	l.n.mu.Lock()
	queue := l.queue
	if !l.closed {
		l.closed, l.queue = true, nil
		delete(l.n.listeners, string(l.addr))
		l.changed.Broadcast()
	}
	l.n.mu.Unlock()
	for _, c := range queue {
		c.Reset()
	}
	return nil
}
