package policy

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/route"
)

// An advisor works out what settings that are allowed come to. All of it is
// arithmetic on the numbers of the policy.
type advisor struct {
	*merged
	routes   []*level // of the whole table
	request  *http.Request
	maxConns int // of the base to a host; 0: any number

	timeline []Step
	advice   []string
}

func (a *advisor) say(format string, args ...any) {
	a.advice = append(a.advice, fmt.Sprintf(format, args...))
}

func (a *advisor) advise() {
	attempts, hedges := a.sends()
	a.draw(attempts, hedges)
	a.fit(attempts, hedges)
	a.amplify(attempts, hedges)
	a.trips()
	a.occupy()
	a.hostless()
	a.missed()
	a.asleep()
	a.gaps()
}

// sends returns how many attempts the request has, and how many hedges each of
// them.
func (a *advisor) sends() (attempts, hedges int) {
	attempts = 1
	if a.Retry.Enabled == On {
		attempts = a.Retry.MaxAttempts
	}
	if a.Hedge.Enabled == On && a.Stream.Enabled != On {
		hedges = a.Hedge.Max
	}
	if attempts+hedges == 1 {
		return attempts, hedges
	}
	declared := a.Retry.Enabled == On && a.Retry.Idempotent == On
	if !declared && !Repeatable(a.request) {
		remedy := "give it an Idempotency-Key, or set Retry.Idempotent"
		if a.Retry.Enabled != On {
			remedy += ", which takes Retry to be on"
		}
		a.say("a %s that may have reached the server is not sent again, though %s; %s", a.request.Method, though(attempts, hedges), remedy)
		return 1, 0
	}
	if b := a.request.Body; b == nil || b == http.NoBody || a.request.GetBody != nil {
		return attempts, hedges
	}
	once := a.Retry.Buffer <= 0 || a.request.ContentLength > a.Retry.Buffer
	switch {
	case attempts > 1 && once:
		a.say("a body without GetBody that is longer than Retry.Buffer %s is not sent again, though %s; set its GetBody, or raise Retry.Buffer",
			retryBuffer.show(retryBuffer.in(&a.Settings)), though(attempts, hedges))
		return 1, 0
	case hedges > 0:
		a.say("a body without GetBody is not hedged, though %s; set its GetBody", though(1, hedges))
	}
	return attempts, 0
}

// though names what is set for nothing.
func though(attempts, hedges int) string {
	var list []string
	if attempts > 1 {
		list = append(list, fmt.Sprintf("Retry.MaxAttempts is %d", attempts))
	}
	if hedges > 0 {
		list = append(list, fmt.Sprintf("Hedge.Max is %d", hedges))
	}
	return strings.Join(list, " and ")
}

// fit compares the attempts and the backoffs between them with the deadline.
func (a *advisor) fit(attempts, hedges int) {
	if a.Deadline <= 0 || attempts == 1 {
		return
	}
	length, limit := a.attempt()
	free := a.free(hedges)
	free.race(0)
	last := free.sends[len(free.sends)-1].at
	whole := last + length
	var waits time.Duration
	fitting, room := 0, attempts
	for n := 1; n <= attempts; n++ {
		if n > 1 {
			waits += a.wait(n - 1)
		}
		if time.Duration(n)*whole+waits <= a.Deadline {
			fitting = n
		}
		if n > 1 && room == attempts && !a.worthwhile(a.Deadline-waits) {
			room = n - 1
			least, setting := a.least()
			a.say("attempt %d may find no time left: the backoffs before it take up to %v, the deadline is %v, and %s %v; shorten the delays, or lower Retry.MaxAttempts to %d",
				n, waits, a.Deadline, setting, least, room)
		}
	}
	if fitting == attempts || length == 0 {
		return
	}
	total := time.Duration(attempts)*whole + waits
	remedy := fmt.Sprintf("raise Deadline to %v", total)
	if each := ((a.Deadline-waits)/time.Duration(attempts) - last).Truncate(time.Millisecond); each > 0 {
		remedy += fmt.Sprintf(", or lower %s to %v", limit, each)
	}
	of := limit
	if last > 0 {
		of = "hedges and " + limit
	}
	a.say("%d of %d attempts fit the deadline of %v in full: %[2]d x %[4]v of %s and %v of backoff come to %v; to fit all, %s",
		fitting, attempts, a.Deadline, whole, of, waits, total, remedy)
}

// amplify tells what one call may cost the server.
func (a *advisor) amplify(attempts, hedges int) {
	sends := attempts * (1 + hedges)
	if sends == 1 {
		return
	}
	each := "attempts"
	if attempts == 1 {
		each = "attempt"
	}
	if hedges > 0 {
		each += fmt.Sprintf(", each hedged by %d more", hedges)
	}
	average := "nothing holds the average; set Retry.Budget"
	if share := a.share(); share > 0 {
		average = fmt.Sprintf("Retry.Budget %g holds the average at %g; lower it, Retry.MaxAttempts or Hedge.Max for less", share, 1+share)
	}
	a.say("a call may cost the server %d sends: %d %s; %s", sends, attempts, each, average)
}

// rates yields the budgets that count sends.
func (a *advisor) rates(yield func(ref, Rate) bool) {
	for main := range a.mains {
		r := a.Rate
		if main.named {
			r = a.Budgets[main.budget]
		}
		if main.field == perSecond.field && r.Enabled == On && r.Cost == nil && !yield(main, r) {
			return
		}
	}
}

