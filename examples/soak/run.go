package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// What the policy allows, and the checks hold it to.
const (
	deadline  = 1500 * time.Millisecond
	job       = 3 * time.Second // of a stream, whose deadline bounds only its opening
	perSecond = 400
	burst     = 50
	slots     = 48
	share     = 0.01 // of first sends that may be re-sent
	floor     = 3    // re-sends a second beyond that
	mostRead  = 1 << 20
)

// kindOf is the fault that a request asks for. Circuits are by fault, or the
// worst would keep all others from being tried.
func kindOf(r *http.Request) string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	return kind
}

func rules() policy.Policy {
	return policy.Policy{
		Settings: policy.Settings{
			Deadline: deadline,
			Timeouts: policy.Timeouts{Connect: 500 * time.Millisecond, Read: 700 * time.Millisecond},
			Retry:    policy.Retry{MaxAttempts: 3, BaseDelay: 20 * time.Millisecond, Budget: share},
			Breaker:  policy.Breaker{Failures: 5, Open: 200 * time.Millisecond, OpenMax: 2 * time.Second, Key: kindOf},
			Rate:     policy.Rate{PerSecond: perSecond, Burst: burst},
			InFlight: policy.InFlight{Max: slots, MaxWait: time.Second},
		},
		Routes: []policy.Route{
			{Pattern: "/slow/", Settings: policy.Settings{Hedge: policy.Hedge{Delay: 100 * time.Millisecond}}},
			{Pattern: "/chat/", Settings: chat},
			{Pattern: "/chatdies/", Settings: chat},
			{Pattern: "/chatpings/", Settings: chat},
			{Pattern: "/chatline/", Settings: chat},
		},
	}
}

var chat = policy.Settings{Stream: policy.Stream{
	Enabled: policy.On, FirstContent: 600 * time.Millisecond, Gap: 400 * time.Millisecond, PingedGap: time.Second, Hold: policy.On,
}}

// world is where a run takes place.
type world struct {
	url     string
	base    *http.Transport
	server  *server
	workers int
	length  time.Duration
	think   time.Duration // between two calls of a worker
	virtual bool          // time is, so nothing runs late
	seed    uint64
	stop    func() // the server
}

// run makes calls until the time is over, and judges them.
func run(w world) (*report, error) {
	r := newReport(w)
	sends := &ledger{}
	t, err := transport.New(transport.Config{
		Base: w.base, Policy: rules(),
		Observer: layers.Observers(layers.ObserverFunc(sends.observe), layers.NewTracer(sends.ended)),
	})
	if err != nil {
		return nil, err
	}
	client := t.Client()
	lag := func() time.Duration { return 0 }
	if !w.virtual {
		lag = watchLag()
	}
	kinds := sortedKinds()
	start := time.Now()
	var workers sync.WaitGroup
	for n := range w.workers {
		workers.Go(func() {
			dice := rand.New(rand.NewPCG(w.seed, uint64(n)))
			for i := 0; time.Since(start) < w.length; i++ {
				kind := kinds[dice.IntN(len(kinds))]
				path := "/" + kind + "/" + name(w.seed, n, i)
				patience := time.Duration(0)
				if dice.IntN(10) == 0 { // a caller that gives up
					patience = time.Duration(dice.IntN(int(deadline)))
				}
				r.add(kind, call(client, w.url+path, path, kind, patience))
				if w.think > 0 {
					time.Sleep(time.Duration(dice.Int64N(2 * int64(w.think))))
				}
			}
		})
	}
	workers.Wait()
	r.took = time.Since(start)
	r.lag = lag()
	r.judge(t, sends)
	t.CloseIdleConnections()
	w.stop()
	r.finish()
	return r, nil
}

func sortedKinds() []string {
	var kinds []string
	for kind := range faults {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	return kinds
}

// result is what became of one call.
type result struct {
	outcome string
	took    time.Duration
	late    time.Duration // beyond its deadline
	wrong   string        // what is wrong with its body; empty: nothing
}

// call makes one call and reads its body to the end, or for a MiB.
func call(client *http.Client, url, path, kind string, patience time.Duration) result {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if patience > 0 {
		defer time.AfterFunc(patience, cancel).Stop()
	}
	limit := deadline
	if strings.HasPrefix(kind, "chat") {
		limit = job
		ctx = layers.WithDeadline(ctx, time.Now().Add(job))
	}
	method, body := http.MethodGet, io.Reader(nil)
	if kind == "post" {
		method, body = http.MethodPost, strings.NewReader("once, please")
	}
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return result{outcome: "error", wrong: err.Error()}
	}
	start := time.Now()
	resp, err := client.Do(req)
	var got []byte
	status := 0
	if err == nil {
		status = resp.StatusCode
		got, err = io.ReadAll(io.LimitReader(resp.Body, mostRead))
		_ = resp.Body.Close()
	}
	r := result{took: time.Since(start), outcome: outcome(status, err)}
	r.late = max(0, r.took-limit)
	if status == http.StatusOK {
		r.wrong = compare(kind, path, got, err)
	}
	return r
}

