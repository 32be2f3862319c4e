package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/weir-go/weir/route"
)

// An Explanation is what a policy means for one request.
type Explanation struct {
	// Method and URL are those of the request, without userinfo, query and
	// fragment.
	Method string `json:"method"`
	URL    string `json:"url"`
	// Route is the name of the most specific route, and Routes the patterns of
	// all that match, from general to specific.
	Route  string   `json:"route,omitempty"`
	Routes []string `json:"routes,omitempty"`
	// Refused is why the call would fail before anything is sent: a [ConfigError]
	// each. What follows is then what led to it.
	Refused []string `json:"refused,omitempty"`
	// Settings are those in effect. A section that is off has only its switch,
	// and what has neither a value nor a default is left out.
	Settings []Effective `json:"settings"`
	// Chain is the names of the layers, outermost first.
	Chain []string `json:"chain,omitempty"`
	// Timeline is the call at its longest: the server never answers, and each
	// backoff takes all it may. Nobody else draws on what calls share, which is as
	// it was before the first call, and a Rate.Cost is not asked. The request's
	// context may end it sooner.
	Timeline []Step `json:"timeline,omitempty"`
	// Advice is what is allowed, but perhaps not meant.
	Advice []string `json:"advice,omitempty"`
}

// Effective is a setting in effect.
type Effective struct {
	Field  string `json:"field"`  // its path in Go
	Value  string `json:"value"`  // as text; durations as "1m30s" or "off"
	Source string `json:"source"` // default, policy, route "its name", view or call
	Note   string `json:"note,omitempty"`
}

// A Step is one event of a timeline.
type Step struct {
	At   string `json:"at"` // since the call began
	What string `json:"what"`
}

// Explain tells what a line means for a request under the settings of a view
// and the override of a call, which may be nil. The chain is asked for the names
// of the layers unless the settings are refused. The number of connections that
// the base allows a host is 0 if it does not limit them.
func (l *Line) Explain(r *http.Request, view Settings, call *Override, chain func(*Resolved) []string, maxConnsPerHost int) Explanation {
	m, found := l.table.resolve(l.routes, view, call)
	e := Explanation{Method: cmp.Or(r.Method, http.MethodGet), URL: shown(cmp.Or(r.URL, new(url.URL)))}
	for _, l := range l.routes {
		e.Route = l.name
		e.Routes = append(e.Routes, l.pattern.String())
	}
	for r, v := range m.all() {
		if v.IsZero() || r.name != "Enabled" && !r.enabled(&m.Settings) {
			continue
		}
		s := Effective{Field: r.String(), Value: r.show(v), Source: m.source(r)}
		if found == nil && r.bounded && m.Deadline > 0 && v.Int() > int64(m.Deadline) && !m.outlasts(r) {
			s.Note = fmt.Sprintf("cut to the deadline, %v", m.Deadline)
		}
		e.Settings = append(e.Settings, s)
	}
	for _, f := range found {
		e.Refused = append(e.Refused, f.Error())
	}
	if found == nil {
		e.Chain = chain(m.resolved(l))
		a := advisor{merged: m, routes: l.table.routes, request: r, maxConns: maxConnsPerHost}
		a.advise()
		e.Timeline, e.Advice = a.timeline, a.advice
	}
	return e
}

// shown is a URL without what may be secret.
func shown(u *url.URL) string {
	s := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	if u.Opaque != "" {
		s.RawPath = route.Path(u)
		s.Path, _ = url.PathUnescape(s.RawPath) // of a malformed one, nothing is shown
	}
	return s.String()
}

// outlasts reports that a limit holds for a stream that is open, of which the deadline
// bounds only the opening.
func (m *merged) outlasts(r ref) bool {
	return m.Stream.Enabled == On && (r == attemptLimit || r == firstContent && m.Stream.Hold != On)
}

// source says which level a setting has its value from.
func (m *merged) source(r ref) string { return m.levels[m.from[r]].String() }

// String returns the explanation as text.
func (e Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", e.Method, e.URL)
	if e.Route == "" {
		b.WriteString("no route matches\n")
	} else {
		fmt.Fprintf(&b, "route %q, by the patterns %s\n", e.Route, strings.Join(e.Routes, " < "))
	}
	list(&b, "refused", "- ", e.Refused)
	var rows []string
	for _, s := range e.Settings {
		row := s.Field + "\t" + s.Value + "\t" + s.Source
		if s.Note != "" {
			row += "; " + s.Note
		}
		rows = append(rows, row)
	}
	list(&b, "settings", "", rows)
	if e.Chain != nil {
		list(&b, "chain", "", []string{strings.Join(e.Chain, " > ")})
	}
	rows = nil
	for _, s := range e.Timeline {
		rows = append(rows, s.At+"\t"+s.What)
	}
	list(&b, "if the server never answers", "", rows)
	list(&b, "advice", "- ", e.Advice)
	return b.String()
}

// list writes rows under a title, with their columns aligned.
func list(b *strings.Builder, title, bullet string, rows []string) {
	if len(rows) == 0 {
		return
	}
	b.WriteString("\n" + title + "\n")
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		_, _ = io.WriteString(w, "  "+bullet+row+"\n") // a Builder takes anything
	}
	_ = w.Flush()
}

// MarshalJSON returns the explanation as an object with one member a field, in
// their order.
func (e Explanation) MarshalJSON() ([]byte, error) {
	type plain Explanation // without this method
	return json.Marshal(plain(e))
}
