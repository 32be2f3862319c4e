package policy

import (
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/weir-go/weir/stream"
)

// Off and On are untyped, so that they fit any number, duration or toggle.
// Zero inherits.
const (
	Off = -1
	On  = 1
)

// Toggle is a switch: zero inherits, [On], [Off].
type Toggle = stream.Toggle

// Stream is the section of the stream guard. Its main setting is Enabled: no
// number enables it. Once it is on, the defaults are: FirstContent and Gap 2 min;
// PingedGap, ThinkingGap and ToolGap 5 min; Linger 5 s; no MinRate, else its
// window 30 s; Hold Off, else HoldLimit 256 KiB. Whoever shortens Gap may want to
// shorten the three longer ones too: each applies in place of it. Off is no
// limit; MinRateWindow and HoldLimit need one. Gap Off takes the limit off those
// of the three that are inherited, but not off those that are set on the same
// level or a more specific one.
type Stream = stream.Limits

// Settings is everything that a policy, a route, a view or a call can say about
// calls.
//
// A field that is zero inherits the value of the next more general level, one
// that is not replaces it; where a field merges in another way, its comment
// says so. [Off] turns off what the field stands for, if its comment says what
// that means, and is refused otherwise. Every section but Timeouts has a switch,
// Enabled, and, Stream aside, a main number: setting the number turns the
// section on, setting it to Off turns the section off, and Enabled beside it
// overrules both. A section that is off keeps its numbers for a more specific
// level that turns it on again.
type Settings struct {
	// Deadline bounds the whole call: waits, sends, backoff, redirects and the
	// body. Default 60 s. Off: only the caller's context bounds it. A deadline
	// shorter than what is inherited cuts it; see [Compile].
	Deadline time.Duration
	// DeadlineHeader names the header by which each send tells the server how
	// much of the deadline is left: "grpc-timeout", in the form of gRPC, or any
	// other name, such as "X-Envoy-Expected-Rq-Timeout-Ms", in milliseconds. It
	// is told to hosts that the policy names: only a route with a host takes it.
	// Where Stream is enabled, only a deadline that bounds the reading too is
	// told: that of the caller's context or of layers.WithDeadline. The default
	// is none; "off" is none below a route that has one.
	DeadlineHeader string
	Timeouts       Timeouts
	Retry          Retry
	Hedge          Hedge
	Breaker        Breaker
	// Rate is the unnamed budget.
	Rate Rate
	// Budgets are further budgets. A send takes a turn in Rate and in each of
	// them, all or none. They merge by name, and each as Rate does.
	Budgets  map[string]Rate
	InFlight InFlight
	Stream   Stream
}

// Timeouts bounds each phase of one send. Each is cut to the time left when the
// send begins.
type Timeouts struct {
	// Pool bounds the wait for a pooled connection. Default 15 s. Off: no bound.
	Pool time.Duration
	// Connect bounds DNS, TCP and TLS together. Default 10 s. Off: no bound.
	Connect time.Duration
	// Write bounds a gap without progress of the request body. To a body in memory of
	// up to 64 KiB there is one step of progress: its end. Default 10 s. Off: no bound.
	Write time.Duration
	// Read bounds the wait for headers once the request is written, then each
	// Read of the body. Default 30 s. Off: no bound.
	Read time.Duration
	// Attempt bounds one send, its body included. Default Off: no bound.
	Attempt time.Duration
}

// Retry says when and how often a call is sent again.
type Retry struct {
	// Enabled is On by default.
	Enabled Toggle
	// MaxAttempts counts the first send too, 1 to 10; 1 is no retry. Default 3.
	// It is the section's main number.
	MaxAttempts int
	// BaseDelay and MaxDelay span the exponential curve of the backoff, of
	// which each wait is a random part. Defaults 250 ms and 5 s. BaseDelay Off:
	// no wait, but for a server's Retry-After.
	BaseDelay, MaxDelay time.Duration
	// MinAttempt is the least time left that a further attempt is worth.
	// Default 50 ms. Off: any.
	MinAttempt time.Duration
	// MaxHint is the longest Retry-After that is waited for; a longer one ends
	// the call. Default 30 s. Off: whatever the time left allows.
	MaxHint time.Duration
	// Buffer is how many bytes of a body without GetBody are kept for replay.
	// Default 64 KiB. Off: none, so that such a body is sent once.
	Buffer int64
	// Budget bounds the re-sends to an origin: each first send earns it that many,
	// above 0 to 1, and each second earns it three. It saves up three at most.
	// Default 0.1. Off: no budget.
	Budget float64
	// Idempotent declares every request of the route safe to send again.
	// Default Off.
	Idempotent Toggle
	// Statuses are those that are retried, 400 to 599. The list replaces an
	// inherited one as a whole; nil inherits, and an empty one that is not nil
	// is none. Default 408, 425, 429, 500, 502, 503 and 504.
	Statuses []int
	// Check decides whether an outcome is retried, and hedged. It may be asked
	// more than once about one, and concurrently. Nil inherits; the default is
	// weir's own. It is shown the first 64 KiB of a body, and then
	// io.ErrUnexpectedEOF; so is Backoff.
	Check retryablehttp.CheckRetry
	// Backoff computes a wait from BaseDelay and MaxDelay. Nil inherits; the
	// default is full jitter.
	Backoff retryablehttp.Backoff
}

