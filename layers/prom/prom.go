// Package prom counts what a weir stack does, as Prometheus metrics.
//
// It is a module of its own, so that users of weir do not download the
// Prometheus client unless they use it.
//
//	m := prom.New()
//	t, err := transport.New(transport.Config{Policy: p, Observer: m})
//	...
//	m.Watch(t)
//	prometheus.MustRegister(m)
//
// Labels are the names of routes and the patterns of the policy, and never a
// URL, so that there are no more of them than there are lines in the policy.
package prom

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/transport"
)

// Metrics is an observer of calls and a collector of metrics, of any number of
// transports. [New] makes one: the zero value is of no use. It is safe for concurrent
// use.
//
// The names begin with weir_, and times are in seconds:
//
//   - calls_total by route and outcome: see below
//   - call_seconds by route: calls, their bodies included
//   - calls_in_flight by route
//   - sends_total by route and outcome; a retry, a hedge and each redirect is one
//   - wait_seconds by route and by what was waited for: rate, in-flight, backoff
//   - phase_seconds by route and phase: pool, connect, write, read
//   - first_content_seconds by route: of streams, since they were sent
//   - refusals_total by route and reason: what a limit refused, a call or a send
//   - breaker_changes_total by route and state
//
// and, of the transports that it watches, by the pattern whose state it is:
//
//   - breakers by state: closed, half-open, open
//   - budget_level: the turns that are there, of the key that has the fewest
//   - budget_waiting, budgets_paused
//   - slots_max, slots_used, slots_waiting
//   - retry_budget_level, of the origin that has the least
//
// The outcome says how a call or a send failed or was left, whatever its status. Of all
// others it is the class of the status, such as 2xx, other for a number that is none,
// and none where there is none.
//
//   - canceled: by its caller
//   - deadline: that of the policy, of the job or of the caller's context passed
//   - timeout: another limit passed, such as one of a phase or of a stream, or one of
//     what is below
//   - refused: of a call, nothing was sent, for whatever reason but its deadline and
//     its caller, such as a token that could not be made
//   - abandoned: of a call, its caller closed the body early, but for an answer of 400
//     and above, of which many callers want no more than the status; of a send,
//     another was faster
//   - error: otherwise, also what somebody else has canceled
type Metrics struct {
	layers.Observer

	calls, sends, refusals, changes *prometheus.CounterVec
	took, waits, phases, first      *prometheus.HistogramVec
	flying                          *prometheus.GaugeVec
	vectors                         []prometheus.Collector

	mu      sync.Mutex
	watched []*transport.Transport
}

// Buckets are the bounds of all histograms, in seconds: from a pooled connection
// to a long stream. [New] reads them, and they must not change meanwhile.
var Buckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

// New returns metrics that have counted nothing. A registry takes one of them.
func New() *Metrics {
	m := &Metrics{}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "weir", Name: name, Help: help}, labels)
		m.vectors = append(m.vectors, v)
		return v
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "weir", Name: name, Help: help, Buckets: Buckets}, labels)
		m.vectors = append(m.vectors, v)
		return v
	}
	m.calls = counter("calls_total", "Calls that ended, their bodies included.", "route", "outcome")
	m.sends = counter("sends_total", "Sends: first ones, retries, hedges and redirects.", "route", "outcome")
	m.refusals = counter("refusals_total", "Calls and sends that a limit refused.", "route", "reason")
	m.changes = counter("breaker_changes_total", "Changes of the state of circuits.", "route", "state")
	m.took = histogram("call_seconds", "How long calls took, their bodies included.", "route")
	m.waits = histogram("wait_seconds", "How long calls waited, by what for.", "route", "phase")
	m.phases = histogram("phase_seconds", "How long the phases of sends took.", "route", "phase")
	m.first = histogram("first_content_seconds", "How long streams took to their first content.", "route")
	m.flying = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "weir", Name: "calls_in_flight", Help: "Calls under way, their bodies included.",
	}, []string{"route"})
	m.vectors = append(m.vectors, m.flying)
	m.Observer = layers.Observers(layers.NewTracer(m.ended), layers.ObserverFunc(m.happened))
	return m
}

// Wants asks for the ends of waits too; see [layers.Observer].
func (m *Metrics) Wants(k layers.Kind) bool { return layers.Wants(m.Observer, k) }

// Watch adds the shared state of a transport to what is collected, once and for good.
// A view's is that of the transport which it comes from: watch one of them alone.
func (m *Metrics) Watch(t *transport.Transport) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(m.watched, t) {
		m.watched = append(m.watched, t)
	}
}

// happened counts what is counted when it happens.
func (m *Metrics) happened(_ context.Context, e layers.Event) {
	switch e.Kind {
	case layers.KindStart:
		m.flying.WithLabelValues(e.Route).Inc()
	case layers.KindEnd:
		m.flying.WithLabelValues(e.Route).Dec()
	case layers.KindBreaker:
		m.changes.WithLabelValues(e.Route, e.State.String()).Inc()
	case layers.KindRefused:
		m.refusals.WithLabelValues(e.Route, reason(e)).Inc()
	case layers.KindContent:
		m.first.WithLabelValues(e.Route).Observe(e.Wait.Seconds())
	}
}

