package transport_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// TestLog: one line a call, when it has ended, and one a change of a circuit.
func TestLog(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		var lines bytes.Buffer
		log := slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{
			Level: slog.LevelDebug,
			ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey && len(groups) == 0 {
					return slog.Attr{}
				}
				return a
			},
		}))
		up := clocktest.NewUpstream(t, c,
			clocktest.Reply(200).After(time.Second).Chunks(clocktest.Drip("body", 2, time.Second)...),
			clocktest.Reply(503).Header("Retry-After", "3"), clocktest.Reply(200),
			clocktest.Reply(429),
			clocktest.Reply(200).After(time.Second).Silent(),
			clocktest.Reply(200).Body("unread"),
			clocktest.NoReply().Forever())
		p := policy.Policy{
			Settings: policy.Settings{
				Deadline: 10 * time.Second, Rate: policy.Rate{PerSecond: 1, Burst: 6},
				Breaker: policy.Breaker{Failures: 3, OpenJitter: policy.Off}, Retry: policy.Retry{MaxAttempts: 2, BaseDelay: policy.Off},
			},
			Routes: []policy.Route{{Pattern: "api.example/", Name: "api"}},
		}
		tr := newTransport(t, c, up, p, func(cfg *transport.Config) { cfg.Observer = layers.Log(log) })
		want := func(what string, call func(), want ...string) {
			t.Helper()
			lines.Reset()
			call()
			if got := strings.TrimSpace(lines.String()); got != strings.Join(want, "\n") {
				t.Errorf("%s: got\n%s\nwant\n%s", what, got, strings.Join(want, "\n"))
			}
		}
		send := func() { get(t, c, tr) }
		want("an answer", send, `level=DEBUG msg="call answered" route=api attempts=1 took=3s status=200 phases.body=2s phases.read=1s`)
		want("a retry", send, `level=INFO msg="call answered" route=api attempts=2 took=3s status=200 waits.backoff=3s`)
		want("a status", func() {
			req := request(t, t.Context(), "POST", url, nil)
			do(c, tr, req)
		}, `level=WARN msg="call answered" route=api attempts=1 took=1s status=429 reason="not safe" waits.rate=1s`)
		want("a body that its caller gives up", func() {
			ctx, cancel := context.WithCancel(t.Context())
			c.AfterFunc(3*time.Second, cancel)
			resp, err := tr.RoundTrip(request(t, ctx, "GET", url, nil))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.ReadAll(resp.Body)
			resp.Body.Close()
		}, `level=INFO msg="call given up" route=api attempts=1 took=3s status=200 error="context canceled" waits.rate=1s phases.body=1s phases.read=1s`)
		want("a body that its caller does not read", func() {
			resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}, `level=INFO msg="body closed early" route=api attempts=1 took=0s status=200`)
		want("a deadline", func() {
			c.Add(time.Second)
			_, _ = tr.RoundTrip(request(t, t.Context(), http.MethodGet, url+"?secret=s3cret", nil))
		}, `level=ERROR msg="call failed" route=api attempts=1 took=10s error="deadline exceeded after 10s, in phase read of attempt 1 (deadline exhausted)" reason="deadline exhausted" phases.read=10s`)
		want("a circuit that opens", func() {
			_, _ = tr.RoundTrip(request(t, t.Context(), http.MethodGet, url, nil))
			_, _ = tr.RoundTrip(request(t, t.Context(), http.MethodGet, url, nil))
		}, `level=ERROR msg="call failed" route=api attempts=1 took=10s error="deadline exceeded after 10s, in phase read of attempt 1 (deadline exhausted)" reason="deadline exhausted" phases.read=10s`,
			`level=WARN msg="circuit changed" route=api state=open for=10s origin=http://api.example why="3 failures in a row"`,
			`level=ERROR msg="call failed" route=api attempts=1 took=10s error="deadline exceeded after 10s, in phase read of attempt 1 (deadline exhausted)" reason="deadline exhausted" phases.read=10s`)
		want("a circuit that is forced", tr.Breakers()[0].ForceClosed, `level=INFO msg="circuit changed" route="" state=closed origin=http://api.example forced=true`)
		want("a circuit that is forced open", tr.Breakers()[0].ForceOpen, `level=WARN msg="circuit changed" route="" state=open origin=http://api.example forced=true`)
		want("a call then", send, `level=ERROR msg="call failed" route=api attempts=0 took=0s error="the circuit was opened by hand (circuit open)" reason="circuit open"`)
	})
}

