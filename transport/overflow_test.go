package transport_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// full is how many keys a set of shared state holds.
const full = 10_000

// beyond is what the state is called that the keys share for which there is no
// room.
const beyond = "(all keys beyond 10,000)"

// crowd is an upstream that answers by the host, and a client of it.
type crowd struct {
	t      *testing.T
	c      *clocktest.Clock
	tr     *transport.Transport
	answer func(host string) *http.Response
}

func newCrowd(t *testing.T, c *clocktest.Clock, s policy.Settings, change ...func(*transport.Config)) *crowd {
	m := &crowd{t: t, c: c, answer: func(string) *http.Response { return reply(200) }}
	s.Retry.Enabled = policy.Off
	s.Breaker.OpenJitter = policy.Off
	m.tr = newTransport(t, c, layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		resp := m.answer(req.URL.Hostname())
		resp.Request = req
		return resp, nil
	}), settings(s), change...)
	return m
}

func reply(status int) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("x"))}
}

func early(i int) string { return fmt.Sprintf("early%d.example", i) }
func late(i int) string  { return fmt.Sprintf("late%d.example", i) }

// open sends a request to a host, and leaves the body to be read.
func (m *crowd) open(ctx context.Context, host string) (*http.Response, error) {
	return m.tr.RoundTrip(request(m.t, ctx, "GET", "http://"+host+"/", nil))
}

func (m *crowd) get(host string) result {
	return do(m.c, m.tr, request(m.t, m.t.Context(), "GET", "http://"+host+"/", nil))
}

// passed counts which of the calls to n fresh hosts pass.
func (m *crowd) passed(n int) (passed int) {
	for i := range n {
		if m.get(late(i)).err == nil {
			passed++
		}
	}
	return passed
}

// pauseAll has each of as many hosts as there is room for ask for a pause.
func (m *crowd) pauseAll(pause string) {
	m.answer = func(string) *http.Response {
		resp := reply(429)
		resp.Header.Set("Retry-After", pause)
		return resp
	}
	for i := range full {
		m.get(early(i))
	}
	m.answer = func(string) *http.Response { return reply(200) }
}

// TestOverflowOfBudgets: keys for which there is no room share one budget, which
// goes by an update's numbers, and is none of theirs once there is room.
func TestOverflowOfBudgets(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		s := policy.Settings{Rate: policy.Rate{PerSecond: 1, Burst: 5, MaxWait: policy.Off}}
		m := newCrowd(t, c, s)
		m.pauseAll("60")
		equal(t, "of 100 keys, those that pass", m.passed(100), 5)
		c.Add(3 * time.Second)
		equal(t, "3 s later", m.passed(100), 3)
		var listed []layers.BudgetStatus
		for _, b := range m.tr.Budgets() {
			if b.Key == beyond {
				listed = append(listed, b)
			}
		}
		if len(listed) != 1 || listed[0].Burst != 5 || listed[0].Level != 0 {
			t.Errorf("listed are %+v, want one that is empty", listed)
		}
		s.Rate.PerSecond, s.Rate.Burst = 10, 20
		s.Retry.Enabled = policy.Off
		if err := m.tr.Update(settings(s)); err != nil {
			t.Fatal(err)
		}
		c.Add(2 * time.Second)
		equal(t, "after an update", m.passed(100), 20)
		c.Add(time.Minute) // the pauses are over
		equal(t, "once there is room", m.passed(100), 100)
	})
}

// TestOverflowKeepsNoPause: a pause that one of the keys without room is asked for
// holds up no other.
func TestOverflowKeepsNoPause(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		m := newCrowd(t, c, policy.Settings{Rate: policy.Rate{PerSecond: 1, Burst: 5, MaxWait: policy.Off}})
		m.pauseAll("3600")
		m.answer = func(string) *http.Response {
			resp := reply(503)
			resp.Header.Set("Retry-After", "3600")
			return resp
		}
		equal(t, "of 10 keys, those that pass", m.passed(10), 5)
		c.Add(5 * time.Second)
		equal(t, "5 s later", m.passed(10), 5)
	})
}

