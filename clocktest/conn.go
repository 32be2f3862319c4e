package clocktest

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// A conn is one end of a connection between two hosts of a [Network]. Its waits
// are of the kind that lets the time of a bubble move on.
type conn struct {
	in, out       *pipe
	local, remote address
	gone          func() // is told when this end is closed
}

// An address is the host and port of one end.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

func newConns(client, server address) (*conn, *conn) {
	up, down := newPipe(), newPipe()
	return &conn{down, up, client, server, func() {}}, &conn{up, down, server, client, func() {}}
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	return n, c.opError("read", err)
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.out.write(p)
	return n, c.opError("write", err)
}

// Close lets the peer read what was written, and then the end.
func (c *conn) Close() error {
	c.in.shut(net.ErrClosed, syscall.EPIPE)
	c.out.shut(io.EOF, net.ErrClosed)
	c.gone()
	return nil
}

// CloseWrite closes one direction.
func (c *conn) CloseWrite() error {
	c.out.shut(io.EOF, net.ErrClosed)
	return nil
}

// Reset closes the connection without any courtesy: what is on its way is lost,
// and the peer finds the connection reset. A server's handler gets at it with
// [http.ResponseController.Hijack] and an interface{ Reset() }.
func (c *conn) Reset() {
	c.in.shut(net.ErrClosed, syscall.ECONNRESET)
	c.out.shut(syscall.ECONNRESET, net.ErrClosed)
	c.gone()
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.readBy, t)
	c.out.setDeadline(&c.out.writeBy, t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.readBy, t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.setDeadline(&c.out.writeBy, t)
	return nil
}

// opError puts an error into the form that package net gives it.
func (c *conn) opError(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	if errno, ok := err.(syscall.Errno); ok { //nolint:errorlint // A wrapped one has its form already.
		err = os.NewSyscallError(op, errno)
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

// A pipe is one direction of a connection. Unlike net.Pipe it has a buffer, so
// that a write need not wait for its reader: over net.Pipe, closing a TLS
// connection takes five seconds when the peer does not read, and HTTP/2 waits
// for a mutex while a write is stuck, which stops the time of a bubble for good.
type pipe struct {
	mu       sync.Mutex
	changed  sync.Cond
	data     []byte
	readErr  error // io.EOF is found behind the data, any other error at once
	writeErr error

	readBy, writeBy deadline
}

// window is how many bytes a pipe holds.
const window = 64 << 10

// A deadline is an instant, zero if none, and what wakes those who wait by then.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func newPipe() *pipe {
	p := &pipe{}
	p.changed.L = &p.mu
	return p
}

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.readErr != nil && p.readErr != io.EOF:
			return 0, p.readErr
		case p.readBy.passed():
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		case len(p.data) > 0:
			n := copy(b, p.data)
			p.data = p.data[n:]
			p.changed.Broadcast()
			return n, nil
		case p.readErr == io.EOF:
			return 0, io.EOF
		}
		p.changed.Wait()
	}
}

func (p *pipe) write(b []byte) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.writeErr != nil:
			return n, p.writeErr
		case p.writeBy.passed():
			return n, os.ErrDeadlineExceeded
		case n == len(b):
			return n, nil
		}
		if fits := min(len(b)-n, window-len(p.data)); fits > 0 {
			p.data = append(p.data, b[n:n+fits]...)
			n += fits
			p.changed.Broadcast()
			continue
		}
		p.changed.Wait()
	}
}

// shut ends both reading and writing with an error of its own. The end of the
// data does not replace what stopped its reader before.
func (p *pipe) shut(readErr, writeErr error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.readErr == nil || readErr != io.EOF {
		p.readErr = readErr
	}
	p.writeErr = writeErr
	p.changed.Broadcast()
}

func (p *pipe) setDeadline(d *deadline, t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	*d = deadline{at: t}
	if wait := time.Until(t); wait > 0 { // else see Clock.AfterFunc
		d.timer = time.AfterFunc(wait, p.changed.Broadcast)
	}
	p.changed.Broadcast()
}
