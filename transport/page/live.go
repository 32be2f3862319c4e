package page

import (
	"bytes"
	"net/http"
	"strings"
	"time"
)

// mostViewers bounds how many look at the page live.
const mostViewers = 32

// patience is how long a viewer may take to read a change.
const patience = 5 * time.Second

// live sends the view anew, as server-sent events, for as long as it is open.
// It costs no call anything: a viewer that does not read is let go.
func (h *handler) live(w http.ResponseWriter, r *http.Request) {
	v, ok := map[string]view{"state": views["/{$}"], "calls": views["/calls"]}[r.PathValue("view")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	select {
	case h.seats <- struct{}{}:
		defer func() { <-h.seats }()
	default:
		http.Error(w, "too many viewers; reload the page instead", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	tick := h.t.Clock().Ticker(time.Second)
	defer tick.Stop()
	for {
		var b bytes.Buffer
		if err := templates.ExecuteTemplate(&b, v.name+".html", h.content(r, v)); err != nil {
			return
		}
		// Deadlines of a connection are by the machine's clock. Not every writer
		// has them.
		_ = out.SetWriteDeadline(time.Now().Add(patience)) //nolint:forbidigo // As said.
		var event bytes.Buffer
		for line := range strings.Lines(b.String()) {
			event.WriteString("data: " + strings.TrimRight(line, "\r\n") + "\n")
		}
		event.WriteString("\n")
		if _, err := w.Write(event.Bytes()); err != nil || out.Flush() != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}