// TestPauseOfAKeyThatMadeRoom: a pause that a key is asked for by an answer that took
// so long that the key has made room for others, is kept.
func TestPauseOfAKeyThatMadeRoom(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		m := newCrowd(t, c, policy.Settings{Rate: policy.Rate{PerSecond: 1, Burst: 1, MaxWait: policy.Off}})
		m.answer = func(host string) *http.Response {
			resp := reply(200)
			if host == "slow.example" {
				c.Sleep(2 * time.Second)
				resp = reply(429)
				resp.Header.Set("Retry-After", "600")
			}
			return resp
		}
		m.get("first.example") // room is looked for behind it
		var wg sync.WaitGroup
		wg.Go(func() { m.get("slow.example") })
		c.Add(1500 * time.Millisecond)
		for i := range full + 100 {
			m.get(early(i))
		}
		wg.Wait()
		e := wantError(t, m.get("slow.example").err)
		equal(t, "the time to come back", e.RetryAfter, 600*time.Second)
	})
}

// TestFailureOfAKeyThatMadeRoom: the same of a failure.
func TestFailureOfAKeyThatMadeRoom(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		m := newCrowd(t, c, policy.Settings{Breaker: policy.Breaker{Failures: 1}})
		m.answer = func(host string) *http.Response {
			if host == "slow.example" {
				c.Sleep(2 * time.Second)
				return reply(503)
			}
			return reply(200)
		}
		m.get("first.example") // room is looked for behind it
		var wg sync.WaitGroup
		wg.Go(func() { m.get("slow.example") })
		c.Add(time.Second)
		for i := range full + 100 {
			m.get(early(i))
		}
		wg.Wait()
		wantOpen(t, m.get("slow.example"), 10*time.Second)
	})
}

// TestSuccessOfAKeyThatMadeRoom: nor are failures in a row between which one succeeded.
func TestSuccessOfAKeyThatMadeRoom(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		m := newCrowd(t, c, policy.Settings{Breaker: policy.Breaker{Failures: 2}})
		var sends atomic.Int32
		m.answer = func(host string) *http.Response {
			if host != "slow.example" {
				return reply(200)
			}
			n := sends.Add(1)
			c.Sleep(time.Duration(n+1) * time.Second)
			return reply([]int{503, 200, 503, 503}[n-1])
		}
		m.get("first.example") // room is looked for behind it
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { m.get("slow.example") })
		}
		c.Add(time.Second)
		for i := range 2*full + 100 { // once around, as it was used twice
			m.get(early(i))
		}
		c.Add(3500 * time.Millisecond) // three have come
		equal(t, "how many circuits are open", m.opened(), 0)
		wg.Wait()
		equal(t, "how many are after two in a row", m.opened(), 1)
	})
}

func (m *crowd) opened() (n int) {
	for _, b := range m.tr.Breakers() {
		if b.State() == layers.StateOpen {
			n++
		}
	}
	return n
}

// TestOverflowOfSlots: the same of slots.
func TestOverflowOfSlots(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		m := newCrowd(t, c, policy.Settings{InFlight: policy.InFlight{Max: 2}})
		var held []*http.Response
		hold := func(host string) error {
			resp, err := m.open(t.Context(), host)
			if err == nil {
				held = append(held, resp)
			}
			return err
		}
		for i := range full {
			if err := hold(early(i)); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 4 {
			if err := hold(late(i)); (err == nil) != (i < 2) {
				t.Errorf("late %d got error %v", i, err)
			}
		}
		used := 0
		for _, s := range m.tr.Slots() {
			if s.Key == beyond {
				used = s.Used
			}
		}
		equal(t, "the slots used beyond", used, 2)
		for _, resp := range held {
			resp.Body.Close()
		}
		equal(t, "once there is room, those that pass", m.passed(100), 100)
	})
}

