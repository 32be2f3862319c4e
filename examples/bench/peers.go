package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/timeout"
	"github.com/go-resty/resty/v2"
	"github.com/gojek/heimdall/v7/httpclient"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/sony/gobreaker/v2"
	"golang.org/x/time/rate"
)

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func isFailure(status int) bool {
	return status == http.StatusTooManyRequests || status >= 500 && status != http.StatusNotImplemented
}

func newBreaker() *gobreaker.CircuitBreaker[*http.Response] {
	return gobreaker.NewCircuitBreaker[*http.Response](gobreaker.Settings{
		MaxRequests: 10, Interval: 10 * time.Second, BucketPeriod: time.Second, Timeout: time.Second,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return c.Requests >= 100 && float64(c.TotalFailures) >= 0.95*float64(c.Requests)
		},
	})
}

// limited is x/time/rate and gobreaker, one inside the other.
var limited = stack{"x/time/rate and gobreaker, no retry", func(base http.RoundTripper) http.RoundTripper {
	limiter, breaker := rate.NewLimiter(1e9, 1<<30), newBreaker()
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if err := limiter.Wait(req.Context()); err != nil {
			return nil, err
		}
		return breaker.Execute(func() (*http.Response, error) { return base.RoundTrip(req) })
	})
}}

// least is what no stack that may end a call can do without: a copy of the
// request under a context of its own, and a body whose end ends that.
var least = stack{"least", func(base http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		ctx, cancel := context.WithCancel(req.Context())
		resp, err := base.RoundTrip(req.WithContext(ctx))
		if err != nil {
			cancel()
			return nil, err
		}
		resp.Body = &cancelled{resp.Body, cancel}
		return resp, nil
	})
}}

// byHand is what a careful user writes: a deadline, a limiter, a loop of
// retries, a breaker, and a timeout for each send that lasts to the end of the
// body.
var byHand = stack{"hand-made, with deadline", func(base http.RoundTripper) http.RoundTripper {
	return &handMade{base: base, limiter: rate.NewLimiter(1e9, 1<<30), breaker: newBreaker()}
}}

type handMade struct {
	base    http.RoundTripper
	limiter *rate.Limiter
	breaker *gobreaker.CircuitBreaker[*http.Response]
}

// RoundTrip implements http.RoundTripper.
func (h *handMade) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Context(), callTimeout)
	resp, err := h.send(ctx, req)
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &cancelled{resp.Body, cancel}
	return resp, nil
}

var errFailure = errors.New("a status that is a failure")

func (h *handMade) send(ctx context.Context, req *http.Request) (*http.Response, error) {
	for attempt := 0; ; attempt++ {
		if err := h.limiter.Wait(ctx); err != nil {
			return nil, err
		}
		resp, err := h.breaker.Execute(func() (*http.Response, error) { return h.try(ctx, req, attempt > 0) })
		switch {
		case err == nil:
			return resp, nil
		case errors.Is(err, errFailure) && attempt == maxRetries:
			return resp, nil
		case attempt == maxRetries || ctx.Err() != nil || errors.Is(err, gobreaker.ErrOpenState):
			return nil, err
		case resp != nil:
			_, _ = io.CopyN(io.Discard, resp.Body, 4096)
			_ = resp.Body.Close()
		}
	}
}

func (h *handMade) try(ctx context.Context, req *http.Request, again bool) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	req = req.WithContext(ctx)
	if again && req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			cancel()
			return nil, err
		}
		req.Body = body
	}
	resp, err := h.base.RoundTrip(req)
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &cancelled{resp.Body, cancel}
	if isFailure(resp.StatusCode) {
		err = errFailure
	}
	return resp, err
}

// cancelled is a body whose end is that of a context.
type cancelled struct {
	io.ReadCloser

	cancel context.CancelFunc
}

// Close implements io.Closer.
func (c *cancelled) Close() error {
	defer c.cancel()
	return c.ReadCloser.Close()
}

// failsafe has no deadline for the whole call, and its timeout ends with the
// headers.
var failsafe = stack{"failsafe-go", func(base http.RoundTripper) http.RoundTripper {
	return failsafehttp.NewRoundTripper(base,
		failsafehttp.NewRetryPolicyBuilder().WithMaxRetries(maxRetries).Build(),
		circuitbreaker.NewBuilder[*http.Response]().
			HandleIf(func(r *http.Response, err error) bool { return err != nil || isFailure(r.StatusCode) }).
			WithFailureRateThreshold(0.95, 100, 10*time.Second).WithDelay(time.Second).Build(),
		ratelimiter.NewSmooth[*http.Response](1e9, time.Second),
		timeout.New[*http.Response](sendTimeout))
}}

// client is net/http's own timeout, which is one for all phases together.
var client = stack{"http.Client.Timeout alone", func(base http.RoundTripper) http.RoundTripper {
	c := &http.Client{Transport: base, Timeout: callTimeout}
	return roundTripper(c.Do)
}}

// retryable, heimdall and restyClient retry, and have neither deadline, budget
// nor breaker.
var retryable = stack{"go-retryablehttp", func(base http.RoundTripper) http.RoundTripper {
	c := retryablehttp.NewClient()
	c.RetryMax, c.Logger = maxRetries, nil
	c.Backoff = func(_, _ time.Duration, _ int, _ *http.Response) time.Duration { return 0 }
	c.HTTPClient = &http.Client{Transport: base}
	return &retryablehttp.RoundTripper{Client: c}
}}

var heimdall = stack{"heimdall", func(base http.RoundTripper) http.RoundTripper {
	c := httpclient.NewClient(
		httpclient.WithHTTPClient(&http.Client{Transport: base, Timeout: sendTimeout}),
		httpclient.WithRetryCount(maxRetries))
	return roundTripper(c.Do)
}}

var restyClient = stack{"resty", func(base http.RoundTripper) http.RoundTripper {
	c := resty.NewWithClient(&http.Client{Transport: base}).SetTimeout(sendTimeout).
		SetRetryCount(maxRetries).SetRetryWaitTime(0).SetRetryMaxWaitTime(0).SetDoNotParseResponse(true).
		AddRetryCondition(func(r *resty.Response, err error) bool { return err != nil || isFailure(r.StatusCode()) })
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := c.R().SetContext(req.Context()).Execute(req.Method, req.URL.String())
		if err != nil {
			return nil, err
		}
		return resp.RawResponse, nil
	})
}}
