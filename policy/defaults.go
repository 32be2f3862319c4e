package policy

import "time"

// Defaults returns the settings that lie below every policy: what a field has
// that nothing else sets. There is no need to repeat them in one.
func Defaults() Settings {
	return Settings{
		Deadline: 60 * time.Second,
		Timeouts: Timeouts{
			Pool:    15 * time.Second,
			Connect: 10 * time.Second,
			Write:   10 * time.Second,
			Read:    30 * time.Second,
			Attempt: Off,
		},
		Retry: Retry{
			Enabled:     On,
			MaxAttempts: 3,
			BaseDelay:   250 * time.Millisecond,
			MaxDelay:    5 * time.Second,
			MinAttempt:  50 * time.Millisecond,
			MaxHint:     30 * time.Second,
			Buffer:      64 << 10,
			Budget:      0.1,
			Idempotent:  Off,
			Statuses:    []int{408, 425, 429, 500, 502, 503, 504},
		},
		Hedge: Hedge{Enabled: Off, Max: 1},
		Breaker: Breaker{
			Enabled:     Off,
			Failures:    5,
			MinRequests: 20,
			Window:      30 * time.Second,
			Open:        10 * time.Second,
			OpenMax:     2 * time.Minute,
			OpenJitter:  0.1,
			Probes:      1,
			Key:         ByOrigin,
		},
		Rate:     defaultRate,
		InFlight: InFlight{Enabled: Off, MaxWait: Off, Key: ByOrigin},
		Stream: Stream{
			Enabled:        Off,
			FirstContent:   120 * time.Second,
			Gap:            120 * time.Second,
			PingedGap:      300 * time.Second,
			ThinkingGap:    300 * time.Second,
			ToolGap:        300 * time.Second,
			Linger:         5 * time.Second,
			MinRate:        Off,
			MinRateWindow:  30 * time.Second,
			Hold:           Off,
			HoldLimit:      256 << 10,
			DropKeepalives: Off,
			AllowTruncated: Off,
		},
	}
}

// defaultRate also lies below every named budget.
var defaultRate = Rate{Enabled: Off, Burst: 1, Key: ByOrigin}
