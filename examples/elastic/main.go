// Elastic has elastic-transport, which all clients of Elasticsearch are built
// on, search and index through weir, on a night on which its loopback server
// misbehaves. The table shows what became of the calls. It exits with status 1
// if that is not what should have.
//
// It is a module of its own, so that users of weir do not download the client.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/elastic/elastic-transport-go/v8/elastictransport"

	"github.com/weir-go/weir/examples/internal/night"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// table knows what the methods do not say: a search is a POST that changes
// nothing. A bulk is one that may, unless each document in it has an id.
var table = policy.Policy{
	Settings: policy.Settings{
		Deadline: 2 * time.Second,
		Timeouts: policy.Timeouts{Read: 500 * time.Millisecond},
		Retry:    policy.Retry{BaseDelay: 20 * time.Millisecond, Budget: policy.Off},
		Breaker:  policy.Breaker{Failures: 5, Open: 500 * time.Millisecond, OpenJitter: policy.Off},
	},
	Routes: []policy.Route{
		{Pattern: "/", Name: "index"},
		{Pattern: "POST /_bulk", Name: "bulk"},
		{Pattern: "POST /{index}/_search", Name: "search", Settings: policy.Settings{
			Retry: policy.Retry{Idempotent: policy.On},
		}},
	},
}

// connect returns a client of the server at url.
func connect(at *url.URL, observer layers.Observer) (*elastictransport.Client, *transport.Transport, error) {
	weir, err := transport.New(transport.Config{Policy: table, Observer: observer})
	if err != nil {
		return nil, nil, err
	}
	client, err := elastictransport.NewClient(
		elastictransport.WithURLs(at),
		elastictransport.WithTransport(weir),
		// The client sends again 3 times, at once, a bulk as readily as a search.
		// It does so to the next of its nodes, weir to the same: for several nodes
		// that have no balancer in front, leave this, and switch weir's retries off.
		elastictransport.WithDisableRetry(),
	)
	return client, weir, err
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "elastic:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer) error {
	full := night.Reply(429, `{"error":{"type":"es_rejected_execution_exception"}}`)
	gone := night.Reply(503, `{"error":{"type":"cluster_block_exception"}}`)
	fine := night.Reply(200, `{"took":1}`)
	server := night.Serve(map[string][]http.HandlerFunc{
		"PUT /logs/_doc/1":    {full, full, night.Reply(201, `{"result":"created"}`)},
		"POST /logs/_search":  {night.Silent, gone, fine},
		"POST /_bulk":         {gone},
		"POST /cold/_search":  {gone, gone, gone, fine},
		"GET /_cluster/state": {night.Cut(`{"nodes":{`)},
	})
	defer server.Close()
	at, err := url.Parse(server.URL)
	if err != nil {
		return err
	}
	watch := night.New()
	client, weir, err := connect(at, watch)
	if err != nil {
		return err
	}
	defer weir.CloseIdleConnections()

	perform := func(method, path, body string) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			req, err := http.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
			if err != nil {
				return "", err
			}
			resp, err := client.Perform(req)
			if err != nil {
				return "", err
			}
			defer resp.Body.Close()
			answer, err := io.ReadAll(resp.Body)
			return resp.Status + " " + string(answer), err
		}
	}
	const query = `{"query":{"match_all":{}}}`
	cold := perform("POST", "/cold/_search", query)
	return watch.Play(ctx, w, []night.Scene{
		{What: "a document, the queue full twice", Do: perform("PUT", "/logs/_doc/1", `{"a":1}`), Sends: "index: 429 429 201", Got: "created"},
		{What: "a search, silence and a 503", Do: perform("POST", "/logs/_search", query), Sends: "search: read timeout 503 200", Got: "took"},
		{What: "a bulk, a 503", Do: perform("POST", "/_bulk", `{"index":{}}`), Sends: "bulk: 503 (not safe)", Got: "503"},
		{What: "a large answer, cut off", Do: perform("GET", "/_cluster/state", ""), Sends: "index: 200 broken", Got: "unexpected EOF"},
		{What: "the cluster is gone", Do: cold, Sends: "search: 503 503 503 (attempts exhausted)", Got: "503"},
		{What: "and is left alone", Do: cold, Sends: "search: unsent (circuit open)", Got: "circuit open"},
		{
			What: "until it is back",
			Do: func(ctx context.Context) (string, error) {
				time.Sleep(600 * time.Millisecond)
				return cold(ctx)
			},
			Sends: "search: 200", Got: "took",
		},
	})
}
