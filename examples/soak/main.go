// Command soak lets 64 workers loose on a server that fails in all the ways that
// servers do, with every layer on, and checks what weir promises:
//
//   - no call outlives its deadline, by more than 50 ms and how late the machine
//     ran what was due in the meantime
//   - no byte of a body is wrong
//   - a POST without a key is never sent twice
//   - sends stay within the quota, and re-sends within the retry budget
//   - in the end nothing is left: no slot, no waiter, no call, no goroutine
//
// It ends with status 1 if one is broken. A seed gives the same requests again.
//
//	go run ./examples/soak -for 60s -seed 7
package main

//ci:args -for 10s

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/weir-go/weir/transport"
)

func main() {
	length := flag.Duration("for", time.Minute, "how long new calls are made")
	seed := flag.Uint64("seed", 1, "what the requests are drawn from")
	workers := flag.Int("workers", 64, "how many calls are made at once")
	flag.Parse()
	if err := soak(*length, *seed, *workers); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func soak(length time.Duration, seed uint64, workers int) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	faulty := newServer()
	server := &http.Server{Handler: faulty}
	go func() { _ = server.Serve(listener) }()
	fmt.Printf("seed %d, %d workers, for %v\n\n", seed, workers, length)
	r, err := run(world{
		url: "http://" + listener.Addr().String(), base: transport.Base(), server: faulty,
		workers: workers, length: length, seed: seed,
		stop: func() { _ = server.Close() },
	})
	if err != nil {
		return err
	}
	return r.print(os.Stdout)
}
