package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"golang.org/x/time/rate"
)

// api grants the quota, and answers what is beyond it with 429.
type api struct {
	bucket *rate.Limiter
	start  time.Time

	mu    sync.Mutex
	sends []send
}

type send struct {
	at      time.Duration
	process string
	refused bool
}

func newAPI() *api { return &api{bucket: rate.NewLimiter(quota, burst), start: time.Now()} }

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	now := time.Now()
	refused := !a.bucket.AllowN(now, 1)
	a.sends = append(a.sends, send{now.Sub(a.start), r.Header.Get("Process"), refused})
	a.mu.Unlock()
	if refused {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

// awaitAll waits until every process has called, and begins to count anew.
func (a *api) awaitAll(ctx context.Context) error {
	for seen := map[string]bool{}; len(seen) < fleet; {
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
		a.mu.Lock()
		for _, s := range a.sends {
			seen[s.process] = true
		}
		a.mu.Unlock()
	}
	a.mu.Lock()
	a.sends, a.start = nil, time.Now()
	a.mu.Unlock()
	return nil
}

// report writes what the API got, second by second, and judges it.
func (a *api) report(w io.Writer, acts []act) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	end := acts[len(acts)-1].to
	type row struct {
		sends, refused int
		by             [fleet]int
	}
	rows := make([]row, int(end/time.Second))
	for _, s := range a.sends {
		at := int(s.at / time.Second)
		if at >= len(rows) {
			break
		}
		r := &rows[at]
		r.sends++
		if s.refused {
			r.refused++
		}
		if i := strings.Index("1234", s.process); i >= 0 {
			r.by[i]++
		}
	}
	tab := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tab, "\nsecond\tsends\tquota\t429s\tprocess 1\t2\t3\t4\t")
	next := 0
	for i, r := range rows {
		var what []string
		for ; next < len(acts) && acts[next].from < time.Duration(i+1)*time.Second; next++ {
			what = append(what, acts[next].what)
		}
		fmt.Fprintf(tab, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t  %s\n", i, r.sends, quota, r.refused, r.by[0], r.by[1], r.by[2], r.by[3], strings.Join(what, ", "))
	}
	tab.Flush()
	return errors.Join(a.exceeded(w), a.unused(w, acts))
}

var (
	errExceeded = errors.New("the quota was exceeded")
	errUnused   = errors.New("of the quota was used")
)

// exceeded looks for the second, wherever it begins, with the most sends.
func (a *api) exceeded(w io.Writer) error {
	most, from, refused := 0, 0, 0
	for to, s := range a.sends {
		for s.at-a.sends[from].at >= time.Second {
			from++
		}
		most = max(most, to-from+1)
		if s.refused {
			refused++
		}
	}
	fmt.Fprintf(w, "\nat most %d sends in any second, of a quota of %d and a burst of %d; %d times 429\n", most, quota, burst, refused)
	if most > quota+burst {
		return fmt.Errorf("%w: %d sends in a second", errExceeded, most)
	}
	return nil
}

// unused looks for quota that was left. After each change there is a while to
// get over it, and what is left of an act says nothing if it is short.
func (a *api) unused(w io.Writer, acts []act) (err error) {
	for _, act := range acts {
		from := act.from + max((act.to-act.from)/4, 2*time.Second)
		if act.to-from < time.Second {
			continue
		}
		n := 0
		for _, s := range a.sends {
			if s.at >= from && s.at < act.to && !s.refused {
				n++
			}
		}
		used := float64(n) / (quota * (act.to - from).Seconds())
		fmt.Fprintf(w, "%s: %.0f %% of the quota was used\n", act.what, 100*used)
		if act.healthy && used < 0.9 {
			err = errors.Join(err, fmt.Errorf("%s: %.0f %% %w", act.what, 100*used, errUnused))
		}
	}
	return err
}
