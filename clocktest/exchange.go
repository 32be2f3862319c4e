package clocktest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"
)

// An exchange is one request on its way through its step.
type exchange struct {
	u       *Upstream
	step    Step
	req     *http.Request
	ctx     context.Context
	trace   *httptrace.ClientTrace
	seen    *Request // guarded by u.mu
	done    chan struct{}
	unwatch func() bool // ends the wait for the context

	closeBody func() // closes the request's body, once
	sending   bool   // guarded by u.mu: the body is closed by who reads it
}

func newExchange(u *Upstream, req *http.Request) *exchange {
	x := &exchange{
		u:         u,
		req:       req,
		ctx:       req.Context(),
		trace:     httptrace.ContextClientTrace(req.Context()),
		seen:      newRequest(req, u.clock.Now()),
		done:      make(chan struct{}),
		closeBody: once(func() { closeBody(req) }),
	}
	if x.trace == nil {
		x.trace = &httptrace.ClientTrace{}
	}
	return x
}

// once returns a function that calls f the first time, and else waits until that is
// over. Unlike one of sync.Once, a wait for an f that blocks does not stop the time
// of a bubble.
func once(f func()) func() {
	var begun atomic.Bool
	over := make(chan struct{})
	return func() {
		if begun.Swap(true) {
			<-over
			return
		}
		defer close(over)
		f()
	}
}

// run takes the exchange up to the headers of the answer.
func (x *exchange) run() (*http.Response, error) {
	if err := x.connect(); err != nil {
		return nil, err
	}
	hook(x.trace.WroteHeaders)
	if len(x.step.interim) > 0 {
		hook(x.trace.GotFirstResponseByte)
	}
	for _, i := range x.step.interim {
		if err := x.sendInterim(i); err != nil {
			return nil, err
		}
	}
	if err := x.write(); err != nil {
		return nil, err
	}
	if x.step.status == 0 && x.step.err == nil {
		return nil, x.hang()
	}
	at := x.u.clock.Now().Add(x.step.after)
	if err := x.until(at); err != nil {
		return nil, err
	}
	if x.step.status == 0 {
		return nil, x.step.err
	}
	if len(x.step.interim) == 0 {
		hook(x.trace.GotFirstResponseByte)
	}
	return x.respond(at), nil
}

// connect obtains a connection.
func (x *exchange) connect() error {
	addr := hostPort(x.req.URL)
	if x.trace.GetConn != nil {
		x.trace.GetConn(addr)
	}
	if err := x.pass(x.step.pool); err != nil {
		return err
	}
	if x.step.dials {
		if x.trace.ConnectStart != nil {
			x.trace.ConnectStart("tcp", addr)
		}
		if err := x.pass(x.step.connect); err != nil {
			return err
		}
		if x.trace.ConnectDone != nil {
			x.trace.ConnectDone("tcp", addr, x.step.dialErr)
		}
		if x.step.dialErr != nil {
			return x.step.dialErr
		}
	}
	if x.trace.GotConn != nil {
		conn, _ := net.Pipe() // for its addresses; nothing runs over it
		x.trace.GotConn(httptrace.GotConnInfo{
			Conn:    conn,
			Reused:  !x.step.dials,
			WasIdle: !x.step.dials && x.step.pool == 0,
		})
	}
	return nil
}

// sendInterim hands over a 1xx answer.
func (x *exchange) sendInterim(i interim) error {
	if i.status == http.StatusContinue {
		hook(x.trace.Got100Continue)
	}
	if x.trace.Got1xxResponse == nil {
		return nil
	}
	return x.trace.Got1xxResponse(i.status, textproto.MIMEHeader(i.header.Clone()))
}

// write sends the request's body, and waits until that is done if the step
// answers only then.
func (x *exchange) write() error {
	if x.req.Body == nil || x.req.Body == http.NoBody {
		x.wrote(nil)
		return nil
	}
	if x.step.read == readNone {
		return nil
	}
	x.u.mu.Lock()
	x.sending = x.step.read == readFirst && !x.u.HTTP2
	x.u.mu.Unlock()
	written := make(chan error, 1)
	go func() {
		err := x.send()
		x.closeBody()
		x.wrote(err)
		written <- err
	}()
	if x.step.read == readDuplex {
		return nil
	}
	var abandon <-chan struct{}
	if x.u.HTTP2 {
		abandon = x.ctx.Done()
	}
	select {
	case err := <-written:
		if err != nil {
			return err
		}
	case <-abandon:
	}
	if x.ctx.Err() != nil {
		return x.broken()
	}
	return nil
}

