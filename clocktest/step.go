package clocktest

import (
	"net"
	"net/http"
	"os"
	"slices"
	"syscall"
	"time"
)

// What a socket says when the peer gives up a connection, and when it takes none.
var (
	ErrReset   error = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	ErrRefused error = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
)

// A Step is what an [Upstream] does with one request. [Reply], [NoReply], [Fail],
// [FailDial] and [Func] begin one. Its methods return a changed copy, so that a
// step may be the base of others.
//
// The times of a step follow one another: the wait for a connection (Pool), the
// dial (Connect), the request (ReadBody), the wait for the answer (After), and
// then each [Chunk] of the body. Whatever is not set takes no time.
type Step struct {
	choose  func(*http.Request) Step // the step of Func
	more    int                      // requests after the first
	forever bool

	pool, connect time.Duration
	dials         bool
	dialErr       error

	read     reading
	readSize int
	readGap  time.Duration

	interim []interim
	after   time.Duration
	status  int // 0: no answer
	header  http.Header
	trailer http.Header
	chunks  []Chunk
	sized   bool // the body's length is announced
	silent  bool
	err     error // instead of an answer, or of the end of its body
}

// A Chunk is a piece of a response body that arrives at once: After later than
// the chunk before it, or than the headers, however late either is read. One
// without data only takes time.
type Chunk struct {
	After time.Duration
	Data  string
}

// interim is a 1xx answer.
type interim struct {
	status int
	header http.Header
}

// reading is how a step reads the request's body.
type reading uint8

const (
	readFirst  reading = iota // whole, and only then answers
	readDuplex                // while it answers
	readNone
)

// Reply answers with a status, and no body until Body or Chunks give it one.
func Reply(status int) Step { return Step{status: status} }

// NoReply takes the request and never answers, like a hung server. (A server that
// answers and then hangs is Reply(200).Silent().)
func NoReply() Step { return Step{} }

// Fail takes the request and then fails with err, for instance [ErrReset].
func Fail(err error) Step { return Step{err: err} }

// FailDial fails to connect, for instance with [ErrRefused]: nothing is sent.
func FailDial(err error) Step { return Step{dials: true, dialErr: err} }

// Func chooses the step of a request when that arrives. It may be called by many
// goroutines at once, and must leave the request as it is, its body unread. Of the
// methods of a Step, Times and Forever alone apply to it: the rest is the chosen one's.
func Func(choose func(*http.Request) Step) Step { return Step{choose: choose} }

// Drip cuts s into chunks of at most size bytes, each so long after the one before.
func Drip(s string, size int, after time.Duration) []Chunk {
	var chunks []Chunk
	for b := range slices.Chunk([]byte(s), size) {
		chunks = append(chunks, Chunk{after, string(b)})
	}
	return chunks
}

// Times uses the step for n requests instead of one.
func (s Step) Times(n int) Step { s.more = n - 1; return s }

// Forever uses the step for every further request.
func (s Step) Forever() Step { s.forever = true; return s }

// Pool waits for a pooled connection, as behind MaxConnsPerHost.
func (s Step) Pool(d time.Duration) Step { s.pool = d; return s }

// Connect dials a new connection, which takes d, instead of reusing an idle one.
func (s Step) Connect(d time.Duration) Step { s.dials, s.connect = true, d; return s }

// ReadBody reads the request's body in pieces of at most size bytes, one after
// each gap, instead of at once.
func (s Step) ReadBody(size int, gap time.Duration) Step {
	s.readSize, s.readGap = size, gap
	return s
}

// IgnoreBody never reads the request's body. Before an answer this is a server
// that does not need it; with NoReply, a write that stalls.
func (s Step) IgnoreBody() Step { s.read = readNone; return s }

// Duplex answers while it reads the request's body, and not only afterwards.
func (s Step) Duplex() Step { s.read = readDuplex; return s }

// Interim sends a 1xx answer, with headers if any, as soon as the request's
// headers have arrived.
func (s Step) Interim(status int, header http.Header) Step {
	s.interim = append(slices.Clip(s.interim), interim{status, header.Clone()})
	return s
}

// After waits before the answer, or the failure.
func (s Step) After(d time.Duration) Step { s.after = d; return s }

// Header adds a header to the answer. A Content-Length is kept to as net/http does: a
// longer body is cut there, and a shorter one ends in io.ErrUnexpectedEOF.
func (s Step) Header(key, value string) Step { s.header = with(s.header, key, value); return s }

// Trailer adds a trailer, announced in the headers, that comes with the body's end.
func (s Step) Trailer(key, value string) Step { s.trailer = with(s.trailer, key, value); return s }

// Body sends a whole body, its length announced, together with the headers.
func (s Step) Body(body string) Step {
	s.chunks, s.sized = []Chunk{{Data: body}}, true
	return s
}

// Chunks appends to the body, which then has no announced length.
func (s Step) Chunks(chunks ...Chunk) Step {
	s.chunks, s.sized = append(slices.Clip(s.chunks), chunks...), false
	return s
}

// Silent sends nothing after the last chunk, and never ends the body.
func (s Step) Silent() Step { s.silent = true; return s }

// Reset breaks the connection after the last chunk. To break it instead of an
// answer, use Fail(ErrReset).
func (s Step) Reset() Step { return s.Fail(ErrReset) }

// Fail ends the body with an error after the last chunk, for instance with
// io.ErrUnexpectedEOF, as net/http does when a body falls short of its length.
func (s Step) Fail(err error) Step { s.err = err; return s }

// length returns the length of the body, if the answer can announce it.
func (s Step) length() (n int, ok bool) {
	for _, c := range s.chunks {
		n += len(c.Data)
	}
	ok = (s.sized || len(s.chunks) == 0) && !s.silent && s.err == nil && s.trailer == nil &&
		s.status != http.StatusNoContent && s.status != http.StatusNotModified
	return n, ok
}

// with returns a copy of h with one more value.
func with(h http.Header, key, value string) http.Header {
	h = clone(h)
	h.Add(key, value)
	return h
}

// clone returns a copy of h that can be written to.
func clone(h http.Header) http.Header {
	if h == nil {
		return http.Header{}
	}
	return h.Clone()
}
