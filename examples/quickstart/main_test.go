package main

import (
	"strings"
	"testing"
)

func TestQuickstart(t *testing.T) {
	var out strings.Builder
	late, err := run(t.Context(), &out)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", &out)
	if late > 0 {
		t.Errorf("%d calls outlived their deadline", late)
	}
	if !strings.Contains(out.String(), "503 Service Unavailable, sends: 1, deadline exhausted") {
		t.Error("a hint beyond the deadline must end the call at once")
	}
	if got := strings.Count(out.String(), "  start\n"); got < len(calls) {
		t.Errorf("%d calls have a timeline, want %d", got, len(calls))
	}
}
