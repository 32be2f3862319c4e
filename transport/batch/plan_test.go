package batch_test

import (
	"math"
	"testing"
	"time"

	"github.com/weir-go/weir/transport/batch"
)

// The plan of a night: 50,000 documents by seven in the morning.
var night = batch.Plan{
	Items: 50_000, Mean: 8 * time.Second, Workers: 40, Allowance: 10 * time.Minute,
	Window: 6 * time.Hour, Deadline: 5*time.Hour + 30*time.Minute,
}

func TestPlan(t *testing.T) {
	equal(t, "the work", night.Work(), 400_000*time.Second)
	equal(t, "the wall clock", night.WallClock(), 10_000*time.Second)
	equal(t, "the slack", night.Slack(), 11_600*time.Second) // 3.2 hours
	equal(t, "the worst case", night.Unbounded(), 500_000*time.Minute)
	equal(t, "the same in days", math.Round(night.Unbounded().Hours()/24), 347)
	equal(t, "the worst case with the deadline", night.Bounded(), 220*time.Hour)
	equal(t, "what is left", night.Unprocessed(), 0)
	equal(t, "what may use its allowance", night.Spare(), 662)

	p := night
	p.Mean = 20 * time.Second
	equal(t, "the slack of slow items", p.Slack(), -3400*time.Second)
	equal(t, "what is left of them", p.Unprocessed(), 50_000-40*990)
	equal(t, "the spare of them", p.Spare(), 0)
	p.Deadline = 0
	equal(t, "what is left without a deadline", p.Unprocessed(), 0)
	equal(t, "the worst case without one", p.Bounded(), p.Unbounded())

	few := batch.Plan{Items: 41, Mean: time.Minute, Workers: 40, Allowance: 2 * time.Minute, Deadline: time.Hour}
	equal(t, "the wall clock of one too many", few.WallClock(), 2*time.Minute)
	equal(t, "the worst case of few", few.Bounded(), 82*time.Minute)
	equal(t, "the spare of few", few.Spare(), 41)
	few.Allowance = few.Mean + 4
	equal(t, "the spare of those that take hardly more", few.Spare(), 41)
	equal(t, "the wall clock of nothing", batch.Plan{}.WallClock(), 0)
	huge := batch.Plan{Items: math.MaxInt, Mean: math.MaxInt64, Workers: math.MaxInt, Allowance: math.MaxInt64, Deadline: math.MaxInt64}
	equal(t, "the work of too much", huge.Work(), math.MaxInt64)
	_ = huge.String()
	huge.Mean = time.Second
	equal(t, "the wall clock of an item a worker", huge.WallClock(), time.Second)
	equal(t, "the slack of no window", few.Slack(), 0)

	below := batch.Plan{Items: math.MinInt, Mean: math.MinInt64, Workers: -1, Allowance: time.Second, Window: -1, Deadline: time.Hour}
	for name, got := range map[string]time.Duration{
		"work": below.Work(), "wall clock": below.WallClock(), "slack": below.Slack(),
		"worst case": below.Unbounded(), "worst case with the deadline": below.Bounded(),
		"unprocessed": time.Duration(below.Unprocessed()), "spare": time.Duration(below.Spare()),
	} {
		equal(t, "below zero, the "+name, got, 0)
	}
}

func TestPlanTexts(t *testing.T) {
	for text, change := range map[string]func(p *batch.Plan){
		"window      4h, which is 10m too short\n":                         func(p *batch.Plan) { p.Mean, p.Window = 12*time.Second, 4*time.Hour },
		"deadline    5h30m, which leaves 10,400 items unprocessed\n":       func(p *batch.Plan) { p.Mean = 20 * time.Second },
		"deadline    none: nothing bounds the job\n":                       func(p *batch.Plan) { p.Deadline = 0 },
		"deadline    7h, which is 1h after the window ends\n":              func(p *batch.Plan) { p.Deadline = 7 * time.Hour },
		"deadline    5h30m\n":                                              func(p *batch.Plan) { p.Window = 0 },
		"50,000 items x 8s = 4.6 worker-days\n":                            func(*batch.Plan) {},
		"1,000 items x 8s = 2.2 worker-hours\n":                            func(p *batch.Plan) { p.Items = 1000 },
		"100 items x 8s = 13.3 worker-minutes\n":                           func(p *batch.Plan) { p.Items = 100 },
		"4 items x 8s = 32.0 worker-seconds\n":                             func(p *batch.Plan) { p.Items = 4 },
		"4m30s on 1 worker\n":                                              func(p *batch.Plan) { p.Items, p.Mean, p.Workers = 90, 3*time.Second, 0 },
		"over 292 worker-years without a deadline\n":                       func(p *batch.Plan) { p.Items, p.Allowance = math.MaxInt, math.MaxInt64 },
		"allowance   1s is less than an item takes\n":                      func(p *batch.Plan) { p.Allowance = time.Second },
		"allowance   10m each; 662 items may use it up before any is left": func(*batch.Plan) {},
	} {
		p := night
		change(&p)
		has(t, p.String(), text)
	}
}
