package redis_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/layers/redis"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// scripted is a Redis in virtual time: a hook that answers for it. Nothing but
// the scripts of a store is known.
type scripted struct {
	clock *clocktest.Clock
	takes func(what string) time.Duration // the answer to "look", "take" and so on; below zero: for ever
	open  bool                            // the circuits are, and ready for a probe
	from  time.Duration                   // the turns are there, by what has elapsed
	most  *atomic.Int64                   // sends that one exchange was of; nil: nobody asks
}

var errNoNetwork = errors.New("there is no network")

func (*scripted) DialHook(goredis.DialHook) goredis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) { return nil, errNoNetwork }
}

func (s *scripted) ProcessHook(goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if script, ok := cmd.(*goredis.Cmd); ok {
			return s.run(ctx, script)
		}
		return s.wait(ctx, cmd.Name())
	}
}

func (s *scripted) ProcessPipelineHook(goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, list []goredis.Cmder) error {
		var err error
		for _, cmd := range list {
			if err == nil {
				err = s.run(ctx, cmd.(*goredis.Cmd))
			}
			cmd.SetErr(err)
		}
		return err
	}
}

// wait takes as long as the answer does.
func (s *scripted) wait(ctx context.Context, what string) error {
	d := s.takes(what)
	if d == 0 {
		return nil
	}
	var answer <-chan time.Time
	if d > 0 {
		answer = s.clock.After(d)
	}
	select {
	case <-answer:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *scripted) run(ctx context.Context, cmd *goredis.Cmd) error {
	args := cmd.Args()
	args = args[3+args[2].(int):] // after the keys
	if len(args) != 6 {
		return s.step(ctx, cmd, args[0].(string))
	}
	var req struct {
		Budgets []struct {
			T    float64 `json:"t"`
			Want int     `json:"want"`
		} `json:"budgets"`
		Takes []struct {
			Claims []struct{ N int } `json:"claims"`
		} `json:"takes"`
	}
	if err := json.Unmarshal(args[4].([]byte), &req); err != nil {
		return err
	}
	what := "nothing"
	for _, b := range req.Budgets {
		if b.Want > 0 {
			what = "reserve"
		}
	}
	if len(req.Takes) > 0 {
		what = "take"
	}
	if s.most != nil {
		s.most.Store(max(s.most.Load(), int64(len(req.Takes))))
	}
	if err := s.wait(ctx, what); err != nil {
		return err
	}
	now := float64(s.clock.Now().UnixMicro())
	away := float64(max(0, s.from-s.clock.Elapsed()).Microseconds())
	runs := func(n int) string {
		if n == 0 {
			return "0 "
		}
		return fmt.Sprintf("1 %.0f*%d ", now+away, n)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%.0f 1 0 ", now)
	for _, b := range req.Budgets {
		fmt.Fprintf(&text, "1 0 0 0 %.0f 1 %s", away, runs(b.Want))
	}
	for _, t := range req.Takes {
		if away > 0 {
			text.WriteString("0 ")
			continue
		}
		text.WriteString("1 ")
		for _, c := range t.Claims {
			text.WriteString(runs(c.N))
		}
	}
	cmd.SetVal(text.String())
	return nil
}

func (s *scripted) step(ctx context.Context, cmd *goredis.Cmd, what string) error {
	err := s.wait(ctx, what)
	switch {
	case s.open && what == "probe":
		cmd.SetVal("open 1 0 1 0")
	case s.open:
		cmd.SetVal("open 1 0 0 0")
	default:
		cmd.SetVal("closed 0 0 0 0")
	}
	return err
}

// at is a store on such a Redis, which has connected.
func (s *scripted) at(t *testing.T, c *clocktest.Clock) *redis.Store {
	t.Helper()
	s.clock = c
	client := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:6379"})
	client.AddHook(s)
	store := redis.New(client, redis.Options{Clock: c, Timeout: patience, Fallback: redis.Open})
	t.Cleanup(func() {
		store.Close()
		client.Close()
		c.Sleep(time.Second) // by then, what it does in the background has ended
	})
	c.Sleep(time.Second)
	return store
}

const patience = 50 * time.Millisecond

// silent never answers what begins with one of these.
func silent(questions ...string) func(string) time.Duration {
	return func(what string) time.Duration {
		if slices.ContainsFunc(questions, func(q string) bool { return strings.HasPrefix(what, q) }) {
			return -1
		}
		return 0
	}
}

// TestWaits: what a call waits for Redis in all is what is documented: Timeout
// once if Redis says nothing, and at most that for each question if it is slow.
func TestWaits(t *testing.T) {
	slow := func(string) time.Duration { return patience * 4 / 5 }
	const sends, budgets = 3, 2
	for name, s := range map[string]struct {
		redis  scripted
		asks   time.Duration // how often
		waited time.Duration // for a turn
	}{
		"silent":                          {scripted{takes: silent("")}, 1, 0},
		"silent, asked for turns":         {scripted{takes: silent("take", "reserve", "nothing")}, 1, 0},
		"silent, while a turn is awaited": {scripted{takes: silent("reserve", "nothing"), from: time.Minute}, 1, 0},
		"silent, asked for a probe":       {scripted{takes: silent("probe", "take", "reserve", "nothing"), open: true}, 1, 0},
		"slow":                            {scripted{takes: slow}, 1 + sends, 0},
		"slow, with probes":               {scripted{takes: slow, open: true}, 1 + 2*sends, 0},
		"slow, with a wait":               {scripted{takes: slow, from: 2 * time.Second}, 1 + sends + budgets + 1, time.Second},
		"slow, with a wait and probes":    {scripted{takes: slow, from: 2 * time.Second, open: true}, 1 + 2*sends + budgets + 2, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				rate := policy.Rate{PerSecond: 1000, Burst: 10}
				weir, err := transport.New(transport.Config{
					Base:  clocktest.NewUpstream(t, c, clocktest.Reply(503).Times(sends-1), clocktest.Reply(200)),
					Clock: c, Store: s.redis.at(t, c),
					Policy: policy.Policy{Settings: policy.Settings{
						Rate: rate, Budgets: map[string]policy.Rate{"tokens": rate}, InFlight: policy.InFlight{Max: 1},
						Breaker: policy.Breaker{Failures: 9, Probes: 9}, Retry: policy.Retry{BaseDelay: policy.Off},
					}},
				})
				if err != nil {
					t.Fatal(err)
				}
				began := c.Elapsed()
				resp, err := weir.Client().Get("http://api.example/")
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				equal(t, "the status", resp.StatusCode, http.StatusOK)
				within(t, "the call took", c.Elapsed()-began, s.waited, s.waited+s.asks*patience)
			})
		})
	}
}

