package policy

import "time"

// Interactive returns settings for a streamed answer that a person waits for,
// such as a chat with a model.
//
//   - Deadline 15 s: it bounds only the opening, since the guard takes over at
//     first content; two tries of 5 s and a wait of 2 s leave 3 s for queues.
//   - Connect 5 s: a host that has not answered a handshake by then is down, and
//     there is time for another try.
//   - FirstContent 5 s: people give up on a blank page soon after.
//   - Gap 10 s: tokens come every few hundred milliseconds, so that this is a
//     stall and not a slow model.
//   - PingedGap 60 s: 10 s would catch a stream of nothing but pings as soon as a
//     silent one, but it would kill a model that thinks behind pings. This
//     chooses the model, at the price of a minute's wait for a dead one.
//   - Hold: a try that dies before its first content is repeated unseen.
//   - MaxAttempts 2, BaseDelay, MaxDelay and MaxHint 2 s: one repeat, after at
//     most 2 s; whoever waits would rather have the failure than a third try.
//   - Idempotent On: these calls are POSTs, and would not be repeated otherwise.
//     A repeat may be billed twice.
func Interactive() Settings {
	return Settings{
		Deadline: 15 * time.Second,
		Timeouts: Timeouts{Connect: 5 * time.Second},
		Retry: Retry{
			MaxAttempts: 2,
			BaseDelay:   2 * time.Second,
			MaxDelay:    2 * time.Second,
			MaxHint:     2 * time.Second,
			Idempotent:  On,
		},
		Stream: Stream{
			Enabled:      On,
			FirstContent: 5 * time.Second,
			Gap:          10 * time.Second,
			PingedGap:    60 * time.Second,
			Hold:         On,
		},
	}
}

// Batch returns settings for answers that nobody waits for, read as a whole.
//
//   - Stream Off, Attempt 180 s, Read Off: an answer comes at the end of its
//     generation, so that silence before it says nothing, and the attempt as a
//     whole is bounded instead.
//   - MaxAttempts 5, MaxDelay and MaxHint 150 s: an overload passes within
//     minutes, and 4 waits of 150 s sit out ten of them.
//   - BaseDelay 5 s: a worker has no reason to hurry, and at its curve of 5, 10,
//     20 and 40 s the long waits are those that a server asks for.
//   - Deadline 25 min: five attempts and four waits at their longest.
//   - Idempotent On: these calls are POSTs, and would not be repeated otherwise.
//     A repeat may be billed twice.
func Batch() Settings {
	return Settings{
		Deadline: 25 * time.Minute,
		Timeouts: Timeouts{Attempt: 180 * time.Second, Read: Off},
		Retry: Retry{
			MaxAttempts: 5,
			BaseDelay:   5 * time.Second,
			MaxDelay:    150 * time.Second,
			MaxHint:     150 * time.Second,
			Idempotent:  On,
		},
		Stream: Stream{Enabled: Off},
	}
}

// LocalModel returns settings for a model on one's own machine.
//
//   - FirstContent 15 min: the model may have to be loaded, and a long prompt
//     be read on a processor, before the first token.
//   - Read Off: the same silence precedes the headers, and those of an answer
//     that is not streamed come with its end.
//   - Deadline 30 min: twice that, for an answer that is not streamed. A stream
//     that has not begun after the 15 minutes is not asked for again, since less
//     would be left; one that failed sooner is.
//   - Idempotent On: these calls are POSTs, and would not be repeated otherwise.
//     A repeat costs the machine the work twice; at a hosted model, it may be
//     billed twice.
func LocalModel() Settings {
	return Settings{
		Deadline: 30 * time.Minute,
		Timeouts: Timeouts{Read: Off},
		Retry:    Retry{Idempotent: On},
		Stream:   Stream{Enabled: On, FirstContent: 15 * time.Minute},
	}
}
