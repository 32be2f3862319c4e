package route

// An index is a node's branches by literal: a hash table with open addressing, at
// most half full. A map does the same, but over 10,000 patterns BenchmarkTable is a
// sixth slower with one: this is one array, and its hash is cheap for short keys.
type index[V any] []branch[V]

type branch[V any] struct {
	text string
	node *node[V] // nil: the place is free
}

func newIndex[V any](branches []branch[V]) index[V] {
	if len(branches) == 0 {
		return nil
	}
	size := uint(2) // always a power of two
	for size < 2*uint(len(branches)) {
		size *= 2
	}
	x := make(index[V], size)
	for _, b := range branches {
		i := hash(b.text)
		for x[i&(size-1)].node != nil {
			i++
		}
		x[i&(size-1)] = b
	}
	return x
}

// find returns the node for a literal, or nil.
func (x index[V]) find(text string) *node[V] {
	if len(x) == 0 {
		return nil
	}
	for i := hash(text); ; i++ {
		if b := &x[i&uint(len(x)-1)]; b.node == nil || b.text == text {
			return b.node
		}
	}
}

func hash(s string) (h uint) {
	for i := range len(s) {
		h = h*31 + uint(s[i])
	}
	return h
}
