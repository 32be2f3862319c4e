package policy_test

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/policy"
)

func ExampleCompile() {
	table, err := policy.Compile(policy.Policy{
		Settings: policy.Settings{Deadline: 20 * time.Second},
		Routes: []policy.Route{
			{Pattern: "api.example.com/", Settings: policy.Settings{
				Rate: policy.Rate{PerSecond: 50, Burst: 10},
			}},
			{Pattern: "GET api.example.com/reports/", Name: "reports", Settings: policy.Settings{
				Deadline: 10 * time.Minute,
				Timeouts: policy.Timeouts{Read: 5 * time.Minute},
			}},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := table.Line("GET", "api.example.com", "/reports/7").Resolve(policy.Settings{}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Route, r.Deadline, r.Timeouts.Read, r.Timeouts.Connect, r.Rate.PerSecond)
	// Output: reports 10m0s 5m0s 10s 50
}

func ExampleCompile_refused() {
	_, err := policy.Compile(policy.Policy{
		Settings: policy.Settings{Deadline: 20 * time.Second, Retry: policy.Retry{MaxAttempts: 50}},
		Routes: []policy.Route{
			{Pattern: "GET /reports/", Settings: policy.Settings{Timeouts: policy.Timeouts{Read: 5 * time.Minute}}},
		},
	})
	fmt.Println(err)
	// Output:
	// policy: Retry.MaxAttempts is 50, limit 1 to 10, or Off: it is out of range; choose a value within it
	// route "GET /reports/": Timeouts.Read is 5m0s, limit 20s: it outlasts Deadline (policy); shorten it, or set a longer Deadline beside it
}

func ExampleParse() {
	p, err := policy.Parse([]byte(`{
		"deadline": "20s",
		"routes": [
			{"pattern": "GET /reports/", "deadline": "5m", "timeouts": {"read": "off"}}
		]
	}`))
	fmt.Println(p.Deadline, p.Routes[0].Pattern, p.Routes[0].Deadline, p.Routes[0].Timeouts.Read == policy.Off, err)

	_, err = policy.Parse([]byte(`{
		"deadline": "20 seconds",
		"routes": [{"pattern": "/", "timeout": {}}]
	}`))
	fmt.Println(err)
	// Output:
	// 20s GET /reports/ 5m0s true <nil>
	// line 2, column 15: deadline: "20 seconds"; want a duration above zero such as "1m30s" or "off"
	// line 3, column 31: routes[0].timeout: unknown key; do you mean "timeouts"?
}

func ExampleSettings_With() {
	s := policy.Interactive().With(policy.Settings{
		Deadline: 30 * time.Second,
		Retry:    policy.Retry{MaxAttempts: 3},
	})
	fmt.Println(s.Deadline, s.Retry.MaxAttempts, s.Retry.MaxDelay)
	// Output: 30s 3 2s
}
