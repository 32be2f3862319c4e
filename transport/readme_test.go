package transport_test

import (
	"bytes"
	"context"
	"log"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
	"github.com/weir-go/weir/transport/page"
)

// The code in the README, so that it compiles, and is accepted.
func migrated(check retryablehttp.CheckRetry) []policy.Settings {
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

// wrap puts weir under a client that there is already, with a policy in JSON.
func wrap(client *http.Client, file []byte) error {
	table, err := policy.Parse(file)
	if err != nil {
		return err // every fault, with its line and column
	}
	weir, err := transport.New(transport.Config{Base: client.Transport, Policy: table})
	if err != nil {
		return err
	}
	client.Transport, client.Timeout = weir, 0 // the deadline takes the Timeout's place
	return nil
}

func TestRetryAfterIsKept(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c,
			clocktest.Reply(503).Header("Retry-After", "20"),
			clocktest.Reply(200).After(2*time.Second).Body("all is well"))
		weir, err := transport.New(transport.Config{Base: up, Clock: c})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := weir.Client().Get("http://reports.test/yearly")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if c.Elapsed() != 22*time.Second || len(up.Requests()) != 2 {
			t.Errorf("took %v and %d requests", c.Elapsed(), len(up.Requests()))
		}
	})
}

// TestReadmeSlowCall: the slow call of the README is told as it says.
func TestReadmeSlowCall(t *testing.T) {
	var told bytes.Buffer
	log := log.New(&told, "", 0)
	slow := layers.NewTracer(func(_ context.Context, t layers.Trace) {
		if t.End.Sub(t.Start) >= 10*time.Second {
			log.Print(t.String())
		}
	})
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c,
			clocktest.Reply(503).After(4*time.Second).Header("Retry-After", "3"),
			clocktest.Reply(200).Connect(time.Second).After(2*time.Second).Chunks(clocktest.Drip("text", 2, time.Second)...))
		p := policy.Policy{Routes: []policy.Route{{Pattern: "/", Name: "reports"}}}
		tr := newTransport(t, c, up, p, func(cfg *transport.Config) {
			cfg.Observer = layers.Observers(slow, layers.Log(slog.New(slog.NewTextHandler(&told, nil))))
		})
		get(t, c, tr)
	})
	readme := text(t, "../README.md")
	for _, piece := range []string{"a slow call -->\n```text\nroute", "the log of a slow call -->\n```text\nlevel"} {
		_, piece, _ = strings.Cut(readme, piece)
		piece, _, _ = strings.Cut(piece, "```")
		if piece == "" || !strings.Contains(trimmed(told.String()), piece) {
			t.Errorf("the README has\n%s\nwhere this was told:\n%s", piece, told.String())
		}
	}
}

// text is a file without the blanks that begin and end its lines.
func text(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return trimmed(string(b))
}

func trimmed(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return strings.Join(lines, "\n")
}

// watched is a transport whose calls can be looked at.
func watched(table policy.Policy, tokens layers.TokenSource, mux *http.ServeMux) error {
	watch := page.NewWatch()
	weir, err := transport.New(transport.Config{
		Policy:   table,
		Inner:    []layers.Layer{layers.Auth(tokens, "api.example.com")},
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
	for _, s := range migrated(retryablehttp.DefaultRetryPolicy) {
		if _, err := transport.New(transport.Config{Policy: policy.Policy{Settings: s}}); err != nil {
			t.Error(err)
		}
	}
	var tested strings.Builder
	for _, name := range []string{"example_test.go", "readme_test.go"} {
		tested.WriteString(text(t, name))
	}
	readme := text(t, "../README.md")
	_, file, _ := strings.Cut(readme, "```json\n")
	file, _, _ = strings.Cut(file, "```")
	if err := wrap(new(http.Client), []byte(file)); err != nil {
		t.Errorf("the policy in JSON: %v", err)
	}
	pieces := strings.Split(readme, "```go\n")
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
