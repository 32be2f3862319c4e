package page

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"strconv"
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
	// Recorder is another of its observers, and has the latencies. Nil: no distributions are shown.
	Recorder *derive.Recorder
	// Derive says how limits are derived from what the recorder has.
	Derive derive.Options
	// AllowControl lets the page force circuits open and closed.
	AllowControl bool
}

// Handler returns the page of a transport. It is safe for concurrent use, and
// keeps nothing running: what is live is so for as long as a viewer has it open.
// There may be 32 of them.
func Handler(t *transport.Transport, o Options) http.Handler {
	h := &handler{t: t, o: o, seats: make(chan struct{}, mostViewers)}
	if o.Watch != nil {
		o.Watch.watch(t)
	}
	mux := http.NewServeMux()
	for path, v := range views {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { h.show(w, r, v) })
	}
	mux.HandleFunc("GET /live/{view}", h.live)
	mux.HandleFunc("GET /distributions.svg", h.picture)
	mux.Handle("GET /assets/", http.FileServerFS(assets))
	mux.HandleFunc("POST /breakers", h.force)
	return guarded(mux)
}

type handler struct {
	t     *transport.Transport
	o     Options
	seats chan struct{}
}

//go:embed assets
var assets embed.FS

//go:embed templates
var files embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"brief": brief, "clock": clock, "label": label, "until": until, "spark": spark, "waterfall": waterfall,
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

func (h *handler) show(w http.ResponseWriter, r *http.Request, v view) {
	c := h.content(r, v)
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, "page.html", c); err != nil {
		http.Error(w, "the page cannot be shown", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if c.Data == nil {
		w.WriteHeader(http.StatusNotFound)
	}
	_, _ = b.WriteTo(w)
}

// guarded lets a browser do with the page only what the page is for.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "+
			"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// stateData is the view of what calls share.
type stateData struct {
	Budgets  []line[layers.BudgetStatus]
	Breakers []line[layers.BreakerStatus]
	Slots    []line[layers.SlotsStatus]
	Retries  []line[layers.RetryBudgetStatus]
}

// line is one state and how it went.
type line[T any] struct {
	State T
	Went  []float64
	Top   float64 // of the line that is drawn
}

// mostLines bounds each list: there may be 10,000 keys.
const mostLines = 100

func lines[T any](h *handler, list []T, name func(T) string, top func(T) float64) []line[T] {
	out := make([]line[T], 0, min(len(list), mostLines))
	for _, s := range list[:min(len(list), mostLines)] {
		l := line[T]{State: s, Top: top(s)}
		if h.o.Watch != nil {
			l.Went = h.o.Watch.went(name(s))
		}
		out = append(out, l)
	}
	return out
}

func (h *handler) state(*http.Request) any {
	var circuits []layers.BreakerStatus
	for _, b := range h.t.Breakers() {
		circuits = append(circuits, b.Status())
	}
	return stateData{
		Budgets:  lines(h, sorted(h.t.Budgets(), budgetName), budgetName, func(b layers.BudgetStatus) float64 { return float64(b.Burst) }),
		Breakers: lines(h, sorted(circuits, breakerName), breakerName, func(layers.BreakerStatus) float64 { return float64(layers.StateOpen) }),
		Slots:    lines(h, sorted(h.t.Slots(), slotsName), slotsName, func(s layers.SlotsStatus) float64 { return float64(s.Max) }),
		Retries:  lines(h, sorted(h.t.RetryBudgets(), retryName), retryName, func(layers.RetryBudgetStatus) float64 { return 3 }),
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
	d := policyData{Policy: h.t.Policy(), Method: r.FormValue("method"), URL: r.FormValue("url")}
	if d.Method == "" {
		d.Method = http.MethodGet
	}
	if d.URL == "" {
		return d
	}
	req, err := http.NewRequestWithContext(r.Context(), d.Method, d.URL, nil)
	if err != nil || req.URL.Host == "" {
		d.Wrong = "That is no method and URL of a request, such as GET and https://api.example/items."
		return d
	}
	e := h.t.Explain(req)
	d.Explanation = &e
	req.URL.User, req.URL.RawQuery, req.URL.Fragment = nil, "", "" // not to be passed on in a link
	d.URL = req.URL.String()
	return d
}

// callsData is the view of calls.
type callsData struct {
	Watched            bool
	Live, Failed, Slow []Call
	Route, Outcome     string // what is shown of them; empty: all
	Routes             []string
	Outcomes           []string
}

// outcomes are what calls can be filtered by.
var outcomes = []string{"failed", "answered", "given up", "status"}

func outcome(t layers.Trace) string {
	switch {
	case t.Abandoned:
		return "given up"
	case t.Err != nil:
		return "failed"
	case t.Status >= http.StatusBadRequest:
		return "status"
	}
	return "answered"
}

func (h *handler) calls(r *http.Request) any {
	d := callsData{Watched: h.o.Watch != nil, Route: r.FormValue("route"), Outcome: r.FormValue("outcome"), Outcomes: outcomes}
	for _, route := range h.t.Policy().Routes {
		d.Routes = append(d.Routes, label(route))
	}
	if !d.Watched {
		return d
	}
	of := func(list []Call, live bool) (out []Call) {
		for _, c := range list {
			if (d.Route == "" || c.Route == d.Route) && (d.Outcome == "" || !live && outcome(c.Trace) == d.Outcome) && len(out) < mostLines {
				out = append(out, c)
			}
		}
		return out
	}
	var live []Call
	for _, t := range h.o.Watch.tracer.Live() {
		live = append(live, Call{Trace: t})
	}
	failed, slow := h.o.Watch.last()
	d.Live, d.Failed, d.Slow = of(live, true), of(failed, false), of(slow, false)
	return d
}

func (h *handler) call(r *http.Request) any {
	if h.o.Watch == nil {
		return nil
	}
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil
	}
	c, ok := h.o.Watch.find(id)
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
	plan, err := derive.Derive(h.o.Recorder.Snapshot(), h.o.Derive)
	d.Plan = plan
	if err != nil {
		d.Wrong = err.Error()
	}
	return d
}

func (h *handler) picture(w http.ResponseWriter, r *http.Request) {
	if h.o.Recorder == nil {
		http.NotFound(w, r)
		return
	}
	snapshot := h.o.Recorder.Snapshot()
	plan, _ := derive.Derive(snapshot, h.o.Derive) // what could not be derived is not drawn
	if plan == nil {
		http.NotFound(w, r)
		return
	}
	svg, err := plan.Draw(snapshot)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "image/svg+xml")
	_, _ = w.Write(svg)
}
