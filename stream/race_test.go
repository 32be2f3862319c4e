//go:build race

package stream

// With the race detector, a sync.Pool drops some of what is put into it.
func init() { poolsLeak = true }
