package main

import (
	"net/http"
	"time"

	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// What all stacks are set to: the same work, with limits that nothing reaches.
const (
	callTimeout = time.Minute
	sendTimeout = 30 * time.Second
	maxRetries  = 3
)

// noPhases are the timeouts of a stack that times no phase of a send.
var noPhases = policy.Timeouts{Pool: policy.Off, Connect: policy.Off, Write: policy.Off, Read: policy.Off}

// three are the settings of budget, retry and breaker alone.
func three() policy.Settings {
	return policy.Settings{
		Deadline: policy.Off,
		Timeouts: noPhases,
		Retry:    policy.Retry{MaxAttempts: maxRetries + 1, BaseDelay: policy.Off, Budget: policy.Off},
		Breaker:  policy.Breaker{Ratio: 0.95, MinRequests: 100, Window: 10 * time.Second},
		Rate:     policy.Rate{PerSecond: 1e9, Burst: 1e6},
	}
}

// six adds a deadline and slots; match is the sixth layer.
func six() policy.Settings {
	return three().With(policy.Settings{Deadline: callTimeout, InFlight: policy.InFlight{Max: 100_000}})
}

// phases adds a timeout for each phase of a send.
func phases() policy.Settings {
	s := six()
	s.Timeouts = policy.Timeouts{}
	return s
}

func weir(s policy.Settings) stack {
	return stack{"weir", func(base http.RoundTripper) http.RoundTripper {
		t, err := transport.New(transport.Config{Base: base, Policy: policy.Policy{Settings: s}})
		if err != nil {
			panic(err) // the settings are ours
		}
		return t
	}}
}

// streaming guards a stream, and nothing else.
func streaming() policy.Settings {
	return policy.Settings{
		Deadline: policy.Off,
		Timeouts: noPhases,
		Retry:    policy.Retry{Enabled: policy.Off},
		Stream:   policy.Stream{Enabled: policy.On},
	}
}
