package policy

import (
	"net/http"
	"reflect"
	"strings"
)

// ByOrigin shares state among the requests to one scheme, host and port. Case
// does not matter, a default port or an empty one equals none, and a dot at the end of
// the host says nothing.
func ByOrigin(r *http.Request) string {
	scheme, host := strings.ToLower(r.URL.Scheme), strings.ToLower(r.URL.Host)
	switch scheme {
	case "http":
		host = strings.TrimSuffix(host, ":80")
	case "https":
		host = strings.TrimSuffix(host, ":443")
	}
	host = strings.TrimSuffix(strings.TrimSuffix(host, ":"), ".")
	host = strings.Replace(host, ".:", ":", 1)
	return scheme + "://" + host
}

// ByRoute shares state among the requests of one route, and gives each route
// state of its own: that of the most specific pattern that a request matches.
//
// A key function sees only the request, and routes are a matter of the table
// that it is looked up in, so ByRoute is a mark: [Line.Resolve] puts a function
// in its place that returns the pattern. Called itself, it knows no route and
// returns "".
func ByRoute(*http.Request) string { return "" }

// same reports whether two key functions are the same declared function.
func (k KeyFunc) same(o KeyFunc) bool {
	return reflect.ValueOf(k).Pointer() == reflect.ValueOf(o).Pointer()
}
