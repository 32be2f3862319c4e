package batch

import (
	"testing"
	"time"

	"github.com/weir-go/weir/layers"
)

// An item whose POST was done counts as sent, though a circuit refused the hop after it.
func TestCircuitAfterAPost(t *testing.T) {
	for attempts, want := range []bool{false, true} {
		sent := judge(&layers.Error{Layer: "breaker", Attempts: attempts}, func(time.Time) bool { return false }).sent
		if sent != want {
			t.Errorf("after %d sends, sent is %v", attempts, sent)
		}
	}
}
