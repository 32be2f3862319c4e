package transport_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

// TestDeadlineHeader: each send tells the hosts of the routes that say so, and
// no other, how much time is left to the call.
func TestDeadlineHeader(t *testing.T) {
	const envoy = "X-Envoy-Expected-Rq-Timeout-Ms"
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(503).After(time.Second).Header("Retry-After", "2"), clocktest.Reply(200).Forever())
		tr := newTransport(t, c, up, policy.Policy{
			Settings: policy.Settings{Deadline: 10500 * time.Millisecond},
			Routes: []policy.Route{
				{Pattern: "api.example/", Settings: policy.Settings{DeadlineHeader: envoy}},
				{Pattern: "api.example/quiet", Settings: policy.Settings{DeadlineHeader: "off"}},
				{Pattern: "rpc.example/", Settings: policy.Settings{DeadlineHeader: "grpc-timeout"}},
				{Pattern: "slow.example/", Settings: policy.Settings{DeadlineHeader: "X-Left", Deadline: policy.Off}},
			},
		})
		req := request(t, t.Context(), "GET", url, nil)
		do(c, tr, req)
		equal(t, "headers of the caller's request", len(req.Header), 0)
		for _, u := range []string{"http://api.example/quiet", "http://rpc.example/", "http://slow.example/", "http://other.example/"} {
			do(c, tr, request(t, t.Context(), "GET", u, nil))
		}
		sent := up.Requests()
		for i, want := range []http.Header{
			{envoy: {"10500"}}, {envoy: {"7500"}}, // 1 s, and 2 s of backoff, later
			{}, {"Grpc-Timeout": {"10500000u"}}, {}, {},
		} {
			for _, h := range []string{envoy, "Grpc-Timeout", "X-Left"} {
				equal(t, h+" of send "+strconv.Itoa(i+1), sent[i].Header.Get(h), want.Get(h))
			}
		}
	})
}

// TestDeadlineHeaderIsNeverZero: what is left may be less than can be told.
func TestDeadlineHeaderIsNeverZero(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		for left, want := range map[time.Duration][2]string{
			1:                       {"1", "1n"},
			999 * time.Microsecond:  {"1", "999000n"},
			2999 * time.Microsecond: {"2", "2999000n"},
			100 * time.Millisecond:  {"100", "100000u"},
			3 * time.Hour:           {"10800000", "10800000m"},
			365 * 24 * time.Hour:    {"31536000000", "31536000S"},
			1 << 61:                 {"2305843009213", "38430716M"},
		} {
			for i, name := range []string{"X-Left", "Grpc-Timeout"} {
				rt := layers.Chain(up, layers.DeadlineHeader(&layers.Env{Clock: c}, name))
				ctx := layers.WithDeadline(t.Context(), c.Now().Add(left))
				do(c, rt, request(t, ctx, "GET", url, nil))
				all := up.Requests()
				equal(t, name+" with "+left.String()+" left", all[len(all)-1].Header.Get(name), want[i])
			}
		}
	})
}

// TestFromRequest: a server's calls end by the time that its caller waits.
func TestFromRequest(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.NoReply().Forever())
		tr := newTransport(t, c, up, settings(policy.Settings{Deadline: 20 * time.Second, Retry: policy.Retry{Enabled: policy.Off}}))
		for _, tc := range []struct {
			name, value string
			want        time.Duration
		}{
			{"grpc-timeout", "5S", 5 * time.Second},
			{"grpc-timeout", "1500m", 1500 * time.Millisecond},
			{"grpc-timeout", "99999999H", 20 * time.Second},
			{"grpc-timeout", "5S ", 20 * time.Second},
			{"grpc-timeout", "5s", 20 * time.Second},
			{"grpc-timeout", "+5S", 20 * time.Second},
			{"grpc-timeout", "1.5S", 20 * time.Second},
			{"grpc-timeout", "٥S", 20 * time.Second},
			{"grpc-timeout", "5S, 2S", 20 * time.Second},
			{"x-left", "18446744073710", 20 * time.Second},
			{"x-left", "9223372036854", 20 * time.Second},
			{"x-left", "0x10", 20 * time.Second},
			{"x-left", "1_000", 20 * time.Second},
			{"X-Envoy-Expected-Rq-Timeout-Ms", "2500", 2500 * time.Millisecond},
			{"x-left", "700", 700 * time.Millisecond},
			{"X-Other", "700", 20 * time.Second},
			{"grpc-timeout", "", 20 * time.Second},
			{"grpc-timeout", "5", 20 * time.Second},
			{"grpc-timeout", "S", 20 * time.Second},
			{"grpc-timeout", "-5S", 20 * time.Second},
			{"grpc-timeout", "123456789n", 20 * time.Second}, // nine digits
			{"grpc-timeout", "0S", 20 * time.Second},
			{"X-Left", "0", 20 * time.Second},
			{"X-Left", "-1", 20 * time.Second},
			{"X-Left", "1e3", 20 * time.Second},
			{"X-Left", "99999999999999999999", 20 * time.Second},
		} {
			served := request(t, t.Context(), "GET", url, nil)
			served.Header.Set(tc.name, tc.value)
			r := do(c, tr, request(t, layers.FromRequest(served, "X-Left"), "GET", url, nil))
			wantTimeout(t, r.err, layers.PhaseDeadline)
			if r.took != tc.want {
				t.Errorf("%s: %q: the call took %v, want %v", tc.name, tc.value, r.took, tc.want)
			}
		}
		both := request(t, t.Context(), "GET", url, nil)
		both.Header.Set("grpc-timeout", "5S")
		both.Header.Set("X-Envoy-Expected-Rq-Timeout-Ms", "2000")
		wantTook(t, do(c, tr, request(t, layers.FromRequest(both), "GET", url, nil)), 2*time.Second)
	})
}

