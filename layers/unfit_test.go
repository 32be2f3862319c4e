package layers_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

// told is a body that tells when it was closed.
type told struct {
	io.Reader
	closed chan struct{}
}

func (b *told) Close() error {
	close(b.closed)
	return nil
}

// TestNoURL: no layer panics on a request without a URL or a header, alone or
// inside others; its body is closed.
func TestNoURL(t *testing.T) {
	token := layers.TokenFunc(func(context.Context) (layers.Token, error) { return layers.Token{Value: "t"}, nil })
	loses := func(next http.RoundTripper) http.RoundTripper {
		return layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			req = req.WithContext(req.Context())
			req.URL = nil
			return next.RoundTrip(req)
		})
	}
	env := new(layers.Env)
	for name, list := range map[string][]layers.Layer{
		"open":     {layers.Open(nil, "reports")},
		"deadline": {layers.Deadline(nil, time.Minute)},
		"retry":    {layers.Retry(nil, policy.Retry{})},
		"hedge":    {layers.Hedge(nil, policy.Hedge{Delay: time.Minute})},
		"breaker":  {layers.CircuitBreaker(nil, policy.StateID{}, policy.Breaker{Failures: 1})},
		"rate":     {layers.RateBudget(nil, layers.Budget{Rate: policy.Rate{PerSecond: 1}})},
		"slots":    {layers.InFlight(nil, policy.StateID{}, policy.InFlight{Max: 1})},
		"inner":    {layers.Inner(nil)},
		"header":   {layers.Deadline(env, time.Minute), layers.DeadlineHeader(env, "Grpc-Timeout")},
		"stream":   {layers.StreamGuard(nil, policy.Stream{})},
		"timeouts": {layers.Timeouts(nil, policy.Timeouts{})},
		"auth":     {layers.Auth(token)},
		"lost":     {layers.Deadline(env, time.Minute), layers.Inner(env, loses), layers.Timeouts(env, policy.Timeouts{})},
	} {
		body := &told{strings.NewReader("body"), make(chan struct{})}
		req := &http.Request{Method: http.MethodPut, Body: body}
		if name == "lost" {
			req.URL = request(t).URL
		}
		resp, err := layers.Chain(http.DefaultTransport, list...).RoundTrip(req)
		<-body.closed // which may be a moment later
		if resp != nil || err == nil || !strings.Contains(err.Error(), "URL") {
			t.Errorf("%s: got %v, %v", name, resp, err)
		}
		if e, ok := err.(*layers.Error); name != "auth" && (!ok || e.Sent != layers.Unsent || e.Reason != layers.ReasonNotRetryable) {
			t.Errorf("%s: got %#v", name, err)
		}

		// Without a header it goes as far as any.
		req = request(t)
		req.Header = nil
		base := layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusUnauthorized, Body: http.NoBody, Request: req}, nil
		})
		if name == "lost" {
			continue
		}
		if _, err := layers.Chain(base, list...).RoundTrip(req); err != nil {
			t.Errorf("%s: without a header it fails: %v", name, err)
		}
	}
}

func request(t *testing.T) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.example/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return req
}
