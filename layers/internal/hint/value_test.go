package hint

import (
	"strings"
	"testing"
	"time"
)

func TestReset(t *testing.T) {
	for _, c := range []struct {
		value string
		want  time.Duration
		ok    bool
	}{
		{"0", 0, true},
		{"60", time.Minute, true},
		{"1.25", 1250 * time.Millisecond, true},
		{"999999999", 999999999 * time.Second, true},

		// Instants since 1970: seconds from 10⁹ on, milliseconds from 10¹² on.
		{"1000000000", 0, true},
		{"1772366700", 5 * time.Minute, true},
		{"1772366700.5", 5*time.Minute + 500*time.Millisecond, true},
		{"999999999999", longestWait, true},
		{"1000000000000", 0, true},
		{"1772366700250", 5*time.Minute + 250*time.Millisecond, true},
		{"1772366700250.5", 5*time.Minute + 250500*time.Microsecond, true},
		{strings.Repeat("9", 400), longestWait, true},

		{"6m0s", 6 * time.Minute, true},
		{"1s", time.Second, true},
		{"350ms", 350 * time.Millisecond, true},
		{"7.66s", 7660 * time.Millisecond, true},
		{"1h23m31s", time.Hour + 23*time.Minute + 31*time.Second, true},
		{"1d2h", 26 * time.Hour, true},
		{"1.5h", 90 * time.Minute, true},
		{"0.123456789123s", 123456789, true},
		{"17us", 17 * time.Microsecond, true},
		{"17.5µs", 17500, true},
		{"17μs", 17 * time.Microsecond, true},
		{"3ns", 3, true},
		{"2562047h47m16.854775807s", longestWait, true},
		{"2562047h47m16.854775808s", longestWait, true},
		{"9999999h1ns", longestWait, true},
		{strings.Repeat("9", 400) + "ns", longestWait, true},
		{strings.Repeat("9h", 400), 3600 * time.Hour, true},

		{"2026-03-01T12:00:42Z", 42 * time.Second, true},
		{"2026-03-01T12:00:42.5Z", 42500 * time.Millisecond, true},
		{"2026-03-01T14:00:42+02:00", 42 * time.Second, true},
		{"2026-03-01T11:00:00Z", 0, true},
		{"9999-12-31T23:59:59Z", longestWait, true},

		{"", 0, false},
		{"-5", 0, false},
		{"+5", 0, false},
		{"-5s", 0, false},
		{"5 s", 0, false},
		{".5", 0, false},
		{"5.", 0, false},
		{"5..5s", 0, false},
		{"1.2.3", 0, false},
		{"1e3", 0, false},
		{"s", 0, false},
		{"1m2", 0, false},
		{"1S", 0, false},
		{"1w", 0, false},
		{"1mss", 0, false},
		{"Inf", 0, false},
		{"NaN", 0, false},
		{"2026-03-01", 0, false},
		{"2026-03-01T12:00:42", 0, false},
		{"Sun, 01 Mar 2026 12:00:42 GMT", 0, false},
	} {
		if got, ok := reset(c.value, now); got != c.want || ok != c.ok {
			t.Errorf("reset(%q) = %v, %t, want %v, %t", c.value, got, ok, c.want, c.ok)
		}
	}
}

// TestDateCentury holds the two-digit year against a search through all years.
func TestDateCentury(t *testing.T) {
	for year := 1850; year <= 2250; year += 7 {
		clock := time.Date(year, time.June, 15, 12, 0, 0, 0, time.UTC)
		limit := clock.AddDate(50, 0, 0)
		for yy := range 100 {
			text := time.Date(2000+yy, time.June, 15, 12, 0, 0, 0, time.UTC).Format(rfc850)
			want := time.Date(limit.Year(), time.June, 15, 12, 0, 0, 0, time.UTC)
			for want.Year()%100 != yy {
				want = want.AddDate(-1, 0, 0)
			}
			if got, ok := date(text, clock); !ok || !got.Equal(want) {
				t.Fatalf("date(%q) at %d = %v, %t, want %v", text, year, got, ok, want)
			}
		}
	}
}
