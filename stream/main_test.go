package stream

import (
	"testing"

	"go.uber.org/goleak"
)

// poolsLeak is true where allocations and memory cannot be counted.
var poolsLeak bool

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
