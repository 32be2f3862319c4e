package redis

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/layers"
)

//go:embed turns.lua
var turnsSource string

var turns = goredis.NewScript(turnsSource)

var (
	errSlow   = errors.New("redis: no answer in time")
	errClosed = errors.New("redis: the store is closed")
)

// request is what turns.lua is asked.
type request struct {
	Budgets []budgetRequest `json:"budgets"`
	Takes   []takeRequest   `json:"takes"`
	Down    float64         `json:"down"` // for how long the fallback has held
	Own     string          `json:"own"`  // channel on which the process hears itself; empty: it need not
}

type budgetRequest struct {
	Period  float64  `json:"t"`
	Burst   int      `json:"n"`
	Version float64  `json:"version"` // last seen
	Floor   float64  `json:"floor"`   // how far away the end of the line then is
	Expect  float64  `json:"expect"`  // the server's clock, going by the last answer; 0: there was none
	Cold    bool     `json:"cold"`    // there has been a fallback: nothing is left
	Pause   float64  `json:"pause"`   // is how long
	Tell    bool     `json:"tell"`    // of it
	Era     string   `json:"era"`
	Back    [][4]any `json:"back"` // first slot, number, name of the run, period
	Want    int      `json:"want"`
}

type takeRequest struct {
	Claims  []claimRequest `json:"claims"`
	Further int            `json:"further"`
	Hold    float64        `json:"hold"`
}

type claimRequest struct {
	Budget int `json:"budget"` // from 1
	N      int `json:"n"`
}

// Of how many budgets, and of how many sends that ask for turns, one exchange is:
// Redis does nothing else meanwhile.
const (
	mostBudgets = 64
	mostTakes   = 256
)

// joint is a send that asks for turns that are there, all or none.
type joint struct {
	claims   []layers.Claim // on buckets of the store
	answered chan bool      // has the answer, once
	settled  atomic.Bool    // by the answer, or because the send no longer waits
}

// exchanges talks to Redis of budgets, one exchange at a time: what comes up
// meanwhile goes into the next.
func (s *Store) exchanges() {
	left := time.Duration(0) // of a fallback
	for number := 0; s.ctx.Err() == nil; {
		wait := s.opts.Lease / 3
		if s.down.Load() {
			wait = cmp.Or(left, s.retry())
		}
		timer := s.clock.Timer(wait)
		select {
		case <-s.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-s.kick:
			if s.down.Load() {
				// Asked again only after a while.
				select {
				case <-s.ctx.Done():
					timer.Stop()
					return
				case <-timer.C:
				}
			}
			timer.Stop()
		}
		number++
		left = s.exchange(s.ctx, number)
	}
}

// leave takes the process off the list: what it has reserved is reclaimed. It
// waits no longer than a send does.
func (s *Store) leave() error {
	left := make(chan error, 1)
	go func() { left <- s.client.ZRem(context.Background(), s.prefix+"processes", s.proc).Err() }()
	timer := s.clock.Timer(s.opts.Timeout)
	defer timer.Stop()
	select {
	case err := <-left:
		return err
	case <-timer.C:
		return errSlow
	}
}

// patience is for how long Redis is asked the same, with all that the client does for
// it, such as to connect and to try again.
func (s *Store) patience() time.Duration { return max(4*s.opts.Timeout, 2*time.Second) }

// patient ends what is asked after that: in the time of the client, whatever the
// store's clock is.
func (s *Store) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	return clock.New().WithTimeout(ctx, s.patience())
}

// slowest is how long an answer may take that ends a fallback: a send may have to
// wait for an exchange under way, and then for its own.
func (s *Store) slowest() time.Duration { return s.opts.Timeout / 2 }

