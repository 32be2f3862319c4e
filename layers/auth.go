package layers

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
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
	// Token makes a new token. The context ends with the deadline of the call
	// that needs it, and carries that call: a RoundTrip on it is a call of its
	// own under the same deadline.
	Token(ctx context.Context) (Token, error)
}

// TokenFunc lets a function be a TokenSource.
type TokenFunc func(ctx context.Context) (Token, error)

// Token calls f.
func (f TokenFunc) Token(ctx context.Context) (Token, error) { return f(ctx) }

// early is how long before its end a token is renewed: it has to last for the
// send, and clocks differ.
const early = 10 * time.Second

// Auth sets the Authorization header of each send to a token of src, which is
// kept until shortly before it expires. It is an inner layer: the token is made
// inside the call's deadline, by one call for all that need it at the time, and
// the making outlives the call that began it if others wait for it.
//
// A request that the making sends through the same layer passes as it is. After
// a 401 the token is dropped, and one more send asked for with
// [RetryOnce]. On a redirect to another origin than that of the first request,
// no token is sent.
func Auth(src TokenSource) Layer {
	a := &auth{src: src}
	return func(next http.RoundTripper) http.RoundTripper {
		return RoundTripperFunc(func(req *http.Request) (*http.Response, error) { return a.roundTrip(next, req) })
	}
}

type auth struct {
	src   TokenSource
	group singleflight.Group

	mu      sync.Mutex
	token   *Token
	waiting int                // for the one that is being made
	stop    context.CancelFunc // ends the making
}

func (l *auth) roundTrip(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if ctx.Value(l) != nil || originOf(req) != originOf(firstHop(req)) {
		return next.RoundTrip(req)
	}
	token, err := l.get(ctx)
	if err != nil {
		closeBody(req)
		return nil, err
	}
	signed := req.Clone(ctx)
	if signed.Header == nil {
		signed.Header = http.Header{}
	}
	kind := token.Type
	if kind == "" {
		kind = "Bearer"
	}
	signed.Header.Set("Authorization", kind+" "+token.Value)
	resp, err := next.RoundTrip(signed)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		l.refused(token)
		RetryOnce(ctx, "token refused")
	}
	return resp, err
}

// firstHop follows redirects back.
func firstHop(req *http.Request) *http.Request {
	for req.Response != nil && req.Response.Request != nil {
		req = req.Response.Request
	}
	return req
}

// refused drops a token, unless another has taken its place already.
func (l *auth) refused(t *Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.token == t {
		l.token = nil
	}
}

// get returns the token that is kept, or one that is made now.
func (l *auth) get(ctx context.Context) (*Token, error) {
	env := defaultEnv
	if a := attemptFrom(ctx); a != nil {
		env = a.call.env
	}
	for {
		l.mu.Lock()
		t := l.token
		if t != nil && (t.Expiry.IsZero() || env.Clock.Now().Before(t.Expiry.Add(-early))) {
			l.mu.Unlock()
			return t, nil
		}
		l.waiting++
		made := l.group.DoChan("", func() (any, error) { return l.make(ctx, env) })
		l.mu.Unlock()
		select {
		case r := <-made:
			l.gone()
			if r.Err == nil {
				return r.Val.(*Token), nil // make returns nothing else.
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
			l.gone()
			return nil, context.Cause(ctx)
		}
	}
}

// makerEndedError is the failure of a token whose maker's time was up.
type makerEndedError struct{ error }

// gone ends the making if nobody waits for it any more.
func (l *auth) gone() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting--; l.waiting == 0 && l.stop != nil {
		l.stop()
		l.group.Forget("") // a source that does not listen holds up nobody else
	}
}

// make makes a token within the deadline of the call that began it, whether or
// not that call goes on.
func (l *auth) make(ctx context.Context, env *Env) (*Token, error) {
	ctx = context.WithValue(detached{context.WithoutCancel(ctx), ctx}, l, true)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if at, ok := ctx.Deadline(); ok {
		timer := env.Clock.AfterFunc(max(1, env.Clock.Until(at)), cancel)
		defer timer.Stop()
	}
	l.mu.Lock()
	l.stop = cancel
	if l.waiting == 0 {
		cancel()
	}
	l.mu.Unlock()
	t, err := l.ask(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stop = nil
	if err != nil {
		if ctx.Err() != nil {
			err = makerEndedError{err}
		}
		return nil, err
	}
	l.token = &t
	return &t, nil
}

// detached is a context that keeps the deadline of another, but not its end.
type detached struct {
	context.Context
	from context.Context
}

func (d detached) Deadline() (time.Time, bool) { return d.from.Deadline() }

// ask makes a panic of the source an error, which is no other goroutine's to
// die of, and so the end of its goroutine.
func (l *auth) ask(ctx context.Context) (t Token, err error) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		err = errSourceGone
		defer func() {
			if p := recover(); p != nil {
				err = sourcePanicError{p}
			}
		}()
		t, err = l.src.Token(ctx)
	}()
	<-over
	return t, err
}

var errSourceGone = errors.New("the TokenSource ended its goroutine")

// sourcePanicError is a panic on its way to the goroutine of a call.
type sourcePanicError struct{ value any }

func (sourcePanicError) Error() string { return "panic in a TokenSource" }
