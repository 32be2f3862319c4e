package clocktest_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
)

// The test of the package's documentation.
func TestClientWaitsForSlowReport(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(time.Hour).Body("done"))
		client := &http.Client{Transport: up}
		resp, err := client.Get("http://reports.test/")
		if err != nil || c.Elapsed() != time.Hour {
			t.Fatalf("after %v: %v", c.Elapsed(), err)
		}
		resp.Body.Close()
	})
}

// What a test looks like: an hour of waiting, in no time.
func ExampleRun() {
	_ = func(t *testing.T) { // func TestSlowReport(t *testing.T)
		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
			up := clocktest.NewUpstream(t, c,
				clocktest.Reply(200).After(time.Hour).Body("done"))
			client := &http.Client{Transport: up} // or what is under test, over up
			resp, err := client.Get("http://reports.test/")
			if err != nil || c.Elapsed() != time.Hour {
				t.Fatalf("after %v: %v", c.Elapsed(), err)
			}
			resp.Body.Close()
		})
	}
	// Output:
}

func ExampleDrip() {
	for _, chunk := range clocktest.Drip("data: 1\n\n", 4, time.Second) {
		fmt.Printf("%v later: %q\n", chunk.After, chunk.Data)
	}
	// Output:
	// 1s later: "data"
	// 1s later: ": 1\n"
	// 1s later: "\n"
}
