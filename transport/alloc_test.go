package transport_test

import (
	"bytes"
	"context"
	"io"
	"math"
	"net/http"
	"net/http/httptrace"
	"runtime"
	"testing"

	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// memoryBase answers from memory with the statuses in turn, by one allocation,
// and does what a base has to: it looks at the context, and reads and closes the
// request's body. With hooks, it fires those of a reused connection.
type memoryBase struct {
	statuses []int
	hooks    bool
	sends    int
}

type memoryAnswer struct {
	http.Response

	body  bytes.Reader
	bytes [2]byte
}

func (a *memoryAnswer) Read(p []byte) (int, error) { return a.body.Read(p) }
func (a *memoryAnswer) Close() error               { return nil }

func (b *memoryBase) RoundTrip(req *http.Request) (*http.Response, error) {
	select {
	case <-req.Context().Done():
		return nil, context.Cause(req.Context())
	default:
	}
	if b.hooks {
		if t := httptrace.ContextClientTrace(req.Context()); t != nil {
			t.GetConn("")
			t.GotConn(httptrace.GotConnInfo{Reused: true, WasIdle: true})
			t.WroteRequest(httptrace.WroteRequestInfo{})
		}
	}
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	a := &memoryAnswer{bytes: [2]byte{'o', 'k'}}
	a.body.Reset(a.bytes[:])
	a.StatusCode, a.ContentLength, a.Body = b.statuses[b.sends%len(b.statuses)], 2, a
	b.sends++
	return &a.Response, nil
}

// TestAllocations: what a call costs in allocations, beyond its base. There are
// the call, with its request, its body's wrapper and all that its layers note,
// and three for the context; a retry adds a send, the answer before it, and what
// a bound on reading that needs. GetBody makes two.
func TestAllocations(t *testing.T) {
	if racing {
		t.Skip("the race detector allocates")
	}
	six := policy.Settings{
		Timeouts: policy.Timeouts{Pool: policy.Off, Connect: policy.Off, Write: policy.Off, Read: policy.Off},
		Retry:    policy.Retry{BaseDelay: policy.Off, Budget: policy.Off, Idempotent: policy.On},
		Breaker:  policy.Breaker{Ratio: 0.95, MinRequests: 100},
		Rate:     policy.Rate{PerSecond: 1e9, Burst: 1e6},
		InFlight: policy.InFlight{Max: 1000},
	}
	phases := six
	phases.Timeouts = policy.Timeouts{}
	three := six
	three.Deadline, three.InFlight = policy.Off, policy.InFlight{}
	for name, c := range map[string]struct {
		s        policy.Settings
		method   string
		statuses []int
		hooks    bool
		allocs   float64
		bytes    uint64
	}{
		"six layers":                     {s: six, method: "GET", allocs: 4, bytes: 1104},
		"six layers, POST":               {s: six, method: "POST", allocs: 4, bytes: 1104},
		"phases without hooks":           {s: phases, method: "GET", allocs: 4, bytes: 1104},
		"phases on a pooled connection":  {s: phases, method: "GET", hooks: true, allocs: 4, bytes: 1104},
		"budget, retry and breaker":      {s: three, method: "GET", allocs: 1, bytes: 896},
		"503, then 200":                  {s: six, method: "GET", statuses: []int{503, 200}, allocs: 9, bytes: 2240},
		"503, then 200, with each phase": {s: phases, method: "GET", hooks: true, statuses: []int{503, 200}, allocs: 9, bytes: 2240},
		"503, then 200, POST":            {s: six, method: "POST", statuses: []int{503, 200}, allocs: 11, bytes: 2304},
	} {
		t.Run(name, func(t *testing.T) {
			if c.statuses == nil {
				c.statuses = []int{200}
			}
			base := &memoryBase{statuses: c.statuses, hooks: c.hooks}
			tr, err := transport.New(transport.Config{Base: base, Policy: settings(c.s)})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var sent bytes.Reader
			req := request(t, ctx, c.method, url, nil)
			if c.method == "POST" {
				req = request(t, ctx, c.method, url, &sent)
				req.ContentLength = 1024
			}
			buf := make([]byte, 8)
			payload := make([]byte, 1024)
			call := func(rt http.RoundTripper) {
				sent.Reset(payload)
				resp, err := rt.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				for err == nil {
					_, err = resp.Body.Read(buf)
				}
				_ = resp.Body.Close()
			}
			own := func() {
				for range c.statuses {
					call(base)
				}
			}
			bare, bareBytes := testing.AllocsPerRun(500, own), bytesPerRun(500, own)
			weir := func() { call(tr) }
			got, gotBytes := testing.AllocsPerRun(500, weir)-bare, bytesPerRun(500, weir)-bareBytes
			if got > c.allocs || gotBytes > c.bytes {
				t.Errorf("%v allocations, %d bytes; want %v, %d", got, gotBytes, c.allocs, c.bytes)
			}
		})
	}
}

// bytesPerRun is the least of three measurements: a collection in one takes from the
// pools what is then made anew.
func bytesPerRun(runs int, f func()) uint64 {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	f()
	least := uint64(math.MaxUint64)
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			f()
		}
		runtime.ReadMemStats(&after)
		least = min(least, (after.TotalAlloc-before.TotalAlloc)/uint64(runs))
	}
	return least
}
