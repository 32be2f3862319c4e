package layers

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"
)

// smallBody is up to which length a body that is known to be in memory is
// handed to the base as it is. net/http writes such a body together with the
// headers, in one segment, only if it knows its type.
const smallBody = 64 << 10

// uploadRead is the most that the base has of a body at once: what HTTP/1 asks for.
// Over HTTP/2 it may ask for 16 times as much, and no hook tells of the frames
// that a slow server takes one after the other.
const uploadRead = 32 << 10

// upload guards a request body: it times the gaps between its Reads for the
// write phase, closes it once, and cuts the base off from it when the attempt
// is aborted.
type upload struct {
	a    *attempt
	src  io.ReadCloser
	prev *upload // of the attempt, which may be the source of this one

	// Under the call's mutex.
	says    bool  // its length is declared
	rest    int64 // of the declared length
	reading bool  // inside src.Read
	closing bool  // inside src.Close
	dead    bool  // no further Read may begin
	closed  bool
	entered chan struct{} // closed when the base may be stuck in src; nil: nobody waits for that
	err     error         // of src: the caller's own failure
}

var (
	errUploadAborted = errors.New("the attempt that this body belonged to has ended")
	// net/http says so too, if the server that sees it does not hang up first.
	errLength = errors.New("the length of the request's body is not its ContentLength")
)

// roundTrip sends req to next with its body guarded as needed.
func (a *attempt) roundTrip(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return next.RoundTrip(req)
	}
	if u, ok := req.Body.(*upload); ok && u.a == a { // unless a layer of the user's replaced it
		if req.Context().Done() == a.Done() {
			return next.RoundTrip(req)
		}
		return u.roundTrip(next, req) // a layer of the user's may end it before the attempt ends
	}
	size, memory := inMemory(req.Body)
	if memory && (size == req.ContentLength || req.ContentLength <= 0) && (size <= smallBody || a.limits == nil || a.limits.Write <= 0) {
		return next.RoundTrip(req)
	}
	u := a.uploadOf(req.Body, req.ContentLength)
	again := req.GetBody
	if r, ok := req.Body.(*recorded); ok && again == nil {
		again = r.getBody()
	}
	req = req.WithContext(req.Context())
	req.Body = u
	if again != nil {
		req.GetBody = func() (io.ReadCloser, error) { // net/http rewinds by itself
			b, err := again()
			if err != nil {
				return nil, err
			}
			return a.uploadOf(b, req.ContentLength), nil
		}
	}
	if memory {
		return next.RoundTrip(req)
	}
	return u.roundTrip(next, req)
}

// uploadOf guards src. A length of 0, beside a body, and a negative one declare
// nothing.
func (a *attempt) uploadOf(src io.ReadCloser, length int64) *upload {
	u := &upload{a: a, src: src, says: length > 0, rest: length}
	a.call.mu.Lock()
	r := a.mark()
	r.upload, u.prev = u, r.upload
	a.call.mu.Unlock()
	return u
}

// Read implements io.Reader. The write phase is timed while the base holds
// bytes: a slow producer is not a slow server.
func (u *upload) Read(p []byte) (int, error) {
	a, c := u.a, u.a.call
	c.mu.Lock()
	if u.dead {
		c.mu.Unlock()
		return 0, errUploadAborted
	}
	u.reading = true
	u.enter()
	if a.phase == phaseRead { // after the wait for 100 Continue
		a.phase = phaseWrite
	}
	if a.phase == phaseWrite {
		a.phaseDue = never
	}
	c.mu.Unlock()
	n, err := u.src.Read(p[:min(len(p), uploadRead)])
	c.mu.Lock()
	u.reading = false
	if u.rest -= int64(n); u.says && (u.rest < 0 || u.rest > 0 && err == io.EOF) {
		err = errLength
	}
	if a.phase == phaseWrite {
		a.enterPhase(phaseWrite, c.env.now())
	}
	if err != nil {
		u.written()
		if err != io.EOF {
			u.err = err
		}
	}
	c.mu.Unlock()
	return n, err
}

// written begins the wait for headers where no hook will tell that the request
// is written. The mutex must be held.
func (u *upload) written() {
	if u.a.phase == phaseWrite && u.a.sought == 0 {
		u.a.enterPhase(phaseRead, u.a.call.env.now())
	}
}

// Close implements io.Closer.
func (u *upload) Close() error {
	c := u.a.call
	c.mu.Lock()
	closed := u.closed
	if !closed {
		u.closing = true
		u.enter()
	}
	u.closed, u.dead = true, true
	u.written()
	c.mu.Unlock()
	if closed {
		return nil
	}
	err := u.src.Close()
	c.mu.Lock()
	u.closing = false
	c.mu.Unlock()
	return err
}

