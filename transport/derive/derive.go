package derive

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weir-go/weir/policy"
)

// The share of healthy calls that a limit is not to end.
const (
	UserFacing = 0.99  // ends one in a hundred, before Safety
	Background = 0.999 // ends one in a thousand
)

// Options says how limits are derived. The zero value is for user-facing calls.
type Options struct {
	// Quantile is the share of successes that the limit is built on, from 0.5 to
	// below 1. Zero: UserFacing.
	Quantile float64
	// Safety is what the quantile is multiplied by, so that the limit still
	// holds when latencies have drifted by the next review: 1 to 10, usually 1.5
	// to 2. Zero: 2.
	Safety float64
	// GapSafety is the same for the spacing of tokens, whose tail is much
	// heavier: 1 to 100. Zero: 5. Pauses in the structure of a stream have
	// Safety.
	GapSafety float64
	// Confidence is how sure the bounds of a quantile are, each of them: from 0.5
	// to below 1. Zero: 0.95.
	Confidence float64
	// Least is the shortest limit, an hour at most. Zero: 250 ms, since TCP takes
	// 200 ms and more to send a lost packet again, and few samples have met one.
	// Off: none.
	Least time.Duration
	// Present returns the settings in force for a group, resolved, as
	// [policy.Line.Resolve] has them. They stand beside those derived, and one
	// that the data do not contradict is kept, and one that they do is lowered no
	// further than they are sure of. Nil: not known; an Override may then contradict
	// what its calls inherit, so that they fail.
	Present func(Group) policy.Settings
}

func (o Options) withDefaults() (Options, error) {
	o.Quantile = cmp.Or(o.Quantile, UserFacing)
	o.Safety = cmp.Or(o.Safety, 2)
	o.GapSafety = cmp.Or(o.GapSafety, 5)
	o.Confidence = cmp.Or(o.Confidence, 0.95)
	o.Least = cmp.Or(o.Least, 250*time.Millisecond)
	for _, f := range []struct {
		name      string
		v, lo, hi float64
	}{
		{"Quantile", o.Quantile, 0.5, math.Nextafter(1, 0)},
		{"Safety", o.Safety, 1, 10},
		{"GapSafety", o.GapSafety, 1, 100},
		{"Confidence", o.Confidence, 0.5, math.Nextafter(1, 0)},
	} {
		if !(f.lo <= f.v && f.v <= f.hi) {
			return o, fmt.Errorf("derive: Options.%s is %g, limit %g to %g", f.name, f.v, f.lo, f.hi)
		}
	}
	if o.Least != policy.Off && (o.Least < 0 || o.Least > time.Hour) {
		return o, fmt.Errorf("derive: Options.Least is %v, limit 1h, or Off", o.Least)
	}
	return o, nil
}

// A TooFewError says that there are too few samples of a quantity to derive a
// limit from.
type TooFewError struct {
	Group    Group
	Quantity Quantity
	// Have is how many there are, of a gap the streams, and Need how many it
	// takes, so that at least one is above the quantile with the confidence asked
	// for.
	Have, Need uint64
	// Cut is how many were cut short. Where they are more than those of Have, it may
	// be the limit in force that there are so few for.
	Cut        uint64
	Quantile   float64
	Confidence float64
}

// Error says how many are needed, and why.
func (e *TooFewError) Error() string {
	what := "samples"
	if slices.Contains(gaps, e.Quantity) {
		what = "streams"
	}
	text := fmt.Sprintf("derive: %v: %s: %d %s, and it takes %d to know a %s at %g %% confidence",
		e.Group, e.Quantity, e.Have, what, e.Need, percentile(e.Quantile), e.Confidence*100)
	if e.Cut > e.Have {
		text += fmt.Sprintf("; %d were cut short, so the limit in force may be why", e.Cut)
	}
	return text
}

// percentile names a quantile.
func percentile(q float64) string { return fmt.Sprintf("p%g", math.Round(q*1e6)/1e4) }

// A Limit is one derived setting of one group.
type Limit struct {
	Group    Group
	Field    string   // the setting, such as Timeouts.Read
	Quantity Quantity // the one that decided
	Value    time.Duration
	Present  time.Duration // the one in force; 0 if it is not known, negative for off

	// At is the quantile, of which Low and High are the bounds; Unbounded means
	// that High is the longest known, and the quantile may be above it. Times
	// Safety it is Exact, which was rounded to Value.
	Quantile      float64
	At, Low, High time.Duration
	Unbounded     bool
	Safety        float64
	Exact         time.Duration

	// Samples are the successes, of a gap the streams. Cut are those that were
	// cut short, of which Censored would have succeeded, and Failed those that
	// failed by themselves.
	Samples, Cut uint64
	Censored     float64
	Failed       uint64

	// Kills is the share of healthy calls, from 0 to 1, of a gap the share of
	// streams, that Value ends. With no such call among the samples it is about zero, and below
	// KillsAtMost with the confidence of the bounds.
	Kills, KillsAtMost float64
	// Delay is how much longer a dead one is waited for than half of the healthy
	// ones take: Value less the median.
	Delay time.Duration

	// Notes say what else went into Value.
	Notes []string

	judge *curve // what Kills is read from
}