// exchange is one round trip. If it finds a fallback over, it returns when to ask
// again while that is to hold still, so that all processes end it together.
func (s *Store) exchange(ctx context.Context, number int) (left time.Duration) {
	probe := s.down.Load()
	rest, down := time.Duration(0), time.Duration(0)
	s.forget()
	s.dismiss()
	if probe {
		rest = 2*s.retry() + min(s.failing, s.opts.Lease) // by then, all have asked
		down = s.now() - instant(s.fell.Load())
	}
	s.mu.Lock()
	var list []*bucket
	at := map[*bucket]int{} // from 1
	add := func(b *bucket) {
		if at[b] == 0 {
			list = append(list, b)
			at[b] = len(list)
		}
	}
	var takes []*joint
	for len(s.takes) > 0 && len(takes) < mostTakes && len(list) < mostBudgets {
		takes = append(takes, s.takes[0])
		for _, c := range s.takes[0].claims {
			add(c.Bucket.(*bucket))
		}
		s.takes = s.takes[1:]
	}
	if probe {
		for _, b := range s.suspects {
			add(b)
		}
	}
	for b := range s.dirty {
		if len(list) >= mostBudgets && at[b] == 0 {
			continue
		}
		add(b)
		delete(s.dirty, b)
	}
	if len(s.takes)+len(s.dirty) > 0 {
		s.wake()
	}
	s.mu.Unlock()

	req := request{Budgets: make([]budgetRequest, 0, len(list)), Takes: make([]takeRequest, 0, len(takes)), Down: float64(down.Microseconds())}
	keys := append(make([]string, 0, 3+3*len(list)), s.prefix+"processes", s.prefix+"answer:"+s.proc, s.prefix+"rest")
	for _, b := range list {
		keys = append(keys, b.name, b.name+":free", b.name+":held")
		req.Budgets = append(req.Budgets, b.ask(probe))
	}
	for _, t := range takes {
		var r takeRequest
		for _, c := range t.claims {
			r.Claims = append(r.Claims, claimRequest{at[c.Bucket.(*bucket)], c.N})
		}
		if len(r.Claims) == 1 {
			r.Further, r.Hold = t.claims[0].Bucket.(*bucket).further()
		}
		req.Takes = append(req.Takes, r)
	}
	began := s.now()
	var deaf bool
	req.Own, deaf = s.call(began)
	answer, err := s.exchanged(ctx, number, rest, keys, &req)
	r := &reply{began: began, ended: s.now(), words: strings.Fields(answer)}
	limit := s.opts.Timeout
	switch {
	case probe:
		limit = s.slowest()
	case number == 1:
		limit = never // it has to connect, and who waits says so
	}
	if err == nil && r.ended-began > limit {
		err = errSlow
		r.number()
		s.see(int(r.number())) // the shares go by it
	}
	if err != nil {
		s.hold(never, never)
		for _, b := range list {
			b.unanswered()
		}
		s.failing = r.ended - r.began
		s.suspects = list
		s.fail(err)
		for _, t := range takes {
			t.answer(false)
		}
		return 0
	}
	s.beat.Store(int64(r.began))
	if deaf {
		s.renew()
	}
	r.server = r.number()
	s.see(int(r.number()))
	left = s.still(r)
	for i, b := range list {
		b.answer(r, req.Budgets[i])
	}
	for _, t := range takes {
		yes := r.number() == 1
		got := make([]slots, len(t.claims))
		if yes {
			for i, c := range t.claims {
				got[i] = r.slots(req.Budgets[at[c.Bucket.(*bucket)]-1])
			}
		}
		t.answer(yes, got...)
	}
	if r.err == nil && probe && left == 0 {
		r.err = s.examine(ctx)
	}
	switch {
	case r.err != nil:
		s.fail(r.err)
	case probe && left == 0:
		s.suspects = nil
		s.recover()
	}
	return left
}

// still reads for how long a fallback is to hold still, and returns when Redis is asked
// the next time: meanwhile, too, so that others count the process, and it knows better.
func (s *Store) still(r *reply) (left time.Duration) {
	if left = micros(r.number()); left == 0 {
		return 0
	}
	ends := after(r.began, left) // or later, by as long as it took to ask
	left = max(1, ends-r.ended)
	s.hold(ends, after(r.ended+left, s.slowest()))
	return min(left, s.opts.Lease/3)
}

