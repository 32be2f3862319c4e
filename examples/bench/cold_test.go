package main

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/policy"
)

// BenchmarkCold tells what each stack, and some of what stacks are made of, adds to
// a call over loopback, in ns: the difference of the lower quartiles of single calls
// in random order. Such a call leaves nothing of them in the caches of the CPU, as
// the work of a real program does; the loopback row is made of it. It tells stacks
// apart by a tenth of a microsecond, where rows do by some.
func BenchmarkCold(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(answerText) }))
	defer server.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	base := new(http.Transport)
	defer base.CloseIdleConnections()

	nothing := policy.Settings{Deadline: policy.Off, Timeouts: noPhases, Retry: policy.Retry{Enabled: policy.Off}}
	deadline := nothing.With(policy.Settings{Deadline: callTimeout})
	stacks := []stack{
		{"base", bare},
		{"20-locks", before(twentyLocks())},
		{"a-KiB", before(func() { kept = new([128]*int) })},
		{"timer", before(startAndStop())},
		{"least", least.build},
		{"limiter-and-breaker", limited.build},
		{"by-hand", byHand.build},
		{"nothing-on", weir(nothing).build},
		{"deadline", weir(deadline).build},
		{"three-layers", weir(three()).build},
		{"six-layers", weir(six()).build},
		{"phases", weir(phases()).build},
	}
	calls, order := make([]func() error, len(stacks)), make([]int, len(stacks))
	for i, s := range stacks {
		c, rt := newCaller(ctx, http.MethodGet, server.URL), s.build(base)
		calls[i], order[i] = func() error { return c.call(rt) }, i
	}
	took := make([][]time.Duration, len(stacks))
	for b.Loop() {
		rand.Shuffle(len(order), func(i, k int) { order[i], order[k] = order[k], order[i] })
		for _, i := range order {
			began := time.Now()
			if err := calls[i](); err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], time.Since(began))
		}
	}
	for i, s := range stacks {
		slices.Sort(took[i])
		if i > 0 {
			b.ReportMetric(float64(took[i][b.N/4]-took[0][b.N/4]), s.name+"-ns")
		}
	}
}

// kept keeps an allocation on the heap.
var kept any

// before makes a stack that does something before each call.
func before(do func()) func(http.RoundTripper) http.RoundTripper {
	return func(base http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			do()
			return base.RoundTrip(req)
		})
	}
}

func twentyLocks() func() {
	var locks [20]sync.Mutex
	return func() {
		for i := range locks {
			locks[i].Lock()
			locks[i].Unlock() //nolint:staticcheck // Nothing is done under it.
		}
	}
}

func startAndStop() func() {
	timer := time.AfterFunc(time.Hour, func() {})
	return func() {
		timer.Reset(time.Minute)
		timer.Stop()
	}
}
