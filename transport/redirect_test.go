package transport_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// sdk is a client as a vendor's kit builds it: layers of its own around the
// transport that it was given, on copies of the request.
func sdk(rt http.RoundTripper) *http.Client {
	return &http.Client{Transport: layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		req = req.Clone(req.Context())
		req.Header.Set("User-Agent", "vendor")
		resp, err := rt.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		resp.Body = struct{ io.ReadCloser }{resp.Body}
		return resp, nil
	})}
}

// clients are the ways to have redirects followed.
var clients = map[string]func(*transport.Transport) *http.Client{
	"ours":  (*transport.Transport).Client,
	"plain": func(tr *transport.Transport) *http.Client { return &http.Client{Transport: tr} },
	"sdk":   func(tr *transport.Transport) *http.Client { return sdk(tr) },
}

func eachClient(t *testing.T, f func(t *testing.T, c *clocktest.Clock, client func(*transport.Transport) *http.Client)) {
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) { f(t, c, client) })
		})
	}
}

func TestHopsAreOneCall(t *testing.T) {
	hop := clocktest.Reply(302).Header("Location", "/next").Body("moved").After(4 * time.Second)
	eachClient(t, func(t *testing.T, c *clocktest.Clock, client func(*transport.Transport) *http.Client) {
		up := clocktest.NewUpstream(t, c, hop.Times(3), clocktest.Reply(200))
		tr := newTransport(t, c, up, settings(policy.Settings{Deadline: 10 * time.Second}))
		_, err := client(tr).Get(url)
		e := wantTimeout(t, err, layers.PhaseDeadline)
		equal(t, "the time", c.Elapsed(), 10*time.Second)
		equal(t, "the number of attempts", e.Attempts, 3)
		equalTimes(t, times(c, up), 0, 4*time.Second, 8*time.Second)
	})
	eachClient(t, func(t *testing.T, c *clocktest.Clock, client func(*transport.Transport) *http.Client) {
		up := clocktest.NewUpstream(t, c, hop.Times(2), clocktest.Reply(200).Body("here"))
		tr := newTransport(t, c, up, settings(policy.Settings{Deadline: 10 * time.Second}))
		resp, err := client(tr).Get(url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		call := callOf(t, resp)
		equal(t, "the number of attempts", call.Attempts(), 3)
		equal(t, "the start", call.Start(), c.Now().Add(-8*time.Second))
		at, _ := call.Deadline()
		equal(t, "the deadline", at, c.Now().Add(2*time.Second))
	})
}

// TestHopsOverTheWire: real redirects, at the same instants.
func TestHopsOverTheWire(t *testing.T) {
	eachKind(t, func(t *testing.T, c *clocktest.Clock, kind, url string) {
		asked := &arrivals{c: c}
		w := newWire(t, c, kind, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			asked.note()
			select {
			case <-c.After(4 * time.Second):
				http.Redirect(rw, r, "/next", 302)
			case <-r.Context().Done():
			}
		}), settings(policy.Settings{Deadline: 10 * time.Second}))
		_, err := w.Client().Get(url)
		equal(t, "the time", c.Elapsed(), 10*time.Second)
		equal(t, "the number of attempts", wantTimeout(t, err, layers.PhaseDeadline).Attempts, 3)
		equalTimes(t, asked.list(), 0, 4*time.Second, 8*time.Second)
		equal(t, "the number of connections", w.dials.Load(), 1)
	})
}

// TestRetryableHop: a call that ended in a hop after its POST was done may not be made
// again, however safe that hop is, and whatever became of it.
func TestRetryableHop(t *testing.T) {
	refused, broken := clocktest.FailDial(clocktest.ErrRefused), clocktest.Fail(clocktest.ErrReset)
	for _, test := range []struct {
		name, method string
		redirects    []int
		key          bool
		last         clocktest.Step
		want         bool
	}{
		{"GET", "GET", []int{302}, false, broken, true},
		{"POST, see other", "POST", []int{303}, false, broken, false},
		{"POST, see other, unsent", "POST", []int{303}, false, refused, false},
		{"POST, found, and further", "POST", []int{302, 302}, false, refused, false},
		{"POST, elsewhere", "POST", []int{307}, false, broken, false},
		{"POST, elsewhere, unsent", "POST", []int{308}, false, refused, true},
		{"POST, elsewhere, see other", "POST", []int{307, 303}, false, refused, false},
		{"POST with a key", "POST", []int{303}, true, broken, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				var steps []clocktest.Step
				for _, status := range test.redirects {
					steps = append(steps, clocktest.Reply(status).Header("Location", "/next"))
				}
				up := clocktest.NewUpstream(t, c, append(steps, test.last)...)
				tr := newTransport(t, c, up, settings(policy.Settings{Retry: policy.Retry{Enabled: policy.Off}}))
				req := request(t, t.Context(), test.method, url, nil)
				if test.key {
					req.Header.Set("Idempotency-Key", "1")
				}
				_, err := tr.Client().Do(req)
				equal(t, "whether the call may be made again", wantError(t, err).Retryable, test.want)
			})
		})
	}
}

// TestRefusedHop: the same of a hop that no chain can serve: a call's own settings may
// fit one route, and not another.
func TestRefusedHop(t *testing.T) {
	for _, test := range []struct {
		method   string
		redirect int
		want     bool
	}{{"POST", 303, false}, {"POST", 307, true}, {"PUT", 303, true}} {
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c, clocktest.Reply(test.redirect).Header("Location", "/next"))
			tr := newTransport(t, c, up, policy.Policy{Routes: []policy.Route{{Pattern: "/next", Settings: policy.Settings{Deadline: time.Second}}}})
			ctx := policy.WithOverride(t.Context(), policy.Settings{Timeouts: policy.Timeouts{Read: 20 * time.Second}})
			_, err := tr.Client().Do(request(t, ctx, test.method, url, nil))
			e := wantError(t, err)
			equal(t, "the layer", e.Layer, "match")
			equal(t, "the sends", e.Attempts, 1)
			equal(t, "whether the call may be made again", e.Retryable, test.want)
		})
	}
}

