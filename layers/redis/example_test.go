package redis_test

import (
	"fmt"
	"log/slog"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/layers/redis"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// All processes that run this send 50 requests a second together. Without Redis
// each sends its share.
func ExampleNew() {
	client := goredis.NewClient(&goredis.Options{Addr: "localhost:6379"})
	defer client.Close()
	store := redis.New(client, redis.Options{
		Namespace: "billing",
		OnChange: func(c redis.Change) {
			slog.Warn("the budget of the fleet", "redis", c.Up, "err", c.Err, "processes", c.Processes)
		},
	})
	defer store.Close()
	weir, err := transport.New(transport.Config{
		Store:  store,
		Policy: policy.Policy{Settings: policy.Settings{Rate: policy.Rate{PerSecond: 50, Burst: 10}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(weir.Budgets()), "budgets in use")
	// Output: 0 budgets in use
}