func (l *Limit) note(format string, args ...any) {
	l.Notes = append(l.Notes, fmt.Sprintf(format, args...))
}

// Derive makes a plan of a snapshot. Its error joins a [*TooFewError] for every
// quantity that has samples, but too few; the plan then has what could be
// derived. It is nil only if the options are wrong.
func Derive(s *Snapshot, o Options) (*Plan, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Plan{options: o}
	d := deriver{Options: o, plan: p}
	for _, g := range s.Groups() {
		d.group(s, g)
	}
	p.compare(s)
	return p, errors.Join(d.errs...)
}

type deriver struct {
	Options
	plan *Plan
	errs []error
}

// group derives the limits of a group.
func (d *deriver) group(s *Snapshot, g Group) {
	var present policy.Settings
	if d.Present != nil {
		present = d.Present(g)
	}
	limits := map[string]*Limit{}
	for _, field := range fields {
		l, err := d.field(s, g, field, *fieldIn(&present, field))
		if err != nil {
			d.errs = append(d.errs, err)
			d.plan.lack(g.Route, field)
		} else if l != nil {
			limits[field] = l
		}
	}
	d.plan.settle(g, limits, present)
	for _, field := range fields {
		if l := limits[field]; l != nil {
			d.plan.Limits = append(d.plan.Limits, *l)
		}
	}
}

// field derives the limit of a field: the larger of those of the quantities that
// it bounds. It is nil if there are no samples of any.
func (d *deriver) field(s *Snapshot, g Group, field string, present time.Duration) (largest *Limit, err error) {
	var all, left uint64
	for _, q := range quantities {
		if fieldOf(q) == field {
			all = plus(all, s.look(g, q).Done.count)
		}
	}
	var few error
	for _, q := range quantities {
		sample := s.look(g, q)
		if fieldOf(q) != field || sample.empty() {
			continue
		}
		l, err := d.limit(g, q, sample, present)
		switch {
		case err != nil:
			left += sample.Done.count
			few = cmp.Or(few, err)
		case largest == nil || l.Value > largest.Value:
			largest = l
		}
	}
	// A few of another kind, such as answers without content on a route of
	// streams, are left out if that is no more than the share that may be ended.
	if few != nil && (largest == nil || float64(left) > (1-d.Quantile)*float64(all)) {
		return nil, few
	}
	return largest, nil
}

// limit derives the limit of one quantity.
func (d *deriver) limit(g Group, q Quantity, s *Sample, present time.Duration) (*Limit, error) {
	l := &Limit{
		Group: g, Quantity: q, Field: fieldOf(q), Present: present, Quantile: d.Quantile,
		Samples: s.Done.count, Cut: s.Cut.count, Failed: s.Failed,
	}
	isGap := slices.Contains(gaps, q)
	if isGap {
		l.Samples = s.Longest.count
	}
	if need := needed(d.Quantile, d.Confidence); l.Samples < need {
		return nil, &TooFewError{Group: g, Quantity: q, Have: l.Samples, Need: need, Cut: l.Cut, Quantile: d.Quantile, Confidence: d.Confidence}
	}
	basis := newCurve(&s.Done, &s.Cut, 0, bins)
	at := basis.quantile(d.Quantile)
	l.judge, l.Safety = basis, d.Safety
	if isGap {
		l.judge = newCurve(&s.Longest, &s.Cut, 0, bins)
		basis, at = d.spacing(s, l)
		// A gap may be rare among gaps, and still be in many streams.
		if f := l.judge.quantile(d.Quantile); f.at > times(at.at, l.Safety) {
			l.note("raised from %v to the %s of the longest gaps, so that it ends no more than %s of the streams",
				brief(times(at.at, l.Safety)), percentile(d.Quantile), percent(1-d.Quantile))
			basis, at, l.Safety = l.judge, f, 1
		}
	}
	low, high := basis.bounds(d.Quantile, d.Confidence)
	l.At, l.Low, l.High, l.Unbounded = at.at, low.at, high.at, high.beyond
	l.Exact, l.Censored = times(l.At, l.Safety), l.judge.deemed()
	l.round(d.Least)
	l.keep(basis, at, d.Least)
	if l.Censored >= 0.5 {
		l.note("%.0f of the %d that were cut short would have succeeded, by the tail of those that did, and count as longer than they lasted", l.Censored, l.Cut)
	}
	if at.beyond {
		l.note("more than %s of the healthy ones were cut short: the quantile is above %v, and this limit a step towards it", percent(1-d.Quantile), brief(l.At))
	}
	l.measure(d.Confidence)
	return l, nil
}

