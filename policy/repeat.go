package policy

import "net/http"

// Repeatable reports whether a request says that sending it twice does no more than
// sending it once: by its method, as RFC 9110 section 9.2.2 has it, or by the header
// that net/http goes by too. [Retry] can declare it of others.
func Repeatable(r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	_, key := r.Header["Idempotency-Key"]
	_, xkey := r.Header["X-Idempotency-Key"]
	return key || xkey
}
