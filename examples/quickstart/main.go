// Quickstart runs one plain http.Client, with weir as its Transport, against a
// loopback server whose endpoints each fail in their own way. It prints what
// became of each call, how long that took against how long the policy allows,
// and what happened on the way. It exits with status 1 if a call outlived its
// deadline by more than a busy machine accounts for.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// The deadlines of the policy, which the table below compares with.
const (
	usual  = 600 * time.Millisecond
	export = 3 * time.Second
)

// table is the policy: what holds for every call, and what for single endpoints.
var table = policy.Policy{
	Settings: policy.Settings{
		Deadline: usual,
		Timeouts: policy.Timeouts{Write: 200 * time.Millisecond, Read: 300 * time.Millisecond},
		Retry:    policy.Retry{BaseDelay: 20 * time.Millisecond, MaxDelay: 100 * time.Millisecond},
	},
	Routes: []policy.Route{
		{Pattern: "GET /export", Name: "export", Settings: policy.Settings{
			Deadline: export,
			Timeouts: policy.Timeouts{Read: time.Second},
		}},
		{Pattern: "POST /upload", Name: "upload", Settings: policy.Settings{
			Retry: policy.Retry{Enabled: policy.Off},
		}},
	},
}

var calls = []struct {
	what, method, path string
	body               []byte
	allowed            time.Duration
}{
	{"answers at once", "GET", "/fine", nil, usual},
	{"503 twice, then fine", "GET", "/flaky", nil, usual},
	{"503, asks for a minute's wait", "GET", "/busy", nil, usual},
	{"never answers", "GET", "/silent", nil, usual},
	{"headers, then a silent body", "GET", "/half", nil, usual},
	{"redirects, each after 250 ms", "GET", "/hop/1", nil, usual},
	{"does not read the upload", "POST", "/upload", make([]byte, 16<<20), usual},
	{"slow export, with a deadline of its own", "GET", "/export", nil, export},
}

func main() {
	late, err := run(context.Background(), os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
	if late > 0 {
		fmt.Fprintf(os.Stderr, "quickstart: %d calls outlived their deadline\n", late)
		os.Exit(1)
	}
}

// allowance is how long after its deadline a call may end, besides the time by
// which the machine runs late anyway: several goroutines take part in its end.
const allowance = 50 * time.Millisecond

// run makes the calls and writes the report. late is how many of them outlived
// their deadline.
func run(ctx context.Context, w io.Writer) (late int, err error) {
	url, stop, err := serve()
	if err != nil {
		return 0, err
	}
	defer stop()

	timeline := new(layers.Timeline)
	weir, err := transport.New(transport.Config{Policy: table, Observer: timeline})
	if err != nil {
		return 0, err
	}
	defer weir.CloseIdleConnections()
	client := &http.Client{Transport: weir}

	tab := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tab, "the server\ttook\tof\toutcome")
	for _, c := range calls {
		req, err := http.NewRequestWithContext(ctx, c.method, url+c.path, bytes.NewReader(c.body))
		if err != nil {
			return 0, err
		}
		delay := pulse()
		start := time.Now()
		outcome := do(client, req)
		took := time.Since(start)
		if took > c.allowed+allowance+3*delay() {
			late++
			outcome = "TOO LATE: " + outcome
		}
		fmt.Fprintf(tab, "%s\t%v\t%v\t%s\n", c.what, took.Round(100*time.Microsecond), c.allowed, outcome)
	}
	if err := tab.Flush(); err != nil {
		return 0, err
	}
	// The timeline has one paragraph a call, in the order in which they began.
	for i, events := range strings.Split(timeline.String(), "\n\n") {
		fmt.Fprintf(w, "\n%s %s: %s\n%s\n", calls[i].method, calls[i].path, calls[i].what, strings.TrimRight(events, "\n"))
	}
	return late, nil
}

// do makes a call, reads the response to its end, and says what came of it.
func do(client *http.Client, req *http.Request) string {
	resp, err := client.Do(req)
	if err != nil {
		return describe(err)
	}
	defer func() { _ = resp.Body.Close() }()
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil {
		return fmt.Sprintf("%d, %d bytes, then %s", resp.StatusCode, n, describe(err))
	}
	outcome := resp.Status
	if call, ok := layers.CallFrom(resp.Request.Context()); ok {
		outcome += fmt.Sprintf(", sends: %d", call.Attempts())
		if reason := call.Reason(); reason != "" {
			outcome += ", " + reason
		}
	}
	return outcome
}

// describe leaves out the method and URL, which the table has already.
func describe(err error) string {
	if e, ok := errors.AsType[*layers.Error](err); ok {
		return e.Error()
	}
	return err.Error()
}