// reason is why a limit refused: one of the constants of package layers.
func reason(e layers.Event) string {
	if err, ok := errors.AsType[*layers.Error](e.Err); ok && err.Reason != "" {
		return err.Reason
	}
	return string(e.Phase)
}

// ended counts what is known at the end of a call.
func (m *Metrics) ended(_ context.Context, t layers.Trace) {
	sent := slices.ContainsFunc(t.Spans, func(s layers.Span) bool { return s.Kind == layers.KindSend })
	m.calls.WithLabelValues(t.Route, outcome(t.Status, t.Err, sent, t.Abandoned)).Inc()
	m.took.WithLabelValues(t.Route).Observe(t.End.Sub(t.Start).Seconds())
	for _, s := range t.Spans {
		switch s.Kind {
		case layers.KindSend:
			m.sends.WithLabelValues(t.Route, outcome(s.Status, s.Err, true, t.Abandoned && s.Err != nil)).Inc()
		case layers.KindPhase:
			m.phases.WithLabelValues(t.Route, string(s.Phase)).Observe(s.End.Sub(s.Start).Seconds())
		case layers.KindWait:
			m.waits.WithLabelValues(t.Route, string(s.Phase)).Observe(s.End.Sub(s.Start).Seconds())
		}
	}
}

// outcome is one of a few words. An error is the caller's own if it has abandoned
// the call.
func outcome(status int, err error, sent, abandoned bool) string {
	ours, ok := errors.AsType[*layers.Error](err)
	timeout, _ := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	switch {
	case abandoned && errors.Is(err, context.Canceled):
		return "canceled"
	case ok && ours.Phase == layers.PhaseDeadline, !ok && abandoned && errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	case ok && !sent:
		return "refused"
	case errors.Is(err, layers.ErrOutrun):
		return "abandoned"
	case timeout != nil && timeout.Timeout():
		return "timeout"
	case err != nil:
		return "error"
	case abandoned && status < http.StatusBadRequest:
		return "abandoned"
	case status == 0:
		return "none"
	case status < 100 || status > 599:
		return "other"
	}
	return strconv.Itoa(status/100) + "xx"
}

// The metrics of shared state, which are read when they are collected.
var (
	breakers      = desc("breakers", "Circuits in use, by state.", "state")
	budgetLevel   = desc("budget_level", "Turns that are there, of the key that has the fewest.", "pattern", "budget")
	budgetWaiting = desc("budget_waiting", "Sends that wait for a turn.", "pattern", "budget")
	budgetsPaused = desc("budgets_paused", "Keys of a budget that a server has paused.", "pattern", "budget")
	slotsMax      = desc("slots_max", "Slots of the in-flight limits in use.", "pattern")
	slotsUsed     = desc("slots_used", "Slots that are taken.", "pattern")
	slotsWaiting  = desc("slots_waiting", "Sends that wait for a slot.", "pattern")
	retryLevel    = desc("retry_budget_level", "Further sends that the origin with the fewest is good for.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("weir_"+name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, v := range m.vectors {
		v.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{breakers, budgetLevel, budgetWaiting, budgetsPaused, slotsMax, slotsUsed, slotsWaiting, retryLevel} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, v := range m.vectors {
		v.Collect(ch)
	}
	m.mu.Lock()
	watched := append([]*transport.Transport(nil), m.watched...)
	m.mu.Unlock()
	g := gauges{}
	for _, t := range watched {
		for _, b := range t.Breakers() {
			g.add(breakers, 1, b.State().String())
		}
		for _, b := range t.Budgets() {
			of := []string{b.ID.Pattern, b.ID.Budget}
			g.least(budgetLevel, b.Level, of...)
			g.add(budgetWaiting, float64(b.Waiting), of...)
			paused := 0.0
			if !b.Paused.IsZero() {
				paused = 1
			}
			g.add(budgetsPaused, paused, of...)
		}
		for _, s := range t.Slots() {
			g.add(slotsMax, float64(s.Max), s.ID.Pattern)
			g.add(slotsUsed, float64(s.Used), s.ID.Pattern)
			g.add(slotsWaiting, float64(s.Waiting), s.ID.Pattern)
		}
		for _, r := range t.RetryBudgets() {
			g.least(retryLevel, r.Level)
		}
	}
	for k, v := range g {
		labels := k.labels[:k.n]
		ch <- prometheus.MustNewConstMetric(k.desc, prometheus.GaugeValue, v, labels...)
	}
}

// gauges are values that several keys have a part in.
type gauges map[gauge]float64

type gauge struct {
	desc   *prometheus.Desc
	n      int
	labels [2]string
}

func of(desc *prometheus.Desc, labels []string) gauge {
	g := gauge{desc: desc, n: len(labels)}
	copy(g.labels[:], labels)
	return g
}

func (g gauges) add(desc *prometheus.Desc, v float64, labels ...string) { g[of(desc, labels)] += v }

func (g gauges) least(desc *prometheus.Desc, v float64, labels ...string) {
	k := of(desc, labels)
	if old, ok := g[k]; !ok || v < old {
		g[k] = v
	}
}
