package transport_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

var (
	firstSeed = flag.Uint64("seed", 0, "the first seed of TestRandomStacks")
	seeds     = flag.Uint64("seeds", 300, "how many seeds TestRandomStacks tries")
)

// TestRandomStacks: what holds of every stack, whatever layers of the user's stand
// between ours, and whatever its callers and its server do. The seed decides all.
func TestRandomStacks(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				s := newRandomStack(t, c, seed)
				s.run()
				if t.Failed() {
					t.Logf("of %s\nagain: go test ./transport -run TestRandomStacks -seed %d -seeds 1", s, seed)
				}
			})
		})
	}
}

// dice are what a seed makes of an occasion. They go by nothing else, such as who of
// two goroutines comes first, so that a seed replays.
type dice struct {
	*rand.Rand

	place string // of the layer
}

func (d dice) in(n int) bool             { return d.IntN(n) == 0 }
func (d dice) upTo(ms int) time.Duration { return time.Duration(d.IntN(1000*ms)+1) * time.Microsecond }
func (s *randomStack) dice(of ...any) dice {
	h := fnv.New64a()
	fmt.Fprint(h, of...)
	return dice{Rand: rand.New(rand.NewPCG(s.seed, h.Sum64()))}
}

// now is the dice of what happens to a request by now.
func (s *randomStack) now(req *http.Request, place string) dice {
	d := s.dice(place, req.Header.Get("Id"), s.c.Elapsed())
	d.place = place
	return d
}

// randomStack is a stack, its server and its callers.
type randomStack struct {
	t    *testing.T
	c    *clocktest.Clock
	seed uint64

	env      *layers.Env
	whole    http.RoundTripper
	up       *clocktest.Upstream
	names    []string
	limit    time.Duration // of a call; 0: none
	hooks    bool          // of the base
	paused   bool          // the server says when to come back
	counted  bool          // the turns are
	witness  *witness
	base     atomic.Int64 // what the base was handed
	again    atomic.Int64 // of it, what layers of the user's sent in place of another
	alone    atomic.Int64 // outcomes that layers of the user's made without a send
	mu       sync.Mutex
	received map[string]int // by the server, by the id of what a layer of the user's sends
	asked    map[string]int // further sends, of RetryOnce
	bodies   []*sentBody
	calls    map[*layers.Call]*told
}

// has reports that one of the layers is in the stack.
func (s *randomStack) has(names ...string) bool {
	return slices.ContainsFunc(s.names, func(name string) bool { return slices.Contains(names, name) })
}

// hasBase reports that a layer is around the base, with none of ours in between: it is
// taken at its word, as the base is.
func (s *randomStack) hasBase(name string) bool {
	n := len(s.names)
	return s.names[n-1] == name && s.names[n-2] != "inner:"
}

func (s *randomStack) String() string { return strings.Join(s.names, " > ") }

func newRandomStack(t *testing.T, c *clocktest.Clock, seed uint64) *randomStack {
	s := &randomStack{
		t: t, c: c, seed: seed, witness: newWitness(),
		received: map[string]int{}, asked: map[string]int{}, calls: map[*layers.Call]*told{},
	}
	d := s.dice("stack")
	s.env = &layers.Env{Clock: c, Rand: func() float64 { return s.dice(c.Elapsed()).Float64() }}
	if !d.in(4) {
		s.env.Observer = layers.Observers(s.witness.all, layers.NewStreamTracer(3, func(context.Context, layers.Trace) {}), layers.ObserverFunc(s.observe))
	}
	s.hooks, s.paused = !d.in(3), d.in(2)
	s.up = clocktest.NewUpstream(t, c, clocktest.Func(s.step).Forever())
	s.up.HTTP2 = d.in(2)
	s.whole = layers.Chain(layers.RoundTripperFunc(s.send), s.list(d)...)
	return s
}

