// Worker is one process of the fleet that examples/fleet starts: it calls as
// often as the budget of the fleet lets it, until its standard input ends. It is
// a module of its own, so that who uses weir without Redis needs no client of it.
package main

//ci:skip it is run by examples/fleet

import (
	"errors"
	"flag"
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

func main() {
	var w worker
	flag.StringVar(&w.redis, "redis", "", "address of the redis-server")
	flag.StringVar(&w.api, "api", "", "URL that is called")
	flag.StringVar(&w.name, "name", "", "of this process")
	flag.Float64Var(&w.quota, "quota", 1, "calls a second for all processes")
	flag.IntVar(&w.burst, "burst", 1, "calls at once for all processes")
	flag.Parse()
	if err := w.work(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

type worker struct {
	redis, api, name string
	quota            float64
	burst            int
}

// work calls until in ends, which it does with the process that started this
// one.
func (w worker) work(in io.Reader, out io.Writer) error {
	if w.redis == "" || w.api == "" {
		return errors.New("it needs -redis and -api: go run ./examples/fleet, in the root of the repository, starts it with both")
	}
	goredis.SetLogger(&logging.VoidLogger{}) // the store says what there is to say
	client := goredis.NewClient(&goredis.Options{Addr: w.redis})
	defer client.Close()
	store := redis.New(client, redis.Options{
		Namespace: "fleet",
		Timeout:   200 * time.Millisecond, // on a machine that runs all of the fleet
		OnChange: func(c redis.Change) {
			if c.Up {
				fmt.Fprintf(out, "        process %s: Redis answers\n", w.name)
			} else {
				fmt.Fprintf(out, "        process %s: no Redis, and so a share of 1/%d: %v\n", w.name, c.Processes, c.Err)
			}
		},
	})
	defer store.Close()
	weir, err := transport.New(transport.Config{
		Store: store,
		Policy: policy.Policy{Settings: policy.Settings{
			Deadline: 5 * time.Second,
			Rate:     policy.Rate{PerSecond: w.quota, Burst: w.burst},
			Breaker:  policy.Breaker{Ratio: 0.5},
		}},
	})
	if err != nil {
		return err
	}
	req, err := http.NewRequest(http.MethodGet, w.api, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Process", w.name)
	for range 8 {
		go func() {
			for {
				resp, err := weir.Client().Do(req.Clone(req.Context()))
				if err != nil {
					fmt.Fprintf(out, "        process %s: %v\n", w.name, err)
					time.Sleep(100 * time.Millisecond)
					continue
				}
				_ = resp.Body.Close()
			}
		}()
	}
	_, err = io.Copy(io.Discard, in)
	return err
}
