package layers

import (
	"context"
	"crypto/tls"
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
	call.first.sought, call.first.phase = 1, phaseConnect
	return &call.first
}

// TestOpening: a connection is the attempt's to end from the beginning of a handshake
// until its end, in whatever pieces that comes. One that is given up as it is there is
// whole; one on which a request begins is another's.
func TestOpening(t *testing.T) {
	const (
		socks    = "-\x05\x01\x00 +\x05\x00 -\x05\x01\x00\x01aaaapp +\x05\x00\x00\x01aaaapp "
		password = "-\x05\x01\x02 +\x05\x02 -\x01\x01u\x01p +\x01\x00 "
		hello    = "\x16\x03\x01\x00\x03abc "
		change   = "\x14\x03\x03\x00\x01\x01"
		finished = "\x16\x03\x03\x00\x01a "
		sealed   = "\x17\x03\x03\x00\x01a "
	)
	for name, test := range map[string]struct {
		bytes  string // "-" what is written, "+" what is read, "s" and "d" hooks of TLS
		ours   string // after each, whether it is the attempt's: y, n
		secure bool
	}{
		"SOCKS":                  {socks, "yyyn", false},
		"SOCKS, IPv6 in pieces":  {"-\x05\x01\x00 +\x05\x00 -\x05\x01\x00\x04a +\x05\x00\x00\x04 +aaaaaaaaaaaaaaaap +p", "yyyyyn", false},
		"SOCKS, a name":          {"-\x05\x01\x00 +\x05\x00 -\x05\x01\x00\x03a +\x05\x00\x00\x03 +\x03abcp +p", "yyyyyn", false},
		"SOCKS, a password":      {password + "-\x05\x01\x00\x01aaaapp +\x05\x00\x00\x01aaaapp", "yyyyyn", false},
		"SOCKS, all in pieces":   {password + "-\x05\x01\x00\x01aaaapp +\x05\x00\x00\x01aaaa +pp", "yyyyyyn", false},
		"SOCKS, then a request":  {socks + "-GET", "yyynn", false},
		"SOCKS, then TLS":        {socks + "-" + hello + "+" + hello + "+" + change + sealed + "-" + change + sealed, "yyynyyyn", true},
		"a request":              {"-GET +HTTP", "nn", false},
		"an early answer":        {"+HTTP -\x05", "nn", false},
		"nothing written":        {"- -GET", "nn", false},
		"TLS 1.3":                {"s -" + hello + "+" + hello + "+" + change + sealed + "-" + change + sealed + "d", "nyyynn", true},
		"TLS 1.3 without change": {"-" + hello + "+" + hello + "+" + sealed + "-" + sealed, "yyyn", true},
		"TLS 1.2":                {"-" + hello + "+" + hello + "-" + finished + "-" + change + finished + "+" + finished + "+" + change + finished + "d", "yyyyyn" + "n", true},
		"TLS 1.2, resumed":       {"-" + hello + "+" + hello + "+" + change + finished + "-" + change + finished, "yyyn", true},
		"TLS in pieces":          {"-" + hello + "+\x16\x03 +\x03\x00\x03a +bc\x14 -" + change, "yyyyn", true},
		"TLS, a long record":     {"-\x16\x03\x03\x01\x2c" + strings.Repeat("a", 300) + " +" + hello + "+" + sealed + "-" + sealed, "yyyn", true},
		"TLS, and another's":     {"-" + hello + "+" + hello + "+" + sealed + "-" + sealed + "d s", "yyynnn", false},
		"TLS with a proxy":       {"s -" + hello + "+" + hello + "+" + sealed + "-" + sealed + "d -GET", "nyyynnn", false},
		"TLS in that":            {"s -" + hello + "+" + sealed + "-" + sealed + "d -" + sealed + "+" + sealed + "s -" + sealed + "d -" + sealed, "nyynnnnyynn", true},
		"CONNECT":                {"-CONNECT_api +HTTP s -" + hello + "+" + sealed + "-" + sealed + "d", "yyyyynn", true},
		"CONNECT of the caller":  {"-CONNECT_api +HTTP -" + hello, "nnn", false},
		"TLS elsewhere":          {"-GET s d", "nnn", false},
		"a scheme of the base":   {"-GET +HTTP s d", "nnnn", true},
	} {
		t.Run(name, func(t *testing.T) {
			steps := strings.Split(strings.TrimSpace(test.bytes), " ")
			if len(steps) != len(test.ours) {
				t.Fatalf("%d steps, want %d", len(steps), len(test.ours))
			}
			for given := range steps { // up after this one
				conn, a := new(deadlineConn), connecting(t)
				a.secure = test.secure
				w := watched(conn, a.call.env)
				d := a.beginDial(func(error) {})
				d.dialed(w)
				for i, s := range steps {
					said := strings.ReplaceAll(s[1:], "_", " ")
					switch s[0] {
					case '-':
						w.Write([]byte(said))
					case '+':
						conn.answers = []byte(said)
						w.Read(make([]byte, 64))
					case 's':
						a.shaking()
					case 'd':
						a.handshaken()
					}
					if i == given {
						a.abandonDial()
					}
					ours := test.ours[i] == 'y'
					if ended := !conn.at.IsZero(); d.done == ours || ended != (ours && i >= given) {
						t.Errorf("given up after %q, after %q: done is %v, ended %v", steps[given], s, d.done, ended)
					}
				}
			}
		})
	}
}

