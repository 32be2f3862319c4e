package layers

import "net/http"

// hopBefore returns the request whose answer redirected to req. Only http.Client
// sets Request.Response, to that answer. req may follow a redirect although there is
// no such request: a base that answers without one hides it.
func hopBefore(req *http.Request) (prev *http.Request, hop bool) {
	if req.Response == nil {
		return nil, false
	}
	return req.Response.Request, true
}

// firstHop follows redirects back. It returns nil if they cannot be followed: a
// base, or a layer of the user's, may answer with a request of its own making,
// which knows of no redirect before it.
func firstHop(req *http.Request) *http.Request {
	stacked := attemptFrom(req.Context()) != nil
	for {
		prev, hop := hopBefore(req)
		if !hop {
			return req
		}
		if prev == nil {
			return nil
		}
		if _, more := hopBefore(prev); stacked && !more {
			a := attemptFrom(prev.Context())
			if a == nil {
				return nil
			}
			if _, more = hopBefore(&a.call.first.req); more {
				return nil
			}
		}
		req = prev
	}
}

// keepsMethod reports a redirect by which a server says that it has done nothing yet:
// the same is to be asked of another. After any other, it is the answer that is found
// elsewhere.
func keepsMethod(resp *http.Response) bool {
	return resp.StatusCode == http.StatusTemporaryRedirect || resp.StatusCode == http.StatusPermanentRedirect
}

// keepHops sees to it that a hop after the response can be followed back to req.
func keepHops(req *http.Request, resp *http.Response) {
	if resp.Request == nil || resp.Request.Response != req.Response {
		resp.Request = req
	}
}