// list draws the layers. The outermost is ours: no deadline of ours bounds what
// stands around it.
func (s *randomStack) list(d dice) (list []layers.Layer) {
	add := func(name string, l layers.Layer) {
		s.names, list = append(s.names, name), append(list, l)
	}
	user := func() layers.Layer {
		kind := userLayers[d.IntN(len(userLayers))]
		place := fmt.Sprint(kind.name, len(s.names))
		s.names = append(s.names, kind.name)
		return around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			if req.Header.Get("Id") == "" { // a mint's
				return next.RoundTrip(req)
			}
			return kind.do(s, s.now(req, place), next, req)
		})
	}
	env := s.env
	turns := []layers.Budget{{Rate: policy.Rate{PerSecond: 3, Burst: 2}}}
	if !s.paused {
		turns = append(turns, layers.Budget{Rate: policy.Rate{PerSecond: 1e-9, Burst: 1000}, ID: policy.StateID{Budget: "counted"}})
	}
	limit, bounds := time.Second+d.upTo(10000), false
	for _, ours := range []struct {
		name string
		l    layers.Layer
	}{
		{"open", layers.Open(env, "r")},
		{"deadline", layers.Deadline(env, limit)},
		{"retry", layers.Retry(env, policy.Retry{BaseDelay: d.upTo(500)})},
		{"hedge", layers.Hedge(env, policy.Hedge{Delay: d.upTo(1000), Max: 2})},
		{"breaker", layers.CircuitBreaker(env, policy.StateID{}, policy.Breaker{Failures: 2, Open: time.Second})},
		{"rate", layers.RateBudget(env, turns...)},
		{"in-flight", layers.InFlight(env, policy.StateID{}, policy.InFlight{Max: 2, MaxWait: []time.Duration{policy.Off, 3 * time.Second}[d.IntN(2)]})},
		{"inner", nil},
		{"onward", layers.DeadlineHeader(env, "X-Left")},
		{"stream", layers.StreamGuard(env, policy.Stream{FirstContent: 2 * time.Second, Gap: 2 * time.Second, Hold: policy.Toggle(2*d.IntN(2) - 1)})},
		{"timeouts", layers.Timeouts(env, policy.Timeouts{Read: time.Second, Write: time.Second, Connect: 500 * time.Millisecond, Pool: 500 * time.Millisecond})},
	} {
		switch {
		case d.in(2) && (bounds || ours.name != "timeouts"):
			continue
		case ours.name == "inner":
			s.names = append(s.names, "inner:")
			list = append(list, layers.Inner(env, user()))
			continue
		case ours.name == "deadline" && !s.has("waits", "mints"):
			s.limit = limit
		case ours.name == "rate":
			s.counted = !s.paused
		}
		bounds = bounds || ours.name != "open" // which alone ends nothing
		add(ours.name, ours.l)
		if d.in(4) {
			list = append(list, user())
		}
	}
	return list
}

