package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// Reports is a client of a service that takes hours to write a report.
type Reports struct {
	url   string
	every time.Duration // between two looks at a report
	http  *http.Client
	clock clock.Clock
}

// NewReports returns a client. The base and the clock are what a test replaces;
// nil, they are the network and the real clock.
func NewReports(url string, every time.Duration, base http.RoundTripper, c clock.Clock) (*Reports, error) {
	weir, err := transport.New(transport.Config{
		Base:  base,
		Clock: c,
		Policy: policy.Policy{
			Settings: policy.Settings{
				Deadline: 10 * time.Second,
				Timeouts: policy.Timeouts{Read: 4 * time.Second},
				Retry:    policy.Retry{BaseDelay: 100 * time.Millisecond, MaxDelay: time.Second},
			},
		},
	})
	if err != nil {
		return nil, err
	}
	if c == nil {
		c = clock.New()
	}
	return &Reports{url: url, every: every, http: &http.Client{Transport: weir}, clock: c}, nil
}

// Report returns a report, and waits for it as long as ctx allows.
func (r *Reports) Report(ctx context.Context, name string) (string, error) {
	for {
		text, ready, err := r.look(ctx, name)
		if ready || err != nil {
			return text, err
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-r.clock.After(r.every):
		}
	}
}

// look is one call: weir bounds it, and repeats it where that helps.
func (r *Reports) look(ctx context.Context, name string) (text string, ready bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/reports/"+name, nil)
	if err != nil {
		return "", false, err
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return "", false, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return "", false, err
	case resp.StatusCode == http.StatusAccepted:
		return "", false, nil
	case resp.StatusCode != http.StatusOK:
		return "", false, fmt.Errorf("report %s: %s", name, resp.Status)
	}
	return string(body), true, nil
}
