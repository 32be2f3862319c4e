// Derive measures a loopback server for a few seconds and works out which
// timeouts it needs. The server answers searches, and streams the answers of a
// chat, to short prompts and to long ones; one call in a hundred dies on it. The
// limits in force are a guess, the same for all. The program prints those that
// the measurements call for beside them, and draws the distributions with both.
//
//	go run ./examples/derive -svg limits.svg
//
// Times are about a fiftieth of what a model takes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
	"github.com/weir-go/weir/transport/derive"
)

// guess is the policy in force: what somebody typed.
var guess = policy.Policy{
	Settings: policy.Settings{Deadline: 1200 * time.Millisecond, Retry: policy.Retry{Enabled: policy.Off}},
	Routes: []policy.Route{
		{Pattern: "GET /search", Name: "search", Settings: policy.Settings{
			Timeouts: policy.Timeouts{Read: 600 * time.Millisecond},
		}},
		{Pattern: "POST /chat", Name: "chat", Settings: policy.Settings{
			Stream: policy.Stream{
				Enabled: policy.On, FirstContent: 600 * time.Millisecond, Gap: 600 * time.Millisecond,
				PingedGap: time.Second, ThinkingGap: time.Second, ToolGap: time.Second,
			},
		}},
	},
}

var (
	searches = derive.Group{Route: "search"}
	short    = derive.Group{Route: "chat", Bucket: "short"}
	long     = derive.Group{Route: "chat", Bucket: "30k"}
)

const (
	calls   = 400 // of each group
	workers = 24  // of each group
)

const columnNames = `present is the limit in force, derived is p99 times x; kills is the share of healthy calls that it
ends, and delay how much longer a dead one is waited for than half of the healthy ones take;
cut and failed are the calls that p99 leaves out
`

func main() {
	svg := flag.String("svg", "", "where to write the picture; nowhere if empty")
	flag.Parse()
	plan, err := run(context.Background(), os.Stdout, *svg)
	if err == nil {
		err = check(plan)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "derive:", err)
		os.Exit(1)
	}
}

// run measures, prints and draws, and puts the derived limits in force.
func run(ctx context.Context, w io.Writer, svg string) (*derive.Plan, error) {
	server := httptest.NewServer(newServer())
	defer server.Close()
	base := transport.Base()
	base.MaxIdleConnsPerHost = 3 * workers
	defer base.CloseIdleConnections()
	cold, err := transport.New(transport.Config{Base: base, Policy: guess})
	if err != nil {
		return nil, err
	}
	recorder := new(derive.Recorder)
	weir, err := transport.New(transport.Config{Base: base, Policy: guess, Observer: recorder})
	if err != nil {
		return nil, err
	}
	traffic(ctx, cold, server.URL, workers) // that all connect at once is not what is measured
	start := time.Now()
	traffic(ctx, weir, server.URL, calls)
	snapshot := recorder.Snapshot()
	fmt.Fprintf(w, "%d calls in %.1f s\n\n", 3*calls, time.Since(start).Seconds())

	settings, err := inForce(guess)
	if err != nil {
		return nil, err
	}
	plan, err := derive.Derive(snapshot, derive.Options{
		Present: settings,
		Least:   20 * time.Millisecond, // there is no network here that could lose a packet
	})
	var few *derive.TooFewError
	if err != nil && !errors.As(err, &few) {
		return nil, err
	}
	fmt.Fprintln(w, plan)
	fmt.Fprint(w, columnNames)
	if err != nil {
		fmt.Fprintf(w, "\nnot derived:\n%v\n", err)
	}

	fmt.Fprint(w, "\nin flight at worst, at the measured rates and under the limits in force:\n")
	for _, load := range snapshot.Loads(settings, policy.Room{Files: derive.Files(), Memory: 64 << 20, PerCall: 1 << 20}) {
		name := load.Route
		if load.All {
			name = "all"
		}
		excess := load.Excess
		if len(excess) == 0 {
			excess = []string{fmt.Sprintf("%g/s x %v = %d, which fit", load.PerSecond, load.Stay, load.InFlight())}
		}
		for _, e := range excess {
			fmt.Fprintf(w, "  %-6s  %s\n", name, e)
		}
	}

	picture, err := plan.Draw(snapshot)
	if err != nil {
		return nil, err
	}
	if svg != "" {
		if err := os.WriteFile(svg, picture, 0o600); err != nil {
			return nil, err
		}
		fmt.Fprintf(w, "\nthe distributions with their limits: %s\n", svg)
	}
	derived, err := plan.Apply(guess)
	if err != nil {
		return nil, err
	}
	return plan, weir.Update(derived)
}

// traffic makes n calls of each group.
func traffic(ctx context.Context, weir *transport.Transport, url string, n int) {
	var group sync.WaitGroup
	for _, g := range []derive.Group{searches, short, long} {
		work := make(chan int, n)
		for i := range n {
			work <- i
		}
		close(work)
		for range workers {
			group.Go(func() {
				for range work {
					call(derive.WithBucket(ctx, g.Bucket), weir.Client(), url, g)
				}
			})
		}
	}
	group.Wait()
}

// call makes one call. Whether it succeeds is for the recorder to see.
func call(ctx context.Context, client *http.Client, url string, g derive.Group) {
	method, path := http.MethodGet, "/search"
	if g.Route == "chat" {
		method, path = http.MethodPost, "/chat?prompt="+g.Bucket
	}
	req, err := http.NewRequestWithContext(ctx, method, url+path, strings.NewReader("what is a weir?"))
	if err != nil {
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
}

// inForce resolves the settings of the policy's routes.
func inForce(p policy.Policy) (func(derive.Group) policy.Settings, error) {
	table, err := policy.Compile(p)
	if err != nil {
		return nil, err
	}
	routes := map[string]policy.Settings{}
	for _, line := range []*policy.Line{table.Line("GET", "", "/search"), table.Line("POST", "", "/chat")} {
		r, err := line.Resolve(policy.Settings{}, nil)
		if err != nil {
			return nil, err
		}
		routes[r.Route] = r.Settings
	}
	return func(g derive.Group) policy.Settings { return routes[g.Route] }, nil
}

// check finds out whether the limits are what they should be.
func check(plan *derive.Plan) error {
	a, b := plan.Settings(short).Stream.FirstContent, plan.Settings(long).Stream.FirstContent
	switch {
	case a == 0 || b == 0 || plan.Settings(searches).Timeouts.Read == 0 || plan.Settings(long).Stream.Gap == 0:
		return errors.New("a limit could not be derived")
	case a > b:
		return fmt.Errorf("short prompts have %v, long ones %v", a, b)
	}
	return nil
}