// Hedge sends a competing attempt after a delay.
type Hedge struct {
	// Enabled is Off by default.
	Enabled Toggle
	// Delay is how long an attempt is left alone, at least 1 ms. No default. It
	// is the section's main number.
	Delay time.Duration
	// Max is the number of extra sends, 1 to 4. Default 1.
	Max int
}

// Breaker refuses calls to an origin that fails.
//
// Its numbers, all but Enabled, are those of a state that calls share: a view
// or an override cannot set them.
type Breaker struct {
	// Enabled is Off by default.
	Enabled Toggle
	// Failures is how many consecutive failures open the circuit. Default 5.
	// Failures or Ratio is the section's main number: setting one drops an
	// inherited other.
	Failures int
	// Ratio is the share of failures over Window that opens the circuit, above
	// 0 to 1. No default.
	Ratio float64
	// MinRequests is the least number of requests that Ratio is judged on, at
	// least 2. Default 20.
	MinRequests int
	// Window is the time over which Ratio is counted. Default 30 s.
	Window time.Duration
	// Open is how long the circuit stays open the first time. Default 10 s.
	Open time.Duration
	// OpenMax is where the doubling of Open ends, at least Open. Default 2 min.
	OpenMax time.Duration
	// OpenJitter is the random share of the open time, above 0 to 1. Default
	// 0.1. Off: none.
	OpenJitter float64
	// Probes is how many calls a half-open circuit admits at once, and how many
	// successes close it. Default 1. One that has not been answered within Open
	// makes room for another; then it still counts if it succeeds.
	Probes int
	// Key says which requests share a circuit. Nil inherits; the default is
	// [ByOrigin].
	Key KeyFunc
}

// Rate is a budget of sends. A server that asks for a pause gets one from the
// bucket, of an hour at most: after it the next send asks again.
//
// PerSecond, Burst and Key are those of a bucket that calls share: a view or an
// override cannot set them.
type Rate struct {
	// Enabled is Off by default.
	Enabled Toggle
	// PerSecond is the rate in sends, or units of Cost, a second. No default.
	// It is the section's main number.
	PerSecond float64
	// Burst is how many may go at once. Default 1.
	Burst int
	// MaxWait bounds the wait for a turn. The default, which is zero, is the
	// time left. Off: no wait, what has no turn at once is refused.
	MaxWait time.Duration
	// Cost says how many units a request takes. Nil inherits; the default is
	// one. A request that takes 0 waits for nothing, a pause included.
	Cost func(*http.Request) int
	// Key says which requests share a bucket. Nil inherits; the default is
	// [ByOrigin].
	Key KeyFunc
}

// InFlight bounds how many sends are under way at once.
//
// Max and Key are those of slots that calls share: a view or an override cannot
// set them.
type InFlight struct {
	// Enabled is Off by default.
	Enabled Toggle
	// Max is the number of slots. No default. It is the section's main number.
	Max int
	// MaxWait bounds the wait for a slot. Default Off: no wait, what has no
	// slot at once is refused.
	MaxWait time.Duration
	// Key says which requests share the slots. Nil inherits; the default is
	// [ByOrigin].
	Key KeyFunc
}

// KeyFunc names the state that a request shares with others: those with the
// same key share it. The states of 10,000 keys are kept at a time, and those that
// are idle make room for others. Where all are busy, because sends wait, a server
// has asked for a pause, slots are taken or circuits open, further keys share one
// budget, which is not paused, or one limit of slots; and each has a circuit that
// does not last.
type KeyFunc func(*http.Request) string

// Route is the settings of the requests that a pattern matches.
type Route struct {
	// Pattern is [METHOD ][HOST[:PORT]]/[PATH]; see package route.
	Pattern string
	// Name is what events and errors call the route. Empty: the pattern.
	Name string
	Settings
}

// Policy is the settings of all calls and those of single routes. The order of
// the routes does not matter. The zero Policy is that of [Defaults].
type Policy struct {
	Settings
	Routes []Route
}
