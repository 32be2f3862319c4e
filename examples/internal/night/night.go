// Package night is what the examples with the clients of others share: a bad
// night in scenes, each a call of the client to a server that misbehaves, a
// table of what weir did about it, and a judge.
package night

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/weir-go/weir/layers"
)

// Scene is what happens, what a client does, and what should become of it.
type Scene struct {
	What string
	// Do makes the calls, and returns what came of them in a few words.
	Do func(context.Context) (got string, err error)
	// Sends is what became of each call of the scene, in the order in which they
	// began: its route, what came of each send, and why there was no further one.
	Sends string
	// Waits is the least that the calls wait for it, by the server's word.
	Waits time.Duration
	// Got is part of what Do returns, or of its error's text.
	Got string
}

// most is how long a scene may take: the deadlines of the examples are shorter.
const most = 5 * time.Second

// Night watches calls. Its zero value is not ready: use New.
type Night struct {
	*layers.Tracer

	mu     sync.Mutex
	traces []layers.Trace
}

// New returns a Night, which is to be the Observer of the transport.
func New() *Night {
	n := new(Night)
	n.Tracer = layers.NewTracer(func(_ context.Context, t layers.Trace) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.traces = append(n.traces, t)
	})
	return n
}

// Play plays the scenes, one after another, and writes the table. It returns an
// error for each scene that did not end as it should have.
func (n *Night) Play(ctx context.Context, w io.Writer, scenes []Scene) error {
	tab := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tab, "the night\tsends\twaited\ttook\tthe client got")
	var wrong []error
	for _, s := range scenes {
		start := time.Now()
		got, err := s.Do(ctx)
		took := time.Since(start)
		if err != nil {
			got = strings.Join(strings.Fields(err.Error()), " ")
		}
		traces := n.take()
		sends, waited := words(traces), waits(traces)
		fmt.Fprintf(tab, "%s\t%s\t%v\t%v\t%s\n", s.What, sends, waited.Round(time.Millisecond), took.Round(time.Millisecond), got)
		switch {
		case sends != s.Sends:
			err = fmt.Errorf("the sends were %q, want %q", sends, s.Sends)
		case waited < s.Waits || took > most:
			err = fmt.Errorf("waited %v of %v, want %v or more, within %v", waited, took, s.Waits, most)
		case !strings.Contains(got, s.Got):
			err = fmt.Errorf("the client got %q, want %q", got, s.Got)
		default:
			continue
		}
		wrong = append(wrong, fmt.Errorf("%s: %w", s.What, err))
	}
	tab.Flush()
	return errors.Join(wrong...)
}

// take returns the traces of the calls since the last time. A client may close a
// body a little after it said that it is done.
func (n *Night) take() []layers.Trace {
	for start := time.Now(); len(n.Live()) > 0 && time.Since(start) < time.Second; {
		time.Sleep(time.Millisecond)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	traces := n.traces
	n.traces = nil
	slices.SortStableFunc(traces, func(a, b layers.Trace) int { return a.Start.Compare(b.Start) })
	return traces
}

func waits(traces []layers.Trace) (sum time.Duration) {
	for i := range traces {
		for _, d := range traces[i].Waited() {
			sum += d
		}
	}
	return sum
}

// words says what became of calls. Those that went alike are counted.
func words(traces []layers.Trace) string {
	var list []string
	count := map[string]int{}
	for i := range traces {
		text := describe(&traces[i])
		if count[text]++; count[text] == 1 {
			list = append(list, text)
		}
	}
	for i, text := range list {
		if n := count[text]; n > 1 {
			list[i] = fmt.Sprintf("%d x %s", n, text)
		}
	}
	return strings.Join(list, " | ")
}

func describe(t *layers.Trace) string {
	list := []string{t.Route + ":"}
	for _, s := range t.Spans {
		if s.Kind != layers.KindSend {
			continue
		}
		if s.Status > 0 {
			list = append(list, strconv.Itoa(s.Status))
		}
		switch e, ours := errors.AsType[*layers.Error](s.Err); {
		case s.Err == nil, t.Abandoned: // the client had enough
		case ours && e.Timeout():
			list = append(list, string(e.Phase)+" timeout")
		default:
			list = append(list, "broken")
		}
	}
	if t.Attempts == 0 {
		list = append(list, "unsent")
	}
	if t.Reason != "" {
		list = append(list, "("+t.Reason+")")
	}
	return strings.Join(list, " ")
}
