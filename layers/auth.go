package layers

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/weir-go/weir/policy"
)

// Token is what authenticates a request.
type Token struct {
	// Type is the scheme of the Authorization header. Empty: Bearer.
	Type string
	// Value is the secret.
	Value string
	// Expiry is when the token ends. Zero: never, as far as is known.
	Expiry time.Time
}

// TokenSource makes tokens. Token is called by one goroutine at a time.
type TokenSource interface {
	// Token makes a new token, and not one that it made before: after a 401 that
	// is the one that was refused. (Config.TokenSource and ReuseTokenSource of
	// golang.org/x/oauth2 keep theirs; Config.Exchange, PasswordCredentialsToken
	// and the like make new ones.) The text of an error is shown: it should hold
	// no secret. The context ends with the deadline of the call
	// that needs it, or when no call waits any more, and carries that call: a
	// RoundTrip on it is a call of its own under the same deadline. While a
	// Token goes on that ignores the end of its context, no other begins: calls
	// wait for it, each until its own deadline, and take the token that it makes.
	Token(ctx context.Context) (Token, error)
}

// TokenFunc lets a function be a TokenSource.
type TokenFunc func(ctx context.Context) (Token, error)

// Token calls f.
func (f TokenFunc) Token(ctx context.Context) (Token, error) { return f(ctx) }

// early is how long before its end a token is renewed that is good for lasts:
// it has to last for the send, and clocks differ.
func early(lasts time.Duration) time.Duration { return min(10*time.Second, lasts/5) }

// Auth sets the Authorization header of each send to hosts to a token of src,
// which is kept until shortly before it expires. The hosts are named as in the
// patterns of routes: api.example.com at any port, localhost:8080 at one,
// *.example.com with whatever stands before it. No other host is ever sent the
// token. Without hosts, every host that the layer's requests go to is: name them
// wherever one stack serves more than the one API. If one is malformed, each
// send fails, and says so.
//
// It is an inner layer: the token is made inside the call's deadline, by one call
// for all that need it at the time, and the making outlives the call that began
// it if others wait for it.
//
// A request that has an Authorization header already passes as it is: its caller
// says for whom it is sent, which for one request counts more than what holds for
// all, and a token must not lend it more rights than that. So does a request that
// the making sends through the same layer. After a 401 the token is dropped, and
// one more send asked for with [RetryOnce]. On a redirect to another origin than
// that of the first request, no token is sent, nor on one that cannot be followed
// back to its first request, since a layer further out made up a Response.Request.
func Auth(src TokenSource, hosts ...string) Layer {
	a := &auth{src: src, anywhere: len(hosts) == 0}
	a.hosts, a.unusable = policy.ParseHosts(hosts...)
	return func(next http.RoundTripper) http.RoundTripper { return authStage{a, next} }
}

// authStage is an auth in a chain.
type authStage struct {
	*auth
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (s authStage) RoundTrip(req *http.Request) (*http.Response, error) {
	return s.roundTrip(s.next, req)
}

// CloseIdleConnections passes the call on, as http.Client expects.
func (s authStage) CloseIdleConnections() { closeIdle(s.next) }

type auth struct {
	src      TokenSource
	anywhere bool // whatever the host
	hosts    policy.Hosts
	unusable error // a host is malformed
	group    singleflight.Group

	mu     sync.Mutex
	token  *keptToken
	making *making // under way
}

type keptToken struct {
	Token
	renew time.Time // zero: never
}

// making is the making of one token. The mutex of its layer guards it.
type making struct {
	waiting int                // calls
	stop    context.CancelFunc // nil: it has not begun
}

func (l *auth) roundTrip(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	if l.unusable != nil {
		envOf(req.Context()).CloseBody(req)
		return nil, &Error{Layer: rankInner.String(), Reason: ReasonNotRetryable, Err: l.unusable, local: true}
	}
	resp, err := l.send(next, req)
	if err == nil {
		keepHops(req, resp)
	}
	return resp, err
}

func (l *auth) send(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	if !l.concerns(req) {
		return only(next.RoundTrip(req))
	}
	ctx := req.Context()
	token, err := l.get(ctx)
	if err != nil {
		envOf(ctx).CloseBody(req)
		return nil, err
	}
	signed := req.WithContext(ctx) // which shares the trailers that are set while the body is read
	if signed.Header = req.Header.Clone(); signed.Header == nil {
		signed.Header = http.Header{}
	}
	kind := token.Type
	if kind == "" {
		kind = "Bearer"
	}
	signed.Header.Set("Authorization", kind+" "+token.Value)
	resp, err := only(next.RoundTrip(signed))
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		l.refused(token)
		RetryOnce(ctx, "token refused")
	}
	return resp, err
}

