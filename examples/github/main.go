// Github has go-github work through weir, on a night on which its loopback
// server misbehaves and runs out of quota. The table shows what became of the
// calls. It exits with status 1 if that is not what should have.
//
// It is a module of its own, so that users of weir do not download the client.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/google/go-github/v88/github"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/weir-go/weir/examples/internal/night"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// table keeps to what GitHub asks of its clients: a pace, and a pause whenever it
// says so.
var table = policy.Policy{
	Settings: policy.Settings{
		Deadline: 4 * time.Second,
		Timeouts: policy.Timeouts{Read: 500 * time.Millisecond},
		Retry:    policy.Retry{BaseDelay: 20 * time.Millisecond, Budget: policy.Off, Check: check},
		Rate:     policy.Rate{PerSecond: 15, Burst: 10}, // 900 a minute
	},
	Routes: []policy.Route{{Pattern: "/", Name: "api"}},
}

// check knows that GitHub says 403 for its secondary limit too, and when to come
// back; without that, a 403 is one.
func check(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if err == nil && resp.StatusCode == http.StatusForbidden {
		return resp.Header.Get("Retry-After") != "", nil
	}
	return retryablehttp.DefaultRetryPolicy(ctx, resp, err)
}

// connect returns a client of the server at url.
func connect(url string, observer layers.Observer) (*github.Client, error) {
	weir, err := transport.New(transport.Config{Policy: table, Observer: observer})
	if err != nil {
		return nil, err
	}
	return github.NewClient(
		github.WithTransport(weir),
		// The client refuses by itself what is over the limit that it last heard of.
		// With weir under it, a call waits for the reset, if its deadline allows.
		github.WithDisableRateLimitCheck(),
		github.WithAuthToken("none"),
		github.WithURLs(&url, nil),
	)
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "github:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer) error {
	const secondary = `{"message":"slow down","documentation_url":"https://docs.github.com/secondary-rate-limits"}`
	list := night.Reply(200, `[{"number":1,"title":"one"},{"number":2,"title":"two"}]`)
	busy := night.Reply(502, "")
	server := night.Serve(map[string][]http.HandlerFunc{
		"GET /repos/o/flaky/issues":   {busy, night.Silent, list},
		"POST /repos/o/flaky/issues":  {busy},
		"GET /repos/o/secret/issues":  {night.Reply(403, `{"message":"Resource not accessible"}`)},
		"GET /repos/o/popular/issues": {night.Reply(403, secondary, "Retry-After", "1"), list},
		"GET /repos/o/viral/issues":   {night.Reply(403, secondary, "Retry-After", "60")},
		"GET /repos/o/last/issues":    {lastOfTheHour},
		"GET /repos/o/next/issues":    {list},
	})
	defer server.Close()
	watch := night.New()
	client, err := connect(server.URL+"/", watch)
	if err != nil {
		return err
	}

	issues := func(repo string) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			list, _, err := client.Issues.ListByRepo(ctx, "o", repo, nil)
			return fmt.Sprintf("%d issues", len(list)), err
		}
	}
	return watch.Play(ctx, w, []night.Scene{
		{What: "a 502, then silence", Do: issues("flaky"), Sends: "api: 502 read timeout 200", Got: "2 issues"},
		{
			What: "an issue opened, a 502",
			Do: func(ctx context.Context) (string, error) {
				_, _, err := client.Issues.Create(ctx, "o", "flaky", &github.IssueRequest{Title: new("three")})
				return "", err
			},
			Sends: "api: 502 (not safe)", Got: "502",
		},
		{What: "a repository of others", Do: issues("secret"), Sends: "api: 403", Got: "not accessible"},
		{What: "the secondary limit, for a second", Do: issues("popular"), Sends: "api: 403 200", Waits: time.Second, Got: "2 issues"},
		{What: "the secondary limit, for a minute", Do: issues("viral"), Sends: "api: 403 (deadline exhausted)", Got: "retry after 1m0s"},
		{What: "the last call of the hour", Do: issues("last"), Sends: "api: 200", Got: "0 issues"},
		{What: "the next call", Do: issues("next"), Sends: "api: 200", Waits: 500 * time.Millisecond, Got: "2 issues"},
	})
}

// lastOfTheHour says that the quota is used up, and when there is another:
// soon, for the sake of the example.
func lastOfTheHour(w http.ResponseWriter, r *http.Request) {
	next := time.Now().Add(1600 * time.Millisecond).Unix()
	night.Reply(200, "[]", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", strconv.FormatInt(next, 10))(w, r)
}
