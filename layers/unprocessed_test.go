package layers

import (
	"fmt"
	"testing"
)

// TestUnprocessed: a stream that HTTP/2 refused was not processed; one that it
// cancelled may have been.
func TestUnprocessed(t *testing.T) {
	for code, want := range map[uint32]bool{7: true, 8: false, 0: false} { // RFC 9113 section 7
		if got := unprocessed(fmt.Errorf("a send: %w", streamError{Code: code})); got != want {
			t.Errorf("error code %d: %v, want %v", code, got, want)
		}
	}
}