// TestPending: once a Redis is known to be silent, nobody waits for an answer to
// what another has asked before.
func TestPending(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		p := of((&scripted{takes: silent("")}).at(t, c))
		set := policy.Breaker{Failures: 1, Open: time.Second, OpenMax: time.Second, Probes: 1}
		one, other := p.circuit("one", set), p.circuit("other", set)
		for _, circuit := range []layers.Circuit{one, other} {
			_, admitted := send(circuit, new(layers.Pass))
			equal(t, "a send is admitted", admitted, true)
		}
		equal(t, "both have waited", c.Elapsed(), time.Second+patience)
	})
}

// TestHerd: thousands that ask at once are asked for in parts, and no longer once there
// is known to be nothing.
func TestHerd(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		var asked, most atomic.Int64
		s := &scripted{most: &most, from: time.Minute, takes: func(what string) time.Duration {
			if what == "take" {
				asked.Add(1)
			}
			return time.Millisecond
		}}
		b := of(s.at(t, c)).bucket("k", policy.Rate{PerSecond: 1000, Burst: 1000})
		var herd sync.WaitGroup
		for range 3000 {
			herd.Go(func() { equal(t, "there is one", b.Take(1), false) })
		}
		herd.Wait()
		if n := most.Load(); n > 256 {
			t.Errorf("an exchange of %d sends", n)
		}
		if n := asked.Load(); n > 2 {
			t.Errorf("%d exchanges", n)
		}
	})
}

// TestGivenUpProbe: a probe whose send is given up when its answer comes is made, or
// given back.
func TestGivenUpProbe(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		var giveUp context.CancelFunc
		var probes, back atomic.Int64
		p := of((&scripted{open: true, takes: func(what string) time.Duration {
			switch what {
			case "probe":
				probes.Add(1)
				giveUp()
			case "neutral":
				back.Add(1)
			}
			return 0
		}}).at(t, c))
		circuit := p.circuit("k", policy.Breaker{Failures: 1, Open: time.Second, OpenMax: time.Second, Probes: 1})
		for range 500 {
			var ctx context.Context
			ctx, giveUp = context.WithCancel(t.Context())
			pass := new(layers.Pass)
			if _, admitted := circuit.Admit(ctx, false, pass); admitted {
				pass.Settle(ctx, layers.VerdictNeutral)
			}
			giveUp()
			c.Sleep(time.Millisecond)
		}
		equal(t, "probes given back", back.Load(), probes.Load())
	})
}
