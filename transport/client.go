package transport

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
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
// credentials on the origin that they were meant for, which http.Client extends
// to its subdomains and to any header that it does not know; it refuses a
// redirect from https to http; and it follows 10 redirects at most.
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
	if !sameOrigin(via[0].URL, req.URL) {
		for name := range req.Header {
			if credential(name) {
				delete(req.Header, name)
			}
		}
		req.URL.User = nil
	}
	return nil
}

// credentials are the names, or parts of names, of headers that authenticate.
var credentials = []string{"Authorization", "Authenticate", "Cookie", "Token", "Api-Key", "Apikey", "Secret", "Signature", "Credential", "Password"}

func credential(name string) bool {
	return slices.ContainsFunc(credentials, func(c string) bool {
		return strings.Contains(strings.ToLower(name), strings.ToLower(c))
	})
}

func sameOrigin(a, b *url.URL) bool {
	return strings.EqualFold(a.Scheme, b.Scheme) && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	switch p := u.Port(); {
	case p != "":
		return p
	case u.Scheme == "https":
		return "443"
	default:
		return "80"
	}
}
