package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/weir-go/weir/layers/redis"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// work is one process of the fleet: it calls as often as it may, until its
// parent is gone.
func work(addr, api, name string) error {
	goredis.SetLogger(&logging.VoidLogger{}) // the store says what there is to say
	store := redis.New(goredis.NewClient(&goredis.Options{Addr: addr}), redis.Options{
		Namespace: "fleet",
		Timeout:   200 * time.Millisecond, // on a machine that runs all of the fleet
		OnChange: func(c redis.Change) {
			if c.Up {
				fmt.Fprintf(os.Stdout, "        process %s: Redis answers\n", name)
			} else {
				fmt.Fprintf(os.Stdout, "        process %s: no Redis, and so a share of 1/%d: %v\n", name, c.Processes, c.Err)
			}
		},
	})
	defer store.Close()
	weir, err := transport.New(transport.Config{
		Store: store,
		Policy: policy.Policy{Settings: policy.Settings{
			Deadline: 5 * time.Second,
			Rate:     policy.Rate{PerSecond: quota, Burst: burst / 2},
			Breaker:  policy.Breaker{Ratio: 0.5},
		}},
	})
	if err != nil {
		return err
	}
	req, err := http.NewRequest(http.MethodGet, api, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Process", name)
	for range 8 {
		go func() {
			for {
				resp, err := weir.Client().Do(req.Clone(req.Context()))
				if err != nil {
					fmt.Fprintf(os.Stdout, "        process %s: %v\n", name, err)
					time.Sleep(100 * time.Millisecond)
					continue
				}
				_ = resp.Body.Close()
			}
		}()
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
