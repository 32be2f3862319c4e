package policy

import "net/http"

// ByOrigin shares state among the requests to one scheme, host and port.
func ByOrigin(r *http.Request) string { return r.URL.Scheme + "://" + r.URL.Host }

// ByRoute shares state among all requests of a route.
func ByRoute(*http.Request) string { return "" }
