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
	tick := h.t.Clock().Ticker(time.Second)
	defer tick.Stop()
	for {
		var event bytes.Buffer
		if err := h.event(&event, v, r); err != nil || !h.write(w, event.Bytes()) {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

// event writes the view as a server-sent event.
func (h *handler) event(to *bytes.Buffer, v view, r *http.Request) error {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, v.name+".html", h.content(r, v)); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		to.WriteString("data: " + strings.TrimRight(line, "\r\n") + "\n")
	}
	to.WriteString("\n")
	return nil
}

// write reports whether the viewer took an event in time. The time is the
// transport's clock's: when it is over, the deadline of the connection is one
// that has long passed.
func (h *handler) write(w http.ResponseWriter, event []byte) bool {
	out := http.NewResponseController(w)
	over := make(chan struct{})
	late := h.t.Clock().AfterFunc(patience, func() {
		defer close(over)
		_ = out.SetWriteDeadline(time.Unix(1, 0)) // not every writer has one
	})
	_, err := w.Write(event)
	if err == nil {
		err = out.Flush()
	}
	if !late.Stop() {
		<-over // what it changes is the handler's no more
		return false
	}
	return err == nil
}
