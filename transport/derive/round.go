package derive

import "time"

// steps are what a figure is rounded to below a bound: those that a person would
// choose from. Below a minute they are 1, 1.1, ... 2, 2.5, ... 5, 6, ... 10 of a
// power of ten.
var steps = []struct{ below, step time.Duration }{
	{2 * time.Minute, 5 * time.Second},
	{5 * time.Minute, 15 * time.Second},
	{10 * time.Minute, 30 * time.Second},
	{time.Hour, time.Minute},
	{4 * time.Hour, 5 * time.Minute},
	{1<<63 - 1, 15 * time.Minute},
}

// sensible rounds to the nearest sensible figure.
func sensible(d time.Duration) time.Duration {
	if d >= time.Minute {
		for _, s := range steps {
			if d < s.below {
				return d.Round(s.step)
			}
		}
	}
	power := time.Duration(1)
	for power <= d/10 {
		power *= 10
	}
	switch step := power; {
	case power < 10:
		return d
	case d < 2*power:
		return d.Round(step / 10)
	case d < 5*power:
		return d.Round(step / 2)
	default:
		return d.Round(step)
	}
}
