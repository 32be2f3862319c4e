// Package clocktest tests code that waits, without waiting.
package clocktest
