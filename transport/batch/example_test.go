package batch_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
	"github.com/weir-go/weir/transport/batch"
)

// Fifty thousand documents from one in the morning, whose summaries are needed
// by seven. Ten minutes of retrying each is nothing, as long as not all of them
// take it: the deadline sees to that.
func ExamplePlan() {
	fmt.Print(batch.Plan{
		Items:     50_000,
		Mean:      8 * time.Second,
		Workers:   40,
		Allowance: 10 * time.Minute,
		Window:    6 * time.Hour,
		Deadline:  5*time.Hour + 30*time.Minute,
	})
	// Output:
	// work        50,000 items x 8s = 4.6 worker-days
	// wall clock  2h46m40s on 40 workers
	// window      6h, which leaves 3h13m20s of slack
	// deadline    5h30m, which is 30m before the window ends
	// at worst    50,000 items x 10m = 347 worker-days without a deadline
	//             40 workers x 5h30m = 9.2 worker-days with it
	// allowance   10m each; 662 items may use it up before any is left at the deadline
}

// The second run goes on where the first stopped.
func ExampleRun() {
	// A server that takes an hour for the fourth document.
	night := clock.NewMock() // the real clock, outside of examples
	answered := 0
	api := layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		if answered++; answered == 4 {
			night.Add(time.Hour)
			<-req.Context().Done()
			return nil, context.Cause(req.Context())
		}
		return &http.Response{
			Status: "200 OK", StatusCode: http.StatusOK, Header: http.Header{},
			Body: io.NopCloser(strings.NewReader("summary")),
		}, nil
	})
	weir, err := transport.New(transport.Config{Base: api, Clock: night, Policy: policy.Policy{Settings: policy.Batch()}})
	if err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "batch")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	documents := []string{"a.txt", "b.txt", "c.txt", "d.txt", "e.txt"}
	job := batch.Config{
		Job:    "summaries of 2026-01-05",
		Within: time.Hour, // or Deadline, for an instant
		Clock:  night,
		Store:  batch.File(filepath.Join(dir, "summaries.cursor")),
	}
	for range 2 {
		report, err := batch.Run(context.Background(), job, batch.Strings(documents), func(ctx context.Context, name string) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://api.example.com/"+name, nil)
			if err != nil {
				return err
			}
			resp, err := weir.Client().Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return batch.StatusError(resp)
			}
			_, err = io.Copy(io.Discard, resp.Body) // or keep it, safely
			return err
		})
		fmt.Println(report.Resumed, "done before,", report.Done, "now,", report.Unprocessed, "unprocessed")
		fmt.Println(err)
	}
	// Output:
	// 0 done before, 3 now, 2 unprocessed
	// batch: 2 of 5 items are unprocessed: the time of the job is up
	// 3 done before, 2 now, 0 unprocessed
	// <nil>
}
