package transport

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/weir-go/weir/policy"
)

// maxHops is how many redirects are followed, as http.Client does by default.
const maxHops = 10

var errDowngrade = errors.New("redirect from https to http refused")

// Client returns an http.Client over the transport, with [CheckRedirect]. Its
// Timeout is zero: the policy's deadline takes its place.
func (t *Transport) Client() *http.Client {
	return &http.Client{Transport: t, CheckRedirect: CheckRedirect}
}

// CheckRedirect is for the CheckRedirect of an http.Client. It keeps
// credentials on the origin that they were meant for: a request to another one
// keeps only headers that are known to hold none, where http.Client takes
// subdomains for the same and sends on what it does not know. It refuses a
// redirect from https to http, and follows 10 redirects at most.
func CheckRedirect(req *http.Request, via []*http.Request) error {
	if len(via) == 0 {
		return nil
	}
	if len(via) >= maxHops {
		return fmt.Errorf("stopped after %d redirects", maxHops)
	}
	if via[len(via)-1].URL.Scheme == "https" && req.URL.Scheme == "http" {
		return errDowngrade
	}
	if policy.ByOrigin(via[0]) != policy.ByOrigin(req) {
		for name := range req.Header {
			if !harmless[strings.ToLower(name)] {
				delete(req.Header, name)
			}
		}
		req.URL.User = nil
	}
	return nil
}

// harmless are the headers that hold no credentials. A Referer may, in its
// query.
var harmless = map[string]bool{
	"accept": true, "accept-charset": true, "accept-encoding": true, "accept-language": true,
	"cache-control": true, "pragma": true, "range": true, "user-agent": true,
	"content-type": true, "content-encoding": true, "content-language": true, "content-length": true,
	"if-match": true, "if-none-match": true, "if-modified-since": true, "if-unmodified-since": true, "if-range": true,
	"idempotency-key": true, "x-idempotency-key": true,
	"traceparent": true, "tracestate": true, "x-request-id": true,
}
