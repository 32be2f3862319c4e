package layers

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/benbjohnson/clock"
)

// The headers by which servers are told how long their caller waits.
const (
	grpcTimeout  = "Grpc-Timeout"
	envoyTimeout = "X-Envoy-Expected-Rq-Timeout-Ms"
)

// DeadlineHeader sets a header of each send to the time that is left to the
// call, so that a server can give up what nobody waits for any more:
// grpc-timeout in the form of gRPC, any other name in whole milliseconds, such
// as X-Envoy-Expected-Rq-Timeout-Ms. The time is never told as 0, which some
// read as no limit. A call without a deadline sends no such header of ours; nor
// is a [StreamGuard] further in told of by the policy's, which does not bound the
// reading of a stream. A shorter time that the request has already stands.
//
// [FromRequest] is the other end.
func DeadlineHeader(env *Env, name string) Layer {
	name = http.CanonicalHeaderKey(name)
	return env.layer(rankOnward, "", func(_ *Env, next sender) sender {
		_, streams := next.(*streamGuard)
		return &onward{next: next, name: name, streams: streams}
	})
}

type onward struct {
	next    sender
	name    string
	streams bool
}

func (l *onward) send(a *attempt, req *http.Request) (*http.Response, error) {
	if left := l.left(a.call); left < never/2 {
		req = req.WithContext(req.Context())
		req.Header = req.Header.Clone()
		if req.Header == nil {
			req.Header = http.Header{}
		}
		for name, values := range req.Header {
			if http.CanonicalHeaderKey(name) == l.name { // however it is written
				left = min(left, shortest(l.name, values))
				delete(req.Header, name)
			}
		}
		req.Header.Set(l.name, timeLeft(l.name, left))
	}
	return l.next.send(a, req)
}

// left returns how much time the server has.
func (l *onward) left(c *Call) time.Duration {
	if !l.streams {
		return c.left()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(c.jobEnd(), c.ctxEnd) - c.env.now()
}

// timeLeft writes a time, rounded down, but to no less than the smallest that
// can be told.
func timeLeft(name string, left time.Duration) string {
	if name != grpcTimeout {
		return strconv.FormatInt(max(1, left.Milliseconds()), 10)
	}
	const most = 99_999_999 // of each unit, by the protocol
	for _, u := range grpcUnits {
		if n := int64(left / u.length); n <= most {
			return strconv.FormatInt(max(1, n), 10) + u.name
		}
	}
	return strconv.Itoa(most) + "H"
}

// grpcUnits are those of gRPC over HTTP/2, shortest first.
var grpcUnits = []struct {
	name   string
	length time.Duration
}{
	{"n", time.Nanosecond},
	{"u", time.Microsecond},
	{"m", time.Millisecond},
	{"S", time.Second},
	{"M", time.Minute},
	{"H", time.Hour},
}

// FromRequest returns the context of a request that a server handles, with the
// deadline that its caller told: calls that are made with it end by then, as
// with [WithDeadline]. It reads grpc-timeout, X-Envoy-Expected-Rq-Timeout-Ms and
// the headers named, in milliseconds, and goes by the shortest time. What is
// malformed, zero or negative is passed over: a caller may shorten what its own
// request gets, and no more.
func FromRequest(r *http.Request, names ...string) context.Context {
	left := never
	for name, values := range r.Header {
		known := name == grpcTimeout || name == envoyTimeout
		for _, n := range names {
			known = known || http.CanonicalHeaderKey(n) == name
		}
		if known {
			left = min(left, shortest(name, values))
		}
	}
	if left == never {
		return r.Context()
	}
	return WithDeadline(r.Context(), clock.New().Now().Add(left))
}

// shortest returns the shortest of the times that the values of a header tell;
// never if there is none.
func shortest(name string, values []string) time.Duration {
	left := never
	for _, v := range values {
		if t := readTimeLeft(name, v); t > 0 {
			left = min(left, t)
		}
	}
	return left
}

// readTimeLeft is 0 for what is no time. What is too long for a Duration is
// never.
func readTimeLeft(name, v string) time.Duration {
	unit := time.Millisecond
	if name == grpcTimeout {
		unit = 0
		for _, u := range grpcUnits {
			if digits, ok := strings.CutSuffix(v, u.name); ok && len(digits) <= 8 {
				v, unit = digits, u.length
				break
			}
		}
	}
	n, err := strconv.ParseUint(v, 10, 63)
	switch {
	case unit == 0 || err != nil && !errors.Is(err, strconv.ErrRange):
		return 0
	case err != nil || n > uint64(never/unit):
		return never
	}
	return time.Duration(n) * unit
}
