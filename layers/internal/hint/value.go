package hint

import (
	"math"
	"net/http"
	"strings"
	"time"
)

// seconds reads the delay-seconds of RFC 9110 section 10.2.3: digits alone.
func seconds(s string) (time.Duration, bool) {
	n, ok := digits(s)
	return times(n, time.Second), ok
}

// milliseconds reads retry-after-ms, which is as strict.
func milliseconds(s string) (time.Duration, bool) {
	n, ok := digits(s)
	return times(n, time.Millisecond), ok
}

// rfc850 is the obsolete form of an HTTP-date. Unlike [time.RFC850] it takes no
// zone but GMT, which [time.Parse] would read as an unknown zone of offset zero.
const rfc850 = "Monday, 02-Jan-06 15:04:05 GMT"

// date reads an HTTP-date in any of the three forms of RFC 9110 section 5.6.7.
// A two-digit year is the latest one that puts the date at most fifty years
// after now, as that section demands; [http.ParseTime] has another rule.
func date(s string, now time.Time) (time.Time, bool) {
	for _, layout := range [...]string{http.TimeFormat, time.ANSIC} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, true
		}
	}
	t, err := time.Parse(rfc850, s)
	if err != nil {
		return time.Time{}, false
	}
	limit := now.AddDate(50, 0, 0).UTC()
	years := limit.Year() - t.Year()
	years -= (years%100 + 100) % 100 // Whole centuries, rounded down.
	if u := t.AddDate(years, 0, 0); !u.After(limit) {
		return u, true
	}
	return t.AddDate(years-100, 0, 0), true
}

// Plain numbers from these on are no longer seconds from now but an instant:
// seconds, and milliseconds, since 1970.
const (
	leastUnix      = 1e9
	leastUnixMilli = 1e12
)

// reset reads the reset of a vendor's group: a plain number, a duration such as
// 6m0s, or an instant by RFC 3339.
func reset(s string, now time.Time) (time.Duration, bool) {
	if whole, decimals, ok := number(s); ok {
		switch {
		case whole >= leastUnixMilli:
			return until(time.UnixMilli(whole).Add(fraction(decimals, time.Millisecond)), now), true
		case whole >= leastUnix:
			return until(time.Unix(whole, 0).Add(fraction(decimals, time.Second)), now), true
		}
		return times(whole, time.Second) + fraction(decimals, time.Second), true
	}
	if d, ok := duration(s); ok {
		return d, true
	}
	t, err := time.Parse(time.RFC3339, s)
	return until(t, now), err == nil
}

// duration reads what [time.ParseDuration] reads, but no sign, and days too. A
// sum that does not fit is the longest duration instead of an error.
func duration(s string) (sum time.Duration, ok bool) {
	if s == "" {
		return 0, false
	}
	for s != "" {
		i := span(s, func(c byte) bool { return isDigit(c) || c == '.' })
		whole, decimals, ok := number(s[:i])
		if !ok {
			return 0, false
		}
		s = s[i:]
		i = span(s, func(c byte) bool { return !isDigit(c) && c != '.' })
		var unit time.Duration
		switch s[:i] {
		case "d":
			unit = 24 * time.Hour
		case "h":
			unit = time.Hour
		case "m":
			unit = time.Minute
		case "s":
			unit = time.Second
		case "ms":
			unit = time.Millisecond
		case "us", "µs", "μs": // The micro sign, and the Greek letter.
			unit = time.Microsecond
		case "ns":
			unit = time.Nanosecond
		default:
			return 0, false
		}
		s = s[i:]
		sum = plus(sum, plus(times(whole, unit), fraction(decimals, unit)))
	}
	return sum, true
}

// number reads digits, or digits on both sides of a point.
func number(s string) (whole int64, decimals string, ok bool) {
	s, decimals, point := strings.Cut(s, ".")
	if point {
		if _, ok = digits(decimals); !ok {
			return 0, "", false
		}
	}
	whole, ok = digits(s)
	return whole, decimals, ok
}

// fraction returns the part of a unit that its decimals say, cut to nanoseconds
// digit by digit.
func fraction(decimals string, unit time.Duration) (part time.Duration) {
	for i := 0; i < len(decimals) && unit > 0; i++ {
		unit /= 10
		part += time.Duration(decimals[i]-'0') * unit
	}
	return part
}

// digits reads a number of one or more digits, however many. What does not fit
// is the largest number.
func digits(s string) (n int64, ok bool) {
	if s == "" || span(s, isDigit) < len(s) {
		return 0, false
	}
	for i := range len(s) {
		if n > (math.MaxInt64-9)/10 {
			return math.MaxInt64, true
		}
		n = 10*n + int64(s[i]-'0')
	}
	return n, true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// span returns the length of the longest prefix of s whose bytes are all in.
func span(s string, in func(byte) bool) int {
	for i := range len(s) {
		if !in(s[i]) {
			return i
		}
	}
	return len(s)
}

// times returns n units, or the longest duration.
func times(n int64, unit time.Duration) time.Duration {
	if n > int64(math.MaxInt64/unit) {
		return math.MaxInt64
	}
	return time.Duration(n) * unit
}

// plus returns the sum of two durations that are not negative, or the longest
// one.
func plus(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// until returns the time from now to t, and zero once t has passed. The
// difference of two times saturates.
func until(t, now time.Time) time.Duration { return max(0, t.Sub(now)) }
