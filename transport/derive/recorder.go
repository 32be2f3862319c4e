package derive

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/stream"
)

// Other is the bucket, or the route, of calls that come after a [Recorder] has as
// many of them as it keeps apart.
const Other = "other"

// What a Recorder keeps at most.
const (
	maxGroups  = 256     // and a bucket Other of each route, and a route Other
	maxBuckets = 32      // a route; the default of MaxBuckets
	maxName    = 256     // bytes of a name
	maxLive    = 1 << 16 // calls that have not ended

	maxRedirects = 256 // that may yet be followed
)

// A Recorder is a [layers.Observer] that measures the calls of a transport. The
// zero value is ready to use, for any number of transports; its fields must not
// change once it is in use. It is safe for concurrent use.
//
// Its memory is bounded however long it runs, by 256 groups, each with a few
// histograms, and by 65,536 calls under way, beyond which calls are not measured.
// A histogram usually takes 5 to 10 kB, since durations span few doublings.
//
// A call counts as a success if its last response has a status below 400 and its
// body was read without an error until its end, or until the caller closed it.
// What connects, headers, contents and gaps took counts if their own attempt was
// a success. A redirect is a success of its attempt; its call goes on if it is
// followed, and else has succeeded too.
//
// Phases are told only by a stack with timeouts. Without, connects are not
// measured, and headers count from the sending of the request.
type Recorder struct {
	// Bucket divides the calls of a route by what changes their shape, such as
	// the size of a prompt, or the model. It gets the context that the caller
	// made the call with, once a call, when that begins; what it needs to know
	// of the request has to be in there. Nil: [BucketFrom], the bucket that
	// [WithBucket] has put there.
	Bucket func(context.Context) string
	// MaxBuckets is how many buckets of a route are kept apart; further ones
	// count as [Other]. Zero: 32.
	MaxBuckets int

	mu      sync.RWMutex
	groups  map[string]map[string]*slot // by route and bucket
	nGroups int

	live      sync.Map // of *layers.Call to *call
	nLive     atomic.Int64
	skipped   atomic.Uint64
	redirects redirects
}

// slot is a group that calls are being added to.
type slot struct {
	mu sync.Mutex
	record
}

// call is a call under way.
type call struct {
	group *slot
	route *slot // the group that connects count in
	begun time.Time

	mu     sync.Mutex
	tries  []*try // that have not ended
	ended  bool
	result result
	opened time.Time // when the first content came; zero: it did not
}

// result is what came of a call so far.
type result uint8

const (
	nothing result = iota
	succeeded
	redirected
	failed
	cut
	givenUp
)

// try is one attempt.
type try struct {
	n          int
	sent       time.Time
	connecting time.Time // zero: not
	reading    time.Time // since the request is written
	hooked     bool      // there are phases
	connected  bool
	answered   bool

	connect, headers, first time.Duration // below zero: none

	gaps    map[gapBin]uint64
	longest [4]time.Duration
}

// gapBin is a bin of the histogram of one of gaps.
type gapBin struct{ gap, bin int }

// Wants asks for the gaps of streams too; see [layers.Observer].
func (r *Recorder) Wants(k layers.Kind) bool { return k == layers.KindGap }

// Observe implements layers.Observer.
func (r *Recorder) Observe(ctx context.Context, e layers.Event) {
	of, ok := layers.CallFrom(ctx)
	if !ok {
		return // a circuit that was forced
	}
	if e.Kind == layers.KindStart {
		r.begin(ctx, of, e)
		return
	}
	v, ok := r.live.Load(of)
	if !ok {
		return
	}
	c := v.(*call) // Nothing else is stored.
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.Kind == layers.KindEnd {
		r.end(c, e)
	} else {
		c.note(e)
	}
	if c.ended && len(c.tries) == 0 {
		if _, mine := r.live.LoadAndDelete(of); mine {
			r.nLive.Add(-1)
		}
	}
}

func (r *Recorder) begin(ctx context.Context, of *layers.Call, e layers.Event) {
	bucket := r.Bucket
	if bucket == nil {
		bucket = BucketFrom
	}
	c := &call{begun: of.Start()}
	c.group, c.route = r.slots(e.Route, bucket(ctx))
	if of.Attempts() == 0 { // else it is a redirect's hop
		c.group.mu.Lock()
		c.group.outcomes.Calls++
		c.group.arrivals.add(e.At)
		c.group.mu.Unlock()
	} else {
		r.redirects.follow(c.begun)
	}
	if r.nLive.Add(1) > maxLive {
		r.nLive.Add(-1)
		r.skipped.Add(1)
		return
	}
	r.live.Store(of, c)
}

// end takes the end of a call.
func (r *Recorder) end(c *call, e layers.Event) {
	c.ended = true
	switch {
	case c.result != redirected:
		c.group.finish(c, e)
	case e.Status != http.StatusSwitchingProtocols: // after which come no hops
		r.redirects.add(redirect{c.group, c.begun, e.At.Sub(c.begun)})
	}
}