// uploadGrace is how long an upload may go on after the end of its answer. It is
// what net/http allows before it gives up the connection, but not the Read.
const uploadGrace = 50 * time.Millisecond

// outlived cuts the base off from the bodies of a send that has ended, by an early
// answer say, once their time is up. The mutex must be held.
func (a *attempt) outlived() {
	for u := a.seldom().upload; u != nil; u = u.prev {
		if !u.closed {
			a.call.env.Clock.AfterFunc(uploadGrace, u.abort)
		}
	}
}

// abort cuts the base off. A Read that is stuck in the caller's body is
// encouraged to return by a Close, which some bodies answer only afterwards.
func (u *upload) abort() {
	c := u.a.call
	c.mu.Lock()
	u.dead = true
	stuck := u.reading && !u.closed
	u.closed = u.closed || stuck
	c.mu.Unlock()
	if stuck {
		go func() { _ = u.src.Close() }()
	}
}

// answer is what a RoundTripper did.
type answer struct {
	resp     *http.Response
	err      error
	panicked any
}

// enter tells those who wait for the base to end that it may be stuck in src, once
// what src does at once is over. The mutex must be held.
func (u *upload) enter() {
	for o := u.a.seldom().upload; o != nil; o = o.prev {
		if o.entered != nil {
			u.a.call.env.soon(o.tell)
		}
	}
}

func (u *upload) tell() {
	u.a.call.mu.Lock()
	defer u.a.call.mu.Unlock()
	if u.entered != nil {
		close(u.entered)
		u.entered = nil
	}
}

// cutOff cuts the base off from the bodies of a send that has ended: from u, or from
// all of the attempt's if that has ended, since the base may have rewound to another.
func (u *upload) cutOff() (bodies []*upload, whole bool) {
	a := u.a
	whole = a.Err() != nil || a.call.callerEnded() != nil
	a.call.mu.Lock()
	for o := a.seldom().upload; o != nil; o = o.prev {
		if whole || o == u {
			bodies = append(bodies, o)
		}
	}
	a.call.mu.Unlock()
	for _, o := range bodies {
		o.abort()
	}
	return bodies, whole
}

func stuck(u *upload) bool { return u.reading || u.closing }

// roundTrip sends req to next, and comes back without it once the attempt has ended
// and the base is stuck in a Read or Close of the caller's body.
func (u *upload) roundTrip(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	a, c := u.a, u.a.call
	done := make(chan answer, 1)
	left := false // under the mutex: nobody waits for the base any more
	go func() {
		var got answer
		finished := false
		defer func() {
			if !finished {
				got.panicked = recover()
			}
			c.mu.Lock()
			left := left
			done <- got
			c.mu.Unlock()
			if left && got.resp != nil && got.resp.Body != nil {
				_ = got.resp.Body.Close()
			}
		}()
		got.resp, got.err = next.RoundTrip(req)
		finished = true
	}()
	ctx := req.Context()
	select {
	case got := <-done:
		return got.unpack()
	case <-ctx.Done(): // which is the attempt's, or that of a layer of the user's
	case <-a.Done():
		ctx = a
	case <-c.aborted():
	}
	for {
		ended := a.Done()
		if a.Err() != nil {
			ended = nil
		}
		bodies, whole := u.cutOff()
		c.mu.Lock()
		if left = len(done) == 0 && slices.ContainsFunc(bodies, stuck); left {
			a.behind = a.behind || whole
			c.mu.Unlock()
			break
		}
		if u.entered == nil {
			u.entered = make(chan struct{})
		}
		entered := u.entered
		c.mu.Unlock()
		select {
		case got := <-done:
			return got.unpack()
		case <-entered:
		case <-ended: // as only a layer of the user's had ended its send
		}
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return nil, errUploadAborted
}

func (got answer) unpack() (*http.Response, error) {
	if got.panicked != nil {
		panic(got.panicked) // on the caller's goroutine, as without us
	}
	return got.resp, got.err
}

var (
	nopCloser         = reflect.TypeOf(io.NopCloser(nil))
	nopCloserWriterTo = reflect.TypeOf(io.NopCloser(new(bytes.Reader)))
)

// inMemory returns the size of body if it is one of those that http.NewRequest
// makes of a buffer. Such a body never blocks, and closing it does nothing.
func inMemory(body io.ReadCloser) (size int64, ok bool) {
	if t := reflect.TypeOf(body); t != nopCloser && t != nopCloserWriterTo {
		return 0, false
	}
	switch b := reflect.ValueOf(body).Field(0).Interface().(type) {
	case *bytes.Reader:
		return int64(b.Len()), true
	case *bytes.Buffer:
		return int64(b.Len()), true
	case *strings.Reader:
		return int64(b.Len()), true
	}
	return 0, false
}
