package hint

import (
	"net/http"
	"strings"
	"time"
)

// Source names the kind of field that a wait was read from.
type Source string

// The sources, in order of precedence; the last two compete on equal terms.
const (
	None                   Source = ""
	FromRetryAfterMS       Source = "retry-after-ms"
	FromRetryAfter         Source = "retry-after"
	FromRateLimit          Source = "ratelimit"
	FromXRateLimit         Source = "x-ratelimit"
	FromAnthropicRateLimit Source = "anthropic-ratelimit"
)

// Wait returns how long, from now on, a response asks its client to stay away,
// by all the sources. A wait of zero means that the client may come back at
// once; if no source is usable, from is None and the wait is zero too.
func Wait(status int, h http.Header, now time.Time) (wait time.Duration, from Source) {
	if wait, from = retryAfter(status, h, now); from != None {
		return wait, from
	}
	return Quota(h, now)
}

// RetryAfter returns the wait that retry-after-ms or Retry-After asks for. Both
// count only where coming back may succeed: on 403, 408, 425, 429, 500, 502,
// 503 and 504. Dates are compared with now, never with the server's Date.
func RetryAfter(status int, h http.Header, now time.Time) (wait time.Duration, ok bool) {
	wait, from := retryAfter(status, h, now)
	return wait, from != None
}

func retryAfter(status int, h http.Header, now time.Time) (time.Duration, Source) {
	switch status {
	case http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
	default:
		return 0, None
	}
	if wait, ok := longest(h["Retry-After-Ms"], milliseconds); ok {
		return wait, FromRetryAfterMS
	}
	wait, ok := longest(h["Retry-After"], func(value string) (time.Duration, bool) {
		if wait, ok := seconds(value); ok {
			return wait, true
		}
		at, ok := date(value, now)
		return until(at, now), ok
	})
	if ok {
		return wait, FromRetryAfter
	}
	return 0, None
}

// Quota returns the wait until an exhausted quota is restored, by the RateLimit
// field or else by the vendors' fields. They count on any status: a success may
// have used up what was left.
//
// A response that a cache answered, which is one with a positive Age (RFC 9111
// section 5.1), tells of the request that filled the cache and not of this one,
// so its quotas are ignored, as section 7.3 of the RateLimit draft advises.
func Quota(h http.Header, now time.Time) (wait time.Duration, from Source) {
	wait, ok := longest(h["Ratelimit"], exhausted)
	if ok {
		from = FromRateLimit
	} else if wait, from = groups(h, now); from == None {
		return 0, None
	}
	if age, _ := longest(h["Age"], seconds); age > 0 {
		return 0, None
	}
	return wait, from
}

// Asks reports that there is a field that RetryAfter might read.
func Asks(h http.Header) bool { return h["Retry-After-Ms"] != nil || h["Retry-After"] != nil }

// Present reports that there is a field that Wait might read. It needs no time
// of day.
func Present(h http.Header) bool {
	for name := range h {
		if name == "" {
			continue
		}
		switch name[0] { // what most names begin with none of
		case 'R':
			if name == "Retry-After" || name == "Retry-After-Ms" || name == "Ratelimit" {
				return true
			}
		case 'X', 'A':
			if _, _, source := resetName(name); source != None {
				return true
			}
		}
	}
	return false
}

// groups returns the largest reset among the groups of which nothing remains.
// A group's name is open, so that only a walk over all fields finds it. The walk
// looks for what remains, and looks up the one reset that belongs to it.
func groups(h http.Header, now time.Time) (wait time.Duration, from Source) {
	for name, remaining := range h {
		before, after, source := resetName(name)
		if source == None || !nothing(remaining) {
			continue
		}
		d, ok := longest(h[before+after], func(value string) (time.Duration, bool) { return reset(value, now) })
		// The order of the walk is random; the source of equal waits must not be.
		if ok && (from == None || d > wait || d == wait && source < from) {
			wait, from = d, source
		}
	}
	return wait, from
}

// resetName returns, of a field that says what remains of a group, the two
// parts of the name of the group's reset. The group may be without a name, as in
// X-RateLimit-Remaining and X-RateLimit-Reset.
func resetName(remaining string) (before, after string, from Source) {
	if group, ok := strings.CutPrefix(remaining, "X-Ratelimit-Remaining"); ok {
		return "X-Ratelimit-Reset", group, FromXRateLimit
	}
	if strings.HasPrefix(remaining, "Anthropic-Ratelimit-") {
		if group, ok := strings.CutSuffix(remaining, "-Remaining"); ok {
			return group, "-Reset", FromAnthropicRateLimit
		}
	}
	return "", "", None
}

// nothing reports whether any line of a remaining field says zero. Some servers
// count in decimals and write 0.0. A negative number is no exhausted quota but
// how others write that there is no limit.
func nothing(remaining []string) bool {
	for _, value := range remaining {
		if whole, decimals, ok := number(trim(value)); ok && whole == 0 && strings.Trim(decimals, "0") == "" {
			return true
		}
	}
	return false
}

// longest returns the longest wait among the lines of a field that parse.
func longest(lines []string, parse func(string) (time.Duration, bool)) (wait time.Duration, ok bool) {
	for _, line := range lines {
		if d, valid := parse(trim(line)); valid {
			wait, ok = max(wait, d), true
		}
	}
	return wait, ok
}

// trim removes the optional white space of RFC 9110 section 5.6.3.
func trim(s string) string { return strings.Trim(s, " \t") }
