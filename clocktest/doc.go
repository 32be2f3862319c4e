// Package clocktest tests HTTP clients that wait, without waiting: hours pass in
// milliseconds, times are exact to the nanosecond, and what is due at the same
// instant happens in an order that the next run repeats.
//
//	func TestClientWaitsForSlowReport(t *testing.T) {
//		clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
//			up := clocktest.NewUpstream(t, c, clocktest.Reply(200).After(time.Hour).Body("done"))
//			client := &http.Client{Transport: newTransport(up, c)} // what is under test
//			resp, err := client.Get("http://reports.test/")
//			if err != nil || c.Elapsed() != time.Hour {
//				t.Fatalf("after %v: %v", c.Elapsed(), err)
//			}
//			resp.Body.Close()
//		})
//	}
//
// [Run] calls a test in a bubble of testing/synctest, where time stands still
// while any goroutine runs, and moves to the next timer when all of them wait. A
// test therefore need not move the clock, though it may, with [Clock.Add].
//
// [Upstream] stands in for the network below the code under test: an
// http.RoundTripper that follows a script. [Network] is for code that cannot do
// without a real http.Transport.
//
// # Time
//
// There is one time in a bubble. The clock given to a test, package time, a
// context.WithTimeout, the timers of net/http and whatever clock.New() returns
// all read it. Which of them the code under test uses makes no difference, except
// for the order of what is due at the same instant; see [Clock].
//
// # Traps
//
// Time moves on only when each goroutine of the bubble is in one of these: an
// operation on a channel made in the bubble, a sleep, a sync.Cond, or a
// sync.WaitGroup. Waiting for a sync.Mutex or for a real socket, even a loopback
// one, does not count. A goroutine that sleeps while it holds a mutex that another
// one waits for thus hangs the test until go test gives up.
//
// A ticker that somebody goes on receiving from is always something to wait for,
// so that no deadlock is found while it runs.
//
// A timer of package time that is due when it is made, as by time.AfterFunc(0, f),
// runs on the spot, and two of them at once bring down the race detector: take
// Clock.AfterFunc.
//
// Time stops when the test's function and its cleanups have returned. Goroutines
// that still sleep then fail the test. Stop them before: close what is open, and
// let [Clock.Sleep] pass the time that they need to notice.
//
// What the test uses is made in its bubble: a timer or connection of a transport from
// outside belongs to another time, and may never fire.
//
// A server's handler for HTTP/1 learns that its client has gone only if it has
// read the request's body.
package clocktest
