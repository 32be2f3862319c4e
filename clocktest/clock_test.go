package clocktest

import (
	"fmt"
	"testing"
	"time"
)

func TestSameInstant(t *testing.T) {
	Run(t, func(t *testing.T, c *Clock) {
		var got []string
		for i := range 5 {
			c.AfterFunc(time.Second, func() {
				got = append(got, fmt.Sprint(i))
				c.Sleep(0)
				got = append(got, fmt.Sprint(i, "b"))
			})
		}
		c.Add(time.Second)
		if s := fmt.Sprint(got, c.Elapsed()); s != "[0 1 2 3 4 0b 1b 2b 3b 4b] 1s" {
			t.Error(s)
		}
	})
}
