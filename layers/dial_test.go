package layers

import (
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// deadlineConn notes the deadline that it is given.
type deadlineConn struct {
	net.Conn
	at      time.Time
	answers []byte
}

func (c *deadlineConn) Read(p []byte) (int, error) {
	n := copy(p, c.answers)
	c.answers = c.answers[n:]
	return n, nil
}

func (c *deadlineConn) Write(p []byte) (int, error) { return len(p), nil }

func (c *deadlineConn) SetDeadline(at time.Time) error {
	c.at = at
	return nil
}

// connecting returns an attempt that waits for a connection.
func connecting(t *testing.T) *attempt {
	t.Helper()
	call, _, err := (&stage{env: new(Env).ready()}).begin(httptest.NewRequest("GET", "http://api.example/", nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { call.finish(outcome{}) })
	call.first.hooked, call.first.phase = true, phaseConnect
	return &call.first
}

// TestHandshakesOfTwoDials: net/http dials twice for one request when it begins
// anew on a connection that turned out dead. Whichever handshake succeeds as the
// attempt is given up, the connection must not be left with a deadline, since
// another request may have it.
func TestHandshakesOfTwoDials(t *testing.T) {
	a := connecting(t)
	a.secure = true
	var conns [2]deadlineConn
	ended := 0
	for i := range conns {
		a.beginDial(func(error) { ended++ }).dialed(&conns[i])
	}
	a.abandonDial()
	for i, c := range conns {
		if c.at.IsZero() {
			t.Errorf("the handshake of dial %d goes on", i+1)
		}
	}
	if ended != 2 {
		t.Errorf("%d dials were ended, want both", ended)
	}
	a.handshaken()
	a.handshaken()
	for i, c := range conns {
		if !c.at.IsZero() {
			t.Errorf("dial %d has a connection with a deadline", i+1)
		}
	}
}

// TestSOCKS: a connection is the attempt's to end from the greeting of a SOCKS proxy
// until its last answer, in whatever pieces that comes. One that is given up as it is
// there is whole; one on which a request begins is another's.
func TestSOCKS(t *testing.T) {
	password := "-\x05\x01\x02 +\x05\x02 -\x01\x01u\x01p +\x01\x00 "
	for name, test := range map[string]struct {
		bytes string // "-" what is written, "+" what is read
		ours  string // after each, whether it is the attempt's: y, n
	}{
		"IPv4":            {"-\x05\x01\x00 +\x05\x00 -\x05\x01\x00\x01aaaapp +\x05\x00\x00\x01aaaapp", "yyyn"},
		"IPv6 in pieces":  {"-\x05\x01\x00 +\x05\x00 -\x05\x01\x00\x04a +\x05\x00\x00\x04 +aaaaaaaaaaaaaaaap +p", "yyyyyn"},
		"a name":          {"-\x05\x01\x00 +\x05\x00 -\x05\x01\x00\x03a +\x05\x00\x00\x03 +\x03abcp +p", "yyyyyn"},
		"a password":      {password + "-\x05\x01\x00\x01aaaapp +\x05\x00\x00\x01aaaapp", "yyyyyn"},
		"a request":       {"-GET +HTTP", "nn"},
		"an early answer": {"+HTTP -\x05", "nn"},
		"nothing written": {"- -GET", "nn"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, a := new(deadlineConn), connecting(t)
			w := watched(conn, a.call.env)
			d := a.beginDial(func(error) {})
			d.dialed(w)
			for i, s := range strings.Split(test.bytes, " ") {
				if s[0] == '-' {
					w.Write([]byte(s[1:]))
				} else {
					conn.answers = []byte(s[1:])
					w.Read(make([]byte, 64))
				}
				if ours := test.ours[i] == 'y'; d.done == ours {
					t.Errorf("after %q: done is %v", s, d.done)
				}
				if i == len(test.ours)-2 {
					a.abandonDial()
					if ended := !conn.at.IsZero(); ended != (test.ours[i] == 'y') {
						t.Errorf("after %q: ended is %v", s, ended)
					}
				}
			}
			if !conn.at.IsZero() {
				t.Error("the connection has a deadline")
			}
		})
	}
	conn, a := new(deadlineConn), connecting(t)
	w := watched(conn, a.call.env)
	a.beginDial(func(error) {}).dialed(w)
	a.abandonDial()
	if w.Write([]byte{5, 1, 0}); conn.at.IsZero() {
		t.Error("a greeting that comes too late is not ended")
	}
}
