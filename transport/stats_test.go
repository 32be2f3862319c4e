package transport_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/stream"
	"github.com/weir-go/weir/transport"
)

// hide does to a body what http.Client does that has a Timeout.
func hide(resp *http.Response, err error) (*http.Response, error) {
	if err == nil {
		resp.Body = struct{ io.ReadCloser }{resp.Body}
	}
	return resp, err
}

// drain reads a body to its end, and closes it.
func drain(resp *http.Response) {
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
}

func statsOf(t *testing.T, resp *http.Response) stream.Stats {
	t.Helper()
	s, ok := stream.StatsOf(resp)
	if !ok {
		t.Error("there are no statistics")
	}
	return s
}

// TestStatsOfHiddenBody: statistics are had of a response whose body http.Client
// hides in one of its own, at any time, and also after a redirect.
func TestStatsOfHiddenBody(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c,
			clocktest.Reply(302).Header("Location", "/next").Body("moved"),
			events(role, word).Chunks(clocktest.Chunk{After: time.Second, Data: word + finish + done}))
		client := &http.Client{Transport: newTransport(t, c, up, streamed(limits, noRetry)), Timeout: time.Hour}
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		if _, plain := resp.Body.(interface{ Stats() stream.Stats }); plain {
			t.Fatal("http.Client hides nothing any more")
		}
		equal(t, "the contents at first", statsOf(t, resp).Contents, 0)
		if _, err := io.ReadAll(resp.Body); err != nil {
			t.Fatal(err)
		}
		equal(t, "the contents", statsOf(t, resp).Contents, 2)
		if !racing {
			if n := testing.AllocsPerRun(100, func() { stream.StatsOf(resp) }); n > 0 {
				t.Errorf("%v allocations", n)
			}
		}
		resp.Body.Close()
		equal(t, "whether it has finished", statsOf(t, resp).Finished, true)
	})
}

// TestStatsOfHiddenAttempt: they are those of the attempt whose response it is, also
// of one that comes back in the place of a later one.
func TestStatsOfHiddenAttempt(t *testing.T) {
	for name, test := range map[string]struct {
		steps    []clocktest.Step
		contents int
		failed   bool
	}{
		"the second": {[]clocktest.Step{events(role).Silent(), events(role, word, word, finish, done)}, 2, false},
		"the last":   {[]clocktest.Step{events(role, busy).Times(2)}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, test.steps...)
				resp, err := hide(newTransport(t, c, up, streamed(held(), twice)).RoundTrip(request(t, t.Context(), "POST", url, strings.NewReader("{}"))))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					t.Fatal(err)
				}
				s := statsOf(t, resp)
				if s.Contents != test.contents || (s.Failure != nil) != test.failed {
					t.Errorf("got %+v", s)
				}
			})
		})
	}
}

// TestStatsOfHiddenAnswers: a layer that asks twice in one attempt has two responses
// with statistics of their own, and a response that it makes itself has none.
func TestStatsOfHiddenAnswers(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, events(role, word, finish, done), events(role, word, word, finish, done))
		asks := inner(around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			var answers [2]*http.Response
			for i := range answers {
				var err error
				if answers[i], err = hide(next.RoundTrip(req)); err != nil {
					return nil, err
				}
				drain(answers[i])
			}
			equal(t, "the contents of the first", statsOf(t, answers[0]).Contents, 1)
			equal(t, "the contents of the second", statsOf(t, answers[1]).Contents, 2)
			made := &http.Response{StatusCode: 200, Header: http.Header{}, Request: answers[1].Request, Body: io.NopCloser(strings.NewReader("made"))}
			if _, ok := stream.StatsOf(made); ok {
				t.Error("what a layer made has statistics")
			}
			return made, nil
		}))
		resp, err := newTransport(t, c, up, streamed(limits, noRetry), asks).RoundTrip(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, ok := stream.StatsOf(resp); ok {
			t.Error("it has statistics once it has gone up")
		}
	})
}

// TestStatsOfHiddenNested: a call on the context of another, whose response is
// guarded, has not that one's statistics.
func TestStatsOfHiddenNested(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, events(role, word, finish, done), clocktest.Reply(200).Body("token"))
		plain := policy.Settings{Stream: policy.Stream{Enabled: policy.Off}}
		p := streamed(limits, noRetry)
		p.Routes = []policy.Route{{Pattern: "/token", Settings: plain}}
		var tr *transport.Transport
		tr = newTransport(t, c, up, p, inner(around(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
			resp, err := hide(next.RoundTrip(req))
			if err != nil || req.URL.Path == "/token" {
				return resp, err
			}
			token, err := hide(tr.RoundTrip(request(t, req.Context(), "GET", "http://api.example/token", nil)))
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := stream.StatsOf(token); ok {
				t.Error("the nested call has statistics")
			}
			token.Body.Close()
			return resp, nil
		})))
		resp, err := tr.RoundTrip(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		drain(resp)
		equal(t, "the contents", statsOf(t, resp).Contents, 1)
	})
}

// TestStatsOfHiddenHeld: what was kept of a stream that failed is the outcome if there
// is no turn for another send. It has its statistics though its call is over.
func TestStatsOfHiddenHeld(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, events("event: error\n", `data: {"type":"error","error":{"type":"overloaded_error"}}`, "\n\n"))
		s := policy.Settings{Stream: limits, Retry: noWait, Rate: policy.Rate{PerSecond: 0.1, Burst: 1, MaxWait: policy.Off}}
		s.Stream.Enabled, s.Stream.Hold, s.Deadline = policy.On, policy.On, time.Hour
		resp, err := hide(newTransport(t, c, up, settings(s)).RoundTrip(request(t, t.Context(), "GET", url, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if callOf(t, resp).Err() == nil {
			t.Error("the call goes on")
		}
		drain(resp)
		equal(t, "the dialect", statsOf(t, resp).Dialect, "anthropic")
	})
}
