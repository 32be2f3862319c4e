package transport_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

func TestCheckRedirect(t *testing.T) {
	const secret = "s3cret"
	for name, hop := range map[string]struct {
		from, to string
		keeps    bool
		err      string
	}{
		"same origin":        {"https://a.example/x", "https://a.example:443/y", true, ""},
		"subdomain":          {"https://a.example/", "https://b.a.example/", false, ""},
		"other port":         {"http://a.example/", "http://a.example:8080/", false, ""},
		"other host":         {"https://a.example/", "https://b.example/", false, ""},
		"upgrade":            {"http://a.example/", "https://a.example/", false, ""},
		"downgrade":          {"https://a.example/", "http://a.example/", false, "https to http"},
		"userinfo elsewhere": {"https://a.example/", "https://user:pw@b.example/", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			via := request(t, t.Context(), "GET", hop.from, nil)
			req := request(t, t.Context(), "GET", hop.to, nil)
			headers := []string{"Authorization", "Cookie", "X-Api-Key", "X-Auth-Token", "Proxy-Authorization", "X-Amz-Security-Token"}
			for _, h := range headers {
				req.Header.Set(h, secret)
			}
			req.Header.Set("Accept", "*/*")
			err := transport.CheckRedirect(req, []*http.Request{via})
			if hop.err != "" {
				if err == nil || !strings.Contains(err.Error(), hop.err) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range headers {
				equal(t, "whether "+h+" is kept", req.Header.Get(h) != "", hop.keeps)
			}
			equal(t, "Accept", req.Header.Get("Accept"), "*/*")
			if !hop.keeps && req.URL.User != nil {
				t.Errorf("the userinfo is kept: %v", req.URL.User)
			}
		})
	}
}

func TestClientBoundsRedirects(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(302).Header("Location", "/again").Forever())
		_, err := newTransport(t, c, up, policy.Policy{}).Client().Get(url)
		if err == nil || !strings.Contains(err.Error(), "stopped after 10 redirects") {
			t.Errorf("got %v", err)
		}
		equal(t, "the number of sends", len(up.Requests()), 10)
	})
}