// TestHopToAnotherRoute: a hop brings its route's deadline with it, but nothing
// lifts the one that the call has.
func TestHopToAnotherRoute(t *testing.T) {
	for _, test := range []struct {
		name        string
		first, next time.Duration
		end         time.Duration
	}{
		{"longer", 10 * time.Second, time.Hour, 10 * time.Second},
		{"off", 10 * time.Second, policy.Off, 10 * time.Second},
		{"shorter", time.Hour, 3 * time.Second, 7 * time.Second},
		{"the first only", policy.Off, 5 * time.Second, 9 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
				up := clocktest.NewUpstream(t, c, clocktest.Reply(302).Header("Location", "/next").After(4*time.Second), clocktest.NoReply())
				tr := newTransport(t, c, up, policy.Policy{
					Settings: policy.Settings{Timeouts: policy.Timeouts{Read: policy.Off}},
					Routes: []policy.Route{
						{Pattern: "/v1", Settings: policy.Settings{Deadline: test.first}},
						{Pattern: "/next", Name: "the next", Settings: policy.Settings{Deadline: test.next}},
					},
				})
				_, err := tr.Client().Get(url)
				e := wantTimeout(t, err, layers.PhaseDeadline)
				equal(t, "the time", c.Elapsed(), test.end)
				equal(t, "the elapsed time told", e.Elapsed, test.end)
				equal(t, "the route", e.Route, "the next")
			})
		})
	}
}

// TestHopThatComesTooLate: nothing is sent, and nothing is reserved.
func TestHopThatComesTooLate(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(307).Header("Location", "/next"))
		tr := newTransport(t, c, up, settings(policy.Settings{Deadline: 10 * time.Second}))
		client := tr.Client()
		client.CheckRedirect = func(*http.Request, []*http.Request) error {
			c.Sleep(time.Minute)
			return nil
		}
		body := new(tracked)
		req := request(t, t.Context(), "PUT", url, nil)
		req.GetBody = func() (io.ReadCloser, error) { return body.open("hello"), nil }
		req.Body, _ = req.GetBody()
		req.ContentLength = 5
		_, err := client.Do(req)
		e := wantTimeout(t, err, layers.PhaseDeadline)
		equal(t, "the number of attempts", e.Attempts, 1)
		equal(t, "what was sent", e.Sent, layers.Unsent)
		equal(t, "the time", c.Elapsed(), time.Minute)
		body.bodies = body.bodies[1:] // http.Client closes that of a hop once more
		body.check(t)
	})
}

// TestHopKeepsTheBody: 307 and 308 send the body again, others do not.
func TestHopKeepsTheBody(t *testing.T) {
	for status, want := range map[int]string{307: "PUT hello", 308: "PUT hello", 302: "GET ", 303: "GET "} {
		eachClient(t, func(t *testing.T, c *clocktest.Clock, client func(*transport.Transport) *http.Client) {
			up := clocktest.NewUpstream(t, c,
				clocktest.Reply(503), clocktest.Reply(status).Header("Location", "/next"), clocktest.Reply(503), clocktest.Reply(200))
			tr := newTransport(t, c, up, retrying(noWait))
			resp, err := client(tr).Do(request(t, t.Context(), "PUT", url, strings.NewReader("hello")))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			equal(t, "the status", resp.StatusCode, 200)
			equal(t, "the number of attempts", callOf(t, resp).Attempts(), 4)
			sent := up.Requests()
			for i, s := range sent {
				if got := s.Method + " " + string(s.Body); i >= 2 && got != want || i < 2 && got != "PUT hello" {
					t.Errorf("%d: attempt %d was %q", status, i+1, got)
				}
			}
		})
	}
}

// TestHopsShareTheResends: the account of re-sends is the whole call's.
func TestHopsShareTheResends(t *testing.T) {
	eachClient(t, func(t *testing.T, c *clocktest.Clock, client func(*transport.Transport) *http.Client) {
		up := clocktest.NewUpstream(t, c,
			clocktest.Reply(503).Times(2), clocktest.Reply(302).Header("Location", "/next"),
			clocktest.Reply(503).Body("no more"))
		tr := newTransport(t, c, up, retrying(policy.Retry{MaxAttempts: 3, BaseDelay: policy.Off, Budget: policy.Off}))
		resp, err := client(tr).Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		equal(t, "the body", string(body), "no more")
		equal(t, "the end of the body", err, nil)
		equal(t, "the reason", callOf(t, resp).Reason(), layers.ReasonAttempts)
		equal(t, "the number of attempts", callOf(t, resp).Attempts(), 4)
	})
}

// TestRefusedRedirect: the client's own error comes with the response, as
// without weir, and nothing stays open.
func TestRefusedRedirect(t *testing.T) {
	stop := errors.New("no further")
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(302).Header("Location", "/next").Body("moved").Times(2))
		client := newTransport(t, c, up, policy.Policy{}).Client()
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return stop }
		resp, err := client.Get(url)
		if resp == nil || !errors.Is(err, stop) {
			t.Errorf("got %v, %v", resp, err)
		}
		if call := callOf(t, resp); call.Err() == nil {
			t.Error("the call goes on")
		}
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		resp, err = client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		equal(t, "the body", string(body), "moved")
		resp.Body.Close()
	})
}
