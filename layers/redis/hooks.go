package redis

import (
	"context"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// timed returns the client with shorter timeouts, and what runs commands by it
// with the client's hooks around them: WithTimeout makes a copy without them.
func timed(client *goredis.Client, d time.Duration) (*goredis.Client, goredis.Cmdable) {
	bare := client.WithTimeout(d)
	hooked := client.Conn() // copies the hooks, and takes no connection before it runs a command by itself
	hooked.AddHook(instead{bare})
	return bare, hooked
}

// instead is a last hook, by which another client runs the commands.
type instead struct{ client *goredis.Client }

func (instead) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (i instead) ProcessHook(goredis.ProcessHook) goredis.ProcessHook { return i.client.Process }

func (i instead) ProcessPipelineHook(goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, list []goredis.Cmder) error {
		pipe := i.client.Pipeline()
		if err := pipe.BatchProcess(ctx, list...); err != nil {
			return err
		}
		_, err := pipe.Exec(ctx)
		return err
	}
}