// spacing looks for two populations in the gaps. It returns the one that
// decides, and what of it is multiplied.
func (d *deriver) spacing(s *Sample, l *Limit) (basis *curve, at point) {
	all := newCurve(&s.Done, &s.Cut, 0, bins)
	bin, two := parted(&s.Done)
	l.Safety = d.GapSafety
	if !two {
		return all, all.quantile(d.Quantile)
	}
	tokens, pauses := newCurve(&s.Done, &s.Cut, 0, bin), newCurve(&s.Done, &s.Cut, bin, bins)
	spacing, pause := tokens.quantile(d.Quantile), pauses.quantile(d.Quantile)
	what := percentile(d.Quantile)
	if pauses.size() < float64(needed(d.Quantile, d.Confidence)) {
		pause = point{at: s.Done.max}
		what = "too few for a quantile, the longest"
	}
	l.note("two populations, parted at %v: %s of the gaps space tokens, %s %v; the others are pauses, %s %v",
		brief(binAt(bin).From), percent(tokens.size()/all.size()), percentile(d.Quantile), brief(spacing.at), what, brief(pause.at))
	if times(spacing.at, d.GapSafety) >= times(pause.at, d.Safety) {
		return tokens, spacing
	}
	l.Safety = d.Safety
	return pauses, pause
}

// round makes Value of Exact.
func (l *Limit) round(least time.Duration) {
	l.Value = sensible(l.Exact)
	if l.Value != l.Exact {
		l.note("%v x %g = %v, rounded to %v", brief(l.At), l.Safety, brief(l.Exact), l.Value)
	}
	if l.Value < least {
		l.note("raised from %v to the least there is to be", l.Value)
		l.Value = least
	}
}

// certain is the confidence at which a limit in force is given up. It is
// itself derived from a sample, which differs from this one by chance.
const certain = 0.999

// tooLong is how many times the derived limit one in force is not kept for want
// of samples to be certain.
const tooLong = 1.5

// keep keeps the limit in force, unless the data contradict it. If the derived
// one may be below the quantile, as where a few in a hundred are of another kind,
// what is in force is lowered only as far as that cannot be.
func (l *Limit) keep(basis *curve, at point, least time.Duration) {
	present := l.Present
	if present == 0 {
		present = inForce(basis.cut)
	}
	if present <= 0 || present < least || at.beyond || present == l.Value {
		return
	}
	low, high := basis.bounds(l.Quantile, certain)
	if high.beyond && present > times(l.Exact, tooLong) {
		high = point{at: l.High}
	}
	switch most := sensible(times(high.at, l.Safety)); {
	case present < max(at.at, times(low.at, l.Safety)):
	case high.beyond || present <= max(most, times(high.at, l.Safety)):
		l.note("the samples cannot tell whether %v is better than the %v in force: that is kept", l.Value, present)
		l.Value = present
	case high.at > l.Exact && most > l.Value:
		l.note("raised from %v to %v: by these samples, the quantile may be %v, and what is in force is lowered no further than is certain", l.Value, most, brief(high.at))
		l.Value = most
	}
}

// inForce returns the limit that most of those that were cut short have met, to
// the nearest sensible figure; 0 if they have met many.
func inForce(cut *Histogram) time.Duration {
	for i := range cut.all {
		// It takes a moment until a limit has its effect.
		if n := cut.between(i, i+3); n > cut.count/2 {
			return sensible(binAt(i).middle())
		}
	}
	return 0
}

// measure says what Value does.
func (l *Limit) measure(confidence float64) {
	l.Kills = l.judge.above(l.Value)
	l.KillsAtMost = max(l.Kills, -math.Expm1(math.Log1p(-confidence)/l.judge.size()))
	l.Delay = max(0, l.Value-l.judge.quantile(0.5).at)
	if p := l.Present; p > 0 && p != l.Value {
		if kills := l.judge.above(p); kills > 1-l.Quantile {
			l.note("the limit in force, %v, ends %s of the healthy ones", p, percent(kills))
		}
	}
}

func times(d time.Duration, f float64) time.Duration {
	return time.Duration(math.Min(math.Round(float64(d)*f), math.MaxInt64/2))
}

// brief leaves out of a duration what no reader cares for.
func brief(d time.Duration) time.Duration {
	digits := time.Duration(1)
	for d/digits >= 1000 {
		digits *= 10
	}
	return d.Round(digits)
}

func percent(share float64) string { return fmt.Sprintf("%.3g %%", share*100) }
