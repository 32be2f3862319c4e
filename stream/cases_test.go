package stream

import (
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"strconv"
	"strings"
	"testing"
)

// load reads the cases of a file in testdata.
func load[T any](t testing.TB, name string) []T {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var cases []T
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

// A wirePart is a text, as it is or in base64, so many times.
type wirePart struct {
	Text   string
	Base64 []byte
	Repeat int
}

func join(parts []wirePart) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(strings.Repeat(p.Text+string(p.Base64), max(p.Repeat, 1)))
	}
	return b.String()
}

// chunkings yields a text whole, byte by byte, and split in two at every place,
// each with a name. Of a long text only some places are tried, and those around
// the end of what is kept of an event.
func chunkings(text string) iter.Seq2[string, []string] {
	return func(yield func(string, []string) bool) {
		if !yield("whole", []string{text}) {
			return
		}
		var bytes []string
		for i := range len(text) {
			bytes = append(bytes, text[i:i+1])
		}
		if !yield("bytes", bytes) {
			return
		}
		step := 1
		if len(text) > 4096 {
			step = max(997, len(text)/40)
		}
		for i := 1; i < len(text); i += step {
			if !yield("split at "+strconv.Itoa(i), []string{text[:i], text[i:]}) {
				return
			}
			if step > 1 && i < maxPrefix && i+step > maxPrefix {
				for j := maxPrefix - 10; j < maxPrefix+10 && j < len(text); j++ {
					if !yield("split at "+strconv.Itoa(j), []string{text[:j], text[j:]}) {
						return
					}
				}
			}
		}
	}
}

// brief is a value as a message shows it.
func brief(v any) string { return fmt.Sprintf("%.300s", fmt.Sprintf("%+q", fmt.Sprint(v))) }
