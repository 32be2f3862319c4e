// Kubernetes has client-go list, create and watch pods through weir, on a night
// on which its loopback server misbehaves: a watch that has died is noticed by
// its silence, and begun anew. The table shows what became of the calls. It exits
// with status 1 if that is not what should have.
//
// It is a module of its own, so that users of weir do not download the client.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	retrywatch "k8s.io/client-go/tools/watch"

	"github.com/weir-go/weir/examples/internal/night"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/stream"
	"github.com/weir-go/weir/transport"
)

var table = policy.Policy{
	Settings: policy.Settings{
		Deadline: 3 * time.Second,
		Timeouts: policy.Timeouts{Read: 500 * time.Millisecond},
		Retry:    policy.Retry{BaseDelay: 20 * time.Millisecond, Budget: policy.Off},
		Rate:     policy.Rate{PerSecond: 50, Burst: 100},
	},
	Routes: []policy.Route{{Pattern: "/", Name: "api"}},
}

// watching is what a watch has beside that. It goes on for as long as events or
// bookmarks come, which a server sends once a minute to those who ask: in earnest,
// the limits are a little over that. Its end, whenever, is a good one.
var watching = policy.Settings{Stream: policy.Stream{
	Enabled:        policy.On,
	FirstContent:   500 * time.Millisecond,
	Gap:            500 * time.Millisecond,
	Classify:       class,
	AllowTruncated: policy.On,
}}

// class takes a bookmark for content, as an event is.
func class(e stream.Event) stream.Class {
	if bytes.HasPrefix(e.Data, []byte(`{"type":"ERROR"`)) {
		return stream.Failure
	}
	return stream.Content
}

// connect returns a client of the cluster of config.
func connect(config *rest.Config, observer layers.Observer) (core.CoreV1Interface, error) {
	config.QPS = -1 // the client's own pace, 5 calls a second, in whose place is Rate
	config.Dial = layers.DialContext(new(net.Dialer).DialContext)
	base, err := rest.TransportFor(config) // which has the cluster's certificates, and sets tokens
	if err != nil {
		return nil, err
	}
	weir, err := transport.New(transport.Config{Base: base, Policy: table, Observer: observer})
	if err != nil {
		return nil, err
	}
	watches, err := weir.With(watching)
	if err != nil {
		return nil, err
	}
	// A watch has the path of a list, so that no route tells them apart. Its query
	// does.
	both := layers.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		if req.URL.Query().Get("watch") == "true" {
			return watches.RoundTrip(req)
		}
		return weir.RoundTrip(req)
	})
	client, err := core.NewForConfigAndClient(config, &http.Client{Transport: both})
	if err != nil {
		return nil, err
	}
	return core.New(once{client.RESTClient()}), nil
}

// once makes requests that client-go sends a single time. It would send each ten
// more times, whatever its method, if the last answer has a Retry-After, and has
// no setting for that.
type once struct{ rest.Interface }

func (c once) Verb(verb string) *rest.Request { return c.Interface.Verb(verb).MaxRetries(0) }
func (c once) Get() *rest.Request             { return c.Interface.Get().MaxRetries(0) }
func (c once) Post() *rest.Request            { return c.Interface.Post().MaxRetries(0) }
func (c once) Put() *rest.Request             { return c.Interface.Put().MaxRetries(0) }
func (c once) Delete() *rest.Request          { return c.Interface.Delete().MaxRetries(0) }

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "kubernetes:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer) error {
	const list = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`
	server := night.Serve(map[string][]http.HandlerFunc{
		"GET /api/v1/namespaces/full/pods": {night.Reply(429, "", "Retry-After", "1"), night.Reply(200, list)},
		"GET /api/v1/namespaces/mute/pods": {night.Silent, night.Reply(200, list)},
		"POST /api/v1/namespaces/off/pods": {night.Reply(503, "", "Retry-After", "1")},
		"GET /api/v1/namespaces/dead/pods": {
			tell(pod("ADDED", "one", 2), pod("BOOKMARK", "", 3), pod("BOOKMARK", "", 4)),
			night.Reply(503, ""),
			tell(pod("ADDED", "two", 5)),
		},
	})
	defer server.Close()
	watched := night.New()
	client, err := connect(&rest.Config{Host: server.URL}, watched)
	if err != nil {
		return err
	}

	pods := func(namespace string) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			list, err := client.Pods(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return "", err
			}
			return "a list as of " + list.ResourceVersion, nil
		}
	}
	return watched.Play(ctx, w, []night.Scene{
		{What: "a list, one call too many", Do: pods("full"), Sends: "api: 429 200", Waits: time.Second, Got: "as of 1"},
		{What: "a list, silence", Do: pods("mute"), Sends: "api: read timeout 200", Got: "as of 1"},
		{
			What: "a new pod, a 503",
			Do: func(ctx context.Context) (string, error) {
				_, err := client.Pods("off").Create(ctx, new(corev1.Pod), metav1.CreateOptions{})
				return "", err
			},
			Sends: "api: 503 (not safe)", Got: "unable to handle the request",
		},
		{
			What: "a watch that dies in silence, then a 503",
			Do: func(ctx context.Context) (string, error) {
				return names(ctx, client.Pods("dead"), 2)
			},
			Sends: "api: 200 gap timeout | api: 503 200", Got: "one two",
		},
	})
}

// names watches until it has seen so many pods. A RetryWatcher, as an informer
// does, begins a watch anew that has ended, from where it left off.
func names(ctx context.Context, pods core.PodInterface, n int) (string, error) {
	watcher, err := retrywatch.NewRetryWatcherWithContext(ctx, "1", &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return pods.Watch(ctx, options)
		},
	})
	if err != nil {
		return "", err
	}
	var seen []string
	for e := range watcher.ResultChan() {
		if pod, ok := e.Object.(*corev1.Pod); ok {
			seen = append(seen, pod.Name)
		}
		if len(seen) == n {
			watcher.Stop()
		}
	}
	return strings.Join(seen, " "), nil
}

func pod(event, name string, version int) string {
	return fmt.Sprintf(`{"type":%q,"object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"resourceVersion":"%d"}}}`, event, name, version) + "\n"
}

// tell sends events, and then nothing more.
func tell(events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for _, e := range events {
			_, _ = io.WriteString(w, e)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
			case <-time.After(150 * time.Millisecond):
			}
		}
		<-r.Context().Done()
	}
}