// compare finds what is wrong with the body of a 200.
func compare(kind, path string, got []byte, err error) string {
	want := content(path)
	switch kind {
	case "chat":
		want = []byte(strings.Repeat(event, 10) + "data: [DONE]\n\n")
	case "chatdies":
		want = []byte(strings.Repeat(event, 3))
	case "halfbody", "reset", "short":
		want = []byte(half[strings.Index(half, "\r\n\r\n")+4:])
	case "endless", "chatline", "chatpings":
		return ""
	}
	switch {
	case !bytes.HasPrefix(want, got):
		return "other bytes than were sent"
	case err == nil && (len(got) < len(want) || kind == "halfbody" || kind == "reset" || kind == "short" || kind == "chatdies"):
		return "a part of the body, without an error"
	}
	return ""
}

// outcome is one of a few words.
func outcome(status int, err error) string {
	ours, ok := errors.AsType[*layers.Error](err)
	switch {
	case err == nil && status < 300:
		return "answered"
	case err == nil:
		return "status"
	case errors.Is(err, context.Canceled):
		return "given up"
	case ok && ours.Phase == layers.PhaseDeadline:
		return "deadline"
	case ok && ours.Attempts == 0:
		return "refused"
	case ok && ours.Timeout():
		return "timeout"
	}
	return "error"
}

func name(seed uint64, worker, i int) string {
	const digits = "0123456789abcdef"
	x := rand.NewPCG(seed, uint64(worker)<<32|uint64(i)).Uint64()
	b := make([]byte, 16)
	for i := range b {
		b[i] = digits[x>>(4*i)&15]
	}
	return string(b)
}

// ledger is what was sent, and when.
type ledger struct {
	mu     sync.Mutex
	sends  []time.Time
	again  []time.Time // re-sends
	first  int         // sends
	refuse int
}

func (l *ledger) observe(_ context.Context, e layers.Event) {
	switch e.Kind {
	case layers.KindSend:
		l.mu.Lock()
		l.sends = append(l.sends, e.At)
		l.mu.Unlock()
	case layers.KindRefused:
		l.mu.Lock()
		l.refuse++
		l.mu.Unlock()
	}
}

// ended tells the sends of a call, or of one hop of its redirects, apart.
func (l *ledger) ended(_ context.Context, t layers.Trace) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := true
	for _, s := range t.Spans {
		switch {
		case s.Kind != layers.KindSend:
		case first:
			first = false
			l.first++
		default:
			l.again = append(l.again, s.Start)
		}
	}
}

// busiest returns the most of them in a second.
func busiest(sends []time.Time) (most int) {
	slices.SortFunc(sends, time.Time.Compare)
	from := 0
	for i, at := range sends {
		for at.Sub(sends[from]) >= time.Second {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}

// watchLag measures how late the machine runs a goroutine that is due: the most
// that this came to in the time that a call may take. A call that ends late may
// have waited for the machine more than once. The function that it returns ends
// that.
func watchLag() func() time.Duration {
	const beat = 5 * time.Millisecond // what is no later than that is not counted
	type delay struct {
		at     time.Time
		length time.Duration
	}
	over, done := make(chan struct{}), make(chan time.Duration)
	go func() {
		var lately []delay
		var sum, worst time.Duration
		for {
			due := time.Now().Add(beat)
			select {
			case <-over:
				done <- worst
				return
			case <-time.After(beat):
				now := time.Now()
				if late := now.Sub(due); late > beat {
					lately, sum = append(lately, delay{now, late}), sum+late
				}
				for len(lately) > 0 && now.Sub(lately[0].at) > 2*deadline {
					sum, lately = sum-lately[0].length, lately[1:]
				}
				worst = max(worst, sum)
			}
		}
	}()
	return func() time.Duration {
		close(over)
		return <-done
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
