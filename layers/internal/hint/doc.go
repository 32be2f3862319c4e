// Package hint reads from a response's header fields when its server wants the
// client to come back.
//
// # Precedence
//
// The first of these that says something usable decides, and a value that does
// not parse leaves the next:
//
//  1. retry-after-ms, the finer form of Retry-After that Azure and OpenAI send;
//  2. Retry-After, in seconds or as any of the three forms of an HTTP-date
//     (RFC 9110 sections 10.2.3 and 5.6.7);
//  3. RateLimit, in the list form of draft-ietf-httpapi-ratelimit-headers-11,
//     whose section 7 lets Retry-After take precedence;
//  4. the largest reset among those x-ratelimit-* and anthropic-ratelimit-*
//     groups of which nothing remains.
//
// RateLimit-Policy is not read. It tells of a policy, not of now, and section 7
// of the draft lets a client ignore it. The separate RateLimit-Limit, -Remaining
// and -Reset fields of older drafts are not read either.
//
// # Robustness
//
// A wait is never negative and never wraps: what does not fit a [time.Duration]
// is the longest one. No cap is applied. Of several lines of one field the
// longest wait counts, and a line that does not parse takes nothing away from
// the others, so that garbage which a server or a proxy adds never makes a
// client come back earlier.
//
// Field names are looked up in canonical form, which is what net/http delivers.
package hint
