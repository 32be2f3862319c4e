package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
	"github.com/weir-go/weir/transport/batch"
)

const workers = 8

// documents are the names of what is to be summarized.
var documents = func() []string {
	list := make([]string, 500)
	for i := range list {
		list[i] = fmt.Sprintf("document-%03d", i)
	}
	return list
}()

// table is generous with each document, since the job has a deadline.
var table = policy.Policy{
	Settings: policy.Batch().With(policy.Settings{
		Retry:   policy.Retry{BaseDelay: 50 * time.Millisecond, Budget: policy.Off},
		Breaker: policy.Breaker{Failures: 5, Open: 100 * time.Millisecond, OpenMax: 200 * time.Millisecond},
	}),
}

// job is one run of the job.
type job struct {
	url, cursor string
	within      time.Duration
}

// The statuses that a run exits with.
const (
	exitDone     = 0
	exitFailed   = 1
	exitDeadline = 3
)

// The variables of the environment that make the program a run of the job.
const (
	envURL    = "WEIR_EXAMPLE_URL"
	envCursor = "WEIR_EXAMPLE_CURSOR"
	envWithin = "WEIR_EXAMPLE_WITHIN"
)

func (j job) env() []string {
	return []string{envURL + "=" + j.url, envCursor + "=" + j.cursor, envWithin + "=" + j.within.String()}
}

func jobFromEnv() (j job, ok bool) {
	j.url, ok = os.LookupEnv(envURL)
	j.cursor = os.Getenv(envCursor)
	j.within, _ = time.ParseDuration(os.Getenv(envWithin))
	return j, ok
}

// run runs the job and returns the status to exit with.
func (j job) run(ctx context.Context) int {
	weir, err := transport.New(transport.Config{Policy: table})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	client := weir.Client()
	report, err := batch.Run(ctx, batch.Config{
		Job:           "summaries",
		Workers:       workers,
		Within:        j.within,
		Store:         batch.File(j.cursor),
		Progress:      os.Stdout,
		ProgressEvery: 300 * time.Millisecond,
	}, batch.Strings(documents), func(ctx context.Context, name string) error {
		return summarize(ctx, client, j.url+"/"+name)
	})
	fmt.Fprintf(os.Stdout, "  %v\n", report)
	if err != nil {
		fmt.Fprintln(os.Stdout, " ", err)
	}
	for _, f := range report.Failed {
		fmt.Fprintf(os.Stdout, "  %s: %v\n", f.Name, f.Err)
	}
	switch {
	case errors.Is(err, batch.ErrDeadline):
		return exitDeadline
	case err != nil || len(report.Failed) > 0:
		return exitFailed
	}
	return exitDone
}

// summarize has one document summarized.
func summarize(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return batch.StatusError(resp)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
