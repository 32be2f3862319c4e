package page

import (
	"net"
	"net/http"
	"slices"
	"strings"
)

// named reports that a request is for a host that the page has by its options.
func (h *handler) named(host string) bool {
	return slices.ContainsFunc(h.o.Hosts, func(name string) bool { return strings.EqualFold(name, host) })
}

// mayControl says why a request may not change anything; empty: it may.
func (h *handler) mayControl(r *http.Request) string {
	switch {
	case !h.o.AllowControl:
		return "the page may not change anything here"
	case h.origins.Check(r) != nil:
		return "the request comes from another site"
	case len(h.o.Hosts) == 0 && !byAddress(r.Host):
		// That a site's name leads here, and its origin is ours by that, is no proof.
		return "to change anything under this host, it has to be one of page.Options.Hosts"
	}
	return ""
}

// byAddress reports that a host is named in a way that no foreign site's name is.
func byAddress(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || net.ParseIP(name) != nil
}

// force opens or closes a circuit, or lets it be. Only a form of this page may
// ask for it.
func (h *handler) force(w http.ResponseWriter, r *http.Request) {
	if why := h.mayControl(r); why != "" {
		http.Error(w, why, http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 1<<12)
	name := r.PostFormValue("name")
	for _, b := range h.t.Breakers() {
		if h.idOf(circuit{b.Status()}) != name {
			continue
		}
		switch r.PostFormValue("to") {
		case "open":
			b.ForceOpen()
		case "closed":
			b.ForceClosed()
		case "auto":
			b.Auto()
		default:
			http.Error(w, "to is open, closed or auto", http.StatusBadRequest)
			return
		}
		w.Header().Set("Location", "./") // http.Redirect knows nothing of where the page is mounted
		w.WriteHeader(http.StatusSeeOther)
		return
	}
	http.Error(w, "there is no such circuit any more", http.StatusNotFound)
}
