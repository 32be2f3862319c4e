package transport

// Chains counts the chains that are kept for requests without an override.
func (t *Transport) Chains() (n int) {
	t.chains.Load().lines.Range(func(any, any) bool {
		n++
		return true
	})
	return n
}
