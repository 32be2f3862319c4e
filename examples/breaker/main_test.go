package main

import (
	"strings"
	"testing"
)

func TestBreaker(t *testing.T) {
	var out strings.Builder
	err := run(t.Context(), &out)
	t.Logf("\n%s", &out)
	if err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "the circuit is open") {
		t.Error("the circuit never opened")
	}
}
