package transport_test

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
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
				s.check()
				if t.Failed() {
					t.Logf("of %s\nagain: go test ./transport -run TestRandomStacks -seed %d -seeds 1", strings.Join(s.names, " > "), seed)
				}
			})
		})
	}
}

// dice are what a seed makes of an occasion. They go by nothing else, such as who of
// two goroutines comes first, so that a seed replays.
type dice struct{ *rand.Rand }

func (d dice) oneIn(n int) bool          { return d.IntN(n) == 0 }
func (d dice) upTo(ms int) time.Duration { return time.Duration(d.IntN(1000*ms)+1) * time.Microsecond }

// randomStack is a stack, its server and its callers.
type randomStack struct {
	t    *testing.T
	c    *clocktest.Clock
	seed uint64

	env     *layers.Env
	rt      http.RoundTripper
	up      *clocktest.Upstream
	witness *witness
	names   []string      // of its layers, the user's too
	limit   time.Duration // of a call; 0: none
	hooks   bool          // of the base
	paused  bool          // the server says when to come back
	counted bool          // the turns are

	mu                 sync.Mutex
	sent, again, alone int            // by the stack; of it, in place of another; outcomes of layers of the user's without a send
	received           map[string]int // POSTs, by what a layer of the user's sends
	asked              map[string]int // further sends, of RetryOnce
	bodies             []*sentBody
	calls              map[*layers.Call]*told
}

func newRandomStack(t *testing.T, c *clocktest.Clock, seed uint64) *randomStack {
	s := &randomStack{
		t: t, c: c, seed: seed, witness: newWitness(),
		received: map[string]int{}, asked: map[string]int{}, calls: map[*layers.Call]*told{},
	}
	d := s.dice("stack")
	s.hooks, s.paused = !d.oneIn(3), d.oneIn(2)
	s.env = &layers.Env{Clock: c, Rand: func() float64 { return s.dice(c.Elapsed()).Float64() }}
	if !d.oneIn(4) {
		s.env.Observer = layers.Observers(s.witness.all, layers.NewStreamTracer(3, func(context.Context, layers.Trace) {}), layers.ObserverFunc(s.observe))
	}
	s.up = clocktest.NewUpstream(t, c, clocktest.Func(s.step).Forever())
	s.up.HTTP2 = d.oneIn(2)
	s.rt = layers.Chain(layers.RoundTripperFunc(s.send), s.list(d)...)
	return s
}

func (s *randomStack) dice(of ...any) dice {
	h := fnv.New64a()
	fmt.Fprint(h, of...)
	return dice{rand.New(rand.NewPCG(s.seed, h.Sum64()))}
}

// has reports that one of the layers is in the stack.
func (s *randomStack) has(names ...string) bool {
	return slices.ContainsFunc(s.names, func(name string) bool { return slices.Contains(names, name) })
}

// list draws the layers. The outermost is ours: no deadline of ours bounds what
// stands around it.
func (s *randomStack) list(d dice) (list []layers.Layer) {
	env, limit, ends := s.env, time.Second+d.upTo(10000), false
	turns := []layers.Budget{{Rate: policy.Rate{PerSecond: 3, Burst: 2}}}
	if !s.paused { // which would take turns
		turns = append(turns, layers.Budget{Rate: policy.Rate{PerSecond: 1e-9, Burst: 1000}, ID: policy.StateID{Budget: "counted"}})
	}
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
		if d.oneIn(2) && (ends || ours.name != "timeouts") {
			continue
		}
		ends = ends || ours.name != "open" // a call: one of them has to
		s.counted = s.counted || ours.name == "rate" && !s.paused
		if ours.name == "deadline" && !s.has("waits", "mints") { // around it
			s.limit = limit
		}
		s.names = append(s.names, ours.name)
		switch {
		case ours.l == nil:
			list = append(list, layers.Inner(env, s.userLayer(d)))
		case d.oneIn(4):
			list = append(list, ours.l, s.userLayer(d))
		default:
			list = append(list, ours.l)
		}
	}
	return list
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
		req.Body = s.body(newSlowUpload(s.c, d.upTo(8000), d.oneIn(2)))
	case 3:
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(secret)), int64(len(secret))
	}
	return req, by, cancel
}

// call makes a call, and does something with its answer.
func (s *randomStack) call(id string) {
	d, start := s.dice("call", id), s.c.Elapsed()
	req, by, cancel := s.request(d, id)
	defer cancel()
	defer func() {
		if p := recover(); p != nil && p != errUser {
			panic(p)
		}
	}()
	ended := func(what string, bounded bool, err error) {
		bound := by
		if s.limit > 0 && bounded {
			bound = min(by, s.limit)
		}
		if took := s.c.Elapsed() - start; took > bound+time.Millisecond { // the grace of a Close
			s.t.Errorf("%s of %s took %v of %v: %v", what, id, took, bound, err)
		}
		s.witness.chain("error", err)
	}
	resp, err := s.rt.RoundTrip(req)
	// The deadline does not bound what is read of a stream.
	ended("the call", !s.has("stream") || !s.has("reads", "sends again", "mints"), err)
	if (resp == nil) == (err == nil) {
		s.t.Errorf("%s has the response %v and the error %v", id, resp, err)
	}
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
		ended("the body", !s.has("stream"), err)
	}
	resp.Body.Close()
	s.c.Sleep(0) // another Close may be under way
	if call, ok := layers.CallFrom(resp.Request.Context()); ok && call.Err() == nil {
		s.t.Errorf("%s goes on", id)
	}
}