// exchanged has the script run.
func (s *Store) exchanged(ctx context.Context, number int, rest time.Duration, keys []string, req *request) (answer string, err error) {
	text, err := json.Marshal(req)
	if err != nil {
		return "", err
	}
	bound, cancel := s.patient(ctx)
	defer cancel()
	answer, err = turns.Run(bound, s.client, keys, s.proc, number, s.opts.Lease.Microseconds(), s.channel(), text, rest.Microseconds()).Text()
	// A cluster's client asks only now and then which node stands in for another.
	if c, ok := s.client.(interface{ ReloadState(ctx context.Context) }); ok && err != nil {
		c.ReloadState(ctx)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = errSlow
	}
	return answer, err
}

// dismiss answers those who ask for turns that are not there, as is known by now.
func (s *Store) dismiss() {
	s.mu.Lock()
	takes := s.takes
	s.takes = nil
	s.mu.Unlock()
	takes = slices.DeleteFunc(takes, func(t *joint) bool {
		gone := t.settled.Load() || s.hopeless(t.claims)
		if gone {
			t.answer(false)
		}
		return gone
	})
	s.mu.Lock()
	s.takes = append(takes, s.takes...)
	s.mu.Unlock()
}

// answer hands a send what it took. What more came with it is kept, all of it
// if the send has not waited so long.
func (t *joint) answer(yes bool, got ...slots) {
	waits := !t.settled.Swap(true)
	for i, c := range t.claims {
		if !yes {
			break
		}
		n := c.N
		if !waits {
			n = 0
		}
		c.Bucket.(*bucket).hand(got[i], n)
	}
	if waits {
		t.answered <- yes
	}
}

// reply reads an answer of turns.lua.
type reply struct {
	began, ended instant
	server       float64 // the server's clock, in between
	words        []string
	err          error
}

func (r *reply) word() string {
	if len(r.words) == 0 {
		r.err = errors.New("redis: an answer cut short")
		return "0"
	}
	w := r.words[0]
	r.words = r.words[1:]
	return w
}

func (r *reply) number() float64 {
	w := r.word()
	f, err := strconv.ParseFloat(w, 64)
	if err != nil {
		r.err = fmt.Errorf("redis: an answer with %q for a number", w)
	}
	return f
}

// slots reads those of a budget.
func (r *reply) slots(q budgetRequest) (list slots) {
	c := scale{period: q.Period, slack: micros(float64(q.Burst-1) * q.Period), server: r.server, began: r.began, ended: r.ended}
	for range int(r.number()) {
		name := r.word()
		o, ok := parse(name, c)
		if !ok {
			r.err = fmt.Errorf("redis: an answer with %q for a turn", name)
			break
		}
		list = append(list, o)
	}
	return list
}

// takeAll takes every claim, or none.
func (s *Store) takeAll(ctx context.Context, claims []layers.Claim) bool {
	if len(claims) == 1 {
		if yes, known := claims[0].Bucket.(*bucket).takeHere(claims[0].N); known {
			return yes
		}
	} else if s.hopeless(claims) {
		return false
	}
	if s.down.Load() {
		return s.takeLocally(claims)
	}
	t := &joint{claims: claims, answered: make(chan bool, 1)}
	s.mu.Lock()
	s.takes = append(s.takes, t)
	s.mu.Unlock()
	s.wake()
	timer := s.clock.Timer(s.opts.Timeout)
	defer timer.Stop()
	select {
	case yes := <-t.answered:
		if yes || !s.down.Load() {
			return yes
		}
	case <-ctx.Done():
		if t.settled.Swap(true) {
			return <-t.answered
		}
		return false
	case <-timer.C:
		if t.settled.Swap(true) {
			return <-t.answered
		}
		s.fail(errSlow)
	}
	return s.takeLocally(claims)
}

// hopeless reports that a claim has no turn as far as is known.
func (s *Store) hopeless(claims []layers.Claim) bool {
	for _, c := range claims {
		if c.Bucket.(*bucket).hopeless() {
			return true
		}
	}
	return false
}

func (s *Store) takeLocally(claims []layers.Claim) bool {
	for i, c := range claims {
		if !c.Bucket.(*bucket).takeLocally(c.N) {
			for _, taken := range claims[:i] {
				taken.Bucket.Refund(taken.N)
			}
			return false
		}
	}
	return true
}
