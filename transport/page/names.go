package page

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
)

// origin matches what a key of [policy.ByOrigin] looks like.
var origin = regexp.MustCompile(`^https?://[-\w.:\[\]]+$`)

// idOf names a state in a form and tells nothing of it.
func (h *handler) idOf(n numbered) string {
	sum := sha256.New()
	sum.Write(h.salt[:])
	id := n.id()
	for _, part := range []string{id.Section, id.Budget, id.Pattern, n.key()} {
		sum.Write([]byte(part))
		sum.Write([]byte{0xff}) // which is in no text
	}
	return hex.EncodeToString(sum.Sum(nil)[:12])
}

// keyOf is what is shown of a state's key. Other processes show another name for
// the same key.
func (h *handler) keyOf(n numbered, id string, patterns map[string]bool) string {
	if key := n.key(); h.o.ShowKeys || patterns[key] || origin.MatchString(key) {
		return key
	}
	return "key " + id[:8]
}
