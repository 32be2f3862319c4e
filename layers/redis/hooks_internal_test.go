package redis

import (
	"context"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/clocktest"
)

// idle is a hook that does nothing.
type idle struct{}

func (idle) DialHook(next goredis.DialHook) goredis.DialHook          { return next }
func (idle) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }
func (idle) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// TestSilent: of a Redis that accepts and says nothing, each command is given up
// soon, also by a client that has hooks and much patience.
func TestSilent(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		network := clocktest.NewNetwork(t)
		network.Listen("192.0.2.1:6379")
		client := goredis.NewClient(&goredis.Options{
			Addr: "192.0.2.1:6379", Dialer: network.DialContext, ReadTimeout: time.Hour, MaxRetries: -1,
		})
		defer client.Close()
		client.AddHook(idle{})
		const limit = 100 * time.Millisecond
		_, hooked := timed(client, limit)
		for what, do := range map[string]func(context.Context) error{
			"a command": func(ctx context.Context) error { return hooked.Ping(ctx).Err() },
			"a pipeline": func(ctx context.Context) error {
				pipe := hooked.Pipeline()
				pipe.Ping(ctx)
				_, err := pipe.Exec(ctx)
				return err
			},
		} {
			began := c.Elapsed()
			err := do(t.Context())
			if took := c.Elapsed() - began; err == nil || took < limit || took > 2*limit { // a greeting, and the command
				t.Errorf("%s ends after %v with %v", what, took, err)
			}
		}
	})
}
