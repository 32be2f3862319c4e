package policy

import (
	"testing"
	"time"
)

func TestPresets(t *testing.T) {
	for name, preset := range map[string]Settings{"interactive": Interactive(), "batch": Batch(), "local": LocalModel()} {
		if _, err := Compile(Policy{Settings: preset}); err != nil {
			t.Errorf("%s as a policy: %v", name, err)
		}
		table := mustCompile(t, Policy{Routes: []Route{{Pattern: "POST /v1/", Settings: preset}}})
		if err := table.Check(preset); err != nil {
			t.Errorf("%s as a view: %v", name, err)
		}
		if preset.Retry.Idempotent != On {
			t.Errorf("%s does not repeat a POST", name)
		}
	}
	if b := Batch(); b.Deadline != time.Duration(b.Retry.MaxAttempts)*b.Timeouts.Attempt+time.Duration(b.Retry.MaxAttempts-1)*b.Retry.MaxDelay {
		t.Error("Batch's deadline is not the sum of its attempts and waits")
	}
	if i := Interactive(); i.Deadline < 2*i.Stream.FirstContent+i.Retry.MaxDelay {
		t.Error("Interactive's deadline has no room for both attempts")
	}
}
