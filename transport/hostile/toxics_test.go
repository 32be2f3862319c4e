package hostile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
)

// TestToxics puts a proxy before a good server, which does to the bytes what
// networks do.
func TestToxics(t *testing.T) {
	const its = "github.com/Shopify/toxiproxy/v2" // links do not always end with their proxy
	theirs := []goleak.Option{
		goleak.IgnoreAnyFunction(its + ".(*ToxicLink).read"), goleak.IgnoreAnyFunction(its + ".(*ToxicLink).write"),
		goleak.IgnoreAnyFunction(its + "/toxics.(*ToxicStub).Run"),
	}
	body := strings.Repeat("0123456789abcdef", 64<<10/16)
	framed := says(ok+fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body))+body, waits)
	closed := says(ok+"\r\n"+body, closes)
	proxies := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	for _, test := range []struct{ name, toxic, want string }{
		{"none", "", "200"},
		{"latency", `{"type":"latency","attributes":{"latency":1000}}`, "deadline"},
		{"jitter", `{"type":"latency","attributes":{"latency":1,"jitter":1}}`, "200"},
		{"latency of the request", `{"type":"latency","stream":"upstream","attributes":{"latency":1000}}`, "deadline"},
		{"bandwidth", `{"type":"bandwidth","attributes":{"rate":1}}`, "deadline"},
		{"bandwidth of the request", `{"type":"bandwidth","stream":"upstream","attributes":{"rate":0}}`, "deadline"},
		{"slow_close", `{"type":"slow_close","attributes":{"delay":1000}}`, "deadline"},
		{"timeout", `{"type":"timeout","attributes":{"timeout":0}}`, "deadline"},
		{"timeout that closes", `{"type":"timeout","attributes":{"timeout":20}}`, "error"},
		{"reset_peer", `{"type":"reset_peer","attributes":{"timeout":0}}`, "reset, error"},
		{"reset_peer late", `{"type":"reset_peer","attributes":{"timeout":20}}`, "reset, error"},
		{"slicer", `{"type":"slicer","attributes":{"average_size":100,"size_variation":50,"delay":10}}`, "200"},
		{"limit_data in the headers", `{"type":"limit_data","attributes":{"bytes":10}}`, "error, cut"},
		{"limit_data in the body", `{"type":"limit_data","attributes":{"bytes":1000}}`, "cut"},
		{"down", "", "refused"},
	} {
		t.Run(test.name, func(t *testing.T) {
			defer goleak.VerifyNone(t, append(theirs, goleak.IgnoreCurrent())...)
			serve := framed
			if test.name == "slow_close" {
				serve = closed
			}
			upstream := newServer(t, serve)
			defer upstream.stop()
			proxy := toxiproxy.NewProxy(proxies, "proxy", "127.0.0.1:0", upstream.Addr().String())
			if err := proxy.Start(); err != nil {
				t.Fatal(err)
			}
			defer proxy.Stop()
			if test.toxic != "" {
				if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(test.toxic)); err != nil {
					t.Fatal(err)
				}
			}
			if test.name == "down" {
				proxy.Stop()
			}
			meets(t, proxy.Listen, "/", test.want, 4, nil)
		})
	}
}
