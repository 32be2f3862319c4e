package hint

import (
	"encoding/json"
	"math"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// now is the instant of every case that does not name its own: a Sunday.
var now = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

const longestWait = time.Duration(math.MaxInt64)

// fields builds a header from name and value pairs.
func fields(pairs ...string) http.Header {
	h := make(http.Header)
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// headerCase is one entry of testdata/headers.json.
type headerCase struct {
	Name      string      `json:"name"`
	Now       time.Time   `json:"now"`
	Status    int         `json:"status"`
	Headers   [][2]string `json:"headers"`
	Want      string      `json:"want"`
	WaitMS    int64       `json:"wait_ms"`
	Saturates bool        `json:"saturates"`
}

func (c *headerCase) header() http.Header {
	h := make(http.Header)
	for _, f := range c.Headers {
		h.Add(f[0], f[1])
	}
	return h
}

func headerCases(tb testing.TB) []headerCase {
	tb.Helper()
	data, err := os.ReadFile("testdata/headers.json")
	if err != nil {
		tb.Fatal(err)
	}
	var cases []headerCase
	if err := json.Unmarshal(data, &cases); err != nil {
		tb.Fatal(err)
	}
	if len(cases) != 50 {
		tb.Fatalf("headers.json holds %d cases, want 50", len(cases))
	}
	return cases
}

func TestHeaderCases(t *testing.T) {
	for _, c := range headerCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			want, wantOK := time.Duration(c.WaitMS)*time.Millisecond, c.Want == "wait"
			if c.Saturates {
				want = longestWait
			}
			h := c.header()
			got, from := Wait(c.Status, h, c.Now)
			if asks := from == FromRetryAfterMS || from == FromRetryAfter; from != None && !Present(h) || asks && !Asks(h) {
				t.Errorf("Present = %t, Asks = %t, want what %q needs", Present(h), Asks(h), from)
			}
			if got != want || (from != None) != wantOK {
				t.Errorf("Wait = %v from %q, want %v, %t", got, from, want, wantOK)
			}
			if from == FromRetryAfterMS || from == FromRetryAfter {
				if got, ok := RetryAfter(c.Status, h, c.Now); got != want || !ok {
					t.Errorf("RetryAfter = %v, %t, want %v, true", got, ok, want)
				}
				return
			}
			if got, ok := RetryAfter(c.Status, h, c.Now); got != 0 || ok {
				t.Errorf("RetryAfter = %v, %t, want none", got, ok)
			}
		})
	}
}

func TestRetryAfterStatuses(t *testing.T) {
	counts := map[int]bool{403: true, 408: true, 425: true, 429: true, 500: true, 502: true, 503: true, 504: true}
	for _, name := range []string{"Retry-After", "Retry-After-Ms"} {
		for status := range 1000 {
			if _, ok := RetryAfter(status, fields(name, "1"), now); ok != counts[status] {
				t.Errorf("%s on %d: ok = %t", name, status, ok)
			}
		}
	}
}

