package layers

// opening is a connection that was dialed for a server without TLS, of which no hook
// tells whether it is handed to a request as it is, or is to a SOCKS proxy, which has
// to be told the way first. What is written first tells: no request begins as the
// greeting of a SOCKS client does. One goroutine has the connection until it is over,
// which all methods report.
//
// Of RFC 1928: a greeting and its answer, perhaps a password and its answer (RFC
// 1929), a request and its answer.
type opening struct {
	d       *dialing
	greeted bool
	asked   bool
	answer  []byte // to the request
}

const socksVersion = 5

// writing is told what is about to be written.
func (o *opening) writing(p []byte) (over bool) {
	socks := len(p) > 0 && p[0] == socksVersion
	switch {
	case !o.greeted && !socks:
		return true
	case !o.greeted:
		o.greeted = true
		o.d.a.call.mu.Lock()
		defer o.d.a.call.mu.Unlock()
		o.d.shakes()
	case socks:
		o.asked = true
	}
	return false
}

// reading is told that something is about to be read: an answer that no greeting asked
// for is to a request.
func (o *opening) reading() (over bool) { return !o.greeted }

// read is told what was.
func (o *opening) read(p []byte) (over bool) {
	if !o.asked {
		return false
	}
	o.answer = append(o.answer, p...)
	if len(o.answer) < o.length() {
		return false
	}
	o.d.a.call.mu.Lock()
	defer o.d.a.call.mu.Unlock()
	o.d.handed()
	return true
}

// length is that of the answer, as far as it is known.
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
