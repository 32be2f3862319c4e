package layers

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// hooks follow an attempt through the base. They come from several goroutines,
// late, twice or out of order: a dial goes on after its request was served by
// another connection, and net/http starts again by itself on a connection that
// turned out dead.
type hooks struct {
	trace httptrace.ClientTrace
	a     atomic.Pointer[attempt] // whom they tell; nil: nobody

	direct bool // they are net/http's own: no RoundTripper of others is between

	// Under the mutex of the attempt's call.
	taken bool            // the base has seen the trace
	conns int             // that were asked for
	got   int             // that were there
	fresh int             // that were there, and new
	idle  bool            // the connection was in the pool
	wrote bool            // the request is written
	dial  context.Context // that a dial looks for hooks in
}

func newHooks() *hooks {
	h := new(hooks)
	connect := func() { h.enter(phaseConnect, nil) }
	h.trace = httptrace.ClientTrace{
		GetConn:      func(string) { h.enter(phasePool, func(*attempt) { h.conns++ }) },
		DNSStart:     func(httptrace.DNSStartInfo) { connect() },
		ConnectStart: func(string, string) { connect() },
		TLSHandshakeStart: func() {
			connect()
			if a := h.a.Load(); a != nil {
				a.shaking()
			}
		},
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) {
			if a := h.a.Load(); a != nil && err == nil {
				a.handshaken()
			}
		},
		GotConn: func(info httptrace.GotConnInfo) {
			endless := false
			h.enter(phaseWrite, func(a *attempt) {
				if a.conn, h.idle = info.Conn, info.WasIdle; h.direct {
					endless = h.begun(a, !info.Reused)
				}
			})
			if endless {
				h.end()
			}
		},
		Wait100Continue: func() { h.enter(phaseRead, nil) },
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				h.enter(phaseRead, func(*attempt) { h.wrote = true })
			}
		},
	}
	return h
}

// enter moves whom the hooks tell to a phase, and notes what the hook tells
// besides, under the same lock.
func (h *hooks) enter(p phase, note func(*attempt)) {
	if a := h.a.Load(); a != nil {
		a.enter(p, note)
	}
}

// freshConns is on how many new connections net/http may begin a send. Over HTTP/2 it
// begins anew, without a wait or an end, for as long as each answers with a GOAWAY, or
// with a stream error PROTOCOL_ERROR, which proves nothing of what was done.
const freshConns = 2

var errAgain = errors.New("net/http would begin the request anew on one new connection after the other")

// begun notes that net/http begins a on a connection, and reports whether that is
// once too often. The mutex must be held.
func (h *hooks) begun(a *attempt, fresh bool) (endless bool) {
	if h.got++; h.got > 1 {
		a.mark().anew = true
	}
	if fresh {
		h.fresh++
	}
	return h.fresh > freshConns
}

// end ends a send that net/http begins once too often.
func (h *hooks) end() {
	a := h.a.Load()
	if a == nil {
		return
	}
	a.call.mu.Lock()
	ends := !a.settled && a.expired == nil && phasePool <= a.phase && a.phase <= phaseRead
	if ends {
		a.expired = &Error{Layer: rankBase.String(), Phase: a.phase.name(), Sent: a.sent, Err: errAgain}
	}
	a.call.mu.Unlock()
	if ends {
		a.abort()
	}
}

// trace sends req with hooks.
//
// A trace is a value of the context, under a key that httptrace keeps to
// itself. The attempt's own context answers for that key, so that the usual
// send needs no further context and no copy of the request. If the request has
// another context by now, or the caller a trace of its own, they are put
// together as httptrace does it.
func (a *attempt) trace(next sender, req *http.Request) (*http.Response, error) {
	env := a.call.env
	h, _ := env.hooks.Get().(*hooks)
	if h == nil {
		h = newHooks()
	}
	e, ok := next.(*edge)
	if ok {
		_, ok = e.next.(*http.Transport)
	}
	h.direct = ok
	h.a.Store(a)
	if traceKey == nil || req.Context() != context.Context(a) || listened(a.base) {
		return next.send(a, req.WithContext(httptrace.WithClientTrace(req.Context(), &h.trace)))
	}
	a.traced.Store(h)
	resp, err := next.send(a, req)
	a.call.mu.Lock()
	a.traced.Store(nil)
	// On a pooled connection nobody has the hooks once the request is written.
	again := !h.taken || err == nil && h.conns == 1 && h.idle && h.wrote && h.dial == nil
	a.call.mu.Unlock()
	if again {
		h.a.Store(nil)
		h.taken, h.conns, h.got, h.fresh, h.idle, h.wrote = false, 0, 0, 0, false, false
		env.hooks.Put(h)
	}
	return resp, err
}

// listened reports whether ctx has a trace of the user's. That of an attempt
// whose base made this call is none of them: the phases of two calls are apart.
func listened(ctx context.Context) bool {
	t := httptrace.ContextClientTrace(ctx)
	if around := attemptFrom(ctx); t != nil && around != nil {
		h := around.traced.Load()
		return h == nil || t != &h.trace
	}
	return t != nil
}

// unheard is a context without the trace that is in it.
type unheard struct{ context.Context }

func (u unheard) Value(key any) any {
	if key == traceKey {
		return nil
	}
	return u.Context.Value(key)
}

// traceKey is what httptrace looks for in a context.
var traceKey = func() any {
	var c keyCatcher
	httptrace.ContextClientTrace(&c)
	return c.key
}()

// keyCatcher is a context that notes what it is asked for.
type keyCatcher struct {
	context.Context
	key any
}

func (c *keyCatcher) Value(key any) any {
	c.key = key
	return nil
}

// traceValue is what the context of a traced attempt adds to what it wraps.
func (a *attempt) traceValue(key any) any {
	h := a.traced.Load()
	if h == nil {
		return nil
	}
	a.call.mu.Lock()
	if a.traced.Load() != h { // the hooks may be another's by now
		a.call.mu.Unlock()
		return nil
	}
	dials, ctx := a.phase == phasePool || a.phase == phaseConnect, h.dial
	h.taken = h.taken || dials || key == traceKey
	a.call.mu.Unlock()
	switch {
	case dials && ctx == nil: // a dial looks for the hooks of package net too
		ctx = httptrace.WithClientTrace(unheard{a.Context}, &h.trace)
		a.call.mu.Lock()
		h.dial = ctx
		a.call.mu.Unlock()
		return ctx.Value(key)
	case dials:
		return ctx.Value(key)
	case key == traceKey:
		return &h.trace
	}
	return nil
}
