package page

import (
	"bytes"
	"net/http"
	"sync"
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
	switch {
	case !ok:
		http.NotFound(w, r)
		return
	case r.Method != http.MethodGet: // HEAD is no way to end
		w.WriteHeader(http.StatusMethodNotAllowed)
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
	w.Header().Set("X-Accel-Buffering", "no") // a proxy is to pass it on as it comes
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // those of a server are for what ends; see write
	_ = out.SetWriteDeadline(time.Time{})
	down := h.servers.down(r)
	tick := h.t.Clock().Ticker(time.Second)
	defer tick.Stop()
	for {
		event, err := h.event(r, v)
		if err != nil || !h.write(w, event) {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		case <-down:
			return
		}
	}
}

// drawn is an event that was made for one viewer, and is good for others.
type drawn struct {
	at    time.Time
	bytes []byte
}

// fresh is for how long it is.
const fresh = 500 * time.Millisecond

// event makes a server-sent event, or takes one that another viewer has just
// been sent.
func (h *handler) event(r *http.Request, v view) ([]byte, error) {
	now, name := h.t.Clock().Now(), v.name+"?"+r.URL.RawQuery
	h.drawing.Lock()
	d := h.latest[name]
	h.drawing.Unlock()
	if d.bytes != nil && now.Sub(d.at) < fresh {
		return d.bytes, nil
	}
	_, html, err := h.draw(r, v, v.name+".html")
	if err != nil {
		return nil, err
	}
	d = drawn{now, framed(html)}
	h.drawing.Lock()
	if h.latest == nil || len(h.latest) >= mostViewers {
		h.latest = map[string]drawn{}
	}
	h.latest[name] = d
	h.drawing.Unlock()
	return d.bytes, nil
}

// framed makes a server-sent event of HTML. Whatever else ends a line there is
// visible by now.
func framed(html []byte) []byte {
	var b bytes.Buffer
	for line := range bytes.Lines(html) {
		b.WriteString("data: ")
		b.Write(bytes.TrimRight(line, "\n"))
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	return b.Bytes()
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
	_, err := bytes.NewReader(event).WriteTo(w)
	if err == nil {
		err = out.Flush()
	}
	if !late.Stop() {
		<-over // what it changes is the handler's no more
		return false
	}
	return err == nil
}

// servers knows which servers are being shut down: a server waits for those who
// look, who would look for ever.
type servers struct {
	mu  sync.Mutex
	all map[*http.Server]chan struct{}
}

// down is closed when the server of a request is shut down.
func (s *servers) down(r *http.Request) <-chan struct{} {
	server, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	down, known := s.all[server]
	if !known {
		down = make(chan struct{})
		if s.all == nil {
			s.all = map[*http.Server]chan struct{}{}
		}
		s.all[server] = down
		server.RegisterOnShutdown(sync.OnceFunc(func() { close(down) }))
	}
	return down
}