// concerns reports that a request is to have a token.
func (l *auth) concerns(req *http.Request) bool {
	switch {
	case req.URL == nil, !l.anywhere && !l.hosts.Has(req.URL.Host):
		return false
	case req.Header.Get("Authorization") != "", req.Context().Value(l) != nil:
		return false
	}
	first := firstHop(req)
	return first != nil && first.URL != nil && originOf(first) == originOf(req)
}

// envOf returns the environment of the stack that ctx belongs to.
func envOf(ctx context.Context) *Env {
	if a := attemptFrom(ctx); a != nil {
		return a.call.env
	}
	return defaultEnv
}

// refused drops a token, unless another has taken its place already.
func (l *auth) refused(t *keptToken) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.token == t {
		l.token = nil
	}
}

// get returns the token that is kept, or one that is made now.
func (l *auth) get(ctx context.Context) (*keptToken, error) {
	env := envOf(ctx)
	for {
		l.mu.Lock()
		t := l.token
		if t != nil && (t.renew.IsZero() || env.Clock.Now().Before(t.renew)) {
			l.mu.Unlock()
			return t, nil
		}
		if l.making == nil {
			l.making = new(making)
		}
		m := l.making
		m.waiting++
		made := l.group.DoChan("", func() (any, error) { return l.make(ctx, env, m) })
		l.mu.Unlock()
		select {
		case r := <-made:
			if r.Err == nil {
				return r.Val.(*keptToken), nil // make returns nothing else.
			}
			if p, ok := errors.AsType[sourcePanicError](r.Err); ok {
				panic(p.value)
			}
			if ended, ok := r.Err.(makerEndedError); !ok || ctx.Err() != nil { //nolint:errorlint // make returns it bare.
				if ok {
					return nil, ended.error
				}
				return nil, r.Err
			}
			// The call that began it was given less time than this one has.
		case <-ctx.Done():
			l.gone(m)
			return nil, context.Cause(ctx)
		}
	}
}

// makerEndedError is the failure of a token whose maker's time was up.
type makerEndedError struct{ error }

// gone ends a making that nobody waits for any more.
func (l *auth) gone(m *making) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.waiting--; m.waiting == 0 && m.stop != nil {
		m.stop()
	}
}

// make makes a token within the deadline of the call that began it, whether or
// not that call goes on.
func (l *auth) make(ctx context.Context, env *Env, m *making) (*keptToken, error) {
	ctx = context.WithValue(detached{context.WithoutCancel(ctx), ctx}, l, true)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if at, ok := ctx.Deadline(); ok {
		timer := env.Clock.AfterFunc(max(1, env.Clock.Until(at)), cancel)
		defer timer.Stop()
	}
	l.mu.Lock()
	m.stop = cancel
	if m.waiting == 0 {
		cancel()
	}
	l.mu.Unlock()
	t, err := l.ask(ctx)
	made := &keptToken{Token: t}
	if !t.Expiry.IsZero() {
		made.renew = t.Expiry.Add(-early(env.Clock.Until(t.Expiry)))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.making = nil
	l.group.Forget("") // who comes from now on begins another
	if err != nil {
		if ctx.Err() != nil {
			err = makerEndedError{err}
		}
		return nil, err
	}
	l.token = made
	return made, nil
}

// detached is a context that keeps the deadline of another, but not its end.
type detached struct {
	context.Context
	from context.Context
}

func (d detached) Deadline() (time.Time, bool) { return d.from.Deadline() }

// ask makes a panic of the source an error, which is no other goroutine's to
// die of, and so the end of its goroutine.
func (l *auth) ask(ctx context.Context) (Token, error) {
	type answer struct {
		token Token
		err   error
	}
	answered := make(chan answer)
	go func() {
		a := answer{err: errSourceGone}
		defer func() {
			if p := recover(); p != nil {
				a.err = sourcePanicError{p}
			}
			answered <- a
		}()
		a.token, a.err = l.src.Token(ctx)
	}()
	a := <-answered
	return a.token, a.err
}

var errSourceGone = errors.New("the TokenSource ended its goroutine")

// sourcePanicError is a panic on its way to the goroutine of a call.
type sourcePanicError struct{ value any }

func (sourcePanicError) Error() string { return "panic in a TokenSource" }
