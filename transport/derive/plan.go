package derive

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weir-go/weir/policy"
)

// fields are the settings that are derived.
var fields = []string{
	"Timeouts.Connect", "Timeouts.Read",
	"Stream.FirstContent", "Stream.Gap", "Stream.PingedGap", "Stream.ThinkingGap", "Stream.ToolGap",
	"Deadline",
}

func fieldIn(s *policy.Settings, field string) *time.Duration {
	return [...]*time.Duration{
		&s.Timeouts.Connect, &s.Timeouts.Read,
		&s.Stream.FirstContent, &s.Stream.Gap, &s.Stream.PingedGap, &s.Stream.ThinkingGap, &s.Stream.ToolGap,
		&s.Deadline,
	}[slices.Index(fields, field)]
}

// A Plan is settings derived from a [Snapshot], and what they are built on. The zero
// value has none. It is safe to read concurrently, and not to change.
type Plan struct {
	// Limits are the settings one by one, in the order of their groups.
	Limits []Limit
	// Advice says what else is worth knowing, such as that one limit for all
	// buckets of a route would be wrong for one of them.
	Advice []string

	options   Options
	settings  map[Group]policy.Settings
	overrides map[Group]*policy.Override
	lacking   map[[2]string]bool // a route and a field that some bucket has too few samples for
}

// Settings returns the derived settings of a group. What could not be derived is
// zero, and inherits.
func (p *Plan) Settings(g Group) policy.Settings { return p.settings[g] }

// Override returns an override with the settings of a group, always the same
// one; nil if there are none.
func (p *Plan) Override(g Group) *policy.Override { return p.overrides[g] }

// Context returns a context whose calls have the settings of the group, and are
// counted in its bucket; see [WithBucket]. Without settings for the group, they
// are only counted.
func (p *Plan) Context(ctx context.Context, g Group) context.Context {
	ctx = WithBucket(ctx, g.Bucket)
	if o := p.overrides[g]; o != nil {
		ctx = o.Context(ctx)
	}
	return ctx
}

// lack notes that a field cannot be set for a route as a whole.
func (p *Plan) lack(route, field string) {
	if p.lacking == nil {
		p.lacking = map[[2]string]bool{}
	}
	p.lacking[[2]string{route, field}] = true
}

// settle makes settings of the limits of a group.
func (p *Plan) settle(g Group, limits map[string]*Limit, present policy.Settings) {
	if len(limits) == 0 {
		return
	}
	var s policy.Settings
	for field, l := range limits {
		*fieldIn(&s, field) = l.Value
	}
	raised := conform(&s, policy.Defaults().With(present), policy.Settings{}, 0)
	for _, field := range fields {
		why, is := raised[field]
		v := *fieldIn(&s, field)
		if !is {
			continue
		}
		if l := limits[field]; l != nil {
			l.note("raised from %v to %v: %s", l.Value, v, why)
			l.Value = v
			l.measure(p.options.Confidence)
		} else {
			p.Advice = append(p.Advice, fmt.Sprintf("%v: %s is set to %v: %s", g, field, v, why))
		}
	}
	if second, first := secondAttempt(&s, present); first != "" {
		if l := limits["Deadline"]; l != nil {
			l.note("it leaves no time for a second attempt after %s; %v would", first, second)
		}
	}
	if p.settings == nil {
		p.settings, p.overrides = map[Group]policy.Settings{}, map[Group]*policy.Override{}
	}
	p.settings[g], p.overrides[g] = s, policy.NewOverride(s)
}

// secondAttempt returns the deadline that leaves the time for a second attempt,
// and the limit that ends the first one; none if there is the time already, or
// nothing is sent again.
func secondAttempt(s *policy.Settings, present policy.Settings) (deadline time.Duration, first string) {
	if present.Retry.Enabled != policy.On || present.Retry.MaxAttempts < 2 || s.Deadline <= 0 {
		return 0, ""
	}
	first = "Timeouts.Read"
	if s.Stream.FirstContent > 0 {
		first = "Stream.FirstContent"
	}
	deadline = 2**fieldIn(s, first) + max(present.Retry.BaseDelay, 0)
	if s.Deadline >= deadline {
		return 0, ""
	}
	return sensible(deadline), first
}