// TestOverflowOnlyBesideBusyKeys: keys that are in use but idle make room.
func TestOverflowOnlyBesideBusyKeys(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		m := newCrowd(t, c, policy.Settings{InFlight: policy.InFlight{Max: 1}})
		for range 2 {
			for i := range full {
				m.get(early(i))
			}
		}
		for i := range 100 {
			resp, err := m.open(t.Context(), late(i))
			if err != nil {
				t.Fatalf("late %d: %v", i, err)
			}
			defer resp.Body.Close()
		}
	})
}

// TestOverflowOfCircuits: a key for which there is no room has a circuit that
// no other's failures open.
func TestOverflowOfCircuits(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		m := newCrowd(t, c, policy.Settings{Breaker: policy.Breaker{Failures: 1, Open: time.Minute}})
		m.answer = func(string) *http.Response { return reply(500) }
		for i := range full {
			m.get(early(i))
		}
		for range 3 {
			wantStatus(t, m.get("failing.example"), 500)
		}
		m.answer = func(string) *http.Response { return reply(200) }
		wantStatus(t, m.get("healthy.example"), 200)
		equal(t, "the circuits that are kept", len(m.tr.Breakers()), full)
	})
}

// TestOverflowOfRetries: sends beyond the first have one budget for all origins
// for which there is no room.
func TestOverflowOfRetries(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		sends := 0
		m := newCrowd(t, c, policy.Settings{}, func(cfg *transport.Config) {
			cfg.Policy.Retry = policy.Retry{MaxAttempts: 2, BaseDelay: policy.Off, Statuses: []int{500}}
			cfg.Policy.Retry.Enabled = policy.On
		})
		m.answer = func(string) *http.Response { sends++; return reply(500) }
		for range 2 { // which makes them used, and not idle
			for i := range full {
				m.get(early(i))
			}
		}
		sends = 0
		m.passed(20)
		if sends > 23+2 {
			t.Errorf("20 calls made %d sends, want 3 extra ones and their shares", sends)
		}
	})
}

// aloof is a store whose handles count, and are never free to make room.
type aloof struct {
	layers.Store

	asked map[string]int
	taken map[string]int
}

type aloofBucket struct {
	layers.Bucket

	s   *aloof
	key string
}

func (s *aloof) Bucket(_ policy.StateID, key string, _ policy.Rate) layers.Bucket {
	s.asked[key]++
	return aloofBucket{s: s, key: key}
}

func (aloofBucket) Rests() (idle, free bool) { return false, false }
func (aloofBucket) Set(policy.Rate)          {}
func (b aloofBucket) Take(int) bool {
	b.s.taken[b.key]++
	return b.s.taken[b.key] <= 1
}
func (aloofBucket) Predict(int) time.Duration { return time.Hour }

// TestOverflowOfStore: what a store makes is the key's own, with room or without.
func TestOverflowOfStore(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		env := &layers.Env{Clock: c, Store: &aloof{asked: map[string]int{}, taken: map[string]int{}}}
		rt := layers.Chain(layers.RoundTripperFunc(func(*http.Request) (*http.Response, error) { return reply(200), nil }),
			layers.RateBudget(env, layers.Budget{Rate: policy.Rate{PerSecond: 1, MaxWait: policy.Off}}))
		get := func(host string) error {
			return do(c, rt, request(t, t.Context(), "GET", "http://"+host+"/", nil)).err
		}
		for i := range full {
			if err := get(early(i)); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 10 {
			if err := get(late(i)); err != nil {
				t.Errorf("late %d: %v", i, err)
			}
			if err := get(late(i)); err == nil {
				t.Errorf("late %d has more than its own budget", i)
			}
		}
		equal(t, "the budgets that are kept", len(env.Budgets()), 0) // they have no status
	})
}
