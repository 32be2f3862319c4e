package main

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "put the output into the README")

// TestReadme: the README shows what the program prints.
func TestReadme(t *testing.T) {
	t.Chdir("../..")
	_, good, _ := explained(t)
	_, _, faults := explained(t, "-policy", "examples/explain/testdata/impossible.json")
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	readme := string(b)
	for mark, want := range map[string]string{"explain": good, "impossible": faults} {
		head, rest, found := strings.Cut(readme, "<!-- "+mark+" -->\n```text\n")
		shown, tail, closed := strings.Cut(rest, "```\n")
		if !found || !closed {
			t.Fatalf("the README has no place marked %q", mark)
		}
		if shown != want && !*update {
			t.Errorf("the README shows this (go test ./examples/explain -update puts it right):\n%s\nthe program prints this:\n%s", shown, want)
		}
		readme = head + "<!-- " + mark + " -->\n```text\n" + want + "```\n" + tail
	}
	if *update {
		if err := os.WriteFile("README.md", []byte(readme), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
