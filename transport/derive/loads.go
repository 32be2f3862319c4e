package derive

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/weir-go/weir/policy"
)

// A Load is how many calls may be under way at once.
type Load struct {
	// Route is the name of a route. The last load is that of all routes, and has
	// All set.
	Route string
	All   bool
	policy.Occupancy
	// Excess says what room the calls exceed, and the deadline that would fit. Empty:
	// they exceed none.
	Excess []string
}

// Loads returns the worst case of each route and of all: the measured rate, in
// the busiest minute of the last day that was recorded, times how long a call may
// stay under the settings in force, which are asked for by group. A rate budget
// bounds the rate. A stream is not bounded by its deadline: the longest that
// was seen stands for it.
//
// InFlight.Max is that of the settings; the rest of the room is the argument's,
// where connections are a route's and all else is for all.
func (s *Snapshot) Loads(settings func(Group) policy.Settings, room policy.Room) []Load {
	kinds := map[string][]policy.Occupancy{}
	slots := map[string]int{}
	for g, r := range s.groups {
		rate := r.arrivals.perSecond()
		if rate == 0 {
			continue
		}
		in := settings(g)
		if in.InFlight.Enabled != policy.Off {
			slots[g.Route] = max(slots[g.Route], in.InFlight.Max)
		}
		if in.Rate.Enabled != policy.Off && in.Rate.PerSecond > 0 && in.Rate.Cost == nil {
			rate = min(rate, in.Rate.PerSecond)
		}
		kinds[g.Route] = append(kinds[g.Route], policy.Occupancy{PerSecond: rate, Stay: r.stay(in.Deadline)})
	}
	var loads []Load
	var every []policy.Occupancy
	for _, route := range slices.Sorted(maps.Keys(kinds)) {
		o := figures(policy.InAll(kinds[route]...))
		every = append(every, o)
		own := room
		own.InFlight = slots[route]
		loads = append(loads, Load{Route: route, Occupancy: o, Excess: o.Against(own)})
	}
	all := Load{All: true, Occupancy: figures(policy.InAll(every...))}
	all.Excess = all.Against(policy.Room{Files: room.Files, Memory: room.Memory, PerCall: room.PerCall})
	return append(loads, all)
}

// stay returns how long a call of the group may stay; 0 without bound.
func (r *record) stay(deadline time.Duration) time.Duration {
	if s := r.samples[Stream]; s != nil && s.Done.count > 0 {
		return max(s.Done.max, s.Cut.max)
	}
	return max(deadline, 0)
}

// figures rounds what was measured to three figures.
func figures(o policy.Occupancy) policy.Occupancy {
	o.PerSecond, _ = strconv.ParseFloat(strconv.FormatFloat(o.PerSecond, 'g', 3, 64), 64)
	o.Stay = brief(o.Stay)
	return o
}

// PerSecond returns the rate at which the calls of a group began, as Loads
// measures it; 0 if they all began at once, or there are none.
func (s *Snapshot) PerSecond(g Group) float64 {
	return cmp.Or(s.groups[g], new(record)).arrivals.perSecond()
}
