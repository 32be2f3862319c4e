package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDerive(t *testing.T) {
	var out strings.Builder
	svg := filepath.Join(t.TempDir(), "limits.svg")
	plan, err := run(t.Context(), &out, svg)
	t.Logf("\n%s", &out)
	if err != nil {
		t.Fatal(err)
	}
	// How the limits compare is not asserted: a machine that is busy enough is
	// slower than the server.
	t.Log(check(plan))
	for _, want := range []string{
		`chat "30k"    Stream.FirstContent  600ms`,
		`chat "short"  Stream.Gap           600ms`,
		"search        Timeouts.Read        600ms",
		"in flight at worst, against memory of 64 MiB, 1 MiB a call, for 64; a deadline of",
		svg,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output does not have %q", want)
		}
	}
	f, err := os.Open(svg)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	texts := 0
	for dec := xml.NewDecoder(f); ; {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the picture is no XML: %v", err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "text" {
			texts++
		}
	}
	if texts < 5*10 {
		t.Errorf("the picture has %d texts", texts)
	}
}
