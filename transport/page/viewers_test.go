package page_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
	"github.com/weir-go/weir/transport/page"
)

// BenchmarkViewers makes 1,000 calls a second through a transport whose page has
// three viewers, of two views, one of which never reads, and as many, in turns,
// through one without a page. It reports how long both took, and how much memory
// was in use at the start and at the end.
func BenchmarkViewers(b *testing.B) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/fails" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprint(w, "fine")
	}))
	defer api.Close()
	table := policy.Policy{Settings: policy.Settings{
		Rate: policy.Rate{PerSecond: 1e6, Burst: 1e6}, Breaker: policy.Breaker{Ratio: 0.9}, InFlight: policy.InFlight{Max: 100},
		Retry: policy.Retry{Enabled: policy.Off},
	}}
	watch := page.NewWatch()
	with, err := transport.New(transport.Config{Policy: table, Observer: watch})
	if err != nil {
		b.Fatal(err)
	}
	without, err := transport.New(transport.Config{Policy: table})
	if err != nil {
		b.Fatal(err)
	}
	defer with.CloseIdleConnections()
	defer without.CloseIdleConnections()
	site := httptest.NewServer(page.Handler(with, page.Options{Watch: watch}))
	defer func() {
		site.CloseClientConnections()
		site.Close()
	}()
	view := func(path string) net.Conn {
		conn, err := net.Dial("tcp", site.Listener.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, site.Listener.Addr())
		return conn
	}
	for _, path := range []string{"/live/state", "/live/calls"} {
		conn := view(path)
		defer conn.Close()
		go func() { _, _ = io.Copy(io.Discard, conn) }()
	}
	deaf := view("/live/calls")
	defer deaf.Close()

	timed := func(t *transport.Transport, n int) time.Duration {
		path := "/"
		if n%20 == 0 {
			path = "/fails"
		}
		began := time.Now()
		call(b, t, api.URL+path)
		return time.Since(began)
	}
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapInuse) / 1024
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for n := range 3000 { // until what is kept is full
		<-tick.C
		timed(with, n)
	}
	took := map[*transport.Transport][]time.Duration{}
	start, n := heap(), 0
	for b.Loop() {
		<-tick.C
		pair := []*transport.Transport{with, without}
		for i := range pair {
			t := pair[(i+n)%2]
			took[t] = append(took[t], timed(t, n))
		}
		n++
	}
	end := heap()
	for t, name := range map[*transport.Transport]string{with: "with", without: "without"} {
		slices.Sort(took[t])
		for _, q := range []int{50, 99} {
			b.ReportMetric(float64(took[t][len(took[t])*q/100].Microseconds()), fmt.Sprintf("p%d-%s-µs", q, name))
		}
	}
	b.ReportMetric(start, "heap-start-KiB")
	b.ReportMetric(end-float64(16*n)/1024, "heap-end-KiB") // without the durations
}
