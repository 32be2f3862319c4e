package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"
)

// BenchmarkCold measures what a stack adds to a call from memory when a call over
// loopback comes before each: that leaves nothing of the stack's code and data in
// the caches of the CPU, as the work of a real program does. It is what the
// loopback row is made of.
func BenchmarkCold(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(answerText) }))
	defer server.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	base, wire := new(http.Transport), newCaller(ctx, http.MethodGet, server.URL)
	defer base.CloseIdleConnections()
	stacks := []stack{{"base", bare}, limited, byHand, {"three-layers", weir(three()).build}, {"six-layers", weir(six()).build}}
	calls := make([]func() error, len(stacks))
	for i, s := range stacks {
		c, rt := newCaller(ctx, http.MethodGet, target), s.build(new(memoryBase))
		calls[i] = func() error { return c.call(rt) }
	}
	took := make([][]time.Duration, len(stacks))
	for b.Loop() {
		for i, call := range calls {
			if err := wire.call(base); err != nil {
				b.Fatal(err)
			}
			began := time.Now()
			if err := call(); err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], time.Since(began))
		}
	}
	for i := range stacks {
		slices.Sort(took[i])
	}
	for i, name := range []string{"limiter-and-breaker", "by-hand", "three-layers", "six-layers"} {
		b.ReportMetric(float64(took[i+1][b.N/10]-took[0][b.N/10]), name+"-ns")
	}
}
