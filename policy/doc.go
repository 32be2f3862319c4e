// Package policy holds what users of weir write: the settings of a call, the
// routes that they apply to, how they are inherited, what is refused at
// construction, and an explanation of the outcome.
package policy
