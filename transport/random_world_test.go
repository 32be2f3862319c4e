package transport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
)

// userLayers are layers of the user's, that do things which ours have to bear.
var userLayers = []string{
	"sends again", "answers", "fails", "panics", "swallows", "hides", "reads", "waits", "limits", "cancels", "copies", "replaces", "asks", "mints", "watches",
}

func (s *randomStack) userLayer(d dice) layers.Layer {
	name := userLayers[d.IntN(len(userLayers))]
	place := fmt.Sprint(" ", name, len(s.names))
	s.names = append(s.names, name)
	return around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		id := req.Header.Get("Id")
		if id == "" { // a mint
			return next.RoundTrip(req)
		}
		d := s.dice(place, id, s.c.Elapsed())
		switch name {
		case "sends again":
			return s.sendAgain(next, req, id+place)
		case "answers", "fails", "panics":
			if d.oneIn(4) {
				return s.answer(d, name, req)
			}
		case "waits":
			return s.wait(d, next, req)
		case "mints":
			return s.mint(next, req)
		case "watches":
			if call, ok := layers.CallFrom(req.Context()); ok {
				go func() { <-call.Done() }()
			}
		case "limits":
			ctx, cancel := s.c.WithTimeout(req.Context(), d.upTo(3000))
			context.AfterFunc(req.Context(), cancel)
			req = req.WithContext(ctx)
		case "cancels":
			return cancels(next, req)
		case "copies", "replaces":
			req = req.Clone(req.Context())
			if name == "replaces" && req.Body != nil {
				req.Body, req.GetBody = struct{ io.ReadCloser }{req.Body}, nil
			}
		}
		resp, err := next.RoundTrip(req)
		return s.outcome(name, req, resp, err)
	})
}

// outcome is what a layer of the user's makes of one.
func (s *randomStack) outcome(name string, req *http.Request, resp *http.Response, err error) (*http.Response, error) {
	switch {
	case err != nil && name == "swallows":
		return &http.Response{StatusCode: 502, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	case err != nil:
	case name == "hides":
		return hide(resp, nil)
	case name == "reads":
		data, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(data))
	case name == "copies":
		resp.Request = req.Clone(context.Background())
	case name == "panics" && resp.StatusCode == 401:
		resp.Body.Close()
		panic(errUser)
	case name == "asks" && resp.StatusCode >= 400 && layers.RetryOnce(req.Context(), "asked"):
		s.mu.Lock()
		s.asked[rootOf(req.Header.Get("Id"))] = 1
		s.mu.Unlock()
	}
	return resp, err
}

var errUser = errors.New("a layer of the user's has failed")

// answer is the outcome of what a layer of the user's does not send.
func (s *randomStack) answer(d dice, name string, req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.alone++
	s.mu.Unlock()
	if req.Body != nil {
		go req.Body.Close()
	}
	switch name {
	case "answers":
		return &http.Response{StatusCode: 200 + 303*d.IntN(2), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(secret))}, nil
	case "panics":
		panic(errUser)
	}
	return nil, errUser
}

// sendAgain sends something in place of what failed, under an id of its own.
func (s *randomStack) sendAgain(next http.RoundTripper, req *http.Request, id string) (*http.Response, error) {
	resp, err := next.RoundTrip(req)
	if err == nil && resp.StatusCode < 500 || req.Body != nil && req.GetBody == nil {
		return resp, err
	}
	if err == nil {
		drain(resp)
	}
	again := req.Clone(req.Context())
	again.Header.Set("Id", id)
	if req.GetBody != nil {
		again.Body, _ = req.GetBody()
	}
	s.mu.Lock()
	s.again++
	s.mu.Unlock()
	return next.RoundTrip(again)
}

func (s *randomStack) wait(d dice, next http.RoundTripper, req *http.Request) (*http.Response, error) {
	t := s.c.Timer(d.upTo(3000))
	defer t.Stop()
	select {
	case <-t.C:
		return next.RoundTrip(req)
	case <-req.Context().Done():
		return s.answer(d, "waits", req)
	}
}

