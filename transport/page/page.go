package page

import (
	"bytes"
	"crypto/rand"
	"embed"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
	"github.com/weir-go/weir/transport/derive"
)

// Options say what a page shows besides the policy and the state that calls
// share. The zero value shows no more.
type Options struct {
	// Watch is the transport's observer, or one of its observers. Nil: no calls
	// are shown, and no lines of the last minutes.
	Watch *Watch
	// Recorder is another of its observers, and has the latencies. Nil: no
	// distributions are shown.
	Recorder *derive.Recorder
	// Derive says how limits are derived from what the recorder has. Without
	// Present, the policy's settings are the present ones.
	Derive derive.Options
	// AllowControl lets the page force circuits open and closed. False: it changes
	// nothing.
	AllowControl bool
	// Hosts are the names by which browsers reach the page, with the port unless
	// it is the usual one, such as "ops.example" or "ops.example:8080"; behind a
	// proxy that changes the Host of requests, that name too. A request for
	// another host is refused, so that a site whose name leads here sees nothing.
	// Without any, all hosts may look, and control is for those who name the
	// machine by its address or as localhost.
	Hosts []string
	// ShowKeys shows the keys of budgets, circuits and slots as a function of the
	// policy made them. They may hold what they were made from, such as a header:
	// without it, only origins and patterns are shown, and a name in the place of
	// any other key. Those are not the same in another process.
	ShowKeys bool
}

// Handler returns the page of a transport. It is safe for concurrent use, and
// keeps nothing running: what is live is so for as long as a viewer has it open.
// There may be 32 viewers at once; further ones see the page as of its loading.
func Handler(t *transport.Transport, o Options) http.Handler {
	h := &handler{t: t, o: o, seats: make(chan struct{}, mostViewers)}
	_, _ = rand.Read(h.salt[:])
	if o.Watch != nil {
		o.Watch.watch(t)
		h.watching = o.Watch.on.Load()
	}
	for _, host := range o.Hosts {
		for _, scheme := range []string{"http://", "https://"} {
			_ = h.origins.AddTrustedOrigin(scheme + host) // what is no host is never that of a request
		}
	}
	mux := http.NewServeMux()
	for path, v := range views {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { h.show(w, r, v) })
	}
	mux.HandleFunc("GET /live/{view}", h.live)
	mux.HandleFunc("GET /distributions.svg", h.picture)
	mux.Handle("GET /assets/{file}", http.FileServerFS(assets))
	mux.HandleFunc("POST /breakers", h.force)
	return h.guarded(mux)
}

type handler struct {
	t        *transport.Transport
	o        Options
	watching *watching // nil: calls are not watched
	salt     [16]byte  // of names that stand for others
	origins  http.CrossOriginProtection
	seats    chan struct{}
	drawing  sync.Mutex // however many look, one view is made at a time
	latest   map[string]drawn
	servers  servers
}

//go:embed assets
var assets embed.FS

//go:embed templates
var files embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"brief": brief, "clock": clock, "label": label, "until": until, "waterfall": waterfall, "text": shown,
}).ParseFS(files, "templates/*.html"))

// view is one part of the page.
type view struct {
	name, title string
	data        func(h *handler, r *http.Request) any
}

// views are the parts, by path below the place where the page is mounted.
var views = map[string]view{
	"/{$}":           {"state", "State", (*handler).state},
	"/policy":        {"policy", "Policy", (*handler).policy},
	"/calls":         {"calls", "Calls", (*handler).calls},
	"/calls/{id}":    {"call", "Call", (*handler).call},
	"/distributions": {"distributions", "Distributions", (*handler).distributions},
}

// content is what a template gets.
type content struct {
	View, Title string
	Up          string // the way to the root of the page, from this view
	Live        string // where the view's changes come from; empty: it has none
	Control     bool
	Now         time.Time
	Data        any
}

// elsewhere is what a view has if it is to be asked for otherwise.
type elsewhere string

func (h *handler) content(r *http.Request, v view) content {
	c := content{View: v.name, Title: v.title, Control: h.o.AllowControl, Now: h.t.Clock().Now(), Data: v.data(h, r)}
	if v.name == "call" {
		c.Up = "../"
	}
	if v.name == "state" || v.name == "calls" {
		c.Live = "live/" + v.name
		if q := r.URL.RawQuery; q != "" {
			c.Live += "?" + q
		}
	}
	return c
}

