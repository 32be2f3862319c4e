package main

import (
	"context"
	"os"
	"strings"
	"testing"
)

// The runs of the job are processes of this binary.
func TestMain(m *testing.M) {
	if j, ok := jobFromEnv(); ok {
		os.Exit(j.run(context.Background()))
	}
	m.Run()
}

func TestBatch(t *testing.T) {
	var out strings.Builder
	err := run(t.Context(), &out)
	t.Logf("\n%s", &out)
	if err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "500 of 500 documents done") || !strings.Contains(out.String(), "paused") {
		t.Error("the job is not done, or never paused")
	}
}
