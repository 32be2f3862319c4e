// Testing is a small API client with weir under it. What the example is about
// is its test: reports_test.go lets hours pass in milliseconds, on the clock and
// the scripted upstream of package clocktest. The program itself runs the
// client against a loopback server.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"time"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer) error {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch asked.Add(1) {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2, 3:
			w.WriteHeader(http.StatusAccepted)
		default:
			fmt.Fprint(w, "all is well")
		}
	}))
	defer server.Close()
	reports, err := NewReports(server.URL, 100*time.Millisecond, nil, nil)
	if err != nil {
		return err
	}
	text, err := reports.Report(ctx, "daily")
	fmt.Fprintf(w, "after %d requests: %q\n", asked.Load(), text)
	return err
}
