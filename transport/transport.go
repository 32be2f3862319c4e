package transport

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/benbjohnson/clock"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

// Config is what a [Transport] is made of. The zero value is a transport with
// the defaults of package policy over [Base].
type Config struct {
	// Base sends the requests. Nil: Base().
	Base http.RoundTripper
	// Policy says how calls are treated. The zero value: policy.Defaults().
	Policy policy.Policy
	// Clock gives the time of every decision and timer, as a *clocktest.Clock does in
	// tests. Nil: the real clock.
	Clock clock.Clock
	// Outer are layers around a whole call, such as tracing; Inner are layers
	// around each send, such as auth and signing, inside its deadline. The
	// first of each is the outermost.
	Outer, Inner []layers.Layer
	// Observer is told of every event of every call. Nil: nobody.
	Observer layers.Observer
	// Store makes the handles of budgets, circuits and slots that are shared
	// with other processes. Nil: all are this process's own.
	Store layers.Store
	// Rand gives the numbers in [0, 1) that spread waits. It is called
	// concurrently. Nil: math/rand/v2.
	Rand func() float64
}

// Transport sends requests under a policy. It is safe for concurrent use.
type Transport struct {
	*stack
	view   policy.Settings
	chains atomic.Pointer[chains]
}

// stack is what a transport shares with its views.
type stack struct {
	base         http.RoundTripper
	env          *layers.Env
	outer, inner []layers.Layer
	table        atomic.Pointer[policy.Table]
	compiling    sync.Mutex // with the present table
}

// New returns a transport with the policy of cfg. It has no effect unless the
// error is nil; else the error joins a *policy.ConfigError for every fault.
func New(cfg Config) (*Transport, error) {
	if cfg.Clock == nil {
		cfg.Clock = clock.New()
	}
	s := &stack{
		base:  cfg.Base,
		env:   &layers.Env{Clock: cfg.Clock, Observer: cfg.Observer, Store: cfg.Store, Rand: cfg.Rand},
		outer: cfg.Outer, inner: cfg.Inner,
	}
	if err := s.update(cfg.Policy); err != nil {
		return nil, err
	}
	if s.base == nil {
		s.base = Base()
	}
	return &Transport{stack: s}, nil
}

// Update puts a policy in the place of the present one. Calls under way go on
// under the old one; shared state is kept by its identity, and has the new
// numbers at once, for those that wait for it too. State that the new policy has no
// numbers for is forgotten; that of a limit which it only switches off, by Enabled,
// is not. A policy that is refused changes nothing; the error is New's. A view that
// the new policy has no room for fails its calls before they are sent.
func (t *Transport) Update(p policy.Policy) error { return t.update(p) }

func (s *stack) update(p policy.Policy) error {
	table, err := policy.Compile(p)
	if err != nil {
		return err
	}
	s.compiling.Lock()
	s.table.Store(table)
	tell := s.env.Apply(table.Numbers)
	s.compiling.Unlock()
	tell()
	return nil
}

// With returns a view: a transport with settings of its own over those of the
// routes, which shares everything else. It is refused if no route could use
// the settings; a call on a route that cannot fails before it is sent.
func (t *Transport) With(s policy.Settings) (*Transport, error) {
	view := t.view.With(s)
	if err := t.table.Load().Check(view); err != nil {
		return nil, err
	}
	return &Transport{stack: t.stack, view: view}, nil
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	chain, err := t.chain(req)
	if err != nil {
		return nil, t.env.Refuse("match", req, err)
	}
	return chain.RoundTrip(req)
}

// CloseIdleConnections passes the call on to the base.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Explain tells what the policy means for a request: each setting in effect and
// where it comes from, the chain of layers, how the longest call would go, and
// what looks unintended. It sends nothing and uses up nothing.
func (t *Transport) Explain(req *http.Request) policy.Explanation {
	line, err := match(t.table.Load(), req)
	if err != nil {
		return policy.Explanation{Method: req.Method, Refused: []string{err.Error()}}
	}
	maxConns := 0
	if base, ok := t.base.(*http.Transport); ok {
		maxConns = base.MaxConnsPerHost
	}
	names := func(r *policy.Resolved) []string {
		var list []string
		for _, p := range t.parts(r) {
			list = append(list, p.name)
		}
		return append(list, fmt.Sprintf("%T", t.base))
	}
	e := line.Explain(req, t.view, policy.OverrideFrom(req.Context()), names, maxConns)
	if advice := t.adviseBase(); advice != "" && e.Refused == nil {
		e.Advice = append(e.Advice, advice)
	}
	return e
}

// adviseBase says what is to be known of the base; empty: nothing.
func (t *Transport) adviseBase() string {
	switch base := t.base.(type) {
	case *Transport:
		return "the base is a weir of its own, so that attempts multiply; switch Retry and Hedge off in one of the two"
	case *http.Transport:
		if base.DialContext == nil && base.DialTLSContext == nil && base.Dial == nil && base.DialTLS == nil { //nolint:staticcheck // they may be set
			return "the base dials without layers.DialContext, so that a dial that is given up goes on until its own timeouts, if it has any, and keeps its place of MaxConnsPerHost; wrap a dialer in that, or begin with transport.Base()"
		}
	}
	return ""
}

// Clock returns the clock that all times of the transport are by.
func (t *Transport) Clock() clock.Clock { return t.env.Clock }

// Policy returns the policy in force, its routes from general to specific.
func (t *Transport) Policy() policy.Policy { return t.table.Load().Policy() }

// Breakers returns the circuits that are in use, of all routes: one is from the
// first call that it is for. It can be forced open or closed.
func (t *Transport) Breakers() []*layers.Breaker { return t.env.Breakers() }

// Budgets returns the rate budgets that are in use, of all routes, as they
// stand.
func (t *Transport) Budgets() []layers.BudgetStatus { return t.env.Budgets() }

// Slots returns the in-flight limits that are in use, of all routes, as they
// stand.
func (t *Transport) Slots() []layers.SlotsStatus { return t.env.Slots() }

// RetryBudgets returns the retry budgets that are in use, as they stand.
func (t *Transport) RetryBudgets() []layers.RetryBudgetStatus { return t.env.RetryBudgets() }

// match finds the routes of a request.
func match(table *policy.Table, req *http.Request) (*policy.Line, error) {
	if req.URL == nil {
		return nil, errNoURL
	}
	return table.LineURL(req.Method, req.URL), nil
}
