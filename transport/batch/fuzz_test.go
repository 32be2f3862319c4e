package batch

import (
	"bytes"
	"errors"
	"testing"
)

// FuzzCursor gives the decoder whatever comes, and the same with the checksum
// that belongs to it, so that the fuzzer gets past that.
func FuzzCursor(f *testing.F) {
	c := Cursor{job: "summaries", items: 50, sum: sumOf(nil), done: spans{{0, 10}, {12, 13}, {20, 50}}, failed: spans{{10, 12}}}
	text, _ := c.MarshalText()
	f.Add(text)
	f.Add(text[:len(text)-len("sum \n")-64])
	f.Add([]byte("weir batch cursor, format 2\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, text := range [][]byte{data, seal(bytes.Clone(data))} {
			var c Cursor
			if err := c.UnmarshalText(text); err != nil {
				if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer) {
					t.Errorf("%q: %v", text, err)
				}
				continue
			}
			again, err := c.MarshalText()
			if err != nil || !bytes.Equal(again, text) {
				t.Errorf("%q came back as %q, %v", text, again, err)
			}
			for _, s := range []spans{c.done, c.failed} {
				last := -1
				for _, r := range s {
					if r.lo <= last || r.hi <= r.lo || r.hi > c.items {
						t.Errorf("%q has the ranges %v", text, s)
					}
					last = r.hi
				}
			}
			if n := c.Done(); n < 0 || n > c.items {
				t.Errorf("%q: %d done", text, n)
			}
			_ = c.resume(&Cursor{job: c.job, items: 2}, []string{"a", "b"})
		}
	})
}
