package layers

import (
	"net"
	"net/http/httptest"
	"testing"
	"time"
)

// deadlineConn notes the deadline that it is given.
type deadlineConn struct {
	net.Conn
	at time.Time
}

func (c *deadlineConn) SetDeadline(at time.Time) error {
	c.at = at
	return nil
}

// TestHandshakesOfTwoDials: net/http dials twice for one request when it begins
// anew on a connection that turned out dead. Whichever handshake succeeds as the
// attempt is given up, the connection must not be left with a deadline, since
// another request may have it.
func TestHandshakesOfTwoDials(t *testing.T) {
	env := new(Env).ready()
	call, _, err := (&stage{env: env}).begin(httptest.NewRequest("GET", "https://api.example/", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer call.finish(outcome{})
	a := &call.first
	a.hooked, a.secure, a.phase = true, true, phaseConnect
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
