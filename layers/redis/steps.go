package redis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

//go:embed circuit.lua
var circuitSource string

var stepScript = goredis.NewScript(circuitSource)

var errDown = errors.New("redis: down")

const (
	// Steps of one round trip: Redis does nothing else meanwhile.
	mostSteps = 64
	// Steps that wait for theirs: those of more circuits than a stack keeps.
	mostLater = 20_000
)

// step is one question about a circuit, or something that it tells.
type step struct {
	c             *circuit
	what, id, era string
	done          chan struct{}
	settled       atomic.Bool // by the answer, or because the send that wanted to make the probe is gone
	asked         instant
	r             stepReply
	err           error
}

type stepReply struct {
	state      layers.State
	era        string
	left, wait time.Duration
	granted    bool
}

// do tells something. Nobody waits for the answer.
func (c *circuit) do(what, id, era string) {
	s := c.s
	s.mu.Lock()
	if len(s.later) < mostLater {
		s.later = append(s.later, newStep(c, what, id, era))
	}
	s.mu.Unlock()
	s.wakeSteps()
}

// ask asks what a send waits for.
func (c *circuit) ask(what, id string) *step {
	s, st := c.s, newStep(c, what, id, "")
	s.mu.Lock()
	s.urgent = append(s.urgent, st)
	s.mu.Unlock()
	s.wakeSteps()
	return st
}

func newStep(c *circuit, what, id, era string) *step {
	return &step{c: c, what: what, id: id, era: era, done: make(chan struct{}), err: errDown}
}

func (s *Store) wakeSteps() {
	select {
	case s.step <- struct{}{}:
	default:
	}
}

// await waits for the answer as long as a send may.
func (st *step) await(ctx context.Context) (r stepReply, err error) {
	s := st.c.s
	timer := s.clock.Timer(s.opts.Timeout)
	defer timer.Stop()
	select {
	case <-st.done:
		return st.r, st.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = errSlow
	}
	if st.what == "probe" && st.settled.Swap(true) {
		<-st.done
		return st.r, st.err
	}
	if err == errSlow {
		s.fail(err)
	}
	return stepReply{}, err
}

// stepping takes the steps, several in a round trip.
func (s *Store) stepping() {
	nothing := newCircuit(s, s.prefix+"none", policy.Breaker{Failures: 1})
	_ = s.run(s.ctx, []*step{newStep(nothing, "look", "", "")}) // and the script is there, and a connection
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.step:
			for list := s.nextSteps(); len(list) > 0 && s.ctx.Err() == nil; list = s.nextSteps() {
				s.take(list)
			}
		}
	}
}

// nextSteps returns the steps of the next round trip: first what is waited for.
func (s *Store) nextSteps() (list []*step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, from := range []*[]*step{&s.urgent, &s.later} {
		n := min(len(*from), mostSteps-len(list))
		list = append(list, (*from)[:n]...)
		if *from = (*from)[n:]; len(*from) == 0 {
			*from = nil
		}
	}
	return list
}

func (s *Store) take(list []*step) {
	if !s.down.Load() {
		s.fail(s.run(s.ctx, slices.DeleteFunc(slices.Clone(list), func(st *step) bool {
			return st.settled.Load()
		})))
	}
	for _, st := range list {
		if st.settled.Swap(true) && st.r.granted {
			st.c.do("neutral", st.id, st.r.era) // nobody makes that probe
		}
		close(st.done)
	}
}

// run takes steps in one round trip. A circuit in the place of whose state Redis
// has something else is remembered.
func (s *Store) run(ctx context.Context, list []*step) (err error) {
	if len(list) == 0 {
		return nil
	}
	bound, cancel := s.patient(ctx)
	defer cancel()
	s.evaluate(bound, list)
	for _, st := range list {
		if st.err == nil {
			continue
		}
		err = st.err
		if _, reply := errors.AsType[goredis.Error](st.err); reply {
			s.mu.Lock()
			s.ill[st.c] = struct{}{}
			s.mu.Unlock()
		}
	}
	return err
}

// evaluate has the script run for each step.
func (s *Store) evaluate(ctx context.Context, list []*step) {
	pipe := s.client.Pipeline()
	answers := make([]*goredis.Cmd, len(list))
	for i, st := range list {
		st.asked = s.now()
		keys, args := st.c.request(st)
		answers[i] = stepScript.EvalSha(ctx, pipe, keys, args...)
	}
	_, _ = pipe.Exec(ctx) // each has its error
	var unknown []*step
	for i, st := range list {
		text, err := answers[i].Text()
		if goredis.HasErrorPrefix(err, "NOSCRIPT") {
			unknown = append(unknown, st)
			continue
		}
		st.err = st.read(text, err)
	}
	if len(unknown) > 0 { // the first brings it
		st := unknown[0]
		keys, args := st.c.request(st)
		st.err = st.read(stepScript.Eval(ctx, s.client, keys, args...).Text())
		s.evaluate(ctx, unknown[1:])
	}
}

// examine says what is still wrong with the circuits that failed.
func (s *Store) examine(ctx context.Context) error {
	s.mu.Lock()
	list := make([]*step, 0, len(s.ill))
	for c := range maps.Keys(s.ill) {
		if len(list) < mostSteps {
			list = append(list, newStep(c, "look", "", ""))
		}
	}
	s.mu.Unlock()
	if err := s.run(ctx, list); err != nil {
		return err
	}
	s.mu.Lock()
	clear(s.ill)
	s.mu.Unlock()
	return nil
}

// request is the step as circuit.lua wants it.
func (c *circuit) request(st *step) (keys []string, args []any) {
	c.mu.Lock()
	set, known := c.set, c.until-c.s.now()
	if c.state != layers.StateOpen {
		known = 0
	}
	c.mu.Unlock()
	spread := 1 + max(0, set.OpenJitter)*rand.Float64()
	return []string{c.name, c.name + ":probes"}, []any{
		st.what, st.id, st.era, set.Open.Microseconds(), set.OpenMax.Microseconds(), spread,
		max(1, set.Probes), c.s.channel(), max(0, known.Microseconds()),
	}
}

// read takes the answer.
func (st *step) read(text string, err error) error {
	if err != nil {
		return err
	}
	var state, era string
	var left, wait float64
	var granted int
	if _, err := fmt.Sscan(text, &state, &era, &left, &granted, &wait); err != nil {
		return err
	}
	st.r = stepReply{stateOf(state), era, micros(left), micros(wait), granted == 1}
	st.c.answer(st)
	return nil
}
