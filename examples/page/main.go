// Page shows the page of package transport/page: it runs traffic against a
// loopback server that misbehaves, and prints the address to open in a browser.
// One of the routes has an outage every few seconds, so that a circuit opens and
// closes while one looks.
//
//	go run ./examples/page
//
// With -for it ends by itself, after it has asked for each view once.
package main

//ci:args -for 5s

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
	"github.com/weir-go/weir/transport/derive"
	"github.com/weir-go/weir/transport/page"
)

var rules = policy.Policy{
	Settings: policy.Settings{Deadline: 2 * time.Second, Timeouts: policy.Timeouts{Read: time.Second}},
	Routes: []policy.Route{
		{Pattern: "/items/", Name: "items", Settings: policy.Settings{
			Rate: policy.Rate{PerSecond: 20, Burst: 10}, InFlight: policy.InFlight{Max: 8, MaxWait: time.Second},
		}},
		{Pattern: "/flaky", Name: "flaky", Settings: policy.Settings{
			Breaker: policy.Breaker{Failures: 4, Open: time.Second, OpenMax: 2 * time.Second},
			Retry:   policy.Retry{MaxAttempts: 2, BaseDelay: 50 * time.Millisecond},
		}},
		{Pattern: "/limited", Name: "limited", Settings: policy.Settings{
			Budgets: map[string]policy.Rate{"quota": {PerSecond: 10, Burst: 5}},
		}},
		{Pattern: "/chat", Name: "chat", Settings: policy.Settings{
			Stream: policy.Stream{Enabled: policy.On, FirstContent: time.Second, Gap: 500 * time.Millisecond},
		}},
		{Pattern: "/silent", Name: "silent"},
	},
}

// workers of each path, and how long each rests between two calls.
var traffic = map[string]struct {
	workers int
	rest    time.Duration
}{
	"/items/7": {6, 200 * time.Millisecond},
	"/flaky":   {2, 100 * time.Millisecond},
	"/limited": {3, 150 * time.Millisecond},
	"/chat":    {2, 300 * time.Millisecond},
	"/silent":  {1, 2 * time.Second},
}

func main() {
	length := flag.Duration("for", 0, "how long to run; 0: until it is interrupted")
	addr := flag.String("addr", "127.0.0.1:0", "where the page listens")
	control := flag.Bool("control", false, "let the page force circuits open and closed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	if *length > 0 {
		time.AfterFunc(*length, stop)
	}
	err := run(ctx, os.Stdout, *addr, *control)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, addr string, control bool) error {
	api, err := serve(ctx, "127.0.0.1:0", http.HandlerFunc(misbehave))
	if err != nil {
		return err
	}
	watch, recorder := page.NewWatch(), new(derive.Recorder)
	t, err := transport.New(transport.Config{Policy: rules, Observer: layers.Observers(watch, recorder)})
	if err != nil {
		return err
	}
	defer t.CloseIdleConnections()

	mux := http.NewServeMux()
	mux.Handle("/weir/", http.StripPrefix("/weir", page.Handler(t, page.Options{Watch: watch, Recorder: recorder, AllowControl: control})))
	site, err := serve(ctx, addr, mux)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "the page: %s/weir/\n", site)

	var workers sync.WaitGroup
	for path, load := range traffic {
		for range load.workers {
			workers.Go(func() {
				for ctx.Err() == nil {
					call(ctx, t.Client(), api+path)
					pause(ctx, load.rest/2+rand.N(load.rest))
				}
			})
		}
	}
	workers.Wait()
	return look(w, site+"/weir/")
}

// serve listens until ctx ends, and a little longer for who looks at what was.
func serve(ctx context.Context, addr string, h http.Handler) (url string, err error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", err
	}
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(l) }()
	context.AfterFunc(ctx, func() {
		time.Sleep(2 * time.Second)
		_ = s.Close()
	})
	return "http://" + l.Addr().String(), nil
}

// misbehave is the API.
func misbehave(w http.ResponseWriter, r *http.Request) {
	switch now := time.Now(); r.URL.Path {
	case "/flaky": // has an outage of 3 s in each 8 s
		if now.Unix()%8 < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
	case "/limited":
		if rand.IntN(10) == 0 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
	case "/silent":
		<-r.Context().Done()
		return
	case "/chat":
		w.Header().Set("Content-Type", "text/event-stream")
		for range 5 + rand.IntN(20) {
			fmt.Fprint(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word \"}}]}\n\n")
			_ = http.NewResponseController(w).Flush()
			pause(r.Context(), rand.N(200*time.Millisecond))
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
		return
	}
	pause(r.Context(), 20*time.Millisecond+rand.N(200*time.Millisecond))
	fmt.Fprint(w, "fine")
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// call makes one call. What becomes of it is for the page to show.
func call(ctx context.Context, client *http.Client, url string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}

// link is that of a call that is kept.
var link = regexp.MustCompile(`<th scope="row"><a href="(calls/[^"]+)"`)

// look asks for each view, and says what it found there.
func look(w io.Writer, site string) error {
	var wrong []error
	call := "calls/none"
	for _, v := range []struct{ path, what string }{
		{"", "/flaky"}, {"", "quota"}, {"calls", "deadline exceeded"}, {"a call", "<svg"}, {"policy?url=http://api.example/chat", "stream"},
		{"distributions", "samples"},
	} {
		if v.path == "a call" {
			v.path = call
		}
		resp, err := http.Get(site + v.path)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			return err
		}
		if m := link.FindSubmatch(body); m != nil {
			call = string(m[1])
		}
		found := strings.Contains(string(body), v.what)
		fmt.Fprintf(w, "%-36s %s, %6d bytes, has %q: %v\n", "/weir/"+v.path, resp.Status, len(body), v.what, found)
		if !found {
			wrong = append(wrong, fmt.Errorf("/weir/%s does not show %q", v.path, v.what))
		}
	}
	return errors.Join(wrong...)
}
