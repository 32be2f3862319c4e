package layers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/stream"
	"github.com/weir-go/weir/transport"
)

const url = "http://api.example.com/"

// answers is a base that gives these answers, one a request, then 200s.
func answers(statuses ...int) http.RoundTripper {
	return layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		status := http.StatusOK
		if len(statuses) > 0 {
			status, statuses = statuses[0], statuses[1:]
		}
		return &http.Response{StatusCode: status, Request: req, Header: http.Header{}, Body: http.NoBody}, nil
	})
}

// silent is a base that never answers.
var silent = layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
})

func get(rt http.RoundTripper) (status int, err error) {
	resp, err := (&http.Client{Transport: rt}).Get(url)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// The order in which a request passes the layers, for a stack with all of them.
// A hedge and a stream guard exclude each other, so it takes two routes.
func Example_order() {
	own := func(next http.RoundTripper) http.RoundTripper { return next }
	weir, err := transport.New(transport.Config{
		Base:  answers(),
		Outer: []layers.Layer{own},
		Inner: []layers.Layer{own},
		Policy: policy.Policy{
			Settings: policy.Settings{
				Hedge:    policy.Hedge{Delay: time.Second},
				Breaker:  policy.Breaker{Failures: 5},
				Rate:     policy.Rate{PerSecond: 50},
				InFlight: policy.InFlight{Max: 100},
			},
			Routes: []policy.Route{
				{Pattern: "/chat", Settings: policy.Settings{Stream: policy.Stream{Enabled: policy.On}}},
			},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, path := range []string{"", "chat"} {
		fmt.Println(strings.Join(weir.Explain(httptest.NewRequest("GET", url+path, nil)).Chain, " > "))
	}
	// Output:
	// match > outer > deadline > retry > hedge > breaker > rate > in-flight > inner > timeouts > layers.RoundTripperFunc
	// match > outer > deadline > retry > breaker > rate > in-flight > inner > stream > timeouts > layers.RoundTripperFunc
}

// The first layer of a chain is the outermost.
func ExampleChain() {
	named := func(name string) layers.Layer {
		return func(next http.RoundTripper) http.RoundTripper {
			return layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				fmt.Println(name, "in")
				defer fmt.Println(name, "out")
				return next.RoundTrip(req)
			})
		}
	}
	fmt.Println(get(layers.Chain(answers(), named("outer"), named("inner"))))
	// Output:
	// outer in
	// inner in
	// inner out
	// outer out
	// 200 <nil>
}

// Layers that share an Env are one stack. An Outer layer sees a call once, an
// Inner layer each of its sends.
func ExampleEnv() {
	counted := func(n *int) layers.Layer {
		return func(next http.RoundTripper) http.RoundTripper {
			return layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
				*n++
				return next.RoundTrip(req)
			})
		}
	}
	var calls, sends int
	env := &layers.Env{Clock: clock.New()}
	rt := layers.Chain(answers(503, 503),
		layers.Open(env, "home"),
		counted(&calls),
		layers.Deadline(env, 5*time.Second),
		layers.Retry(env, policy.Retry{BaseDelay: policy.Off}),
		layers.Inner(env, counted(&sends)),
		layers.Timeouts(env, policy.Timeouts{Read: 2 * time.Second}),
	)
	fmt.Println(get(rt))
	fmt.Println("calls:", calls, "sends:", sends)
	// Output:
	// 200 <nil>
	// calls: 1 sends: 3
}

func ExampleDeadline() {
	rt := layers.Chain(silent, layers.Deadline(nil, 20*time.Millisecond))
	_, err := get(rt)
	e, _ := errors.AsType[*layers.Error](err)
	fmt.Println(e.Phase, e.Limit, e.Timeout(), errors.Is(err, context.DeadlineExceeded))
	// Output: deadline 20ms true true
}

func ExampleTimeouts() {
	rt := layers.Chain(silent, layers.Timeouts(nil, policy.Timeouts{Read: 20 * time.Millisecond}))
	_, err := get(rt)
	e, _ := errors.AsType[*layers.Error](err)
	fmt.Println(e.Phase, e.Limit, e.Sent)
	// Output: read 20ms maybe
}

func ExampleRetry() {
	rt := layers.Chain(answers(503, 503), layers.Retry(nil, policy.Retry{BaseDelay: policy.Off}))
	fmt.Println(get(rt))
	// Output: 200 <nil>
}

// When there is no further attempt, the last answer comes back as it is, and
// the call says why it was the last.
func ExampleCall() {
	rt := layers.Chain(answers(503, 503), layers.Retry(nil, policy.Retry{MaxAttempts: 2, BaseDelay: policy.Off}))
	resp, err := (&http.Client{Transport: rt}).Get(url)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	call, _ := layers.CallFrom(resp.Request.Context())
	fmt.Println(resp.StatusCode, call.Attempts(), call.Reason())
	// Output: 503 2 attempts exhausted
}

func ExampleHedge() {
	var sends atomic.Int32
	rt := layers.Chain(
		layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			if sends.Add(1) == 1 {
				return silent(req)
			}
			return answers().RoundTrip(req)
		}),
		layers.Hedge(nil, policy.Hedge{Delay: 20 * time.Millisecond}),
	)
	fmt.Println(get(rt))
	// Output: 200 <nil>
}

