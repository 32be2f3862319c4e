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
	length, limit := a.attempt()
	race := a.race(hedges, length)
	a.draw(attempts, race, length, limit)
	a.fit(attempts, race, length, limit)
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
	if attempts+hedges == 1 || a.Retry.Idempotent == On || a.request.Header.Get("Idempotency-Key") != "" {
		return attempts, hedges
	}
	switch a.request.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return attempts, hedges
	}
	var though []string
	if attempts > 1 {
		though = append(though, fmt.Sprintf("Retry.MaxAttempts is %d", attempts))
	}
	if hedges > 0 {
		though = append(though, fmt.Sprintf("Hedge.Max is %d", hedges))
	}
	a.say("a %s that may have reached the server is not sent again, though %s; give it an Idempotency-Key, or set Retry.Idempotent",
		a.request.Method, strings.Join(though, " and "))
	return 1, 0
}

// attempt returns how long a send to a server that never answers lasts, and the
// setting that ends it; 0 if none does.
func (a *advisor) attempt() (length time.Duration, limit string) {
	length, limit = a.Timeouts.Read, "Timeouts.Read"
	if a.Stream.Enabled == On && a.Stream.FirstContent > 0 {
		length, limit = a.Stream.FirstContent, "Stream.FirstContent"
	}
	if t := a.Timeouts.Attempt; t > 0 && (length <= 0 || t < length) {
		length, limit = t, "Timeouts.Attempt"
	}
	return max(length, 0), limit
}

// race returns when the sends of an attempt begin, since it began: each hedge
// after the delay, or as soon as a send has failed.
func (a *advisor) race(hedges int, length time.Duration) []time.Duration {
	sends := []time.Duration{0}
	for failed := 0; len(sends) <= hedges; {
		at := sends[len(sends)-1] + a.Hedge.Delay
		if end := sends[failed] + length; length > 0 && end < at {
			at = end
			failed++
		}
		sends = append(sends, at)
	}
	return sends
}

// wait returns the longest backoff after the n-th attempt.
func (a *advisor) wait(n int) time.Duration {
	base, most := max(a.Retry.BaseDelay, 0), a.Retry.MaxDelay
	if a.Retry.Backoff != nil || base > most>>(n-1) {
		return most
	}
	return base << (n - 1)
}

// least returns the time left that a further attempt is worth, and the setting
// that says so: a stream is not asked for that could not begin in time.
func (a *advisor) least() (time.Duration, string) {
	if first := a.Stream.FirstContent; a.Stream.Enabled == On && a.Retry.MinAttempt < first && first < a.Deadline {
		return first, "Stream.FirstContent"
	}
	return max(a.Retry.MinAttempt, 0), "Retry.MinAttempt"
}

// worthwhile reports whether a further attempt begins with so much time left.
func (a *advisor) worthwhile(left time.Duration) bool {
	least, _ := a.least()
	return a.Deadline <= 0 || left >= max(least, 1)
}

// draw makes the timeline.
func (a *advisor) draw(attempts int, race []time.Duration, length time.Duration, limit string) {
	var now time.Duration
	step := func(format string, args ...any) {
		a.timeline = append(a.timeline, Step{now.String(), fmt.Sprintf(format, args...)})
	}
	send := 0
	for n := 1; ; n++ {
		began, hedge := now, ""
		for _, after := range race {
			if now = began + after; a.Deadline > 0 && now >= a.Deadline {
				break
			}
			send++
			step("send %d%s", send, hedge)
			hedge = ", a hedge"
		}
		switch {
		case a.Deadline > 0 && (length == 0 || now+length >= a.Deadline):
			now = a.Deadline
			step("the deadline ends the call")
			return
		case length == 0:
			step("nothing ends the wait")
			a.say("nothing bounds the wait for an answer; set Deadline, Timeouts.Read or Timeouts.Attempt")
			return
		}
		now += length
		if n == attempts {
			step("%s ends the call", limit)
			return
		}
		wait := a.wait(n)
		if left := a.Deadline - now - wait; !a.worthwhile(left) {
			step("%s ends the call: a wait of %v would leave %v for send %d", limit, wait, max(left, 0), send+1)
			return
		}
		step("%s ends send %d; wait up to %v", limit, send, wait)
		now += wait
	}
}

// fit compares the attempts and the backoffs between them with the deadline.
func (a *advisor) fit(attempts int, race []time.Duration, length time.Duration, limit string) {
	if a.Deadline <= 0 || attempts == 1 {
		return
	}
	last := race[len(race)-1]
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
	each := ""
	if hedges > 0 {
		each = fmt.Sprintf(", each hedged by %d more", hedges)
	}
	average := "nothing holds the average; set Retry.Budget"
	if a.Retry.Budget > 0 {
		average = fmt.Sprintf("Retry.Budget %g holds the average at %g; lower it, Retry.MaxAttempts or Hedge.Max for less", a.Retry.Budget, 1+a.Retry.Budget)
	}
	a.say("a call may cost the server %d sends: %d attempts%s; %s", sends, attempts, each, average)
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

// gaps finds limits to gaps of a kind where others have none.
func (a *advisor) gaps() {
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
