package main

import (
	"runtime"
	"slices"
	"syscall"
	"time"
)

type options struct {
	rounds int
	slice  time.Duration // of a subject in a round
}

// subject is one of those that do a work.
type subject struct {
	name string
	do   func() error // the work, once
	size int          // bytes that it reads
}

// sample is what one slice took, for each time that the work was done.
type sample struct{ wall, cpu float64 }

// measure returns what each subject but the base takes beyond it. The base may
// do nothing.
func measure(o options, base subject, subjects ...subject) ([]result, error) {
	all := append([]subject{base}, subjects...)
	times := make([]int, len(all))
	costs := make([]figures, len(all))
	for i, s := range all {
		var err error
		if times[i], err = calibrate(o, s); err != nil {
			return nil, err
		}
		if costs[i], err = memory(s, min(times[i], 2000)); err != nil {
			return nil, err
		}
	}
	samples := make([][]sample, len(all))
	for round := range o.rounds {
		for i := range all {
			i = (i + round) % len(all)
			s, err := slice(all[i], times[i])
			if err != nil {
				return nil, err
			}
			samples[i] = append(samples[i], s)
		}
	}
	var results []result
	for i, s := range all[1:] {
		own, bare := samples[i+1], samples[0]
		median := func(f func(own, bare sample) float64) float64 {
			var list []float64
			for k := range own {
				list = append(list, f(own[k], bare[k]))
			}
			slices.Sort(list)
			return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
		}
		r := result{name: s.name}
		r.figures[added] = median(func(own, bare sample) float64 { return own.wall - bare.wall })
		r.figures[ns] = median(func(own, _ sample) float64 { return own.wall })
		r.figures[cpuTime] = median(func(own, bare sample) float64 { return own.cpu - bare.cpu })
		r.figures[percent] = median(func(own, bare sample) float64 { return 100 * (own.wall/bare.wall - 1) })
		r.figures[speed] = float64(s.size) / r.figures[ns]
		r.figures[allocs] = costs[i+1][allocs] - costs[0][allocs]
		r.figures[size] = costs[i+1][size] - costs[0][size]
		results = append(results, r)
	}
	return results, nil
}

// calibrate returns how often a subject does its work in a slice.
func calibrate(o options, s subject) (times int, err error) {
	for times = 1; ; times *= 2 {
		took, err := slice(s, times)
		if err != nil {
			return 0, err
		}
		if took.wall*float64(times) >= float64(o.slice)/2 {
			return times, nil
		}
	}
}

func slice(s subject, times int) (sample, error) {
	cpu, start := spent(), time.Now()
	for range times {
		if err := s.do(); err != nil {
			return sample{}, err
		}
	}
	wall := time.Since(start)
	return sample{float64(wall) / float64(times), float64(spent()-cpu) / float64(times)}, nil
}

// spent is the CPU time of the process.
func spent() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// memory counts the allocations of a subject. Those of the runtime itself are
// few, and rounded off.
func memory(s subject, times int) (f figures, err error) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range times {
		if err := s.do(); err != nil {
			return f, err
		}
	}
	runtime.ReadMemStats(&after)
	f[allocs] = float64((after.Mallocs - before.Mallocs) / uint64(times))
	f[size] = float64((after.TotalAlloc - before.TotalAlloc) / uint64(times))
	return f, nil
}
