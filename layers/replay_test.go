package layers

import (
	"io"
	"strings"
	"testing"
)

// TestRecordedAnew: a base that begins a send anew has the whole of a recorded body
// again, and the reading before no longer waits for it; but not once another send reads
// it, or none will follow, or more was read than is kept.
func TestRecordedAnew(t *testing.T) {
	for name, test := range map[string]struct {
		limit int64
		then  func(r *recorder)
		err   error
	}{
		"once more":      {5, func(*recorder) {}, nil},
		"too long":       {4, func(*recorder) {}, errNotRecorded},
		"another's now":  {5, func(r *recorder) { _, _ = r.reader() }, errSuperseded},
		"no other comes": {5, func(r *recorder) { r.release(new(Env)) }, errSuperseded},
	} {
		r := &recorder{src: io.NopCloser(strings.NewReader("hello")), limit: test.limit, turn: make(chan struct{}, 1)}
		first, _ := r.reader()
		if got, err := io.ReadAll(first); string(got) != "hello" || err != nil {
			t.Fatalf("%s: read %q, %v", name, got, err)
		}
		test.then(r)
		anew := first.(*recorded).getBody()
		for range 2 {
			again, err := anew()
			if err != test.err {
				t.Errorf("%s: %v, want %v", name, err, test.err)
			}
			if err != nil {
				continue
			}
			r.turn <- struct{}{} // as if it were read just now
			if n, err := first.Read(make([]byte, 1)); n != 0 || err != errSuperseded {
				t.Errorf("%s: the reading before waits on: %d, %v", name, n, err)
			}
			<-r.turn
			if got, err := io.ReadAll(again); string(got) != "hello" || err != nil {
				t.Errorf("%s: read %q again, %v", name, got, err)
			}
			first = again
		}
	}
}