// userLayers are layers of the user's, that do things which ours have to bear.
var userLayers = []struct {
	name string
	do   func(s *randomStack, d dice, next http.RoundTripper, req *http.Request) (*http.Response, error)
}{
	{"sends again", func(s *randomStack, d dice, next http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err == nil && resp.StatusCode < 500 || req.Body != nil && req.GetBody == nil {
			return resp, err
		}
		if err == nil {
			drain(resp)
		}
		again := req.Clone(req.Context())
		again.Header.Set("Id", req.Header.Get("Id")+" "+d.place)
		if req.GetBody != nil {
			again.Body, _ = req.GetBody()
		}
		s.again.Add(1)
		return next.RoundTrip(again)
	}},
	{"answers", func(s *randomStack, d dice, next http.RoundTripper, req *http.Request) (*http.Response, error) {
		if !d.in(3) {
			return next.RoundTrip(req)
		}
		_, _ = s.fails(req, nil)
		return &http.Response{StatusCode: 200 + 303*d.IntN(2), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(secret))}, nil
	}},
	{"fails", func(s *randomStack, d dice, next http.RoundTripper, req *http.Request) (*http.Response, error) {
		if d.in(3) {
			return s.fails(req, errors.New("no token"))
		}
		return next.RoundTrip(req)
	}},
	{"panics", func(s *randomStack, d dice, next http.RoundTripper, req *http.Request) (*http.Response, error) {
		if d.in(6) {
			_, _ = s.fails(req, nil)
			panic(errMine)
		}
		resp, err := next.RoundTrip(req)
		if d.in(6) {
			if err == nil {
				resp.Body.Close()
			}
			panic(errMine)
		}
		return resp, err
	}},
	{"swallows", func(_ *randomStack, _ dice, next http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err != nil {
			return &http.Response{StatusCode: 502, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
		}
		return resp, nil
	}},
	{"hides", func(_ *randomStack, _ dice, next http.RoundTripper, req *http.Request) (*http.Response, error) {
		return hide(next.RoundTrip(req))
	}},
	{"reads", func(_ *randomStack, _ dice, next http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err == nil {
			data, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			resp.Body = io.NopCloser(bytes.NewReader(data))
		}
		return resp, err
	}},
	{"waits", func(s *randomStack, d dice, next http.RoundTripper, req *http.Request) (*http.Response, error) {
		t := s.c.Timer(d.upTo(3000))
		defer t.Stop()
		select {
		case <-t.C:
			return next.RoundTrip(req)
		case <-req.Context().Done():
			return s.fails(req, req.Context().Err())
		}
	}},
	{"limits", func(s *randomStack, d dice, next http.RoundTripper, req *http.Request) (*http.Response, error) {
		ctx, cancel := s.c.WithTimeout(req.Context(), d.upTo(3000))
		context.AfterFunc(req.Context(), cancel)
		return next.RoundTrip(req.WithContext(ctx))
	}},
	{"cancels", func(_ *randomStack, _ dice, next http.RoundTripper, req *http.Request) (*http.Response, error) {
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
	}},
	{"copies", func(_ *randomStack, _ dice, next http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req.Clone(req.Context()))
		if err == nil {
			resp.Request = req.Clone(context.Background())
		}
		return resp, err
	}},
	{"replaces", func(_ *randomStack, _ dice, next http.RoundTripper, req *http.Request) (*http.Response, error) {
		req = req.Clone(req.Context())
		if req.Body != nil {
			req.Body, req.GetBody = struct{ io.ReadCloser }{req.Body}, nil
		}
		return next.RoundTrip(req)
	}},
	{"asks", func(s *randomStack, _ dice, next http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err == nil && resp.StatusCode >= 400 && layers.RetryOnce(req.Context(), "asked") {
			s.mu.Lock()
			s.asked[rootOf(req.Header.Get("Id"))] = 1
			s.mu.Unlock()
		}
		return resp, err
	}},
	{"mints", func(s *randomStack, _ dice, next http.RoundTripper, req *http.Request) (*http.Response, error) {
		mint := request(s.t, req.Context(), "POST", "http://mint.test/?key="+secret, strings.NewReader(secret))
		resp, err := s.whole.RoundTrip(mint)
		if err == nil {
			drain(resp)
			err = req.Context().Err()
		}
		if err != nil {
			return s.fails(req, err)
		}
		return next.RoundTrip(req)
	}},
	{"watches", func(_ *randomStack, _ dice, next http.RoundTripper, req *http.Request) (*http.Response, error) {
		if call, ok := layers.CallFrom(req.Context()); ok {
			go func() { <-call.Done() }()
		}
		return next.RoundTrip(req)
	}},
}

var errMine = errors.New("mine")

// fails is the end of what a layer of the user's does not send.
func (s *randomStack) fails(req *http.Request, err error) (*http.Response, error) {
	s.alone.Add(1)
	if req.Body != nil {
		go req.Body.Close()
	}
	return nil, err
}

// rootOf returns the id of the call.
func rootOf(id string) string {
	root, _, _ := strings.Cut(id, " ")
	return root
}

// step draws what the server does with a request.
func (s *randomStack) step(req *http.Request) clocktest.Step {
	d := s.now(req, "step")
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
	if s.paused && d.in(4) {
		step = step.Header("Retry-After", fmt.Sprint(d.IntN(4)))
	}
	for _, change := range []func(clocktest.Step) clocktest.Step{
		func(s clocktest.Step) clocktest.Step { return s.Pool(d.upTo(600)) },
		func(s clocktest.Step) clocktest.Step { return s.Connect(d.upTo(600)) },
		clocktest.Step.IgnoreBody,
		clocktest.Step.Duplex,
		func(s clocktest.Step) clocktest.Step { return s.ReadBody(1, d.upTo(800)) },
	} {
		if d.in(4) {
			step = change(step)
		}
	}
	return step
}