func ExampleCircuitBreaker() {
	rt := layers.Chain(answers(500, 500),
		layers.CircuitBreaker(nil, policy.StateID{}, policy.Breaker{Failures: 2}))
	for range 3 {
		status, err := get(rt)
		e, _ := errors.AsType[*layers.Error](err)
		fmt.Println(status, e != nil && e.Phase == layers.PhaseBreaker)
	}
	// Output:
	// 500 false
	// 500 false
	// 0 true
}

// A call that would get its turn too late is refused at once, unsent, and told
// when to come back.
func ExampleRateBudget() {
	env := &layers.Env{Clock: clock.NewMock()}
	rt := layers.Chain(answers(), layers.RateBudget(env, layers.Budget{
		Rate: policy.Rate{PerSecond: 1, Burst: 2, MaxWait: policy.Off},
	}))
	for range 3 {
		status, err := get(rt)
		fmt.Print(status)
		if e, ok := errors.AsType[*layers.Error](err); ok {
			fmt.Print(" ", e.Sent, ", come back in ", e.RetryAfter)
		}
		fmt.Println()
	}
	// Output:
	// 200
	// 200
	// 0 unsent, come back in 1s
}

// A slot is held until the response's body ends.
func ExampleInFlight() {
	rt := layers.Chain(
		layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Request: req, Body: io.NopCloser(strings.NewReader("slow"))}, nil
		}),
		layers.InFlight(nil, policy.StateID{}, policy.InFlight{Max: 1}))
	client := &http.Client{Transport: rt}
	resp, err := client.Get(url)
	if err != nil {
		log.Fatal(err)
	}
	_, err = get(rt)
	e, _ := errors.AsType[*layers.Error](err)
	fmt.Println(e.Reason)
	resp.Body.Close()
	fmt.Println(get(rt))
	// Output:
	// in-flight limit reached
	// 200 <nil>
}

// A token that the server refuses is renewed, and the request sent once more.
func ExampleAuth() {
	minted := 0
	tokens := layers.TokenFunc(func(context.Context) (layers.Token, error) {
		minted++
		return layers.Token{Value: fmt.Sprint("token-", minted)}, nil
	})
	api := layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		token := req.Header.Get("Authorization")
		fmt.Println("the server got", token)
		if token == "Bearer token-1" { // it was revoked
			return answers(http.StatusUnauthorized).RoundTrip(req)
		}
		return answers().RoundTrip(req)
	})
	env := new(layers.Env)
	rt := layers.Chain(api,
		layers.Deadline(env, time.Second),
		layers.Retry(env, policy.Retry{}),
		layers.Inner(env, layers.Auth(tokens)))
	fmt.Println(get(rt))
	// Output:
	// the server got Bearer token-1
	// the server got Bearer token-2
	// 200 <nil>
}

// A stream that only pings is dead, however often it does.
func ExampleStreamGuard() {
	mock := clock.NewMock()
	rt := layers.Chain(
		layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			pings, w := io.Pipe()
			go func() {
				for {
					if _, err := io.WriteString(w, ": ping\n\n"); err != nil {
						return
					}
					mock.Add(5 * time.Second)
				}
			}()
			context.AfterFunc(req.Context(), func() { pings.CloseWithError(req.Context().Err()) })
			return &http.Response{
				StatusCode: 200, Request: req, Body: pings,
				Header: http.Header{"Content-Type": {"text/event-stream"}},
			}, nil
		}),
		layers.StreamGuard(&layers.Env{Clock: mock}, policy.Stream{FirstContent: time.Minute}))
	_, err := get(rt)
	stall, _ := errors.AsType[*stream.StallError](err)
	fmt.Println(stall.Kind, stall.Limit, stall.Contents, stall.Keepalives > 0)
	// Output: first-content 1m0s 0 true
}

// WithDeadline gives all calls of a job one deadline.
func ExampleWithDeadline() {
	rt := layers.Chain(silent, layers.Deadline(nil, time.Minute))
	job := layers.WithDeadline(context.Background(), time.Now().Add(20*time.Millisecond))
	for range 2 {
		req, err := http.NewRequestWithContext(job, "GET", url, nil)
		if err != nil {
			log.Fatal(err)
		}
		_, err = rt.RoundTrip(req)
		e, _ := errors.AsType[*layers.Error](err)
		fmt.Println(e.Phase, "attempts:", e.Attempts)
	}
	// Output:
	// deadline attempts: 1
	// deadline attempts: 0
}

// An observer that logs why a send failed. Events hold no URL, header or body.
func ExampleObserverFunc() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	env := &layers.Env{Observer: layers.ObserverFunc(func(ctx context.Context, e layers.Event) {
		if e.Kind == layers.KindDone {
			logger.InfoContext(ctx, "send", "event", e)
		}
	})}
	_, _ = get(layers.Chain(answers(503), layers.Open(env, "home"), layers.Retry(env, policy.Retry{BaseDelay: policy.Off})))
	// Output:
	// level=INFO msg=send event.kind=done event.route=home event.attempt=1 event.status=503
	// level=INFO msg=send event.kind=done event.route=home event.attempt=2 event.status=200
}
