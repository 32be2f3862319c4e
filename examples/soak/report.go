package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/weir-go/weir/transport"
)

// outcomes are the columns of the report.
var outcomes = []string{"answered", "status", "refused", "timeout", "deadline", "given up", "error"}

// report is what came of a run.
type report struct {
	mu                    sync.Mutex
	kinds                 map[string]*tally
	late                  time.Duration // the worst
	took, lag             time.Duration
	busiest, first, again int
	goroutines            [2]int    // before and after
	heap                  [2]uint64 // before and after
	world                 world
	broken                []string
}

type tally struct {
	calls    int
	outcomes map[string]int
	worst    time.Duration
}

func newReport(w world) *report {
	r := &report{kinds: map[string]*tally{}, world: w}
	for kind := range faults {
		r.kinds[kind] = &tally{outcomes: map[string]int{}}
	}
	r.goroutines[0], r.heap[0] = runtime.NumGoroutine(), heap()
	return r
}

func (r *report) add(kind string, c result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.kinds[kind]
	t.calls++
	t.outcomes[c.outcome]++
	t.worst = max(t.worst, c.took)
	r.late = max(r.late, c.late)
	if c.wrong != "" {
		r.breaks("%s: %s", kind, c.wrong)
	}
}

func (r *report) breaks(format string, a ...any) {
	r.broken = append(r.broken, fmt.Sprintf(format, a...))
}

// judge holds the run to what is promised.
func (r *report) judge(t *transport.Transport, sends *ledger) {
	const grace = 50 * time.Millisecond
	if allowed := grace + r.lag; r.late > allowed {
		r.breaks("a call outlived its deadline by %v; the machine ran what was due %v late, at most and in all, in the time of a call", r.late, r.lag)
	}
	r.world.server.mu.Lock()
	for _, path := range r.world.server.twice {
		r.breaks("%s was sent twice", path)
	}
	r.world.server.mu.Unlock()
	sends.mu.Lock()
	defer sends.mu.Unlock()
	r.busiest, r.first, r.again = busiest(sends.sends), sends.first, len(sends.again)
	// A send is noted a little after its turn: as much later as what runs late.
	if most := perSecond + burst + int(perSecond*r.lag.Seconds()); r.busiest > most {
		r.breaks("%d sends within a second, of %d allowed", r.busiest, most)
	}
	if most := int(share*float64(r.first)) + int(floor*(r.took.Seconds()+1)); r.again > most {
		r.breaks("%d re-sends for %d first sends, of %d allowed", r.again, r.first, most)
	}
	// What is in the budget, and what is paid in meanwhile.
	if n, most := busiest(sends.again), int((2+r.lag.Seconds())*floor+share*(perSecond+burst)); n > most {
		r.breaks("%d re-sends within a second, of %d allowed", n, most)
	}
	for _, s := range t.Slots() {
		if s.Used != 0 || s.Waiting != 0 {
			r.breaks("%d slots are still taken, and %d wait for one", s.Used, s.Waiting)
		}
	}
	for _, b := range t.Budgets() {
		if b.Waiting != 0 {
			r.breaks("%d still wait for a turn", b.Waiting)
		}
	}
}

// finish looks at what is left once all has ended.
func (r *report) finish() {
	for range 100 { // net/http ends its own a little later
		if r.goroutines[1] = runtime.NumGoroutine(); r.goroutines[1] <= r.goroutines[0] {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if r.goroutines[1] > r.goroutines[0] {
		r.breaks("%d goroutines are left, of %d in the beginning", r.goroutines[1], r.goroutines[0])
	}
	r.world.server.mu.Lock()
	r.world.server.seen = nil // the server's own memory
	r.world.server.mu.Unlock()
	r.heap[1] = heap()
	const most = 16 << 20
	if r.heap[1] > r.heap[0]+most {
		r.breaks("%s of memory are left, of %s in the beginning", mib(r.heap[1]), mib(r.heap[0]))
	}
}

func mib(n uint64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// print writes the report. The error joins the promises that were broken.
func (r *report) print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "server\tcalls\t")
	for _, o := range outcomes {
		fmt.Fprintf(table, "%s\t", o)
	}
	fmt.Fprintln(table, "longest\t")
	calls := 0
	for _, kind := range sortedKinds() {
		t := r.kinds[kind]
		calls += t.calls
		fmt.Fprintf(table, "%s\t%d\t", kind, t.calls)
		for _, o := range outcomes {
			fmt.Fprintf(table, "%d\t", t.outcomes[o])
		}
		fmt.Fprintf(table, "%v\t\n", t.worst.Round(time.Millisecond))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, `
calls                   %d in %v
sends                   %d, and %d of them again (of %.0f%% and %d a second allowed)
sends in a second       %d at most (of %d allowed)
beyond a deadline       %v at most (and the machine was %v late itself)
goroutines              %d before, %d after
memory                  %s before, %s after
`, calls, r.took.Round(time.Millisecond), r.first+r.again, r.again, share*100, floor, r.busiest, perSecond+burst,
		r.late.Round(10*time.Microsecond), r.lag.Round(10*time.Microsecond), r.goroutines[0], r.goroutines[1], mib(r.heap[0]), mib(r.heap[1]))
	var broken []error
	for _, b := range r.broken {
		broken = append(broken, errors.New("BROKEN: "+b))
	}
	if broken == nil {
		fmt.Fprintln(w, "\nevery promise was kept")
	}
	return errors.Join(broken...)
}