func (x *exchange) wrote(err error) {
	if x.trace.WroteRequest != nil {
		x.trace.WroteRequest(httptrace.WroteRequestInfo{Err: err})
	}
}

// send reads the request's body as fast as the step does.
func (x *exchange) send() error {
	buf := make([]byte, cmp.Or(x.step.readSize, 32<<10))
	for {
		n, err := x.req.Body.Read(buf)
		x.u.mu.Lock()
		x.seen.Body = append(x.seen.Body, buf[:n]...)
		x.u.mu.Unlock()
		if n > 0 {
			if err := x.pass(x.step.readGap); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// respond makes the answer, whose headers arrived at the given time.
func (x *exchange) respond(at time.Time) *http.Response {
	s := x.step
	resp := &http.Response{
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Status:        fmt.Sprintf("%d %s", s.status, http.StatusText(s.status)),
		StatusCode:    s.status,
		Header:        clone(s.header),
		Body:          http.NoBody,
		ContentLength: -1,
		Request:       x.req,
	}
	if x.u.HTTP2 {
		resp.Proto, resp.ProtoMajor, resp.ProtoMinor = "HTTP/2.0", 2, 0
	}
	if n, ok := s.length(); ok && resp.Header.Get("Content-Length") == "" {
		resp.Header.Set("Content-Length", strconv.Itoa(n))
	}
	bodyless := s.status == http.StatusNoContent || s.status == http.StatusNotModified
	if bodyless && x.u.HTTP2 { // whose headers need not end the stream
		bodyless = len(s.chunks) == 0 && s.trailer == nil && !s.silent && s.err == nil
	}
	if bodyless {
		resp.ContentLength = 0
	}
	if n, err := strconv.ParseInt(resp.Header.Get("Content-Length"), 10, 64); err == nil {
		resp.ContentLength = n
	}
	if bodyless || resp.ContentLength == 0 || x.req.Method == http.MethodHead {
		return resp
	}
	if resp.ContentLength < 0 && !x.u.HTTP2 {
		resp.TransferEncoding = []string{"chunked"}
	}
	if s.trailer != nil {
		resp.Trailer = http.Header{}
		for key := range s.trailer {
			resp.Trailer[key] = nil
		}
	}
	resp.Body = newBody(x, resp, at)
	return resp
}

// end ends the exchange, unless it is over.
func (x *exchange) end() {
	x.unwatch()
	x.over()
}

// over is end, called when the context ends.
func (x *exchange) over() {
	x.u.mu.Lock()
	if x.seen.End.IsZero() {
		x.seen.End = x.u.clock.Now()
		x.seen.Canceled = x.ctx.Err() != nil
		close(x.done)
	}
	sending := x.sending
	x.u.mu.Unlock()
	if !sending {
		x.closeBody()
	}
}

// pass lets d pass.
func (x *exchange) pass(d time.Duration) error { return x.until(x.u.clock.Now().Add(d)) }

// until waits for what arrives at the given time. It fails if the exchange ends
// before.
func (x *exchange) until(at time.Time) error {
	if d := x.u.clock.Until(at); d > 0 {
		arrived := make(chan struct{})
		timer := x.u.clock.AfterFunc(d, func() { close(arrived) })
		defer timer.Stop()
		select {
		case <-arrived:
		case <-x.ctx.Done():
		case <-x.done:
		}
	}
	x.u.mu.Lock()
	end := x.seen.End
	x.u.mu.Unlock()
	if end.IsZero() {
		end = x.u.clock.Now()
	}
	if at.After(end) {
		return x.broken()
	}
	return nil
}

// hang waits for what never arrives.
func (x *exchange) hang() error {
	select {
	case <-x.ctx.Done():
	case <-x.done:
	}
	return x.broken()
}

// broken returns why the exchange has ended before its time.
func (x *exchange) broken() error {
	if x.ctx.Err() != nil {
		return x.u.canceled(x.ctx)
	}
	return errBodyClosed
}

// hook calls a hook of httptrace, if there is one.
func hook(f func()) {
	if f != nil {
		f()
	}
}

// hostPort returns the host and port that a request is sent to.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}
