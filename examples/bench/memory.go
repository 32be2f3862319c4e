package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
)

var (
	payload    = bytes.Repeat([]byte("0123456789abcdef"), 64) // 1 KiB
	answerText = []byte(`{"ok":true,"id":"req_0123456789abcdef"}`)
	// The header is shared by all answers: nobody may write to it.
	answerHeader = http.Header{"Content-Type": {"application/json"}, "Content-Length": {"39"}}
)

// memoryBase answers from memory, with one allocation an answer. It does what a
// base has to: it looks at the context, and reads and closes the request's body.
// It is for one goroutine.
type memoryBase struct {
	hooks    bool  // fire those of a reused connection
	statuses []int // in turn; nil: 200

	sends int
	open  int // bodies that were not closed
}

type answer struct {
	http.Response

	base *memoryBase
	rest []byte
	shut bool
}

func (a *answer) Read(p []byte) (int, error) {
	if len(a.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

func (a *answer) Close() error {
	if !a.shut {
		a.shut = true
		a.base.open--
	}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (b *memoryBase) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	default:
	}
	if b.hooks {
		fire(httptrace.ContextClientTrace(ctx))
	}
	if req.Body != nil && req.Body != http.NoBody {
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return nil, err
		}
		_ = req.Body.Close()
	}
	status := http.StatusOK
	if b.statuses != nil {
		status = b.statuses[b.sends%len(b.statuses)]
	}
	b.sends++
	b.open++
	a := &answer{base: b, rest: answerText}
	a.StatusCode, a.Header, a.ContentLength, a.Request, a.Body = status, answerHeader, int64(len(answerText)), req, a
	a.Proto, a.ProtoMajor, a.ProtoMinor = "HTTP/1.1", 1, 1
	return &a.Response, nil
}

func fire(t *httptrace.ClientTrace) {
	if t == nil {
		return
	}
	if t.GetConn != nil {
		t.GetConn("api.example:80")
	}
	if t.GotConn != nil {
		t.GotConn(httptrace.GotConnInfo{Reused: true, WasIdle: true})
	}
	if t.WroteRequest != nil {
		t.WroteRequest(httptrace.WroteRequestInfo{})
	}
}

// caller makes the same request again and again, as http.NewRequest would make
// it, and allocates nothing for it.
type caller struct {
	made, req http.Request
	body      *bytes.Reader // nil: none
	buf       [512]byte
}

func newCaller(ctx context.Context, method, target string) *caller {
	c := new(caller)
	var body io.Reader
	if method == http.MethodPost {
		c.body = bytes.NewReader(payload)
		body = c.body
	}
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		panic(err) // the targets are ours
	}
	if c.body != nil {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", "bench")
	}
	c.made = *req
	return c
}

var errStatus = errors.New("the answer is not the last one")

// call sends the request, reads the answer to its end and closes it.
func (c *caller) call(rt http.RoundTripper) error {
	c.req = c.made
	if c.body != nil {
		c.body.Reset(payload)
	}
	resp, err := rt.RoundTrip(&c.req)
	if err != nil {
		return err
	}
	for err == nil {
		_, err = resp.Body.Read(c.buf[:])
	}
	if err != io.EOF {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errStatus
	}
	return nil
}

// stack builds a RoundTripper over a base.
type stack struct {
	name  string
	build func(base http.RoundTripper) http.RoundTripper
}

const target = "http://api.example/v1/models"

// inMemory measures stacks over a base from memory, weir's first. The caller's
// context can be cancelled, as that of a server's handler can.
func inMemory(method string, hooks bool, stacks ...stack) func(options) ([]result, error) {
	return func(o options) ([]result, error) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		over := func(name string, build func(http.RoundTripper) http.RoundTripper) subject {
			rt, c := build(&memoryBase{hooks: hooks}), newCaller(ctx, method, target)
			return subject{name: name, do: func() error { return c.call(rt) }}
		}
		subjects := make([]subject, len(stacks))
		for i, s := range stacks {
			subjects[i] = over(s.name, s.build)
		}
		return measure(o, over("base", bare), subjects...)
	}
}

func bare(base http.RoundTripper) http.RoundTripper { return base }

// retried measures stacks over a base that answers 503, then 200. The base does
// both by itself.
func retried(stacks ...stack) func(options) ([]result, error) {
	return func(o options) ([]result, error) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		statuses := []int{http.StatusServiceUnavailable, http.StatusOK}
		var bases []*memoryBase
		subjects := make([]subject, len(stacks))
		for i, s := range stacks {
			base, c := &memoryBase{statuses: statuses}, newCaller(ctx, http.MethodGet, target)
			bases = append(bases, base)
			rt := s.build(base)
			subjects[i] = subject{name: s.name, do: func() error { return c.call(rt) }}
		}
		base, c := &memoryBase{statuses: statuses}, newCaller(ctx, http.MethodGet, target)
		results, err := measure(o, subject{name: "base", do: func() error {
			if err := c.call(base); !errors.Is(err, errStatus) {
				return err
			}
			return c.call(base)
		}}, subjects...)
		if err == nil && (bases[0].open != 0 || bases[0].sends%2 != 0) {
			err = fmt.Errorf("weir left %d of %d bodies open", bases[0].open, bases[0].sends)
		}
		return results, err
	}
}
