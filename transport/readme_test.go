package transport_test

import (
	"log"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
	"github.com/weir-go/weir/transport/page"
)

// The code in the README, so that it compiles, and is accepted.
func readme(check retryablehttp.CheckRetry) []policy.Settings {
	weir, err := transport.New(transport.Config{Policy: policy.Policy{
		Settings: policy.Settings{Deadline: 20 * time.Second},
	}})
	if err != nil {
		log.Fatal(err)
	}
	_ = &http.Client{Transport: weir}
	retries := policy.Settings{Retry: policy.Retry{
		MaxAttempts: 4, BaseDelay: time.Second, MaxDelay: 30 * time.Second,
		Check: check,
	}}
	circuit := policy.Settings{Breaker: policy.Breaker{Failures: 5, Open: 30 * time.Second}}
	budget := policy.Settings{Rate: policy.Rate{PerSecond: 10, Burst: 5}}
	all := policy.Settings{
		Deadline: 20 * time.Second,
		Retry:    policy.Retry{MaxAttempts: 3},
		Breaker:  policy.Breaker{Failures: 5},
	}
	return []policy.Settings{retries, circuit, budget, all}
}

// watched is a transport whose calls can be looked at.
func watched(table policy.Policy, tokens layers.TokenSource, mux *http.ServeMux) error {
	watch := page.NewWatch()
	weir, err := transport.New(transport.Config{
		Policy:   table,
		Inner:    []layers.Layer{layers.Auth(tokens)},
		Observer: layers.Observers(layers.Log(nil), watch),
	})
	if err != nil {
		return err
	}
	mux.Handle("/weir/", http.StripPrefix("/weir", page.Handler(weir, page.Options{Watch: watch})))
	return nil
}

// TestReadme: each piece of Go in the README, but for what it replaces, stands
// word by word in a file that is compiled and tested.
func TestReadme(t *testing.T) {
	if err := watched(policy.Policy{}, nil, http.NewServeMux()); err != nil {
		t.Error(err)
	}
	for _, s := range readme(retryablehttp.DefaultRetryPolicy) {
		if _, err := transport.New(transport.Config{Policy: policy.Policy{Settings: s}}); err != nil {
			t.Error(err)
		}
	}
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(b), "\n")
		for i, l := range lines {
			lines[i] = strings.TrimSpace(l)
		}
		return strings.Join(lines, "\n")
	}
	var tested strings.Builder
	for _, name := range []string{"example_test.go", "readme_test.go", "../examples/testing/reports_test.go"} {
		tested.WriteString(read(name))
	}
	pieces := strings.Split(read("../README.md"), "```go\n")
	if len(pieces) < 5 {
		t.Fatal("the README has hardly any code")
	}
	for i, p := range pieces[1:] {
		code, _, _ := strings.Cut(p, "```")
		if !strings.HasSuffix(pieces[i], "<!-- before -->\n") && !strings.Contains(tested.String(), code) {
			t.Errorf("this code of the README is in no test:\n%s", code)
		}
	}
}
