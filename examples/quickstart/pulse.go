package main

import "time"

// pulse measures how late a busy machine runs what is due: the longest that a
// sleep took beyond its time, up to when the function that it returns is called.
func pulse() (worst func() time.Duration) {
	const beat = time.Millisecond
	stop, result := make(chan struct{}), make(chan time.Duration)
	go func() {
		var late time.Duration
		for {
			select {
			case <-stop:
				result <- late
				return
			default:
			}
			start := time.Now()
			time.Sleep(beat)
			late = max(late, time.Since(start)-beat)
		}
	}()
	return func() time.Duration {
		close(stop)
		return <-result
	}
}