// send is the base.
func (s *randomStack) send(req *http.Request) (*http.Response, error) {
	s.base.Add(1)
	id := req.Header.Get("Id")
	ctx := req.Context()
	if !s.hooks {
		foreign, cancel := context.WithCancelCause(context.Background())
		context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
		ctx = foreign
	}
	if id != "" && req.Method == "POST" {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() {
			s.mu.Lock()
			s.received[id]++
			s.mu.Unlock()
		}})
	}
	answered := make(chan struct{})
	defer close(answered)
	req = req.WithContext(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		req.Body = &handedOn{ReadCloser: req.Body, answered: answered}
	}
	return s.up.RoundTrip(req)
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

// sentBody is a caller's. A Read that comes at the instant of the Close may have begun
// before.
type sentBody struct {
	io.ReadCloser
	s *randomStack

	mu     sync.Mutex
	closes int
	at     time.Duration // of the first
	late   bool
}

func (s *randomStack) body(b io.ReadCloser) *sentBody {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bodies = append(s.bodies, &sentBody{ReadCloser: b, s: s})
	return s.bodies[len(s.bodies)-1]
}

func (b *sentBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	b.late = b.late || b.closes > 0 && b.s.c.Elapsed() > b.at
	b.mu.Unlock()
	return b.ReadCloser.Read(p)
}

func (b *sentBody) Close() error {
	b.mu.Lock()
	if b.closes++; b.closes == 1 {
		b.at = b.s.c.Elapsed()
	}
	b.mu.Unlock()
	return b.ReadCloser.Close()
}

// told is what the observer is told of a call.
type told struct {
	starts, ends int
	last         int          // the number of the latest send
	open         map[int]bool // sends
}

func (s *randomStack) observe(ctx context.Context, e layers.Event) {
	call, ok := layers.CallFrom(ctx)
	if !ok {
		s.t.Errorf("an event of no call: %v", e)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.calls[call]
	if of == nil {
		of = &told{open: map[int]bool{}}
		s.calls[call] = of
	}
	switch e.Kind {
	case layers.KindStart:
		of.starts++
	case layers.KindEnd:
		of.ends++
	case layers.KindSend:
		if e.Attempt <= of.last {
			s.t.Errorf("send %d is told of after %d", e.Attempt, of.last)
		}
		of.last, of.open[e.Attempt] = e.Attempt, true
	case layers.KindDone:
		if !of.open[e.Attempt] {
			s.t.Errorf("send %d is done, and does not go on", e.Attempt)
		}
		delete(of.open, e.Attempt)
	}
}

// run has four callers make four calls each.
func (s *randomStack) run() {
	var callers sync.WaitGroup
	for i := range 4 {
		callers.Add(1)
		s.c.AfterFunc(s.dice(i).upTo(1000), func() {
			defer callers.Done()
			for n := range 4 {
				s.call(fmt.Sprint(i, "-", n))
				s.c.Sleep(20 * time.Millisecond)
			}
		})
	}
	callers.Wait()
	s.c.Sleep(time.Minute)
	s.check()
}

// request draws what a caller asks for, and by when, whatever it waits for, it has an
// outcome.
func (s *randomStack) request(d dice, id string) (req *http.Request, by time.Duration, cancel func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	by = time.Hour
	switch d.IntN(4) {
	case 0:
		by = d.upTo(5000)
		s.c.AfterFunc(by, cancel)
	case 1:
		by = d.upTo(5000)
		ctx = layers.WithDeadline(ctx, s.c.Now().Add(by))
	default:
		s.c.AfterFunc(2*time.Minute, cancel)
	}
	req = request(s.t, ctx, []string{"GET", "POST", "PUT"}[d.IntN(3)], "http://user:"+secret+"@api.test/?key="+secret, nil)
	req.Header.Set("Id", id)
	req.Header.Set("Authorization", secret)
	text := func() io.ReadCloser { return s.body(io.NopCloser(strings.NewReader(secret))) }
	switch d.IntN(5) {
	case 0:
		req.Body = text()
	case 1:
		req.Body = text()
		req.GetBody = func() (io.ReadCloser, error) { return text(), nil }
	case 2:
		req.Body = s.body(newSlowUpload(s.c, d.upTo(8000), d.in(2)))
	case 3:
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(secret)), int64(len(secret))
	}
	return req, by, cancel
}

