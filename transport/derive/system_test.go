package derive

import (
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/weir-go/weir/clocktest"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// TestReviews: ten times, a transport runs under the limits that the recorder
// before has led to, with a thick tail and one dead call in a hundred.
func TestReviews(t *testing.T) {
	clocktest.Run(t, func(t *testing.T, c *clocktest.Clock) {
		r := rand.New(rand.NewPCG(4, 4))
		draw := logNormal(400*time.Millisecond, 0.9)
		n := 0
		up := clocktest.NewUpstream(t, c, clocktest.Func(func(*http.Request) clocktest.Step {
			if n++; n%100 == 0 {
				return clocktest.NoReply()
			}
			return clocktest.Reply(200).After(draw(r))
		}).Forever())
		p := policy.Policy{Routes: []policy.Route{{Pattern: "/", Name: "chat", Settings: policy.Settings{
			Deadline: time.Minute, Timeouts: policy.Timeouts{Read: 30 * time.Second}, Retry: policy.Retry{Enabled: policy.Off},
		}}}}
		var first policy.Settings
		for round := range 11 {
			recorder := new(Recorder)
			tr, err := transport.New(transport.Config{Base: up, Clock: c, Policy: p, Observer: recorder})
			if err != nil {
				t.Fatal(err)
			}
			for range 1_500 {
				_ = do(t.Context(), tr)
			}
			now := p.Routes[0].Settings
			plan := plan(t, recorder.Snapshot(), Options{Present: func(Group) policy.Settings { return now }})
			if p, err = plan.Apply(p); err != nil {
				t.Fatal(err)
			}
			now = p.Routes[0].Settings
			t.Log(now.Timeouts.Read, now.Deadline)
			switch {
			case round == 0:
				first = now
				if first.Timeouts.Read > 10*time.Second {
					t.Fatalf("30s becomes %v, want about 6s:\n%v", first.Timeouts.Read, plan)
				}
			case now.Timeouts.Read < first.Timeouts.Read || now.Timeouts.Read > first.Timeouts.Read*3/2:
				t.Fatalf("in round %d, %v has become %v:\n%v", round, first.Timeouts.Read, now.Timeouts.Read, plan)
			}
		}
	})
}
