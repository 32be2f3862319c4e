package derive_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
	"github.com/weir-go/weir/transport/derive"
)

// recorded stands for what a Recorder has seen: first contents with a p99 of
// 2.4 s for short prompts, and of 9.1 s for long ones.
func recorded() *derive.Snapshot {
	s := new(derive.Snapshot)
	for bucket, p99 := range map[string]float64{"short": 2.4, "30k": 9.1} {
		sample := s.Sample(derive.Group{Route: "chat", Bucket: bucket}, derive.FirstContent)
		for i := range 4000 {
			u := (float64(i) + 0.5) / 4000
			sample.Done.Add(time.Duration(p99 * math.Log(1-u) / math.Log(0.01) * float64(time.Second)))
		}
		for range 25 {
			sample.Cut.Add(30 * time.Second) // dead: makes no difference
		}
	}
	return s
}

func ExampleDerive() {
	plan, err := derive.Derive(recorded(), derive.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(plan)
	// Output:
	// calls         limit                present  derived  p99    95 % sure       x  samples  cut  failed  kills      delay
	// chat "30k"    Stream.FirstContent  -        18s      9.09s  8.62s to 9.83s  2  4000     25   0       <0.0749 %  16.6s
	// chat "short"  Stream.FirstContent  -        5s       2.39s  2.27s to 2.56s  2  4000     25   0       <0.0749 %  4.64s
	//
	// chat "30k", Stream.FirstContent: 9.09s x 2 = 18.2s, rounded to 18s
	// chat "short", Stream.FirstContent: 2.39s x 2 = 4.78s, rounded to 5s
	// one limit for all buckets: Stream.FirstContent 15s is wrong for chat "short": a dead one is noticed 10s later than with its own 5s
}

func ExampleDerive_tooFew() {
	s := new(derive.Snapshot)
	for range 200 {
		s.Sample(derive.Group{Route: "search"}, derive.Headers).Done.Add(time.Second)
	}
	_, err := derive.Derive(s, derive.Options{Quantile: derive.Background})
	fmt.Println(err)
	// Output: derive: search: headers: 200 samples, and it takes 2995 to know a p99.9 at 95 % confidence
}

// A route gets what all of its buckets can live with, and each call what its own
// bucket needs.
func ExamplePlan_Apply() {
	plan, err := derive.Derive(recorded(), derive.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := plan.Apply(policy.Policy{Routes: []policy.Route{
		{Pattern: "POST /chat", Name: "chat", Settings: policy.Settings{Stream: policy.Stream{Enabled: policy.On}}},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	recorder := new(derive.Recorder) // for the next review
	weir, err := transport.New(transport.Config{Policy: p, Observer: recorder})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Routes[0].Stream.FirstContent)

	req, _ := http.NewRequest(http.MethodPost, "https://api.example.com/chat", http.NoBody)
	req = req.WithContext(plan.Context(req.Context(), derive.Group{Route: "chat", Bucket: "short"}))
	for _, s := range weir.Explain(req).Settings {
		if s.Field == "Stream.FirstContent" {
			fmt.Println(s.Value, "by the", s.Source)
		}
	}
	// Output:
	// 18s
	// 5s by the call
}

// Snapshots of several processes are merged from their JSON.
func ExampleSnapshot_Merge() {
	saved, err := json.Marshal(recorded())
	if err != nil {
		fmt.Println(err)
		return
	}
	var all derive.Snapshot
	for range 3 {
		var one derive.Snapshot
		if err := json.Unmarshal(saved, &one); err != nil {
			fmt.Println(err)
			return
		}
		all.Merge(&one)
	}
	short := all.Sample(derive.Group{Route: "chat", Bucket: "short"}, derive.FirstContent)
	fmt.Println(short.Done.Count(), short.Done.Quantile(0.5).Round(time.Millisecond), short.Cut.Count())
	// Output: 12000 362ms 75
}

// At 50 calls a second, a deadline of half a minute allows 1,500 at once.
func ExampleSnapshot_Loads() {
	s := new(derive.Snapshot)
	if err := json.Unmarshal([]byte(`{"version":1,"groups":[{"route":"chat","outcomes":{"calls":9000},
		"arrivals":{"first":"2026-01-01T00:00:00Z","last":"2026-01-01T00:03:00Z","minutes":[[29453760,3000],[29453761,3000],[29453762,3000]]},
		"samples":{}}]}`), s); err != nil {
		fmt.Println(err)
		return
	}
	inForce := policy.Settings{Deadline: 30 * time.Second, InFlight: policy.InFlight{Enabled: policy.On, Max: 200}}
	for _, load := range s.Loads(func(derive.Group) policy.Settings { return inForce }, policy.Room{}) {
		fmt.Println(load.Route, load.InFlight(), load.Excess)
	}
	// Output:
	// chat 1500 [50/s x 30s = 1500 in flight at worst, against InFlight.Max 200; a deadline of 4s would fit]
	//  1500 []
}
