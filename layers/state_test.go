package layers

import (
	"io"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/weir-go/weir/policy"
)

// TestOriginOf: the short way to an origin comes to the same as the long one.
func TestOriginOf(t *testing.T) {
	for _, url := range []string{
		"http://api.test/", "http://api.test./", "http://api.test:/", "http://api.test.:/", "http://api.test.:80/", "http://api.test.:8080/", "http://api.test:8080/",
		"https://API.test/", "HTTPS://api.test:443/", "http://api.test:443/", "http://[::1]:80/", "http://[::ffff:1.2.3.4]:81/",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := originOf(req).String(), policy.ByOrigin(req); got != want {
			t.Errorf("%s is of %s, want %s", url, got, want)
		}
	}
}

// TestNumbersThatEqualNothing: a number that is not one, which package policy
// refuses, is no reason to make a state again and again.
func TestNumbersThatEqualNothing(t *testing.T) {
	nan := math.NaN()
	base := RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
	})
	rt := Chain(base,
		CircuitBreaker(nil, policy.StateID{}, policy.Breaker{Ratio: nan, OpenJitter: nan}),
		RateBudget(nil, Budget{Rate: policy.Rate{PerSecond: nan, Burst: 1}}))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.test/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rt.RoundTrip(req); err != nil {
		t.Error(err)
	}
}

// TestKindsOfState: a circuit, a limit and a budget that are each the only one of a
// stack are in nobody's way, and chains of one Env share them.
func TestKindsOfState(t *testing.T) {
	env := new(Env)
	chain := func() http.RoundTripper {
		return Chain(RoundTripperFunc(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("x"))}, nil
		}), CircuitBreaker(env, policy.StateID{}, policy.Breaker{}), RateBudget(env, Budget{Rate: policy.Rate{PerSecond: 1, Burst: 9}}),
			InFlight(env, policy.StateID{}, policy.InFlight{Max: 9}))
	}
	for range 2 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a.example/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := chain().RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
	}
	if c, b, s := env.Breakers(), env.Budgets(), env.Slots(); len(c) != 1 || len(b) != 1 || len(s) != 1 || s[0].Used != 2 {
		t.Errorf("got %v, %+v, %+v", c, b, s)
	}
}