// TestFromRequestLong: a time that is too long for some is long, and not none.
func TestFromRequestLong(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.NoReply().Forever())
		tr := newTransport(t, c, up, settings(policy.Settings{Deadline: policy.Off, Timeouts: policy.Timeouts{Read: policy.Off}, Retry: policy.Retry{Enabled: policy.Off}}))
		served := request(t, t.Context(), "GET", url, nil)
		served.Header.Set("X-Left", "5184000000") // 60 days, in more than 32 bits
		wantTook(t, do(c, tr, request(t, layers.FromRequest(served, "X-Left"), "GET", url, nil)), 60*24*time.Hour)
		served.Header.Set("Grpc-Timeout", "97357816H") // 19 times 2^64 ns, and three minutes
		wantTook(t, do(c, tr, request(t, layers.FromRequest(served, "X-Left"), "GET", url, nil)), 60*24*time.Hour)
		served.Header["X-Left"] = []string{"junk", "3000", "2000"}
		wantTook(t, do(c, tr, request(t, layers.FromRequest(served, "X-Left"), "GET", url, nil)), 2*time.Second)
	})
}

// TestDeadlineHeaderOfTheCaller: a time that the caller of the transport tells
// himself stands if it is the shorter one, and there is one header of the name.
func TestDeadlineHeaderOfTheCaller(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		for own, want := range map[string]string{"500": "500", "60000": "10000", "0": "10000", "junk": "10000"} {
			for _, name := range []string{"X-Left", "x-left"} {
				rt := layers.Chain(up, layers.DeadlineHeader(&layers.Env{Clock: c}, "X-Left"))
				req := request(t, layers.WithDeadline(t.Context(), c.Now().Add(10*time.Second)), "GET", url, nil)
				req.Header[name] = []string{own}
				do(c, rt, req)
				all := up.Requests()
				sent := all[len(all)-1].Header
				equal(t, "headers", len(sent), 1)
				equal(t, name+" that the caller set to "+own, sent.Get("X-Left"), want)
				equal(t, "the caller's", req.Header[name][0], own)
			}
		}
	})
}

// TestDeadlineHeaderOfSends: each retry, hedge and hop tells the time that is left
// to it, and a host that the policy does not name is told none.
func TestDeadlineHeaderOfSends(t *testing.T) {
	const name = "X-Left"
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c,
			clocktest.Reply(302).After(time.Second).Header("Location", "http://api.example/hedged"),
			clocktest.NoReply(), clocktest.Reply(302).After(time.Second).Header("Location", "http://other.example/"),
			clocktest.Reply(200))
		tr := newTransport(t, c, up, policy.Policy{
			Settings: policy.Settings{Deadline: 10 * time.Second},
			Routes: []policy.Route{
				{Pattern: "api.example/", Settings: policy.Settings{DeadlineHeader: name}},
				{Pattern: "api.example/hedged", Settings: policy.Settings{Hedge: policy.Hedge{Delay: 2 * time.Second}}},
			},
		})
		resp, err := tr.Client().Do(request(t, t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		sent := up.Requests()
		for i, want := range []string{"10000", "9000", "7000", ""} {
			equal(t, "send "+strconv.Itoa(i+1), sent[i].Header.Get(name), want)
		}
	})
}

// TestDeadlineHeaderOfAStream: the policy's deadline bounds only the opening of
// a stream, and a server that went by it would end a healthy one.
func TestDeadlineHeaderOfAStream(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).Forever())
		tr := newTransport(t, c, up, policy.Policy{
			Settings: policy.Settings{Deadline: 10 * time.Second},
			Routes: []policy.Route{{Pattern: "api.example/", Settings: policy.Settings{
				DeadlineHeader: "X-Left", Stream: policy.Stream{Enabled: policy.On},
			}}},
		})
		do(c, tr, request(t, t.Context(), "POST", url, nil))
		do(c, tr, request(t, layers.WithDeadline(t.Context(), c.Now().Add(time.Hour)), "POST", url, nil))
		do(c, tr, request(t, layers.WithDeadline(t.Context(), c.Now().Add(time.Second)), "POST", url, nil))
		for i, want := range []string{"", "3600000", "1000"} {
			equal(t, "send "+strconv.Itoa(i+1), up.Requests()[i].Header.Get("X-Left"), want)
		}
	})
}
