package derive

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/stream"
)

// A Group is the calls that have settings of their own: those of a route, or of
// one bucket of a route.
type Group struct {
	Route  string // its name, or pattern; empty for calls that no route matches
	Bucket string // empty for calls without one
}

// String returns the route and, after a space, the bucket in quotes. The route is
// in quotes, too, if it has what cannot be seen.
func (g Group) String() string {
	route := cmp.Or(g.Route, "(no route)")
	if strings.ContainsFunc(route, func(r rune) bool { return !strconv.IsPrint(r) }) {
		route = strconv.Quote(route)
	}
	if g.Bucket == "" {
		return route
	}
	return route + " " + strconv.Quote(g.Bucket)
}

func (g Group) compare(h Group) int {
	return cmp.Or(strings.Compare(g.Route, h.Route), strings.Compare(g.Bucket, h.Bucket))
}

// A Quantity is something that takes time and has a limit.
type Quantity string

// The quantities, each measured as its limit measures it.
const (
	// Connect is DNS, TCP and TLS. It does not depend on the request, so that
	// all buckets of a route have it together, in the group without a bucket.
	Connect Quantity = "connect"
	// Headers is the wait for headers once the request is written, and Body the
	// longest Read of the body. Timeouts.Read bounds both. They are those of
	// responses that are not guarded as streams.
	Headers Quantity = "headers"
	Body    Quantity = "body"
	// FirstContent is from the sending of a request to the first content of a
	// guarded stream.
	FirstContent Quantity = "first-content"
	// Gap and the three after it are the gaps of guarded streams, by the limit
	// that they were under.
	Gap         Quantity = Quantity(stream.StallGap)
	PingedGap   Quantity = Quantity(stream.StallPingedGap)
	ThinkingGap Quantity = Quantity(stream.StallThinkingGap)
	ToolGap     Quantity = Quantity(stream.StallToolGap)
	// Call is a whole call, waits and attempts and body included, and Opening
	// the same up to the first content of a guarded stream: what the deadline
	// bounds of either.
	Call    Quantity = "call"
	Opening Quantity = "opening"
	// Stream is a whole call with a guarded stream. Nothing bounds it, and no
	// limit is derived from it.
	Stream Quantity = "stream"
)

var (
	gaps       = []Quantity{Gap, PingedGap, ThinkingGap, ToolGap}
	quantities = append([]Quantity{Connect, Headers, Body, FirstContent, Call, Opening, Stream}, gaps...)
)

// A Sample is what is known of one quantity in one group.
type Sample struct {
	// Done are the durations in calls that succeeded.
	Done Histogram
	// Longest has, of a gap, the longest of each stream that succeeded.
	Longest Histogram
	// Cut is how long those had lasted that a limit, the caller or a faster
	// send cut short.
	Cut Histogram
	// Failed counts those that failed by themselves.
	Failed uint64
}

func (s *Sample) empty() bool {
	return s.Done.count == 0 && s.Longest.count == 0 && s.Cut.count == 0 && s.Failed == 0
}

func (s *Sample) merge(o *Sample) {
	s.Done.Merge(&o.Done)
	s.Longest.Merge(&o.Longest)
	s.Cut.Merge(&o.Cut)
	s.Failed = plus(s.Failed, o.Failed)
}

// Outcomes counts calls. A redirected one has the outcome of its last hop; a redirect
// that the caller does not follow is a success, also of one that gives up between two
// hops. One that a 101 has upgraded has none. What a layer of the user's answers by
// itself is counted, but how long it took is not.
type Outcomes struct {
	Calls     uint64 `json:"calls"`     // that began
	Succeeded uint64 `json:"succeeded"` // with a body read as far as the caller wanted
	Failed    uint64 `json:"failed"`    // by an error, or a status of 400 and above
	Cut       uint64 `json:"cut"`       // by a limit
	GivenUp   uint64 `json:"given_up"`  // by the caller
	Refused   uint64 `json:"refused"`   // or failed otherwise, before anything was sent
}

func (o *Outcomes) merge(p Outcomes) {
	o.Calls = plus(o.Calls, p.Calls)
	o.Succeeded = plus(o.Succeeded, p.Succeeded)
	o.Failed = plus(o.Failed, p.Failed)
	o.Cut = plus(o.Cut, p.Cut)
	o.GivenUp = plus(o.GivenUp, p.GivenUp)
	o.Refused = plus(o.Refused, p.Refused)
}

// record is what is known of one group.
type record struct {
	outcomes Outcomes
	arrivals arrivals
	samples  map[Quantity]*Sample
}

func (r *record) sample(q Quantity) *Sample {
	s := r.samples[q]
	if s == nil {
		if r.samples == nil {
			r.samples = map[Quantity]*Sample{}
		}
		s = new(Sample)
		r.samples[q] = s
	}
	return s
}

func (r *record) succeed(whole Quantity, took time.Duration) {
	r.outcomes.Succeeded++
	r.sample(whole).Done.Add(took)
}

func (r *record) merge(o *record) {
	r.outcomes.merge(o.outcomes)
	r.arrivals.merge(&o.arrivals)
	for q, s := range o.samples {
		r.sample(q).merge(s)
	}
}

// A Snapshot is what was recorded up to some time. The zero value is empty and
// ready to use, also to be filled from durations that were recorded elsewhere.
// It marshals to JSON and back. It is safe to read concurrently, and not to change.
type Snapshot struct {
	groups map[Group]*record
}

// Groups lists the groups in ascending order.
func (s *Snapshot) Groups() []Group {
	return slices.SortedFunc(maps.Keys(s.groups), Group.compare)
}

// Sample returns the sample of a quantity in a group, to be read or added to. It
// is made if there is none, which changes the snapshot.
func (s *Snapshot) Sample(g Group, q Quantity) *Sample { return s.record(g).sample(q) }

// Outcomes returns how the calls of a group went.
func (s *Snapshot) Outcomes(g Group) Outcomes {
	if r := s.groups[g]; r != nil {
		return r.outcomes
	}
	return Outcomes{}
}

// Merge adds what is in other. The order in which snapshots are merged makes no
// difference. Those that are merged must not overlap: a Recorder's later
// snapshot includes its earlier ones.
func (s *Snapshot) Merge(other *Snapshot) {
	for g, r := range other.groups {
		s.record(g).merge(r)
	}
}

func (s *Snapshot) record(g Group) *record {
	r := s.groups[g]
	if r == nil {
		if s.groups == nil {
			s.groups = map[Group]*record{}
		}
		r = new(record)
		s.groups[g] = r
	}
	return r
}

// look returns a sample without making one.
func (s *Snapshot) look(g Group, q Quantity) *Sample {
	if r := s.groups[g]; r != nil && r.samples[q] != nil {
		return r.samples[q]
	}
	return new(Sample)
}

// fieldOf names the setting that bounds a quantity.
func fieldOf(q Quantity) string {
	switch q {
	case Connect:
		return "Timeouts.Connect"
	case Headers, Body:
		return "Timeouts.Read"
	case FirstContent:
		return "Stream.FirstContent"
	case Gap:
		return "Stream.Gap"
	case PingedGap:
		return "Stream.PingedGap"
	case ThinkingGap:
		return "Stream.ThinkingGap"
	case ToolGap:
		return "Stream.ToolGap"
	case Call, Opening:
		return "Deadline"
	}
	return ""
}
