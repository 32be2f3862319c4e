package layers

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"time"
)

// DialFunc dials as the DialContext of an http.Transport does.
type DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// DialContext wraps the DialContext or DialTLSContext of an http.Transport, so that the
// timeouts of this package act on its dials. An http.Transport goes on dialing
// for a request that was given up: through this function, a connect phase that
// expires ends the dial and the handshake after it, of TLS or with a SOCKS proxy, and
// frees the slot of MaxConnsPerHost. (What a proxy behind TLS answers to CONNECT is
// waited for, for a minute: net/http's own limit.) A connection that another request
// was handed is never touched. The connections also tell when bytes last arrived, so
// that a slow chunk, gzip block or header is not taken for silence.
//
// transport.Base does this already. Over a base without it, the dialer's own
// timeout and TLSHandshakeTimeout are what bounds a dial that was given up.
func DialContext(dial DialFunc) DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		a := attemptFrom(ctx)
		if a == nil {
			conn, err := dial(ctx, network, addr)
			return watched(conn, defaultEnv), err
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		d := a.beginDial(cancel)
		conn, err := dial(ctx, network, addr)
		if err != nil || secured(conn) {
			return conn, err
		}
		conn = watched(conn, a.call.env)
		d.dialed(conn)
		return conn, nil
	}
}

// secured reports that conn comes from a DialTLSContext, for net/http to see.
func secured(conn net.Conn) bool {
	_, ok := conn.(interface{ HandshakeContext(context.Context) error })
	return ok
}

// defaultEnv gives the time to connections that no call dialed.
var defaultEnv = new(Env).ready()

// dialing is a dial that an attempt began. The mutex of its call guards it.
type dialing struct {
	a         *attempt
	cancel    context.CancelCauseFunc
	conn      net.Conn // dialed
	poisoned  bool     // its deadline is in the past
	done      bool     // out of our hands: a request's for all we know
	secured   bool     // TLS is over
	within    bool     // a handshake of TLS goes on within that
	abandoned bool
	before    *dialing // of the same attempt: net/http may begin anew
}

var errDialAbandoned = errors.New("the call that dialed has ended")

// beginDial notes a dial for the attempt. Only one that waits for it may abandon it.
func (a *attempt) beginDial(cancel context.CancelCauseFunc) *dialing {
	a.enter(phaseConnect, nil)
	c := a.call
	c.mu.Lock()
	defer c.mu.Unlock()
	d := &dialing{a: a, cancel: cancel, done: !a.dials(), before: a.seldom().dial}
	a.mark().dial = d
	return d
}

// dials reports whether the attempt waits for a connection. The mutex must be
// held.
func (a *attempt) dials() bool {
	return a.sought > 0 && (a.phase == phasePool || a.phase == phaseConnect)
}

// dialed takes the new connection, which may be another's from now on unless a
// handshake shows.
func (d *dialing) dialed(conn net.Conn) {
	d.a.call.mu.Lock()
	defer d.a.call.mu.Unlock()
	if w, ok := conn.(watchable); ok && !d.done {
		d.conn, d.done = conn, true
		w.watches().opening.Store(&opening{d: d, secure: d.a.secure})
	}
}

// shakes is told that a handshake has begun on the connection, which so is nobody's
// yet. The mutex must be held.
func (d *dialing) shakes() {
	d.done = false
	if d.abandoned {
		d.poison()
	}
}

// handed is told that a handshake may have succeeded: the connection may be handed to
// any request from now on. The mutex must be held.
func (d *dialing) handed() {
	if d.poisoned {
		_ = d.conn.SetDeadline(time.Time{})
	}
	d.done, d.poisoned = true, false
}

// poison ends a handshake. Unlike a Close, it can be taken back. The mutex must be held.
func (d *dialing) poison() {
	d.poisoned = true
	_ = d.conn.SetDeadline(time.Unix(1, 0))
}

// shaking is told that a TLS handshake begins. What is within TLS with a proxy shows by
// that only, and only if the attempt has no other connection.
func (a *attempt) shaking() {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	if d := a.seldom().dial; d != nil && d.before == nil && d.secured && a.secure && a.sought == 1 {
		d.within = true
		d.shakes()
	}
}

// handshaken is told that a TLS handshake has succeeded.
func (a *attempt) handshaken() {
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	for d := a.seldom().dial; d != nil; d = d.before {
		if d.within {
			d.within = false
			d.handed()
		}
	}
}

