package redis

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/policy"
)

// TestHandlesAreLetGo: a handle that nobody uses is not kept, and one that
// somebody uses is given to all who ask.
func TestHandlesAreLetGo(t *testing.T) {
	client := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	s := New(client, Options{})
	defer s.Close()
	rate := policy.Rate{PerSecond: 1, Burst: 1}
	used := s.Bucket(policy.StateID{}, "used", rate)
	for i := range 1000 {
		s.Bucket(policy.StateID{}, fmt.Sprint(i), rate)
		s.Circuit(policy.StateID{}, fmt.Sprint("c", i), policy.Breaker{Failures: 1})
	}
	handles := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.handles)
	}
	for end := time.Now().Add(10 * time.Second); handles() > 1; time.Sleep(time.Millisecond) {
		runtime.GC()
		if time.Now().After(end) {
			t.Fatalf("%d handles are kept", handles())
		}
	}
	if s.Bucket(policy.StateID{}, "used", rate) != used {
		t.Error("the handle in use was not found")
	}
	runtime.KeepAlive(used)
}