// mint makes a token with a call of its own.
func (s *randomStack) mint(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	resp, err := s.rt.RoundTrip(request(s.t, req.Context(), "POST", "http://mint.test/?key="+secret, strings.NewReader(secret)))
	if err == nil {
		drain(resp)
	}
	if err != nil || req.Context().Err() != nil {
		return s.answer(dice{}, "mints", req)
	}
	return next.RoundTrip(req)
}

// cancels ends a context of its own with the body.
func cancels(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	resp, err := next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	body := resp.Body
	resp.Body = struct {
		io.Reader
		io.Closer
	}{body, closeFunc(func() error { cancel(); return body.Close() })}
	return resp, nil
}

// step draws what the server does with a request.
func (s *randomStack) step(req *http.Request) clocktest.Step {
	d := s.dice("step", req.Header.Get("Id"), s.c.Elapsed())
	step := []clocktest.Step{
		clocktest.NoReply(),
		clocktest.FailDial(clocktest.ErrRefused),
		clocktest.Fail(clocktest.ErrReset).After(d.upTo(2000)),
		clocktest.Reply(200).Silent().After(d.upTo(500)),
		clocktest.Reply([]int{503, 429, 401, 500, 404}[d.IntN(5)]).After(d.upTo(1500)).Body(secret),
		clocktest.Reply(204).After(d.upTo(500)),
		clocktest.Reply(200).Chunks(clocktest.Drip(secret+secret, 1, d.upTo(700))...),
		clocktest.Reply(200).Chunks(clocktest.Drip(secret, 1, d.upTo(300))...).Reset(),
		every(events(role), d.upTo(1500), word, 5).Chunks(clocktest.Chunk{Data: done}),
		every(events(role), d.upTo(1500), word, 3),
		events(busy),
		clocktest.Reply(200).Body(secret).After(d.upTo(1500)),
	}[d.IntN(12)]
	if s.paused && d.oneIn(4) {
		step = step.Header("Retry-After", fmt.Sprint(d.IntN(4)))
	}
	for _, change := range []func(clocktest.Step) clocktest.Step{
		func(s clocktest.Step) clocktest.Step { return s.Pool(d.upTo(600)) },
		func(s clocktest.Step) clocktest.Step { return s.Connect(d.upTo(600)) },
		clocktest.Step.IgnoreBody,
		clocktest.Step.Duplex,
		func(s clocktest.Step) clocktest.Step { return s.ReadBody(1, d.upTo(800)) },
	} {
		if d.oneIn(4) {
			step = change(step)
		}
	}
	return step
}

// send is the base. One without hooks sees another context.
func (s *randomStack) send(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.sent++
	s.mu.Unlock()
	ctx := req.Context()
	if !s.hooks {
		foreign, cancel := context.WithCancelCause(context.Background())
		context.AfterFunc(ctx, func() { cancel(context.Cause(req.Context())) })
		ctx = foreign
	}
	if id := req.Header.Get("Id"); id != "" && req.Method == "POST" {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() {
			s.mu.Lock()
			s.received[id]++
			s.mu.Unlock()
		}})
	}
	sent := req.WithContext(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		answered := make(chan struct{})
		defer close(answered)
		sent.Body = &handedOn{ReadCloser: req.Body, answered: answered}
	}
	return s.up.RoundTrip(sent)
}

// handedOn is a request's body as the upstream has it, whose responses would wait for
// a Close of it that blocks, and which may read what it has closed: those of net/http
// do not.
type handedOn struct {
	io.ReadCloser

	answered chan struct{}
	closed   atomic.Bool
}

func (b *handedOn) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.ReadCloser.Read(p)
}

func (b *handedOn) Close() error {
	b.closed.Store(true)
	over := make(chan struct{})
	go func() {
		b.ReadCloser.Close()
		close(over)
	}()
	select {
	case <-over:
	case <-b.answered:
	}
	return nil
}
