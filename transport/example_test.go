package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/stream"
	"github.com/weir-go/weir/transport"
)

// api is a base that answers at once, for examples that are not about servers.
var api = layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Request: req, Header: http.Header{},
		Body: io.NopCloser(strings.NewReader("report 7")),
	}, nil
})

func ExampleNew() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "you asked for ", r.URL.Path)
	}))
	defer server.Close()

	weir, err := transport.New(transport.Config{Policy: policy.Policy{
		Settings: policy.Settings{Deadline: 20 * time.Second},
		Routes: []policy.Route{
			{Pattern: "GET /reports/", Settings: policy.Settings{Deadline: 5 * time.Minute}},
		},
	}})
	if err != nil {
		log.Fatal(err) // the policy could not work: err lists why
	}
	client := &http.Client{Transport: weir}

	resp, err := client.Get(server.URL + "/reports/7")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body) // bounded too
	fmt.Println(string(body), err)
	// Output: you asked for /reports/7 <nil>
}

// A policy that could not work is refused with all its faults.
func ExampleNew_refused() {
	_, err := transport.New(transport.Config{Policy: policy.Policy{
		Settings: policy.Settings{Deadline: 20 * time.Second},
		Routes: []policy.Route{
			{Pattern: "GET /reports/", Settings: policy.Settings{Timeouts: policy.Timeouts{Read: 5 * time.Minute}}},
			{Pattern: "POST /orders", Settings: policy.Settings{Retry: policy.Retry{MaxAttempts: 50}}},
		},
	}})
	fmt.Println(err)
	fault, _ := errors.AsType[*policy.ConfigError](err)
	fmt.Println(fault.Route, "|", fault.Field, "|", fault.Value)
	// Output:
	// route "POST /orders": Retry.MaxAttempts is 50, limit 1 to 10, or Off: it is out of range; choose a value within it
	// route "GET /reports/": Timeouts.Read is 5m0s, limit 20s: it outlasts Deadline (policy); shorten it, or set a longer Deadline beside it
	// POST /orders | Retry.MaxAttempts | 50
}

// The settings of all routes that match are merged, whatever their order: the
// host's rate and the endpoint's deadline both hold.
func ExampleNew_routes() {
	weir, err := transport.New(transport.Config{Base: api, Policy: policy.Policy{
		Settings: policy.Settings{Deadline: 20 * time.Second},
		Routes: []policy.Route{
			{Pattern: "GET api.example.com/reports/", Name: "reports", Settings: policy.Settings{
				Deadline: 5 * time.Minute,
			}},
			{Pattern: "api.example.com/", Name: "api", Settings: policy.Settings{
				Rate: policy.Rate{PerSecond: 50, Burst: 10},
			}},
		},
	}})
	if err != nil {
		log.Fatal(err)
	}
	for _, url := range []string{"http://api.example.com/reports/7", "http://api.example.com/users", "http://other.example.com/"} {
		resp, err := weir.Client().Get(url)
		if err != nil {
			log.Fatal(err)
		}
		call, _ := layers.CallFrom(resp.Request.Context())
		at, _ := call.Deadline()
		fmt.Printf("%q has %v\n", call.Route(), at.Sub(call.Start()))
		resp.Body.Close()
	}
	// Output:
	// "reports" has 5m0s
	// "api" has 20s
	// "" has 20s
}

// On a stream route the deadline bounds the opening, and limits on content the
// rest. With Hold, which Interactive has on, an answer that dies before its first
// content is asked for again, and the caller sees none of it.
func ExampleNew_stream() {
	answers := []string{
		": keep-alive\n\n" + `data: {"error": {"type": "server_error", "message": "overloaded"}}` + "\n\n",
		`data: {"choices": [{"delta": {"content": "Hello"}}]}` + "\n\ndata: [DONE]\n\n",
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, answers[0])
		answers = answers[1:]
	}))
	defer server.Close()

	weir, err := transport.New(transport.Config{Policy: policy.Policy{
		Routes: []policy.Route{
			{Pattern: "POST /v1/chat/completions", Settings: policy.Interactive().With(policy.Settings{
				Stream: policy.Stream{FirstContent: 4 * time.Second, Gap: 20 * time.Second},
				Retry:  policy.Retry{BaseDelay: 100 * time.Millisecond},
			})},
		},
	}})
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: weir}

	resp, err := client.Post(server.URL+"/v1/chat/completions", "application/json", strings.NewReader(`{"stream": true}`))
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body) // a *stream.StallError if it dies
	fmt.Print(string(body), err, "\n")

	call, _ := layers.CallFrom(resp.Request.Context())
	stats, _ := stream.StatsOf(resp)
	fmt.Println("sends:", call.Attempts())
	fmt.Println("dialect:", stats.Dialect, "contents:", stats.Contents, "finished:", stats.Finished)
	// Output:
	// data: {"choices": [{"delta": {"content": "Hello"}}]}
	//
	// data: [DONE]
	//
	// <nil>
	// sends: 2
	// dialect: openai-chat contents: 1 finished: true
}

