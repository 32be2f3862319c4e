package main

import (
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Errorf("%v\n%s", err, &out)
	}
	for _, want := range []string{"openai-chat over sse", "given up in send 2", "given up in send 1", "complete, in send 2"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, &out)
		}
	}
}
