package page_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
	"github.com/weir-go/weir/transport/page"
)

// memory is a base that answers at once.
var memory = layers.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("fine")), Request: r}, nil
})

// call makes a call, and reads its answer to the end.
func call(tb testing.TB, t *transport.Transport, url string) {
	req, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, url, nil)
	if err != nil {
		tb.Fatal(err)
	}
	resp, err := t.RoundTrip(req)
	if err != nil {
		tb.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}

// BenchmarkCost measures what watching adds to a call, in turns, so that what
// else the machine does falls on all alike: with no observer; with a tracer that
// drops its traces, which is the observer; with a Watch that no page shows; and
// with one that a page shows. share/% is what keeping adds to the observer.
func BenchmarkCost(b *testing.B) {
	table := policy.Policy{Settings: policy.Settings{
		Rate: policy.Rate{PerSecond: 1e9, Burst: 1e9}, InFlight: policy.InFlight{Max: 100}, Breaker: policy.Breaker{Failures: 5},
	}}
	tracer := layers.NewStreamTracer(8, func(context.Context, layers.Trace) {})
	idle, shown := page.NewWatch(), page.NewWatch()
	kinds := []struct {
		name     string
		observer layers.Observer
		t        *transport.Transport
		took     []time.Duration
	}{{name: "none"}, {name: "observer", observer: tracer}, {name: "unmounted", observer: idle}, {name: "mounted", observer: shown}}
	for i := range kinds {
		var err error
		if kinds[i].t, err = transport.New(transport.Config{Base: memory, Policy: table, Observer: kinds[i].observer}); err != nil {
			b.Fatal(err)
		}
	}
	page.Handler(kinds[3].t, page.Options{Watch: shown})
	const batch = 20
	b.ReportAllocs()
	for b.Loop() {
		for i := range kinds {
			k := &kinds[i]
			began := time.Now()
			for range batch {
				call(b, k.t, "http://api.example/")
			}
			k.took = append(k.took, time.Since(began))
		}
	}
	per := func(i int) float64 { // in a turn that nothing else disturbed
		slices.Sort(kinds[i].took)
		return float64(kinds[i].took[len(kinds[i].took)/10]) / batch
	}
	for i, k := range kinds {
		b.ReportMetric(per(i), k.name+"-ns/call")
	}
	b.ReportMetric(100*(per(3)-per(1))/(per(1)-per(0)), "share/%")
}

// TestAllocations: keeping calls allocates nothing beside what the observer does,
// and a Watch that no page shows nothing at all. No time is bounded, since alarms
// and hooks come from a pool, which drops some of them under the race detector.
func TestAllocations(t *testing.T) {
	timeless := policy.Policy{Settings: policy.Settings{Deadline: policy.Off, Timeouts: policy.Timeouts{
		Pool: policy.Off, Connect: policy.Off, Write: policy.Off, Read: policy.Off,
	}}}
	idle, shown := page.NewWatch(), page.NewWatch()
	per := func(o layers.Observer, mount *page.Watch) float64 {
		tr, err := transport.New(transport.Config{Base: memory, Policy: timeless, Observer: o})
		if err != nil {
			t.Fatal(err)
		}
		if mount != nil {
			page.Handler(tr, page.Options{Watch: mount})
		}
		return testing.AllocsPerRun(1000, func() { call(t, tr, "http://api.example/") })
	}
	none, observer := per(nil, nil), per(layers.NewStreamTracer(8, func(context.Context, layers.Trace) {}), nil)
	if n := per(idle, nil); n != none {
		t.Errorf("a Watch that no page shows: %v allocations a call, want %v", n, none)
	}
	if n := per(shown, shown); n > observer {
		t.Errorf("a Watch that a page shows: %v allocations a call, want %v", n, observer)
	}
}
