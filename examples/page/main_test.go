package main

import (
	"context"
	"strings"
	"testing"
	"time"
)

func TestPage(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	var out strings.Builder
	if err := run(ctx, &out, "127.0.0.1:0", true); err != nil {
		t.Error(err)
	}
	t.Logf("\n%s", &out)
}