// Skipped returns how many calls were not measured because too many others had
// not ended.
func (r *Recorder) Skipped() uint64 { return r.skipped.Load() }

// slots returns the group of a route and a bucket, and that of the route alone.
func (r *Recorder) slots(route, bucket string) (group, alone *slot) {
	route, bucket = name(route), name(bucket)
	r.mu.RLock()
	group, alone = r.groups[route][bucket], r.groups[route][""]
	r.mu.RUnlock()
	if group != nil && alone != nil {
		return group, alone
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.groups == nil {
		r.groups = map[string]map[string]*slot{}
	}
	most := r.MaxBuckets
	if most <= 0 {
		most = maxBuckets
	}
	full := r.nGroups >= maxGroups
	switch buckets := r.groups[route]; {
	case buckets == nil && full:
		route, bucket = Other, ""
	case bucket != "" && buckets[bucket] == nil && (full || len(buckets) > most): // one is that without a name
		bucket = Other
	}
	return r.slot(route, bucket), r.slot(route, "")
}

// slot returns a group, and makes it if there is none. The mutex must be held.
func (r *Recorder) slot(route, bucket string) *slot {
	buckets := r.groups[route]
	if buckets == nil {
		buckets = map[string]*slot{}
		r.groups[route] = buckets
	}
	if buckets[bucket] == nil {
		buckets[bucket] = new(slot)
		r.nGroups++
	}
	return buckets[bucket]
}

// name is s as JSON can hold it, and not longer than is kept.
func name(s string) string {
	if len(s) > maxName {
		return Other
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// Snapshot returns what was recorded so far. Calls under way are not in it, but
// for their arrival.
func (r *Recorder) Snapshot() *Snapshot {
	r.mu.RLock()
	defer r.mu.RUnlock()
	r.redirects.mu.Lock()
	defer r.redirects.mu.Unlock()
	s := &Snapshot{groups: map[Group]*record{}}
	for route, buckets := range r.groups {
		for bucket, slot := range buckets {
			slot.mu.Lock()
			if slot.outcomes.Calls > 0 || slot.samples != nil {
				s.record(Group{route, bucket}).merge(&slot.record)
			}
			slot.mu.Unlock()
			for _, o := range r.redirects.list {
				if o.group == slot {
					s.record(Group{route, bucket}).succeed(Call, o.took)
				}
			}
		}
	}
	return s
}

// note takes an event of an attempt.
func (c *call) note(e layers.Event) {
	if e.Kind == layers.KindSend {
		c.tries = append(c.tries, &try{n: e.Attempt, sent: e.At, connect: -1, headers: -1, first: -1})
		return
	}
	i := slices.IndexFunc(c.tries, func(t *try) bool { return t.n == e.Attempt })
	if i < 0 {
		return
	}
	t := c.tries[i]
	switch e.Kind {
	case layers.KindPhase:
		t.enter(e.Phase, e.At)
	case layers.KindResponse:
		t.answered = true
		if since := t.waiting(); !since.IsZero() {
			t.headers = e.At.Sub(since)
		}
	case layers.KindContent:
		t.first, c.opened = e.Wait, e.At
	case layers.KindGap:
		t.gap(Quantity(e.Gap), e.Wait)
	case layers.KindDone:
		c.tries = slices.Delete(c.tries, i, i+1)
		c.done(t, e)
	}
}

// enter takes note of a phase.
func (t *try) enter(p layers.Phase, at time.Time) {
	t.hooked = true
	switch p {
	case layers.PhasePool: // perhaps once more, after a connection that turned out dead
		t.connecting, t.reading, t.connected = time.Time{}, time.Time{}, false
	case layers.PhaseConnect:
		if !t.connected { // else a dial that is late to tell
			t.connecting = at
		}
	case layers.PhaseWrite:
		t.connected = true
		if !t.connecting.IsZero() {
			t.connect, t.connecting = at.Sub(t.connecting), time.Time{}
		}
	case layers.PhaseRead:
		t.reading = at
	}
}

// waiting returns since when the headers are waited for; zero: not yet.
func (t *try) waiting() time.Time {
	if !t.hooked {
		return t.sent
	}
	return t.reading
}

func (t *try) gap(q Quantity, d time.Duration) {
	i := slices.Index(gaps, q)
	if i < 0 {
		return
	}
	if t.gaps == nil {
		t.gaps = map[gapBin]uint64{}
	}
	t.gaps[gapBin{i, binOf(d)}]++
	t.longest[i] = max(t.longest[i], d)
}

// done takes the end of an attempt.
func (c *call) done(t *try, e layers.Event) {
	what := outcome(e)
	// What another send has outrun, or the caller given up, does not undo a
	// success.
	if what != givenUp || c.result != succeeded && c.result != redirected {
		c.result = what
	}
	if t.connect >= 0 || !t.connecting.IsZero() {
		c.route.mu.Lock()
		s := c.route.sample(Connect)
		switch {
		case what == succeeded || what == redirected:
			if t.connect >= 0 {
				s.Done.Add(t.connect)
			}
		case t.connecting.IsZero():
		case what == failed:
			s.Failed++
		default:
			s.Cut.Add(e.At.Sub(t.connecting))
		}
		c.route.mu.Unlock()
	}
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	switch what {
	case succeeded, redirected:
		c.group.keep(t, e)
	case failed:
		if q := c.group.during(t, e); q != "" {
			c.group.sample(q).Failed++
		}
	default:
		if q := c.group.during(t, e); q != "" {
			c.group.sample(q).Cut.Add(t.lasted(q, e))
		}
	}
}

// outcome says what came of an attempt.
func outcome(e layers.Event) result {
	var timeout interface{ Timeout() bool }
	switch {
	case e.Err == nil && e.Status >= 400:
		return failed
	case e.Err == nil:
		switch e.Status {
		case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
			http.StatusTemporaryRedirect, http.StatusPermanentRedirect, http.StatusSwitchingProtocols:
			return redirected // what follows is no part of the call
		}
		return succeeded
	case e.Abandoned:
		return givenUp
	case errors.As(e.Err, &timeout) && timeout.Timeout():
		return cut
	}
	return failed
}

// keep adds the durations of an attempt that succeeded. The mutex must be held.
func (s *slot) keep(t *try, e layers.Event) {
	if t.first < 0 {
		if t.headers >= 0 {
			s.sample(Headers).Done.Add(t.headers)
		}
		if e.Longest > 0 {
			s.sample(Body).Done.Add(e.Longest)
		}
		return
	}
	s.sample(FirstContent).Done.Add(t.first)
	for b, n := range t.gaps {
		sample := s.sample(gaps[b.gap])
		sample.Done.add(b.bin, n, min(t.longest[b.gap], binAt(b.bin).To-1))
	}
	for i, d := range t.longest {
		if d > 0 {
			s.sample(gaps[i]).Longest.Add(d)
		}
	}
}

// during returns the quantity that an attempt was in when it failed or was cut
// short; empty if it is not known, or was that of its connection. The mutex must
// be held.
func (s *slot) during(t *try, e layers.Event) Quantity {
	var stall *stream.StallError
	var ours *layers.Error
	errors.As(e.Err, &ours)
	switch {
	case errors.As(e.Err, &stall):
		if q := Quantity(stall.Kind); slices.Contains(quantities, q) {
			return q
		}
		return "" // too few bytes
	case t.first >= 0:
		if e.Abandoned || ours != nil && ours.Timeout() { // how long this gap is, is not known
			return ""
		}
		return Gap
	case t.answered && e.Status < 400 && !s.guarded():
		if ours != nil && ours.Timeout() && ours.Phase != layers.PhaseRead || e.Abandoned {
			return ""
		}
		return Body
	case t.hooked && t.reading.IsZero():
		return ""
	case s.guarded():
		return FirstContent
	}
	return Headers
}

// guarded reports whether calls of the group are streams, so that one without
// content is taken for one too.
func (s *slot) guarded() bool {
	f := s.samples[FirstContent]
	return f != nil && !f.empty()
}

// lasted returns how long a quantity had lasted that was cut short.
func (t *try) lasted(q Quantity, e layers.Event) time.Duration {
	var stall *stream.StallError
	var ours *layers.Error
	switch {
	case errors.As(e.Err, &stall):
		return stall.Waited
	case q == Body && errors.As(e.Err, &ours):
		return ours.Elapsed
	case q == Headers:
		return e.At.Sub(t.waiting())
	}
	return e.At.Sub(t.sent)
}

// finish takes the end of a call.
func (s *slot) finish(c *call, e layers.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	took := e.At.Sub(c.begun)
	whole := Call
	if !c.opened.IsZero() {
		whole = Stream
	} else if s.guarded() {
		whole = Opening
	}
	switch c.result {
	case succeeded:
		if whole == Opening { // a response that was no stream
			whole = Call
		}
		s.succeed(whole, took)
		if whole == Stream {
			s.sample(Opening).Done.Add(c.opened.Sub(c.begun))
		}
	case failed:
		s.outcomes.Failed++
		s.sample(whole).Failed++
	case cut:
		s.outcomes.Cut++
		s.sample(whole).Cut.Add(took)
	case givenUp:
		s.outcomes.GivenUp++
		s.sample(whole).Cut.Add(took)
	case nothing: // was sent
		switch {
		case e.Err == nil && e.Status >= http.StatusBadRequest:
			s.outcomes.Failed++
		case e.Err == nil: // a layer of the user's had the answer, which took as long as that takes
			s.outcomes.Succeeded++
		case e.Abandoned:
			s.outcomes.GivenUp++
		default:
			s.outcomes.Refused++
		}
	case redirected: // see redirects
	}
}
