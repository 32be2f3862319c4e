package browser

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// proxy stands before a page, and does with what is live as it is told.
type proxy struct {
	http.Handler

	does atomic.Value // "pass", "keep": nothing comes through, "refuse"
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.URL.Path, "/live/") {
		if p.does.Load() == "refuse" {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w = kept{w, p, r.Context()}
	}
	p.Handler.ServeHTTP(w, r)
}

// kept is an answer of which nothing comes through while the proxy keeps it.
type kept struct {
	http.ResponseWriter

	by  *proxy
	ctx context.Context
}

func (k kept) Unwrap() http.ResponseWriter { return k.ResponseWriter }

func (k kept) Write(b []byte) (int, error) {
	if k.by.does.Load() != "pass" {
		<-k.ctx.Done()
		return 0, k.ctx.Err()
	}
	return k.ResponseWriter.Write(b)
}

// TestLost has the page say that it is not live, whatever it is that ended that, and
// go on as soon as it can.
func TestLost(t *testing.T) {
	s := newSite(t)
	to, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	to.Path = ""
	front := &proxy{Handler: httputil.NewSingleHostReverseProxy(to)}
	front.does.Store("pass")
	server := httptest.NewServer(front)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	ctx, _ := browse(t)
	says := func(want string) {
		t.Helper()
		var got string
		for range 200 {
			got = run(t, ctx, chromedp.Evaluate[string](`document.getElementById("pulse").textContent`))
			if strings.HasPrefix(got, want) {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Fatalf("it says %q, want %q", got, want)
	}
	open(t, ctx, server.URL+"/weir/")
	says("Live.")
	for _, does := range []string{"keep", "refuse"} {
		front.does.Store(does)
		if does == "refuse" {
			server.CloseClientConnections()
		}
		says("Not live")
		front.does.Store("pass")
		says("Live.")
	}
}