// call makes a call, and does something with its answer.
func (s *randomStack) call(id string) {
	d := s.dice("call", id)
	req, by, cancel := s.request(d, id)
	defer cancel()
	start := s.c.Elapsed()
	inTime := func(what string, by time.Duration, err error) {
		if took := s.c.Elapsed() - start; took > by+time.Millisecond {
			s.t.Errorf("%s of %s took %v of %v: %v", what, id, took, by, err)
		}
	}
	bound := by
	if s.limit > 0 && !(s.has("stream") && s.has("reads", "sends again", "mints")) { // what is read of a stream
		bound = min(by, s.limit)
	}
	defer func() {
		switch p := recover(); {
		case p == nil:
		case p == errMine:
		default:
			panic(p)
		}
	}()
	resp, err := s.whole.RoundTrip(req)
	inTime("the call", bound, err)
	if (resp == nil) == (err == nil) {
		s.t.Errorf("%s has the response %v and the error %v", id, resp, err)
	}
	s.witness.chain("error", err)
	if err != nil {
		return
	}
	switch d.IntN(5) {
	case 0:
	case 1:
		resp.Body.Read(make([]byte, 1))
	case 2:
		s.c.AfterFunc(time.Second, func() { resp.Body.Close() })
		io.Copy(io.Discard, resp.Body)
	case 3:
		cancel()
		s.c.Sleep(time.Millisecond)
		io.Copy(io.Discard, resp.Body)
	default:
		_, err = io.Copy(io.Discard, resp.Body)
		if s.has("stream") { // whose limits bound the reading
			bound = by
		}
		inTime("the body", bound, err)
		s.witness.chain("error", err)
	}
	resp.Body.Close()
	s.c.Sleep(0) // another Close may be under way
	if call, ok := layers.CallFrom(resp.Request.Context()); ok && call.Err() == nil {
		s.t.Errorf("%s goes on", id)
	}
}

// check looks at what is left when all calls are over.
func (s *randomStack) check() {
	for _, b := range s.bodies {
		b.mu.Lock() // a Close may be over on a goroutine that nobody waits for
		if b.closes != 1 || b.late {
			s.t.Errorf("a body was closed %d times, and read afterwards: %v", b.closes, b.late)
		}
		b.mu.Unlock()
	}
	for id, n := range s.received {
		if n > 1+s.asked[rootOf(id)] && !s.hasBase("sends again") {
			s.t.Errorf("the POST %s was received %d times", id, n)
		}
	}
	for _, slots := range s.env.Slots() {
		if slots.Used != 0 || slots.Waiting != 0 {
			s.t.Errorf("slots are held: %+v", slots)
		}
	}
	var spent int64
	for _, b := range s.env.Budgets() {
		if b.Waiting != 0 {
			s.t.Errorf("somebody waits: %+v", b)
		}
		if b.ID.Budget == "counted" {
			spent += int64(b.Burst) - int64(b.Level+0.5)
		}
	}
	if sent, again, alone := s.base.Load(), s.again.Load(), s.alone.Load(); s.counted && (spent < sent-again || spent > sent+alone) {
		s.t.Errorf("%d turns were taken for %d sends, %d of them again, and %d without", spent, sent, again, alone)
	}
	for _, b := range s.env.RetryBudgets() {
		if b.Level < 0 || b.Level > 3 {
			s.t.Errorf("a retry budget is at %v", b.Level)
		}
	}
	for _, b := range s.env.Breakers() {
		if n := b.Status().Probes; n != 0 {
			s.t.Errorf("%d probes are under way", n)
		}
	}
	for call, of := range s.calls {
		if of.starts != 1 || of.ends != 1 || len(of.open) > 0 || call.Err() == nil {
			s.t.Errorf("of a call with the end %v was told %+v", call.Err(), of)
		}
	}
	s.witness.check(s.t)
}
