// Package route finds the patterns that match a request, all of them, in order
// from general to specific: what is set for a host holds for an endpoint of that
// host unless the endpoint's own pattern says otherwise.
//
// # Patterns
//
// A pattern is written [METHOD ][HOST[:PORT]]/[PATH], as for [net/http.ServeMux]:
//
//	/                          every request
//	GET /                      GET and HEAD
//	example.com/               one host, any port
//	*.example.com/             any host that ends in .example.com
//	localhost:11434/           one port
//	/reports                   one path
//	/reports/                  what lies below it, /reports/ included
//	/reports/{$}               /reports/ alone
//	/users/{id}/avatar         one segment of any text but none
//	POST api.example.com/v1/{rest...}
//
// The method is compared by case, an empty one is GET as it is for a client, and
// GET takes HEAD too. Hosts are compared without regard to the case of ASCII
// letters and to the dot at the end of a fully qualified name. Beyond ASCII they are
// compared as they are written: a name in Unicode is not the same as its xn-- form.
// The ports 80 and 443 are the same as none, since a pattern has no scheme. A pattern
// without a port matches every port. IPv6 addresses stand in brackets and are compared
// as text, the zone without the %25 of a URL.
//
// Paths are compared in their escaped form, segment by segment, each without its
// escapes: %41 is A, but %2F separates nothing. A segment with a malformed escape
// stands for itself. Nothing is cleaned: "//" has an empty segment, and "." and
// ".." are segments like others. An empty path is "/", and one that lacks its
// leading slash gets it.
//
// # Order
//
// Host, path and method are compared in this turn, and the first in which two
// patterns differ decides.
//
//   - Hosts: none, then wildcards, the shorter first, then hosts in full. Of one
//     host, the pattern without a port comes first.
//   - Paths are read from the left. At the first segment that differs, a trailing
//     slash or {name...} comes first, then {name}, then a literal. Where every path
//     of one pattern is matched by the other too, this puts the narrower one last.
//     Where paths cross, as those of /a/{x} and /{y}/b do, it is a choice: /a/{x},
//     literal first, is the more specific.
//   - Methods: none, then GET as it takes HEAD, then the request's own.
//
// The order in which patterns are given has no part in it. Crossing patterns are
// not refused here: [Overlapping] and [Pattern.Crosses] find them, and
// [Pattern.Common] gives a request to show for it.
//
// # Differences from ServeMux
//
// On patterns and requests that both take, the last pattern of the line is the one
// that ServeMux picks, but for these deliberate differences:
//
//   - Hosts are matched as said above, where ServeMux compares bytes and drops the
//     port of the request. What cannot be a host is refused.
//   - Patterns are in order even if one has the wider path and the other the wider
//     method (GET / and /a: the path decides), or if their paths cross.
//   - No request is cleaned or redirected. So /a/ does not match /a, and patterns
//     that only unclean paths match (GET //) are accepted.
//   - A segment that is %2F is like any other, where ServeMux takes it for the
//     slash at the end. {name} matches no empty segment anywhere, and an empty
//     segment of a pattern no other one, where ServeMux takes it for a wildcard.
//   - An empty method is GET, and CONNECT is like any other.
//   - A blank at the start or at an end of a segment, and control characters, ? and # in
//     a path, are refused: a pattern has no query. So is what elsewhere is a wildcard, and
//     here would match nothing that was meant: * in a path, a segment that begins with a
//     colon, and one in <> or []. As text they are %2A, %3A, %3C and %5B.
//   - A method is of letters, digits, - and _. What has other characters, as GET|POST or a
//     host with a blank after it, is refused.
//
// # Concurrency
//
// Patterns and tables are immutable, and safe for concurrent use.
package route
