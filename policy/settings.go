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

// Stream is the section of the stream guard.
type Stream = stream.Limits

// Settings is everything that a route, a view or a call can say about calls.
//
// A zero field inherits from the next more general level, [Off] turns the
// setting off. Settings merge field by field.
type Settings struct {
	// Deadline bounds the whole call: waits, sends, backoff, redirects, body.
	Deadline time.Duration
	Timeouts Timeouts
	Retry    Retry
	Hedge    Hedge
	Breaker  Breaker
	// Rate is the unnamed budget.
	Rate Rate
	// Budgets are further budgets, merged by name. A send takes a turn in
	// each, all or none.
	Budgets  map[string]Rate
	InFlight InFlight
	Stream   Stream
}

// Timeouts bounds each phase of one send.
type Timeouts struct {
	// Pool bounds the wait for a pooled connection.
	Pool time.Duration
	// Connect bounds DNS, TCP and TLS together.
	Connect time.Duration
	// Write bounds a gap without progress of the request body.
	Write time.Duration
	// Read bounds the wait for headers once the request is written, then each
	// Read of the body.
	Read time.Duration
	// Attempt bounds one send, its body included.
	Attempt time.Duration
}

// Retry says when and how often a call is sent again.
type Retry struct {
	Enabled Toggle
	// MaxAttempts counts the first send too; 1 is no retry. It is the
	// section's main number.
	MaxAttempts int
	// BaseDelay and MaxDelay span the exponential curve of the backoff.
	BaseDelay, MaxDelay time.Duration
	// MinAttempt is the least time left that a further attempt is worth.
	MinAttempt time.Duration
	// MaxHint is the longest Retry-After that is waited for.
	MaxHint time.Duration
	// Buffer is how many bytes of a body without GetBody are kept for replay.
	Buffer int64
	// Budget is the share of re-sends that a first send may cause on an
	// origin, 0 to 1.
	Budget float64
	// Idempotent declares every request of the route safe to send again.
	Idempotent Toggle
	// Statuses replaces the list of statuses that are retried.
	Statuses []int
	// Check replaces the classification of an outcome.
	Check retryablehttp.CheckRetry
	// Backoff replaces the computation of the wait.
	Backoff retryablehttp.Backoff
}

// Hedge sends a competing attempt after a delay.
type Hedge struct {
	Enabled Toggle
	// Delay is how long an attempt is left alone. The section's main number.
	Delay time.Duration
	// Max is the number of extra sends.
	Max int
}

// Breaker refuses calls to an origin that fails.
type Breaker struct {
	Enabled Toggle
	// Failures is how many consecutive failures open the circuit. Failures or
	// Ratio is the section's main number: setting one drops an inherited other.
	Failures int
	// Ratio is the share of failures over Window that opens the circuit.
	Ratio float64
	// MinRequests is the least number of requests that Ratio is judged on.
	MinRequests int
	// Window is the time over which Ratio is counted.
	Window time.Duration
	// Open is how long the circuit stays open the first time.
	Open time.Duration
	// OpenMax bounds the doubling of Open.
	OpenMax time.Duration
	// OpenJitter spreads the open time, 0 to 1.
	OpenJitter float64
	// Probes is how many calls a half-open circuit admits, and how many
	// successes close it.
	Probes int
	// Key says which requests share a circuit. Nil inherits; the default is
	// [ByOrigin].
	Key KeyFunc
}

// Rate is a budget of sends.
type Rate struct {
	Enabled Toggle
	// PerSecond is the rate in sends, or units of Cost, a second. The
	// section's main number.
	PerSecond float64
	// Burst is how many may go at once.
	Burst int
	// MaxWait bounds the wait for a turn. The default is the time left.
	MaxWait time.Duration
	// Cost says how much a request takes. Nil inherits; the default is one.
	Cost func(*http.Request) int
	// Key says which requests share a budget. Nil inherits; the default is
	// [ByOrigin].
	Key KeyFunc
}

// InFlight bounds how many sends are under way at once.
type InFlight struct {
	Enabled Toggle
	// Max is the number of slots. The section's main number.
	Max int
	// MaxWait bounds the wait for a slot. Off, the default, sheds at once.
	MaxWait time.Duration
	// Key says which requests share the slots. Nil inherits; the default is
	// [ByOrigin].
	Key KeyFunc
}

// KeyFunc names the state that a request shares with others. Requests with
// the same key share it.
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
// the routes does not matter.
type Policy struct {
	Settings
	Routes []Route
}
