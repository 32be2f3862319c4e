package layers

import (
	"errors"
	"net/http"
	"time"

	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/stream"
)

// CircuitBreaker refuses the sends of a key, at once and unsent, while its
// circuit is open: see [policy.Breaker], whose zero fields have their defaults
// here. id is the identity of the state that it shares, zero if the stack has
// only one.
//
// A send counts when its body ends. A failure is a connection error, an expired
// phase, a status of 500 or above but for 501, a stall, a body that ends in an
// error, one that a stream reports of its server, and the policy's deadline passing
// while the send waits on the server. The caller's cancellation and shorter
// deadline, refusals of ours, other 4xx and 429 and what says the same in a stream,
// and a body that the caller abandons count as nothing.
func CircuitBreaker(env *Env, id policy.StateID, b policy.Breaker) Layer {
	b = policy.Defaults().With(policy.Settings{Breaker: b}).Breaker
	env = env.ready()
	states := statesOf(env, id, circuits)
	states.set(policy.Settings{Breaker: b})()
	return env.layer(rankBreaker, "", func(_ *Env, next sender) sender {
		return &circuitBreaker{next: next, states: states, key: keyOf(b.Key)}
	})
}

type circuitBreaker struct {
	next   sender
	states *keyed[Circuit]
	key    policy.KeyFunc
}

func (l *circuitBreaker) send(a *attempt, req *http.Request) (*http.Response, error) {
	p := &a.pass
	a.circuit = l.states.of(l.key, req)
	if wait, admitted := a.circuit.Admit(a, a.hedge, p); !admitted {
		if a.hedge || !a.inProbeOf(a.circuit) {
			return nil, a.shutOut(wait)
		}
		*p = Pass{} // that probe has the verdict
	}
	passes := a.passes.Load()
	defer func() {
		if a.passes.Load() == passes { // refused further in, or a panic in a function of the user's
			p.Settle(a, VerdictNeutral)
		}
	}()
	return l.next.send(a, req)
}

// inProbeOf reports that the send is part of a probe of c: a layer of the
// user's, inside the probe, makes a token for it.
func (a *attempt) inProbeOf(c Circuit) bool {
	for o := a.around(); o != nil; o = o.around() {
		if p := &o.pass; o.circuit == c && p.probe && p.by != nil && !p.Stale() {
			return true
		}
	}
	return false
}

var (
	errCircuit = errors.New("the circuit is open")
	errForced  = errors.New("the circuit was opened by hand")
)

func circuitOpen(c Circuit, wait time.Duration) *Error {
	err := errCircuit
	if by, ok := c.(interface{ Status() BreakerStatus }); ok && wait == 0 {
		if s := by.Status(); s.Forced && s.State == StateOpen {
			err = errForced
		}
	}
	return &Error{Layer: rankBreaker.String(), Phase: PhaseBreaker, RetryAfter: wait, Reason: ReasonCircuit, Err: err}
}

// shutOut returns the error of a send that its circuit did not admit. One of a store
// may take its time to say so: the deadline is why, if it has passed by then.
func (a *attempt) shutOut(wait time.Duration) error {
	if err := a.call.passed(); err != nil {
		return err
	}
	return a.refuse(circuitOpen(a.circuit, wait))
}

// barred reports that the circuit of the attempt will still be open after a wait.
func (a *attempt) barred(wait time.Duration) bool {
	if a.circuit == nil {
		return false
	}
	left, open := a.circuit.Open()
	return open && (left == 0 || left > wait)
}

// ended is told how the send ended.
func (p *Pass) ended(a *attempt, o outcome) { p.Settle(a, o.verdict()) }

// content is told of the first content of a response, which is what a probe is
// for: it need not wait for the end of a long body.
func (p *Pass) content(a *attempt) {
	if p.probe {
		p.Settle(a, outcome{status: int(a.status)}.verdict())
	}
}

// verdict says what an outcome tells of the server.
func (o outcome) verdict() Verdict {
	failed := o.status >= 500 && o.status != http.StatusNotImplemented
	told, ok := o.err.(*stream.FailureError) //nolint:errorlint // It is noted as it is.
	switch {
	case failed && !o.foreign:
		return VerdictFailure
	case o.abandoned || o.foreign, ok && !told.Server():
		return VerdictNeutral
	case o.err != nil:
		return VerdictFailure
	case o.status >= 400:
		return VerdictNeutral
	}
	return VerdictSuccess
}