// conform raises what a policy would otherwise be refused for, and says why: in
// are the settings that s comes to lie on. It has to leave room for those of over,
// which may come to lie on it, and the deadline for a wait.
func conform(s *policy.Settings, in, over policy.Settings, wait time.Duration) (raised map[string]string) {
	raised = map[string]string{}
	in = in.With(*s)
	raise := func(field string, least time.Duration, why string) {
		if v := fieldIn(&in, field); *v > 0 && *v < least {
			*fieldIn(s, field), *v = least, least
			raised[field] = why
		}
	}
	for _, field := range []string{"Stream.PingedGap", "Stream.ThinkingGap", "Stream.ToolGap"} {
		raise(field, max(in.Stream.Gap, over.Stream.Gap), "it takes the place of Stream.Gap, and must not be below it")
	}
	for _, field := range phases {
		raise("Deadline", max(*fieldIn(s, field), *fieldIn(&over, field)), "it is to leave the time for "+field)
	}
	raise("Deadline", wait, "it is to leave the time for what else it bounds")
	return raised
}

// loose is how many times its own limit another has to be, for a group to be
// wrong.
const loose = 2

// Judge holds settings that are to serve all calls of a route against what each
// of its groups needs, and returns a sentence for each that they are wrong for:
// they end more of its healthy calls than they should, or wait for a dead one
// more than twice as long as its own limit.
func (p *Plan) Judge(route string, s policy.Settings) (faults []string) {
	for _, field := range fields {
		if v := *fieldIn(&s, field); v > 0 {
			faults = append(faults, p.judge(route, field, v)...)
		}
	}
	return faults
}

func (p *Plan) judge(route, field string, v time.Duration) (faults []string) {
	for i := range p.Limits {
		l := &p.Limits[i]
		if l.Group.Route != route || l.Field != field {
			continue
		}
		if kills := l.judge.above(v); kills > 1-p.options.Quantile {
			faults = append(faults, fmt.Sprintf("%s %v is wrong for %v: it ends %s of the healthy ones, where %v ends %s",
				field, v, l.Group, percent(kills), l.Value, l.kills()))
		} else if v >= loose*l.Value {
			faults = append(faults, fmt.Sprintf("%s %v is wrong for %v: a dead one is noticed %v later than with its own %v",
				field, v, l.Group, brief(v-l.Value), l.Value))
		}
	}
	return faults
}

// compare says where one limit for all buckets of a route would be wrong.
func (p *Plan) compare(s *Snapshot) {
	pooled := new(Snapshot)
	for _, g := range s.Groups() {
		pooled.record(Group{Route: g.Route}).merge(s.groups[g])
	}
	for _, g := range pooled.Groups() {
		d := deriver{Options: p.options, plan: &Plan{options: p.options}}
		d.Present = nil
		d.group(pooled, g)
		for _, l := range d.plan.Limits {
			n := 0
			for _, own := range p.Limits {
				if own.Group.Route == g.Route && own.Field == l.Field {
					n++
				}
			}
			if n < 2 {
				continue
			}
			for _, fault := range p.judge(g.Route, l.Field, l.Value) {
				p.Advice = append(p.Advice, "one limit for all buckets: "+fault)
			}
		}
	}
}

// kills is Kills as text.
func (l *Limit) kills() string {
	if l.Kills < l.KillsAtMost {
		return "<" + percent(l.KillsAtMost)
	}
	return percent(l.Kills)
}

// String returns the plan as a table, with the notes and the advice below.
func (p *Plan) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "calls\tlimit\tpresent\tderived\t%s\t%g %% sure\tx\tsamples\tcut\tfailed\tkills\tdelay\n",
		percentile(p.options.Quantile), p.options.Confidence*100)
	for _, l := range p.Limits {
		present := "-"
		if l.Present > 0 {
			present = l.Present.String()
		} else if l.Present < 0 {
			present = "off"
		}
		high := brief(l.High).String()
		if l.Unbounded {
			high = "?"
		}
		fmt.Fprintf(w, "%v\t%s\t%s\t%v\t%v\t%v to %s\t%g\t%d\t%d\t%d\t%s\t%v\n",
			l.Group, l.Field, present, l.Value, brief(l.At), brief(l.Low), high, l.Safety, l.Samples, l.Cut, l.Failed, l.kills(), brief(l.Delay))
	}
	w.Flush()
	for _, l := range p.Limits {
		for _, n := range l.Notes {
			fmt.Fprintf(&b, "\n%v, %s: %s", l.Group, l.Field, n)
		}
	}
	for _, a := range p.Advice {
		fmt.Fprintf(&b, "\n%s", a)
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}