// TestHandshakesOfTwoDials: net/http dials twice for one request when it begins
// anew on a connection that turned out dead. Whichever handshake succeeds as the
// attempt is given up, its connection must not be left with a deadline, since
// another request may have it.
func TestHandshakesOfTwoDials(t *testing.T) {
	a := connecting(t)
	a.secure = true
	var conns [2]deadlineConn
	var watches [2]net.Conn
	ended := 0
	for i := range conns {
		watches[i] = watched(&conns[i], a.call.env)
		a.beginDial(func(error) { ended++ }).dialed(watches[i])
		watches[i].Write([]byte{recordHandshake})
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
	for i, w := range watches {
		conns[i].answers = []byte{20}
		w.Read(make([]byte, 5))
		w.Write([]byte{3, 3, 0, 0, 20})
		if !conns[i].at.IsZero() {
			t.Errorf("dial %d has a connection with a deadline", i+1)
		}
		if i == 0 && conns[1].at.IsZero() {
			t.Error("the handshake of the other is not ended")
		}
	}
}

// TestHandshakesOfOthers: a handshake of which nothing tells whose it is leaves alone a
// connection that may be a request's, and what others do with that.
func TestHandshakesOfOthers(t *testing.T) {
	secured := func(t *testing.T) (*attempt, *deadlineConn, *dialing) {
		conn, a := new(deadlineConn), connecting(t)
		a.secure = true
		w := watched(conn, a.call.env)
		d := a.beginDial(func(error) {})
		d.dialed(w)
		conn.answers = []byte{23}
		w.Write([]byte{recordHandshake, 3, 3, 0, 0, 23})
		w.Read(make([]byte, 1))
		if !d.done || !d.secured {
			t.Fatal("the handshake is not over")
		}
		return a, conn, d
	}
	for name, then := range map[string]func(a *attempt){
		"a second dial":       func(a *attempt) { a.beginDial(func(error) {}) },
		"a second connection": func(a *attempt) { a.sought++ },
	} {
		a, conn, _ := secured(t)
		then(a)
		a.shaking()
		if a.abandonDial(); !conn.at.IsZero() {
			t.Errorf("%s: the first one has a deadline", name)
		}
	}

	_, kept, late := secured(t)
	late.poison()
	late.handed()
	kept.at = time.Unix(2, 0)
	if late.handed(); !kept.at.Equal(time.Unix(2, 0)) {
		t.Errorf("the deadline of a request became %v", kept.at)
	}

	conn, a := new(deadlineConn), connecting(t)
	w := watched(conn, a.call.env)
	d := a.beginDial(func(error) {})
	d.dialed(w)
	w.Write([]byte{recordHandshake})
	a.abandonDial()
	if a.handshaken(); conn.at.IsZero() {
		t.Error("another's handshake is taken for that of a dial that was given up")
	}

	conn, a = new(deadlineConn), connecting(t)
	a.phase = phaseWrite
	w = watched(conn, a.call.env)
	d = a.beginDial(func(error) {})
	d.dialed(w)
	if w.Write([]byte{recordHandshake}); !d.done {
		t.Error("a dial that the attempt does not wait for is its to end")
	}

	secure := tls.Client(conn, new(tls.Config))
	for _, ctx := range []context.Context{t.Context(), a} {
		got, err := DialContext(func(context.Context, string, string) (net.Conn, error) { return secure, nil })(ctx, "tcp", "api.example:443")
		if got != net.Conn(secure) || err != nil {
			t.Errorf("got %v, %v", got, err)
		}
	}
}
