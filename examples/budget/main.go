// Budget runs eight workers against a loopback server that grants 40 requests a
// second and answers all others with 429. The workers know nothing of the
// quota; weir, between them and the server, does. When the program starts,
// somebody else has used the quota up, so that the first answers are 429s:
// their Retry-After pauses the budget, for all workers at once. It exits with
// status 1 if the server ever has to say 429 again.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"text/tabwriter"
	"time"

	"golang.org/x/time/rate"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

const (
	quota   = 40 // requests a second
	burst   = 10 // that the server takes at once
	pause   = time.Second
	workers = 8
	each    = 16 // calls of a worker
	slice   = 500 * time.Millisecond
)

var table = policy.Policy{
	Settings: policy.Settings{
		Deadline: 5 * time.Second,
		// A call that would have to wait longer for its turn is refused at
		// once, and told when to come back.
		Rate: policy.Rate{PerSecond: quota, Burst: burst / 2, MaxWait: 100 * time.Millisecond},
	},
}

func main() {
	again, err := run(context.Background(), os.Stdout)
	if err == nil && again > 0 {
		err = fmt.Errorf("the server had to say 429 %d more times after the pause", again)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "budget:", err)
		os.Exit(1)
	}
}

// run makes the calls and writes the report. again is how many 429s the server
// sent after the first pause was over.
func run(ctx context.Context, w io.Writer) (again int, err error) {
	api := newAPI()
	server := httptest.NewServer(api)
	defer server.Close()
	weir, err := transport.New(transport.Config{Policy: table})
	if err != nil {
		return 0, err
	}
	defer weir.CloseIdleConnections()

	var (
		group sync.WaitGroup
		mu    sync.Mutex
		total tally
	)
	for range workers {
		group.Go(func() {
			t := work(ctx, &http.Client{Transport: weir}, server.URL)
			mu.Lock()
			defer mu.Unlock()
			total.done += t.done
			total.refused += t.refused
			total.errs = append(total.errs, t.errs...)
		})
	}
	group.Wait()

	again = api.report(w)
	fmt.Fprintf(w, "\n%d calls of %d workers succeeded; %d times one was refused before it was sent, and came back\n", total.done, workers, total.refused)
	return again, errors.Join(total.errs...)
}

type tally struct {
	done, refused int
	errs          []error
}

// work makes the calls of one worker. It repeats what was refused once there
// is a turn for it.
func work(ctx context.Context, client *http.Client, url string) (t tally) {
	for t.done < each {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.errs = append(t.errs, err)
			return t
		}
		resp, err := client.Do(req)
		refused, ours := errors.AsType[*layers.Error](err)
		switch {
		case ours && refused.Phase == layers.PhaseRate && refused.Sent == layers.Unsent:
			t.refused++
			time.Sleep(refused.RetryAfter)
		case err != nil:
			t.errs = append(t.errs, err)
			return t
		default:
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				t.done++
			}
		}
	}
	return t
}

// api is a server with a quota.
type api struct {
	bucket *rate.Limiter

	mu    sync.Mutex
	start time.Time
	sends []send
}

type send struct {
	at      time.Duration
	refused bool
}

func newAPI() *api {
	a := &api{bucket: rate.NewLimiter(quota, burst), start: time.Now()}
	a.bucket.AllowN(a.start, burst) // somebody else was there before
	return a
}

func (a *api) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	now := time.Now()
	refused := !a.bucket.AllowN(now, 1)
	a.sends = append(a.sends, send{now.Sub(a.start), refused})
	a.mu.Unlock()
	if refused {
		w.Header().Set("Retry-After", fmt.Sprint(pause.Seconds()))
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

// report writes what the server got.
func (a *api) report(w io.Writer) (again int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	resumed := time.Duration(0) // when the first pause is over
	last := a.sends[len(a.sends)-1].at
	rows := make([]struct{ sends, refused int }, last/slice+1)
	for _, s := range a.sends {
		row := &rows[s.at/slice]
		row.sends++
		if s.refused {
			row.refused++
			if resumed == 0 {
				resumed = s.at + pause
			}
			if s.at >= resumed {
				again++
			}
		}
	}
	tab := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tab, "from\tsends/s\tquota/s\t429s\t")
	for i, row := range rows {
		fmt.Fprintf(tab, "%v\t%d\t%v\t%d\t\n", time.Duration(i)*slice, row.sends*int(time.Second/slice), quota, row.refused)
	}
	tab.Flush()
	fmt.Fprintf(w, "\n429s after the first pause: %d\n", again)
	return again
}
