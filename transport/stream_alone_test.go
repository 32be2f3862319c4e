package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/stream"
)

// A chance is a stream, its limits and its reader, made up from a seed.
type chance struct {
	step   clocktest.Step
	limits policy.Stream
	pauses []time.Duration
	size   int
}

func newChance(seed uint64) chance {
	r := rand.New(rand.NewPCG(seed, 0))
	seconds := func(n int) time.Duration { return time.Duration(r.IntN(n)) * time.Second }
	one := func(n int) bool { return r.IntN(n) == 0 }
	c := chance{limits: limits, size: []int{33, 4 << 10, 64 << 10}[r.IntN(3)]}
	c.limits.Enabled, c.limits.Gap, c.limits.PingedGap = policy.On, 3*time.Second, 6*time.Second
	c.limits.ThinkingGap, c.limits.ToolGap = 4*time.Second, 5*time.Second
	if one(3) {
		c.limits.Dialect = "openai-chat"
	}
	if one(4) {
		c.limits.DropKeepalives = policy.On
	}
	if one(4) {
		c.limits.MinRate, c.limits.MinRateWindow = 30, 7*time.Second
	}
	if one(5) {
		c.limits.AllowTruncated = policy.On
	}
	c.step = clocktest.Reply(200).After(seconds(3))
	if !one(3) {
		c.step = c.step.Header("Content-Type", "text/event-stream")
	}
	say := func(text string, wait int) {
		c.step = c.step.Chunks(clocktest.Chunk{After: seconds(wait), Data: text})
	}
	say("\n", 3) // a stream that is empty is not guarded
	pieces := []string{role, word, thought, toolArg, ping, ping, word, finish, "data: {\n\n", "\n", ": x", "\r\n", word[:20], word[20:]}
	for range r.IntN(12) {
		say(pieces[r.IntN(len(pieces))], 7)
	}
	switch r.IntN(6) {
	case 0:
		say(done, 4)
	case 1:
		say(busy, 4)
	case 2:
		say(done, 4)
		c.step = c.step.Silent()
	case 3:
		c.step = c.step.Reset()
	case 4:
		c.step = c.step.Silent()
	}
	for range 40 {
		c.pauses = append(c.pauses, 0)
		if one(4) {
			c.pauses[len(c.pauses)-1] = seconds(20)
		}
	}
	return c
}

// read returns what a reader sees of a body, and when.
func (c chance) read(k *clocktest.Clock, body io.Reader) string {
	buf, text := make([]byte, c.size), ""
	for i := 0; ; i++ {
		n, err := body.Read(buf)
		text += string(buf[:n])
		if err == nil {
			k.Sleep(c.pauses[i%len(c.pauses)])
			continue
		}
		if stall, ok := errors.AsType[*stream.StallError](err); ok {
			stall.Attempt = 0
			err = stall
		}
		return fmt.Sprintf("%v after %v: %q", err, k.Elapsed(), text)
	}
}

// TestStackAndGuardAlone: a stream is the same through the stack, which has a
// timer of its own, as through a guard alone.
func TestStackAndGuardAlone(t *testing.T) {
	for seed := range uint64(500) {
		c := newChance(seed)
		var seen [2]string
		var stats [2]stream.Stats
		clocktest.Run(t, func(t *testing.T, k *clocktest.Clock) {
			ctx, cancel := context.WithCancelCause(t.Context())
			sent := k.Now()
			resp, err := clocktest.NewUpstream(t, k, c.step).RoundTrip(request(t, ctx, "GET", url, nil))
			if err != nil {
				t.Fatal(err)
			}
			b := stream.Guard(resp.Body, &c.limits, stream.Options{Clock: k, Sent: sent, Header: resp.Header, Cancel: cancel})
			defer b.Close()
			seen[0], stats[0] = c.read(k, b), b.Stats()
		})
		clocktest.Run(t, func(t *testing.T, k *clocktest.Clock) {
			tr := newTransport(t, k, clocktest.NewUpstream(t, k, c.step), streamed(c.limits, noRetry))
			resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			seen[1] = c.read(k, resp.Body)
			stats[1], _ = stream.StatsOf(resp)
		})
		if fmt.Sprint(seen[0], stats[0]) != fmt.Sprint(seen[1], stats[1]) {
			t.Errorf("seed %d: alone\n%s\n%+v\nin the stack\n%s\n%+v", seed, seen[0], stats[0], seen[1], stats[1])
		}
	}
}