// trips finds a budget that keeps the breaker from ever having enough to judge.
func (a *advisor) trips() {
	b := a.Breaker
	if b.Enabled != On || b.Ratio == 0 {
		return
	}
	for main, r := range a.rates {
		sends := math.Floor(r.PerSecond*b.Window.Seconds()) + float64(r.Burst)
		if sends < float64(b.MinRequests) && r.Key.same(b.Key) {
			a.say("the breaker can never trip: %s %g and a burst of %d let at most %g sends through in Breaker.Window %v, below Breaker.MinRequests %d; lower that, or widen the window",
				main, r.PerSecond, r.Burst, sends, b.Window, b.MinRequests)
		}
	}
}

// occupy compares the most calls that the rate lets in with the room for them.
func (a *advisor) occupy() {
	o := Occupancy{Stay: max(a.Deadline, 0)}
	if a.Stream.Enabled == On {
		o.Stay = 0 // the deadline bounds only the opening
	}
	for _, r := range a.rates {
		if o.PerSecond == 0 || r.PerSecond < o.PerSecond {
			o.PerSecond = r.PerSecond
		}
	}
	room := Room{MaxConnsPerHost: a.maxConns}
	if a.InFlight.Enabled == On {
		if a.maxConns > 0 && a.InFlight.Max > a.maxConns {
			a.say("InFlight.Max %d is above the base's MaxConnsPerHost %d, so that sends which have a slot wait for a connection; lower InFlight.Max, or raise that", a.InFlight.Max, a.maxConns)
		}
		room = Room{InFlight: a.InFlight.Max}
	}
	if o.PerSecond > 0 {
		a.advice = append(a.advice, o.Against(room)...)
	}
}

// hostless finds settings of a route without a host that one for all of a host
// overrides, though its path is more specific: hosts go before paths.
func (a *advisor) hostless() {
	for i, l := range a.levels {
		if l.kind != "route" || l.pattern.Host() != "" {
			continue
		}
		for _, s := range l.set {
			o := a.levels[a.from[s.ref]]
			if a.from[s.ref] <= i || o.kind != "route" || o.pattern.Host() == "" || pathOnly(l).Relation(pathOnly(o)) != route.MoreSpecific {
				continue
			}
			a.say("%s %s of %q yields to %s of %q, since a host goes before a path; put the host %s into the former's pattern to turn that round",
				s.ref, s.show(s.value), l.pattern, s.show(s.in(&a.Settings)), o.pattern, o.pattern.Host())
		}
	}
}

// missed finds routes that would be the most specific, were it not for a slash at
// the end of their paths.
func (a *advisor) missed() {
	var last route.Pattern // that matches; the zero one comes before all
	for _, l := range a.levels {
		if l.kind == "route" {
			last = l.pattern
		}
	}
	for _, l := range a.routes {
		written := l.pattern.String()
		why := "matches that path alone; end it in / for what lies below"
		other := written + "/"
		if shorter, found := strings.CutSuffix(written, "/"); found {
			why = "matches what lies below that path, not the path itself, for which it takes a route without the / at the end"
			other = shorter
		}
		p, err := route.Parse(other)
		if err != nil || p.Compare(last) <= 0 { // as of a path that ends in {$}
			continue
		}
		if t, err := route.NewTable(route.Entry[bool]{Pattern: p}); err == nil && a.request.URL != nil && t.LineURL(nil, a.request.Method, a.request.URL) != nil {
			a.say("%q %s", written, why)
		}
	}
}

// asleep finds settings of sections that nothing turns on, neither for this
// request nor on a route that lies on top of where they are set.
func (a *advisor) asleep() {
	said := map[ref]bool{}
	for r, v := range a.all() {
		if v.IsZero() || a.from[r] == 0 || r.enabled(&a.Settings) {
			continue
		}
		on := r.beside("Enabled")
		if said[on] || a.from[on] > 0 || a.wakes(a.levels[a.from[r]], on) {
			continue
		}
		said[on] = true
		a.say("%s %s (%s) does nothing, as nothing turns its section on; set %s", r, r.show(v), a.source(r), on.wakers())
	}
}

// gaps finds limits to gaps of a kind where others have none, and the one that ends a
// stream though it has no gap.
func (a *advisor) gaps() {
	if a.Stream.Enabled == On && a.Timeouts.Attempt > 0 {
		a.say("Timeouts.Attempt %v (%s) ends a stream, however well it flows; set it to Off, and leave that to Stream.Gap",
			a.Timeouts.Attempt, a.source(attemptLimit))
	}
	for _, o := range ordered {
		if o[0] == gap && a.Stream.Gap == Off && a.Stream.Enabled == On && o[1].in(&a.Settings).Int() > 0 {
			a.say("%s %s (%s) still ends a stream, though Stream.Gap is off (%s); set it to Off too, if no gap is to",
				o[1], o[1].show(o[1].in(&a.Settings)), a.source(o[1]), a.source(gap))
		}
	}
}

// wakes reports whether a route that may lie on top of a level turns a section
// on.
func (a *advisor) wakes(l *level, on ref) bool {
	return !l.overlay() && slices.ContainsFunc(a.routes, func(o *level) bool {
		return (l.kind != "route" || o.pattern.Relation(l.pattern) != route.Disjoint) &&
			slices.ContainsFunc(o.set, func(s setting) bool { return s.ref == on && s.value.Int() == On })
	})
}

// wakers names what turns the setting's section on.
func (r ref) wakers() string {
	var names []string
	for i := range fields {
		if f := &fields[i]; f.section == r.section && f.main {
			names = append(names, r.beside(f.name).String())
		}
	}
	if names == nil {
		return r.String()
	}
	return strings.Join(names, " or ")
}

// pathOnly returns a route's pattern without method and host.
func pathOnly(l *level) route.Pattern {
	p, _ := route.Parse(l.pattern.Path()) // the path of a pattern is a pattern
	return p
}