func TestWait(t *testing.T) {
	for _, c := range []struct {
		name   string
		header http.Header
		want   time.Duration
		from   Source
	}{
		{"longest of duplicates", fields("Retry-After", "5", "Retry-After", "60", "Retry-After", "7"), time.Minute, FromRetryAfter},
		{"longest of seconds and date", fields("Retry-After", "5", "Retry-After", "Sun, 01 Mar 2026 12:00:30 GMT"), 30 * time.Second, FromRetryAfter},
		{"garbage beside a duplicate", fields("Retry-After", "soon", "Retry-After", "7", "Retry-After", "-90"), 7 * time.Second, FromRetryAfter},
		{"longest of milliseconds", fields("Retry-After-Ms", "5", "Retry-After-Ms", "60"), 60 * time.Millisecond, FromRetryAfterMS},
		{"milliseconds saturate", fields("Retry-After-Ms", strings.Repeat("9", 400)), longestWait, FromRetryAfterMS},
		{"milliseconds with a fraction", fields("Retry-After-Ms", "1.5"), 0, None},
		{"digits of another script", fields("Retry-After", "٣"), 0, None},
		{"white space inside", fields("Retry-After", "1 2"), 0, None},
		{"hexadecimal", fields("Retry-After", "0x10"), 0, None},
		{"two values on one line", fields("Retry-After", "5, 7"), 0, None},
		{"far date saturates", fields("Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"), longestWait, FromRetryAfter},

		// RFC 9110 section 5.6.7: at most fifty years ahead, to the second.
		{"rfc850 fifty years ahead", fields("Retry-After", "Sunday, 01-Mar-76 12:00:00 GMT"), now.AddDate(50, 0, 0).Sub(now), FromRetryAfter},
		{"rfc850 a second more is past", fields("Retry-After", "Sunday, 01-Mar-76 12:00:01 GMT"), 0, FromRetryAfter},
		{"rfc850 past the pivot of package time", fields("Retry-After", "Saturday, 01-Mar-70 12:00:00 GMT"), now.AddDate(44, 0, 0).Sub(now), FromRetryAfter},
		{"rfc850 last century", fields("Retry-After", "Sunday, 06-Nov-94 08:49:37 GMT"), 0, FromRetryAfter},
		{"rfc850 another zone", fields("Retry-After", "Sunday, 01-Mar-26 12:00:30 PST"), 0, None},

		{"unusable leaves RateLimit", fields("Retry-After", "soon", "RateLimit", `"a";r=0;t=3`), 3 * time.Second, FromRateLimit},
		{"RateLimit before groups", fields("RateLimit", `"a";r=0;t=3`, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9"), 3 * time.Second, FromRateLimit},
		{"unexhausted RateLimit leaves groups", fields("RateLimit", `"a";r=1;t=3`, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9"), 9 * time.Second, FromXRateLimit},
		{"RateLimit over several lines", fields("RateLimit", `"a";r=0;t=3`, "RateLimit", `"b";r=0;t=9`), 9 * time.Second, FromRateLimit},
		{"malformed line beside a good one", fields("RateLimit", `"a;r=0`, "RateLimit", `"b";r=0;t=9`), 9 * time.Second, FromRateLimit},
		{"dictionary of an older draft", fields("RateLimit", "limit=100, remaining=0, reset=30"), 0, None},
		{"fields of an older draft", fields("RateLimit-Limit", "10", "RateLimit-Remaining", "0", "RateLimit-Reset", "30"), 0, None},

		{"largest of both families", fields(
			"x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", "20ms",
			"anthropic-ratelimit-tokens-remaining", "0", "anthropic-ratelimit-tokens-reset", "2026-03-01T12:00:42Z",
		), 42 * time.Second, FromAnthropicRateLimit},
		{"families tie", fields(
			"x-ratelimit-remaining", "0", "x-ratelimit-reset", "42",
			"anthropic-ratelimit-tokens-remaining", "0", "anthropic-ratelimit-tokens-reset", "2026-03-01T12:00:42Z",
		), 42 * time.Second, FromAnthropicRateLimit},
		{"remaining of one group, reset of another", fields("x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-tokens", "9s"), 0, None},
		{"reset alone", fields("x-ratelimit-reset", "9"), 0, None},
		{"unlimited", fields("x-ratelimit-remaining", "-1", "x-ratelimit-reset", "9"), 0, None},
		{"nothing left, as a decimal", fields("x-ratelimit-remaining", "0.0", "x-ratelimit-reset", "58"), 58 * time.Second, FromXRateLimit},
		{"less than one left", fields("x-ratelimit-remaining", "0.04", "x-ratelimit-reset", "58"), 0, None},
		{"contradictory remaining", fields("x-ratelimit-remaining", "7", "x-ratelimit-remaining", "0", "x-ratelimit-reset", "9"), 9 * time.Second, FromXRateLimit},
		{"contradictory reset", fields("x-ratelimit-remaining", "0", "x-ratelimit-reset", "9", "x-ratelimit-reset", "5s"), 9 * time.Second, FromXRateLimit},
		{"long group name", fields("x-ratelimit-remaining-input-tokens-of-the-month", "0", "x-ratelimit-reset-input-tokens-of-the-month", "9"), 9 * time.Second, FromXRateLimit},
		{"anthropic input tokens", fields("anthropic-ratelimit-input-tokens-remaining", "0", "anthropic-ratelimit-input-tokens-reset", "2026-03-01T13:00:01+01:00"), time.Second, FromAnthropicRateLimit},
		{"anthropic name that only looks like a group", fields("anthropic-ratelimit-remaining-requests", "0", "anthropic-ratelimit-reset-requests", "9"), 0, None},

		{"cached RateLimit", fields("RateLimit", `"a";r=0;t=3`, "Age", "7"), 0, None},
		{"cached groups", fields("x-ratelimit-remaining", "0", "x-ratelimit-reset", "9", "Age", "7"), 0, None},
		{"validated by the origin", fields("RateLimit", `"a";r=0;t=3`, "Age", "0"), 3 * time.Second, FromRateLimit},
		{"unreadable age", fields("RateLimit", `"a";r=0;t=3`, "Age", "-7"), 3 * time.Second, FromRateLimit},
		{"cached Retry-After", fields("Retry-After", "3", "Age", "7"), 3 * time.Second, FromRetryAfter},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, from := Wait(http.StatusTooManyRequests, c.header, now); got != c.want || from != c.from {
				t.Errorf("Wait = %v from %q, want %v from %q", got, from, c.want, c.from)
			}
		})
	}
}

// TestQuota shows that a Retry-After, whatever its status, hides nothing from
// a caller that asks for quotas alone.
func TestQuota(t *testing.T) {
	h := fields("Retry-After", "1", "RateLimit", `"a";r=0;t=3`)
	if got, from := Quota(h, now); got != 3*time.Second || from != FromRateLimit {
		t.Errorf("Quota = %v from %q", got, from)
	}
	if got, from := Quota(fields("Retry-After", "1"), now); got != 0 || from != None {
		t.Errorf("Quota without one = %v from %q", got, from)
	}
	if got, from := Wait(http.StatusServiceUnavailable, nil, now); got != 0 || from != None {
		t.Errorf("Wait of a nil header = %v from %q", got, from)
	}
}

// ordinary is a response of many fields that says nothing of waiting; some
// begin like those that do.
var ordinary = fields(
	"Accept-Ranges", "bytes", "Access-Control-Allow-Origin", "*", "Age", "0", "Alt-Svc", `h3=":443"; ma=86400`,
	"Anthropic-Organization-Id", "o", "Cache-Control", "no-store", "Content-Encoding", "gzip",
	"Content-Type", "application/json", "Date", "Sun, 01 Mar 2026 12:00:00 GMT", "Etag", `"e"`,
	"Referrer-Policy", "no-referrer", "Server", "s", "Set-Cookie", "a=b", "Strict-Transport-Security", "max-age=1",
	"Vary", "Accept-Encoding", "Via", "1.1 p", "X-Content-Type-Options", "nosniff", "X-Frame-Options", "DENY",
	"X-Request-Id", "r", "X-Ratelimit-Limit", "60",
)

// healthy is ordinary, with quotas that are far from exhausted.
var healthy = func() http.Header {
	h := ordinary.Clone()
	for name, value := range map[string]string{
		"RateLimit":                             `"burst";r=59;t=1, "daily";r=9000;t=40000`,
		"X-Ratelimit-Remaining-Requests":        "59",
		"X-Ratelimit-Reset-Requests":            "1s",
		"X-Ratelimit-Remaining-Tokens":          "149984",
		"X-Ratelimit-Reset-Tokens":              "6m0s",
		"Anthropic-Ratelimit-Tokens-Remaining":  "1000",
		"Anthropic-Ratelimit-Tokens-Reset":      "2026-03-01T12:05:00Z",
		"Anthropic-Ratelimit-Requests-Limit":    "50",
		"X-Ratelimit-Renewalperiod-Requests":    "60",
		"X-Ratelimit-Abusepenalty-Active":       "False",
		"Anthropic-Ratelimit-Unified-5h-Status": "allowed",
	} {
		h.Set(name, value)
	}
	return h
}()

var spent = fields("x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", "2m59.56s")

func TestAllocations(t *testing.T) {
	for name, h := range map[string]http.Header{"ordinary": ordinary, "healthy": healthy, "spent": spent} {
		for _, status := range []int{http.StatusOK, http.StatusTooManyRequests} {
			if n := testing.AllocsPerRun(100, func() { Wait(status, h, now) }); n != 0 {
				t.Errorf("%s, %d: %v allocations, want none", name, status, n)
			}
		}
	}
}

func BenchmarkWait(b *testing.B) {
	for _, c := range []struct {
		name   string
		status int
		header http.Header
	}{
		{"ordinary", http.StatusOK, ordinary},
		{"healthy", http.StatusOK, healthy},
		{"spent", http.StatusTooManyRequests, spent},
		{"retry-after", http.StatusTooManyRequests, fields("Retry-After", "120")},
		{"retry-after-date", http.StatusTooManyRequests, fields("Retry-After", "Sun, 01 Mar 2026 12:00:30 GMT")},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Wait(c.status, c.header, now)
			}
		})
	}
}