// abandonDial ends the dial that the attempt waits for, or the handshake after
// it, if that can be done without harm to another request.
func (a *attempt) abandonDial() {
	a.call.mu.Lock()
	var last *dialing
	if a.dials() {
		last = a.seldom().dial
	}
	var ended []context.CancelCauseFunc
	for d := last; d != nil; d = d.before {
		d.abandoned = true
		if d.done {
			continue
		}
		ended = append(ended, d.cancel)
		if d.conn != nil {
			d.poison()
		}
	}
	a.call.mu.Unlock()
	for _, cancel := range ended { // which may ask the attempt for a value
		cancel(errDialAbandoned)
	}
}

// watch notes when bytes arrive on a connection.
type watch struct {
	env     *Env
	last    atomic.Int64
	opening atomic.Pointer[opening] // nil: it may be a request's
	begun   atomic.Bool             // something was written to the server itself
	muxed   atomic.Bool             // that was the preface of HTTP/2
}

// watchable is a connection that is watched.
type watchable interface{ watches() *watch }

type watchedConn struct {
	net.Conn
	watch
}

// watchedHalf can also close its writing side, as the caller of an upgraded
// connection may want.
type watchedHalf struct{ watchedConn }

func (c *watchedHalf) CloseWrite() error {
	return c.Conn.(closeWriter).CloseWrite() // See watched.
}

// watchedTCP keeps the ReadFrom of a TCP connection, and sendfile with it, for
// requests that share the http.Transport with a stack. A stack guards a file that
// it sends like any body that may block, so that net/http does not see the file.
type watchedTCP struct {
	*net.TCPConn
	watch
}

func watched(conn net.Conn, env *Env) net.Conn {
	if conn == nil || secured(conn) {
		return conn
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		return &watchedTCP{TCPConn: tcp, watch: watch{env: env}}
	}
	if _, ok := conn.(closeWriter); ok { // a Unix socket, say
		return &watchedHalf{watchedConn{Conn: conn, watch: watch{env: env}}}
	}
	return &watchedConn{Conn: conn, watch: watch{env: env}}
}

func (c *watchedConn) Read(p []byte) (int, error)  { return c.read(c.Conn, p) }
func (c *watchedConn) Write(p []byte) (int, error) { return c.write(c.Conn, p) }
func (c *watchedTCP) Read(p []byte) (int, error)   { return c.read(c.TCPConn, p) }
func (c *watchedTCP) Write(p []byte) (int, error)  { return c.write(c.TCPConn, p) }

func (w *watch) watches() *watch { return w }

func (w *watch) read(conn net.Conn, p []byte) (int, error) {
	o := w.opening.Load()
	if o != nil && o.reading() {
		w.opening.Store(nil)
		o = nil
	}
	n, err := conn.Read(p)
	if n > 0 {
		w.last.Store(int64(w.env.now()))
	}
	if o != nil && o.read(p[:n]) {
		w.opening.Store(nil)
	}
	return n, err
}

func (w *watch) write(conn net.Conn, p []byte) (int, error) {
	o := w.opening.Load()
	if o != nil && o.writing(p) {
		w.opening.Store(nil)
		o = nil
	}
	if o == nil && !w.begun.Load() {
		w.begun.Store(true)
		w.muxed.Store(bytes.HasPrefix(p, []byte("PRI * HTTP/2"))) // RFC 9113 section 3.4
	}
	return conn.Write(p)
}

// translate converts an instant of another stack's.
func (e *Env) translate(from *Env, i int64) instant {
	if from == e {
		return instant(i)
	}
	return e.instant(from.time(instant(i)))
}

// lastRead tells when bytes last arrived on an HTTP/1 connection. Those of an
// HTTP/2 connection may belong to any of its streams and say nothing.
func lastRead(conn net.Conn, e *Env) (last instant, known bool) {
	for { // through a proxy, TLS may be within TLS
		t, ok := conn.(*tls.Conn)
		if !ok {
			break
		}
		if t.ConnectionState().NegotiatedProtocol == "h2" {
			return 0, false
		}
		conn = t.NetConn()
	}
	c, ok := conn.(watchable)
	if !ok || c.watches().muxed.Load() {
		return 0, false
	}
	return e.translate(c.watches().env, c.watches().last.Load()), true
}