// TestLogOpaque: a stream that is guarded by its bytes alone is told from others.
func TestLogOpaque(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		var lines bytes.Buffer
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Header("Content-Type", "text/event-stream").Body("data: tick\n\n").Times(2))
		tr := newTransport(t, c, up, settings(policy.Settings{Stream: policy.Stream{Enabled: policy.On}}), func(cfg *transport.Config) {
			cfg.Observer = layers.Log(slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug})))
		})
		wantStatus(t, get(t, c, tr), 200)
		if !strings.Contains(lines.String(), " first_content=0s opaque=true") {
			t.Errorf("got %s", &lines)
		}
	})
}

// TestLogOfChangesThatOvertake: a change is told as it was, though the circuit was
// forced before it is.
func TestLogOfChangesThatOvertake(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		var lines bytes.Buffer
		forces := layers.ObserverFunc(func(_ context.Context, e layers.Event) {
			if e.Kind == layers.KindBreaker && e.Wait > 0 {
				e.Breaker.ForceClosed()
				e.Breaker.ForceOpen()
			}
		})
		up := clocktest.NewUpstream(t, c, clocktest.Reply(500))
		get(t, c, newTransport(t, c, up, settings(policy.Settings{Breaker: policy.Breaker{Failures: 1, OpenJitter: policy.Off}}), func(cfg *transport.Config) {
			cfg.Observer = layers.Observers(forces, layers.Log(slog.New(slog.NewTextHandler(&lines, nil))))
		}))
		for _, want := range []string{
			`state=open for=10s origin=http://api.example why="1 failures in a row"` + "\n",
			"state=closed origin=http://api.example forced=true\n",
			"state=open origin=http://api.example forced=true\n",
		} {
			has(t, lines.String(), want)
		}
	})
}

// TestEventTells: an event in somebody's own log says what it is about.
func TestEventTells(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		var got []string
		var breaker *layers.Breaker
		up := clocktest.NewUpstream(t, c, clocktest.Reply(500))
		tr := newTransport(t, c, up, settings(policy.Settings{Breaker: policy.Breaker{Failures: 1, OpenJitter: policy.Off}}), func(cfg *transport.Config) {
			cfg.Observer = layers.ObserverFunc(func(_ context.Context, e layers.Event) {
				if e.Kind == layers.KindBreaker {
					got, breaker = append(got, e.LogValue().String()), e.Breaker
				}
			})
		})
		get(t, c, tr)
		want := []string{"[kind=breaker route= phase=breaker wait=10s state=open]"}
		if !slices.Equal(got, want) || breaker != tr.Breakers()[0] {
			t.Errorf("got %v of %v, want %v", got, breaker, want)
		}
		data, err := json.Marshal(map[string]any{"state": breaker.State(), "sent": layers.MaybeSent})
		if want := `{"sent":"maybe","state":"open"}`; err != nil || string(data) != want {
			t.Errorf("got %s, %v, want %s", data, err, want)
		}
	})
}

// TestTracerOfNobody: a tracer that is only asked what goes on needs no function.
func TestTracerOfNobody(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Body("body"))
		tracer := layers.NewTracer(nil)
		tr := newTransport(t, c, up, policy.Policy{}, func(cfg *transport.Config) { cfg.Observer = tracer })
		resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		if live := tracer.Live(); len(live) != 1 {
			t.Errorf("got %v, want the call", live)
		}
		resp.Body.Close()
		if live := tracer.Live(); live != nil {
			t.Errorf("got %v after its end", live)
		}
	})
}
