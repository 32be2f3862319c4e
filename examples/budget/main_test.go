package main

import (
	"strings"
	"testing"
)

func TestBudget(t *testing.T) {
	var out strings.Builder
	again, err := run(t.Context(), &out)
	t.Logf("\n%s", &out)
	if again > 0 || err != nil {
		t.Errorf("%d 429s after the pause, error %v", again, err)
	}
}
