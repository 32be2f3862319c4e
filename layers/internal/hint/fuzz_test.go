package hint

import (
	"maps"
	"math"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// parseFields reads lines of a name, a colon and a value.
func parseFields(text string) http.Header {
	h := make(http.Header)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		h.Add(name, value)
	}
	return h
}

// FuzzWait reads arbitrary fields, and then the same with one line more that
// says nothing by itself: it must not make anyone come back earlier.
func FuzzWait(f *testing.F) {
	for _, c := range headerCases(f) {
		var text strings.Builder
		for _, field := range c.Headers {
			text.WriteString(field[0] + ":" + field[1] + "\n")
		}
		f.Add(c.Status, c.Now.Unix(), text.String(), "-1")
	}
	f.Fuzz(func(t *testing.T, status int, unix int64, text, garbage string) {
		now, h := time.Unix(unix, 0), parseFields(text)
		wait, from := Wait(status, h, now)
		checkWait(t, h, wait, from)
		if again, source := Wait(status, h, now); again != wait || source != from {
			t.Fatalf("Wait = %v from %q, then %v from %q", wait, from, again, source)
		}

		after, ok := RetryAfter(status, h, now)
		if ok && !Asks(h) {
			t.Fatalf("RetryAfter = %v, but %v asks for nothing", after, h)
		}
		quota, source := Quota(h, now)
		checkWait(t, h, quota, source)
		if ok != (from == FromRetryAfterMS || from == FromRetryAfter) || ok && after != wait || !ok && (after != 0 || quota != wait || source != from) {
			t.Fatalf("Wait = %v from %q, RetryAfter = %v, %t, Quota = %v from %q", wait, from, after, ok, quota, source)
		}
		if from == FromRetryAfter {
			checkSeconds(t, h["Retry-After"], wait)
		}

		names := slices.AppendSeq([]string{"Retry-After", "Retry-After-Ms", "Ratelimit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}, maps.Keys(h))
		for _, name := range names {
			if _, alone := Wait(status, http.Header{name: {garbage}}, now); alone != None || name == "Age" {
				continue
			}
			more := h.Clone()
			more[name] = append(more[name], garbage)
			if longer, source := Wait(status, more, now); longer < wait || from != None && source == None {
				t.Fatalf("%q more in %s: Wait = %v from %q, before %v from %q", garbage, name, longer, source, wait, from)
			}
		}
	})
}

// checkWait checks what holds of any wait.
func checkWait(t *testing.T, h http.Header, wait time.Duration, from Source) {
	t.Helper()
	present := func(prefix string) bool {
		for name := range h {
			if strings.HasPrefix(strings.ToLower(name), prefix) {
				return true
			}
		}
		return false
	}
	if wait < 0 || from == None && wait != 0 || from != None && !(present(string(from)) && Present(h)) {
		t.Fatalf("wait of %v from %q in %v", wait, from, h)
	}
}

// checkSeconds checks with unbounded numbers that no line of plain seconds asks
// for more than wait.
func checkSeconds(t *testing.T, lines []string, wait time.Duration) {
	t.Helper()
	for _, line := range lines {
		line = strings.Trim(line, " \t")
		if strings.Trim(line, "0123456789") != "" {
			continue
		}
		n, ok := new(big.Int).SetString(line, 10)
		if !ok {
			continue
		}
		n.Mul(n, big.NewInt(int64(time.Second)))
		if n.Cmp(big.NewInt(int64(wait))) > 0 && wait != math.MaxInt64 {
			t.Fatalf("%q asks for more than %v", line, wait)
		}
	}
}

// FuzzDuration holds durations against package time, wherever that reads them.
func FuzzDuration(f *testing.F) {
	for _, s := range []string{"6m0s", "350ms", "2m59.56s", "1h23m31s", "17.5µs", "1.000000001s", "2562047h47m16.854775807s", "0.3333333333333333333h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := duration(s)
		if got < 0 || !ok && got != 0 {
			t.Fatalf("duration(%q) = %v, %t", s, got, ok)
		}
		want, err := time.ParseDuration(s)
		if !ok || err != nil {
			return
		}
		// Cutting digit by digit loses some nanoseconds of an hour's decimals;
		// package time goes through a float.
		if diff := (want - got).Abs(); diff > time.Duration(10*strings.Count(s, ".")) {
			t.Fatalf("duration(%q) = %v, want %v", s, got, want)
		}
	})
}
