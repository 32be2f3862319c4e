package layers

import "bytes"

// opening is a connection that was just dialed. Whether it is handed to a request as it
// is, or has to shake hands first, with a SOCKS proxy, an HTTP proxy or by TLS, is told
// by what is written first: no request begins as these do. Hooks tell less: not of which
// connection, and nothing of a proxy. One goroutine has the connection until it is over,
// which all methods report.
//
// Of RFC 1928: a greeting and its answer, perhaps a password and its answer (RFC
// 1929), a request and its answer.
type opening struct {
	d       *dialing
	secure  bool // the send that dialed is to a server with TLS
	stage   stageOfOpening
	asked   bool
	answer  []byte  // of a SOCKS proxy to the request
	in, out records // of TLS
}

type stageOfOpening uint8

const (
	untouched stageOfOpening = iota
	inSOCKS
	inCONNECT // TLS follows
	inTLS
)

const socksVersion = 5

// writing is told what is about to be written.
func (o *opening) writing(p []byte) (over bool) {
	switch {
	case len(p) == 0:
		return o.stage == untouched
	case o.stage == inSOCKS:
		o.asked = o.asked || p[0] == socksVersion
	case o.stage == inTLS || p[0] == recordHandshake:
		o.shakes(inTLS)
		return o.passes(&o.out, p)
	case o.stage == inCONNECT:
	case p[0] == socksVersion:
		o.shakes(inSOCKS)
	case o.secure && bytes.HasPrefix(p, []byte("CONNECT ")):
		o.shakes(inCONNECT)
	default:
		return true
	}
	return false
}

// reading is told that something is about to be read: an answer that nothing asked
// for is to a request.
func (o *opening) reading() (over bool) { return o.stage == untouched }

// read is told what was.
func (o *opening) read(p []byte) (over bool) {
	switch o.stage {
	case inTLS:
		return o.passes(&o.in, p)
	case inSOCKS:
		if !o.asked {
			return false
		}
		if o.answer = append(o.answer, p...); len(o.answer) >= o.length() {
			o.handed(false)
			*o = opening{d: o.d} // TLS may follow
		}
	}
	return false
}

// passes follows TLS. Once both sides have come to new keys, the handshake may be over.
func (o *opening) passes(r *records, p []byte) (over bool) {
	r.pass(p)
	if over = o.in.changed && o.out.changed; over {
		o.handed(true)
	}
	return over
}

// shakes notes that the connection is nobody's yet.
func (o *opening) shakes(with stageOfOpening) {
	if o.stage == with {
		return
	}
	o.stage = with
	o.d.a.call.mu.Lock()
	defer o.d.a.call.mu.Unlock()
	o.d.shakes()
}

// handed notes that it may be a request's.
func (o *opening) handed(secured bool) {
	o.d.a.call.mu.Lock()
	defer o.d.a.call.mu.Unlock()
	o.d.secured = secured
	o.d.handed()
}

// length is that of the answer of a SOCKS proxy, as far as it is known.
func (o *opening) length() int {
	const head, port = 4, 2
	if len(o.answer) <= head {
		return head + 1
	}
	switch kind := o.answer[head-1]; kind {
	case 1:
		return head + 4 + port
	case 4:
		return head + 16 + port
	default: // a name
		return head + 1 + int(o.answer[head]) + port
	}
}

// records are those of one side of TLS (RFC 8446 section 5.1), up to the first that is
// not of a handshake in the clear.
type records struct {
	head    [5]byte
	n       int // of head
	rest    int // of the record
	changed bool
}

const recordHandshake = 22

// pass takes the next bytes, in whatever pieces.
func (r *records) pass(p []byte) {
	for len(p) > 0 && !r.changed {
		if n := min(r.rest, len(p)); n > 0 {
			r.rest -= n
			p = p[n:]
			continue
		}
		r.head[r.n] = p[0]
		r.n, p = r.n+1, p[1:]
		r.changed = r.head[0] != recordHandshake
		if r.n == len(r.head) {
			r.n, r.rest = 0, int(r.head[3])<<8|int(r.head[4])
		}
	}
}