// A view changes settings for those who use it, and shares connections,
// budgets and circuits with the transport that it comes from.
func ExampleTransport_With() {
	weir, err := transport.New(transport.Config{Base: api, Policy: policy.Policy{
		Settings: policy.Settings{Deadline: 20 * time.Second},
	}})
	if err != nil {
		log.Fatal(err)
	}
	hurried, err := weir.With(policy.Settings{Deadline: 2 * time.Second, Retry: policy.Retry{Enabled: policy.Off}})
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range []*transport.Transport{weir, hurried} {
		e := t.Explain(httptest.NewRequest("GET", "http://api.example.com/", nil))
		fmt.Println(e.Settings[0].Value, "by the", e.Settings[0].Source, e.Chain)
	}
	// Output:
	// 20s by the policy [match deadline retry timeouts layers.RoundTripperFunc]
	// 2s by the view [match deadline timeouts layers.RoundTripperFunc]
}

// An override changes settings for single calls. One that is kept costs little.
func ExampleTransport_override() {
	weir, err := transport.New(transport.Config{Base: api})
	if err != nil {
		log.Fatal(err)
	}
	patient := policy.NewOverride(policy.Settings{Deadline: 10 * time.Minute})

	ctx := patient.Context(context.Background())
	req, err := http.NewRequestWithContext(ctx, "GET", "http://api.example.com/", nil)
	if err != nil {
		log.Fatal(err)
	}
	resp, err := weir.Client().Do(req)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	call, _ := layers.CallFrom(resp.Request.Context())
	at, _ := call.Deadline()
	fmt.Println(at.Sub(call.Start()))
	// Output: 10m0s
}

// Explain tells what the policy means for a request, and sends nothing.
func ExampleTransport_Explain() {
	weir, err := transport.New(transport.Config{Policy: policy.Policy{
		Settings: policy.Settings{
			Deadline: 10 * time.Second,
			Timeouts: policy.Timeouts{Read: 4 * time.Second},
		},
	}})
	if err != nil {
		log.Fatal(err)
	}
	req, err := http.NewRequest("GET", "https://api.example.com/users?token=secret", nil)
	if err != nil {
		log.Fatal(err)
	}
	e := weir.Explain(req)
	fmt.Println(e.Method, e.URL)
	for _, s := range e.Settings[:5] {
		fmt.Printf("%s is %s by the %s\n", s.Field, s.Value, s.Source)
	}
	for _, s := range e.Timeline {
		fmt.Println(s.At, s.What)
	}
	// Output:
	// GET https://api.example.com/users
	// Deadline is 10s by the policy
	// Timeouts.Pool is 15s by the default
	// Timeouts.Connect is 10s by the default
	// Timeouts.Write is 10s by the default
	// Timeouts.Read is 4s by the policy
	// 0s send 1
	// 4s Timeouts.Read ends send 1; wait up to 250ms
	// 4.25s send 2
	// 8.25s Timeouts.Read ends send 2; wait up to 500ms
	// 8.75s send 3
	// 10s the deadline ends the call
}

// An Observer is told of everything that happens to a call. A Timeline is one
// that keeps it.
func ExampleConfig_observer() {
	answers := []int{http.StatusServiceUnavailable, http.StatusOK}
	timeline := new(layers.Timeline)
	weir, err := transport.New(transport.Config{
		Base: layers.RoundTripperFunc(func(*http.Request) (*http.Response, error) {
			status := answers[0]
			answers = answers[1:]
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody}, nil
		}),
		Clock:    clock.NewMock(), // stands still
		Observer: timeline,
		Policy: policy.Policy{Settings: policy.Settings{
			Retry: policy.Retry{BaseDelay: policy.Off},
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	resp, err := weir.Client().Get("http://api.example.com/")
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	fmt.Print(timeline)
	// Output:
	//        0s  start
	//        0s  send #1
	//        0s  response #1 503
	//        0s  done #1 503
	//        0s  send #2
	//        0s  response #2 200
	//        0s  done #2 200
	//        0s  end #2
}

// Update swaps the policy for the calls that begin from then on.
func ExampleTransport_Update() {
	weir, err := transport.New(transport.Config{Base: api})
	if err != nil {
		log.Fatal(err)
	}
	p, err := policy.Parse([]byte(`{"deadline": "5s"}`))
	if err != nil {
		log.Fatal(err)
	}
	if err := weir.Update(p); err != nil {
		log.Fatal(err)
	}
	fmt.Println(weir.Explain(httptest.NewRequest("GET", "/", nil)).Settings[0].Value)
	// Output: 5s
}

// Breakers are the circuits in use, for an admin page or a switch by hand.
func ExampleTransport_Breakers() {
	weir, err := transport.New(transport.Config{Base: api, Policy: policy.Policy{
		Settings: policy.Settings{Breaker: policy.Breaker{Failures: 5}},
	}})
	if err != nil {
		log.Fatal(err)
	}
	client := weir.Client()
	if resp, err := client.Get("http://api.example.com/"); err == nil {
		resp.Body.Close()
	}
	for _, b := range weir.Breakers() {
		fmt.Println(b.Key(), b.State())
		b.ForceOpen()
	}
	_, err = client.Get("http://api.example.com/")
	fmt.Println(err)
	// Output:
	// http://api.example.com closed
	// Get "http://api.example.com/": the circuit was opened by hand (circuit open)
}
