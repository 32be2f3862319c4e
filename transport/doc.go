// Package transport is the front door of weir: it compiles a policy into
// chains of layers and serves every request through the chain of its route.
//
// [New] checks the whole policy and refuses one that could not work. The
// [Transport] that it returns is an http.RoundTripper for any http.Client. A
// view made with [Transport.With] changes settings for some callers, an
// override of package policy for single calls; both share all state with the
// transport that they come from.
//
// # Concurrency
//
// A Transport and its views are safe for concurrent use. A Transport that is
// used inside a testing/synctest bubble must be made there, since its timers
// belong to it.
//
// # Errors
//
// Whatever ends a call comes back as a *[layers.Error], but for the end of the
// caller's own context, by its deadline too, which comes back as the context's own
// error, and for what the connection fails with while the body is read, such as
// [io.ErrUnexpectedEOF].
package transport