// draw executes a template with the data of a view, to the bytes that are sent.
func (h *handler) draw(r *http.Request, v view, template string) (c content, html []byte, err error) {
	h.drawing.Lock()
	defer h.drawing.Unlock()
	c = h.content(r, v)
	if _, not := c.Data.(elsewhere); not {
		return c, nil, nil
	}
	var b bytes.Buffer
	err = templates.ExecuteTemplate(&b, template, c)
	return c, visible(b.Bytes()), err
}

func (h *handler) show(w http.ResponseWriter, r *http.Request, v view) {
	c, html, err := h.draw(r, v, "page.html")
	if to, ok := c.Data.(elsewhere); ok {
		w.Header().Set("Location", string(to))
		w.WriteHeader(http.StatusSeeOther)
		return
	}
	if err != nil {
		http.Error(w, "the page cannot be shown", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if c.Data == nil {
		w.WriteHeader(http.StatusNotFound)
	}
	_, _ = bytes.NewReader(html).WriteTo(w)
}

// guarded lets a browser do with the page only what the page is for.
func (h *handler) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "+
			"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "same-origin") // with none, forms have no origin
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		at := asked(r)
		p := r.URL.Path
		if p != "" || strings.HasSuffix(at, "/") {
			p = "/" + strings.TrimPrefix(p, "/") // a prefix may have been stripped with its slash
		}
		switch {
		case len(h.o.Hosts) > 0 && !h.named(r.Host):
			http.Error(w, "the page is not to be seen under this host: see page.Options.Hosts", http.StatusMisdirectedRequest)
		case p == "" && path.Clean(at) == at: // it lacks the slash
			w.Header().Set("Location", (&url.URL{Path: "./" + path.Base(at) + "/"}).String())
			w.WriteHeader(http.StatusSeeOther)
		case path.Clean(p) != p: // a mux would lead to where it thinks that it is mounted
			http.NotFound(w, r)
		case p != r.URL.Path:
			rooted := *r
			rooted.URL = &url.URL{Path: p, RawQuery: r.URL.RawQuery}
			next.ServeHTTP(w, &rooted)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// asked is the path that was asked for, before any prefix was stripped from it;
// empty: it is not known.
func asked(r *http.Request) string {
	u, err := url.ParseRequestURI(r.RequestURI)
	if err != nil {
		return ""
	}
	return u.Path
}

// stateData is the view of what calls share.
type stateData struct {
	Circuits, Budgets, Slots, Retries rows
}

// rows are the rows of a table.
type rows struct {
	List []row
	More int
}

// row is one state and how it went.
type row struct {
	State numbered
	Key   string
	ID    string
	Line  *sparkline
}

func rowsOf[N numbered](h *handler, now time.Time, patterns map[string]bool, p part[N]) rows {
	r := rows{More: p.More}
	for _, s := range p.Shown {
		row := row{State: s, ID: h.idOf(s)}
		row.Key = h.keyOf(s, row.ID, patterns)
		if h.watching != nil {
			row.Line = spark(h.watching.lines.went(nameOf(h.t, s), now), s.top())
		}
		r.List = append(r.List, row)
	}
	return r
}

func (h *handler) state(*http.Request) any {
	now := h.t.Clock().Now()
	if w := h.watching; w != nil && w.lines.due(now.UnixNano()) {
		w.rest(now)
	}
	patterns := map[string]bool{"": true}
	for _, r := range h.t.Policy().Routes {
		patterns[r.Pattern] = true
	}
	s := stateOf(h.t)
	return stateData{
		Circuits: rowsOf(h, now, patterns, s.Circuits), Budgets: rowsOf(h, now, patterns, s.Budgets),
		Slots: rowsOf(h, now, patterns, s.Slots), Retries: rowsOf(h, now, patterns, s.Retries),
	}
}

// policyData is the view of the policy, and of what it means for a request.
type policyData struct {
	Policy      policy.Policy
	Method, URL string
	Explanation *policy.Explanation // nil: nothing was asked
	Wrong       string              // with what was asked
}

func (h *handler) policy(r *http.Request) any {
	asked := r.URL.Query()
	d := policyData{Policy: h.t.Policy(), Method: asked.Get("method"), URL: asked.Get("url")}
	if d.Method == "" {
		d.Method = http.MethodGet
	}
	if d.URL == "" {
		return d
	}
	req, err := http.NewRequestWithContext(r.Context(), d.Method, d.URL, nil)
	if err != nil || req.URL.Host == "" {
		d.Method, d.URL = http.MethodGet, "" // which may hold anything
		d.Wrong = "That is no method and URL of a request, such as GET and https://api.example/items."
		return d
	}
	if u := req.URL; u.User != nil || u.RawQuery != "" || u.Fragment != "" { // not to be passed on in a link
		u.User, u.RawQuery, u.Fragment, u.RawFragment = nil, "", "", ""
		return elsewhere("policy?" + url.Values{"method": {d.Method}, "url": {u.String()}}.Encode())
	}
	e := h.t.Explain(req)
	d.Explanation = &e
	return d
}

// callsData is the view of calls.
type callsData struct {
	Watched            bool
	Live, Failed, Slow callList
	Route, Outcome     string // what is shown of them; empty: all
	Routes             []string
	Outcomes           []string
}

// callList is the first of some calls, and how many there are beyond.
type callList struct {
	List []call
	More int
}

// outcomes are what calls can be filtered by.
var outcomes = []string{"failed", "answered", "given up", "status"}

// noRoute stands for the calls that no route matches.
const noRoute = "(none)"

func outcome(t *layers.Trace) string {
	switch {
	case givenUp(t):
		return "given up"
	case t.Err != nil:
		return "failed"
	case t.Status >= http.StatusBadRequest: // of which many callers want no more
		return "status"
	case t.Abandoned:
		return "given up"
	}
	return "answered"
}

func (h *handler) calls(r *http.Request) any {
	asked := r.URL.Query()
	d := callsData{Watched: h.watching != nil, Route: asked.Get("route"), Outcome: asked.Get("outcome"), Routes: []string{noRoute}, Outcomes: outcomes}
	for _, route := range h.t.Policy().Routes {
		d.Routes = append(d.Routes, label(route))
	}
	if !d.Watched {
		return d
	}
	of := func(list []layers.Trace, live bool) (out callList) {
		for _, t := range list {
			switch {
			case d.Route != "" && t.Route != d.Route && (d.Route != noRoute || t.Route != ""):
			case d.Outcome != "" && (live || outcome(&t) != d.Outcome):
			case len(out.List) == mostLines:
				out.More++
			default:
				out.List = append(out.List, h.watching.call(t))
			}
		}
		return out
	}
	failed, slow := h.watching.kept.last()
	d.Live, d.Failed, d.Slow = of(h.watching.tracer.Live(), true), of(failed, false), of(slow, false)
	return d
}

func (h *handler) call(r *http.Request) any {
	if h.watching == nil {
		return nil
	}
	c, ok := h.watching.find(r.PathValue("id"))
	if !ok {
		return nil
	}
	return &c
}

// distributionsData is the view of latencies and their limits.
type distributionsData struct {
	Recorded bool
	Plan     *derive.Plan
	Wrong    string
}

func (h *handler) distributions(*http.Request) any {
	d := distributionsData{Recorded: h.o.Recorder != nil}
	if !d.Recorded {
		return d
	}
	plan, err := h.derive(h.o.Recorder.Snapshot())
	d.Plan = plan
	if err != nil {
		d.Wrong = err.Error()
	}
	return d
}

func (h *handler) derive(s *derive.Snapshot) (*derive.Plan, error) {
	o := h.o.Derive
	if o.Present == nil {
		o.Present = present(h.t.Policy())
	}
	return derive.Derive(s, o)
}

func (h *handler) picture(w http.ResponseWriter, _ *http.Request) {
	svg, err := h.paint()
	if err != nil {
		http.Error(w, "404 "+err.Error(), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "image/svg+xml")
	_, _ = w.Write(svg)
}

// paint draws the distributions. Like a view, the picture is made before the first
// byte of it is sent: one who reads slowly keeps nobody else waiting.
func (h *handler) paint() ([]byte, error) {
	if h.o.Recorder == nil {
		return nil, errors.New("latencies are not recorded")
	}
	h.drawing.Lock()
	defer h.drawing.Unlock()
	snapshot := h.o.Recorder.Snapshot()
	plan, err := h.derive(snapshot)
	if plan == nil { // else what could not be derived is not drawn
		return nil, err
	}
	return plan.Draw(snapshot)
}
