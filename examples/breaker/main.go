// Breaker runs four workers against a loopback server that has an outage, with
// a circuit breaker between. It prints what happened to the calls before,
// during and after the outage, how many of them the server got, and when the
// circuit changed. It exits with status 1 if the server was not spared, or if
// the circuit has not closed again by the end.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

const (
	workers = 4
	every   = 20 * time.Millisecond // a worker makes a call
	spell   = time.Second           // before and after the outage
	outage  = 2 * time.Second
	open    = 250 * time.Millisecond
)

var table = policy.Policy{
	Settings: policy.Settings{
		Deadline: time.Second,
		Retry:    policy.Retry{Enabled: policy.Off}, // to count calls, not sends
		Breaker:  policy.Breaker{Failures: 5, Open: open, OpenMax: 2 * open},
	},
}

// spared is how many requests the server may get during the outage: the
// failures that open the circuit, those that were under way at the time, and a
// probe each time the circuit was open long enough.
const spared = 5 + workers + int(outage/open) + 1

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "breaker:", err)
		os.Exit(1)
	}
}

// stage is a part of the run, and what became of the calls made in it.
type stage struct {
	name    string
	length  time.Duration
	good    atomic.Int32 // answered by the server
	failed  atomic.Int32 // likewise, with a 503
	refused atomic.Int32 // never sent
}

func run(ctx context.Context, w io.Writer) error {
	var (
		stages = []*stage{{name: "before", length: spell}, {name: "outage", length: outage}, {name: "after", length: spell}}
		now    atomic.Pointer[stage]
	)
	now.Store(stages[0])
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s := now.Load()
		if s.name != "outage" {
			s.good.Add(1)
			return
		}
		s.failed.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()

	changes := &changes{start: time.Now()}
	weir, err := transport.New(transport.Config{Policy: table, Observer: changes})
	if err != nil {
		return err
	}
	defer weir.CloseIdleConnections()
	client := &http.Client{Transport: weir}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for tick := time.NewTicker(every); ; {
				select {
				case <-ctx.Done():
					tick.Stop()
					return
				case <-tick.C:
					if call(ctx, client, server.URL) {
						now.Load().refused.Add(1)
					}
				}
			}
		})
	}
	for _, s := range stages {
		now.Store(s)
		time.Sleep(s.length)
	}
	stop()
	group.Wait()

	tab := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tab, "\tcalls\tanswered\tfailed\trefused\tthe server got\t")
	for _, s := range stages {
		good, failed, refused := s.good.Load(), s.failed.Load(), s.refused.Load()
		fmt.Fprintf(tab, "%s\t%d\t%d\t%d\t%d\t%d\t\n", s.name, good+failed+refused, good, failed, refused, good+failed)
	}
	tab.Flush()
	fmt.Fprintf(w, "\n%s", changes)

	if got := int(stages[1].failed.Load()); got > spared {
		return fmt.Errorf("the server got %d requests during its outage, more than %d", got, spared)
	}
	for _, b := range weir.Breakers() {
		if state := b.State(); state != layers.StateClosed {
			return fmt.Errorf("the circuit of %s is %s", b.Key(), state)
		}
	}
	return nil
}

// call makes one call, and reports whether the circuit refused it.
func call(ctx context.Context, client *http.Client, url string) (refused bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		e, ours := errors.AsType[*layers.Error](err)
		return ours && e.Phase == layers.PhaseBreaker
	}
	_ = resp.Body.Close()
	return false
}

// changes is an Observer that notes when the circuit changed.
type changes struct {
	start time.Time
	mu    sync.Mutex
	lines string
}

func (c *changes) Observe(_ context.Context, e layers.Event) {
	if e.Kind != layers.KindBreaker {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines += fmt.Sprintf("%6v  the circuit is %s", e.At.Sub(c.start).Round(time.Millisecond), e.State)
	if e.State == layers.StateOpen {
		c.lines += fmt.Sprintf(" for %v", e.Wait.Round(time.Millisecond))
	}
	c.lines += "\n"
}

func (c *changes) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lines
}
