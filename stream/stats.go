package stream

import (
	"net/http"
	"time"
)

// Stats says what a guard has seen of a stream so far.
type Stats struct {
	// Dialect and Framing are what the stream was read as. Without a dialect, and
	// unless a caller's classifier knew better, every byte counted.
	Dialect, Framing string
	// Encoded reports that the events were not looked at because the body still
	// has a Content-Encoding.
	Encoded bool

	// FirstContent is the time from the sending of the request to the first
	// content; 0 if there was none.
	FirstContent time.Duration
	// Gap, ThinkingGap and ToolGap are the longest waits of a Read between two
	// events with content or progress, by the kind of the first.
	Gap, ThinkingGap, ToolGap time.Duration

	// The number of events by class. Finishes and terminals with content count
	// as Contents.
	Contents, Progresses, Lifecycles, Keepalives int
	// Unknown are those of the Lifecycles whose type the dialect does not know,
	// and Undecodable those whose payload could not be read.
	Unknown, Undecodable int

	Bytes    int64
	Finished bool          // the end was announced, or has been seen
	Failure  *FailureError // that the stream reported; nil for none

	// LastEventID and Retry are what a client of server-sent events would
	// resume with: the id of the last event that was whole, and the wait before
	// that the server asked for.
	LastEventID string
	Retry       time.Duration
}

// StatsOf returns the statistics of a response whose body is guarded, and
// reports whether it is. Another body may be around that one, such as that of an
// http.Client with a Timeout, as long as the response is still the one that was
// guarded, and weir's layers did that. It may be called at any time, also during
// a Read, and with the nil response of a call that has failed.
func StatsOf(resp *http.Response) (Stats, bool) {
	if resp == nil {
		return Stats{}, false
	}
	if b, ok := resp.Body.(interface{ Stats() Stats }); ok {
		return b.Stats(), true
	}
	if resp.Request != nil {
		if by, ok := resp.Request.Context().Value(guardKey{}).(Guardian); ok {
			return by.StatsOf(resp)
		}
	}
	return Stats{}, false
}

// guardKey is the key of a context's [Guardian].
type guardKey struct{}

// Guardian knows the statistics of responses that it has had guarded.
type Guardian interface {
	StatsOf(resp *http.Response) (Stats, bool)
}

// IsGuardKey reports whether key is the one by which [StatsOf] asks the context of
// a response's request for its [Guardian], where the body does not know. It is for
// the Value method of such a context.
func IsGuardKey(key any) bool { return key == guardKey{} }
