package layers_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/weir-go/weir/layers"
)

// TestCloseBody: who refuses a request may close its body with an Env that nothing has
// used yet.
func TestCloseBody(t *testing.T) {
	for _, env := range []*layers.Env{nil, {}} {
		body, w := io.Pipe()
		env.CloseBody(&http.Request{Body: body})
		if _, err := io.Copy(w, strings.NewReader("x")); err != io.ErrClosedPipe {
			t.Errorf("after it, a write has %v", err)
		}
		env.CloseBody(&http.Request{})
	}
}
