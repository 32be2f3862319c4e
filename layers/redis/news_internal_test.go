package redis

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/clocktest"
)

// TestClosedClient: a client that is closed before its store costs no more than one
// whose Redis is down.
func TestClosedClient(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		client := goredis.NewClient(&goredis.Options{Addr: "192.0.2.1:6379", Dialer: clocktest.NewNetwork(t).DialContext})
		var said []Change
		s := New(client, Options{Clock: c, OnChange: func(c Change) { said = append(said, c) }})
		client.Close()
		c.Sleep(time.Minute) // which takes as long as somebody never waits
		if len(said) != 1 || said[0].Up {
			t.Errorf("the store said %v", said)
		}
		s.Close()
		c.Sleep(time.Second) // by then, what it does in the background has ended
	})
}
