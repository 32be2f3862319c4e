// Bench measures what weir costs, beside what its users would write or take
// instead, and prints a Markdown table: for each work what it must not exceed,
// weir's figures, and those of the best of the others, in the same run.
//
//	go run .                     every row, medians of ten rounds
//	go run . -row 'six|retry'    some of them
//	go run . -check              with exit status 1 if a row is not met
//
// What a row must not exceed was set on one machine, beside what the best of the
// others took there. The times are those of this machine once they are
// multiplied by how much longer it takes here, in the same run.
//
// Least is what nothing can do without: to end a call, a copy of the request, a
// context of its own and a body that ends it; for exact limits on a stream, two
// readings of the clock a Read. What these took on that machine is what the limit of
// the guard's row was made of, and so it goes by them.
//
// Only figures of one run compare. In each round every subject has a slice of
// time, so that what else the machine does falls on all of them, and what is
// printed is the median of the differences from the bare base in the same round.
//
// It is a module of its own, so that users of weir do not download its rivals.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"
)

//ci:args -rounds 1 -slice 1ms
//ci:race

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 10, "rounds, of which the medians are printed")
	flag.DurationVar(&o.slice, "slice", 50*time.Millisecond, "what each subject has of a round")
	rows := flag.String("row", "", "only the rows whose names match this pattern")
	check := flag.Bool("check", false, "exit with status 1 if a row is not met")
	flag.Parse()
	met, err := run(os.Stdout, o, *rows)
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(2)
	}
	if *check && !met {
		os.Exit(1)
	}
}

// run prints the rows whose names match a pattern, and reports whether all of
// them are met.
func run(w io.Writer, o options, pattern string) (met bool, err error) {
	wanted, err := regexp.Compile(pattern)
	if err != nil {
		return false, err
	}
	fmt.Fprintln(w, "| row | work | must | on this machine | least | weir | best of the others | verdict |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- | --- | --- |")
	met = true
	cpu0, start := spent(), time.Now()
	for _, r := range rows() {
		if !wanted.MatchString(r.name) {
			continue
		}
		results, err := r.measure(o)
		if err != nil {
			return false, fmt.Errorf("%s: %w", r.name, err)
		}
		slower := r.than.slower(results)
		here := r.here(slower)
		verdict := here.verdict(results)
		met = met && verdict == isMet
		fmt.Fprintf(w, "| %s | %s | %s | %.1f x: %s | %s | %s | %s | %s |\n",
			r.name, r.work, list(r.must, r.limit), slower, list(r.must, here.limit), r.floor(results), list(r.must, results[0].of), r.best(results[1:]), verdict)
	}
	ran := 100 * float64(spent()-cpu0) / float64(time.Since(start))
	fmt.Fprintf(w, "\n%s, %d CPUs, %s %s/%s, commit %s, medians of %d rounds. The process had %.0f %% of a CPU: with much less than all of one, the times are those of a busy machine.\n",
		model(), runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH, commit(), o.rounds, ran)
	return met, nil
}

// model is that of the machine's CPU, as far as the system tells.
func model() string {
	data, _ := os.ReadFile("/proc/cpuinfo")
	_, after, ok := strings.Cut(string(data), "model name\t: ")
	if !ok {
		return "unknown CPU"
	}
	name, _, _ := strings.Cut(after, "\n")
	return name
}

func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
