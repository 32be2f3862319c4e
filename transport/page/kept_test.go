package page

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/layers"
)

// TestShortened: of a call that is kept for long, an error is its text, and no
// more of that than is shown.
func TestShortened(t *testing.T) {
	w := NewWatch()
	long := errors.New(strings.Repeat("no ", mostText))
	w.kept.of("").add(&layers.Trace{Number: 1, Attempts: 1, Err: long, Spans: []layers.Span{{Kind: layers.KindSend, Err: long}}}, true, 0)
	w.rest(time.Unix(0, 0))
	kept, found := w.kept.find(1)
	if !found {
		t.Fatal("the call is not kept")
	}
	for _, err := range []error{kept.Err, kept.Spans[0].Err} {
		if errors.Is(err, long) || len(err.Error()) > mostText+len("…") {
			t.Errorf("%d bytes of %d are kept, or the error itself", len(err.Error()), len(long.Error()))
		}
	}
}
