package page

import "net/http"

var origins http.CrossOriginProtection

// force opens or closes a circuit, or lets it be. Only a form of this page may
// ask for it.
func (h *handler) force(w http.ResponseWriter, r *http.Request) {
	if !h.o.AllowControl {
		http.Error(w, "the page may not change anything here", http.StatusForbidden)
		return
	}
	if err := origins.Check(r); err != nil {
		http.Error(w, "the request comes from another site", http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 1<<16)
	name := r.PostFormValue("name")
	for _, b := range h.t.Breakers() {
		if breakerName(b.Status()) != name {
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
