package layers

import (
	"math"
	"net/http"
	"testing"

	"github.com/weir-go/weir/policy"
)

// TestOriginOf: the short way to an origin comes to the same as the long one.
func TestOriginOf(t *testing.T) {
	for _, url := range []string{
		"http://api.test/", "http://api.test./", "http://api.test.:80/", "http://api.test.:8080/", "http://api.test:8080/",
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
