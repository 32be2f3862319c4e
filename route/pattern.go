package route

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A Pattern is a set of requests. The zero Pattern matches none.
type Pattern struct {
	method   string // "" is any
	name     string // the host without its port, in canonical form; "" is any
	port     string // "" is any
	path     string // as written
	segments []segment
}

// A segment is a piece of a pattern's path. A slash at the end of a path opens one
// more segment, which is empty, so the forms at the end need no kinds of their own:
// "/a/{$}" is the literals "a" and "", and "/a/" is "a" and a rest without a name.
type segment struct {
	kind kind
	text string // a literal without its escapes, or the name of a wildcard
}

// kind tells what a segment matches, from general to specific.
type kind uint8

const (
	rest    kind = iota // one segment or more
	wild                // one segment that is not empty
	literal             // the segment of this text
)

// A SyntaxError says why Parse refused a pattern, and what to write instead.
type SyntaxError struct {
	Pattern string
	Offset  int // in bytes, where the offending part of Pattern begins
	Reason  string
}

// Error names the pattern, the offset and the reason.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("malformed pattern %q, at offset %d: %s", e.Pattern, e.Offset, e.Reason)
}

// Parse reads a pattern. An error is a *SyntaxError.
func Parse(s string) (Pattern, error) {
	var p Pattern
	todo := s // from where the error is, if one occurs
	fail := func(reason string) (Pattern, error) {
		return Pattern{}, &SyntaxError{s, len(s) - len(todo), reason}
	}
	if i := strings.IndexAny(s, " \t"); i >= 0 {
		p.method = s[:i]
		if !isMethod(p.method) {
			return fail(fmt.Sprintf("%q before the blank is no method; write one such as GET, or none for all, no blank after a host, and %%20 for one in a path", p.method))
		}
		todo = strings.TrimLeft(s[i:], " \t")
	}
	slash := strings.IndexByte(todo, '/')
	if slash < 0 {
		return fail("no path; end in / to match every path")
	}
	host := todo[:slash]
	if strings.HasSuffix(host, ":") && strings.HasPrefix(todo[slash:], "//") {
		return fail(fmt.Sprintf("a pattern has no scheme; remove %s//", host))
	}
	if reason := checkHost(host); reason != "" {
		return fail(reason)
	}
	name, port := splitHost(host)
	p.name, p.port = string(appendLower(nil, name)), port

	todo = todo[slash:]
	p.path = todo
	for todo != "" {
		todo = todo[1:]
		text, _, more := strings.Cut(todo, "/")
		seg, reason := parseSegment(text, !more)
		if reason != "" {
			return fail(reason)
		}
		if seg.kind != literal && slices.ContainsFunc(p.segments, func(o segment) bool {
			return o.kind != literal && o.text == seg.text
		}) {
			return fail(fmt.Sprintf("a second wildcard is named %q; give each a name of its own", seg.text))
		}
		p.segments = append(p.segments, seg)
		todo = todo[len(text):]
	}
	return p, nil
}

// parseSegment reads one segment. The reason is empty unless it is malformed.
func parseSegment(text string, last bool) (_ segment, reason string) {
	if text == "" && last {
		return segment{kind: rest}, ""
	}
	if i := strings.IndexAny(text, "?#"); i >= 0 {
		return segment{}, fmt.Sprintf("a pattern has no query or fragment; in a path, write %c as %%%X", text[i], text[i])
	}
	if strings.Contains(text, "*") { // a glob, which would match nothing
		return segment{}, "* is no wildcard in a path; end in / for all that lies below, write {name} for a segment, and %2A for the character"
	}
	if name, found := strings.CutPrefix(text, ":"); found {
		return segment{}, fmt.Sprintf("%s is no wildcard; write {%s}, or %%3A%s for the text", text, cmp.Or(name, "name"), name)
	}
	if text != "" && (text[0] == '<' || text[0] == '[') && text[len(text)-1] == text[0]+2 { // > and ]
		return segment{}, fmt.Sprintf("%s is no wildcard; write {name}, or %%%X for the %[2]c of a text", text, text[0])
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }); i >= 0 {
		return segment{}, fmt.Sprintf("%q cannot stand in a path; remove it, or write it as %%%02X", text[i], text[i])
	}
	if strings.Trim(text, " ") != text {
		return segment{}, fmt.Sprintf("%q has a blank at its end; remove it, or write it as %%20", text)
	}
	if !strings.Contains(text, "{") {
		if strings.Contains(text, "%") {
			text = string(appendUnescaped(nil, text))
		}
		return segment{literal, text}, ""
	}
	if text[0] != '{' || text[len(text)-1] != '}' {
		return segment{}, fmt.Sprintf("%q is no wildcard, which is a whole segment from { to }; write a literal { as %%7B", text)
	}
	name := text[1 : len(text)-1]
	name, multi := strings.CutSuffix(name, "...")
	if !last && (multi || name == "$") {
		return segment{}, fmt.Sprintf("%s is the end of a path; remove what follows it", text)
	}
	switch {
	case name == "$" && !multi:
		return segment{kind: literal}, ""
	case !isIdentifier(name):
		return segment{}, fmt.Sprintf("%q is no name for a wildcard; use letters, digits and _, and begin with no digit", name)
	case multi:
		return segment{rest, name}, ""
	}
	return segment{wild, name}, ""
}

// checkHost returns why host cannot stand in a pattern, or "" if it can.
func checkHost(host string) (reason string) {
	if host == "" {
		return ""
	}
	if strings.Contains(host, "{") {
		return "a host has no {wildcards}; begin a path with /, and a host with *. to match its subdomains"
	}
	name, port, found := cutPort(host)
	if found && port == "" {
		return "a port is missing; remove the colon"
	}
	if found && name == "" {
		return "a port has no host before it; name the host too, or neither"
	}
	if _, err := strconv.ParseUint(port, 10, 16); found && (err != nil || port[0] == '0') {
		return fmt.Sprintf("%q is no port; write a number from 1 to 65535", port)
	}
	if strings.HasPrefix(name, "[") {
		inner, closed := strings.CutSuffix(name[1:], "]")
		addr, err := netip.ParseAddr(inner)
		if !closed || err != nil || !addr.Is6() {
			return fmt.Sprintf("%q is no IPv6 address in brackets", name)
		}
		if zone, found := strings.CutPrefix(addr.Zone(), "25"); found && zone != "" && (zone[0] < '0' || zone[0] > '9') {
			return fmt.Sprintf("%%25 is the escape of URLs; write [%v%%%s]", addr.WithZone(""), zone)
		}
		for _, c := range []byte(addr.Zone()) { // RFC 6874 section 2
			if !isAlphanumeric(c) && !strings.ContainsRune("-._~", rune(c)) {
				return fmt.Sprintf("%q cannot stand in the zone of an IPv6 address", c)
			}
		}
		return ""
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(strings.TrimPrefix(name, "*."), "."), ".") {
		if label == "" {
			return fmt.Sprintf("%q has an empty label", name)
		}
		i := strings.IndexFunc(label, func(r rune) bool {
			return r < 0x80 && !isAlphanumeric(byte(r)) && r != '-' && r != '_'
		})
		if i < 0 {
			continue
		}
		switch label[i] {
		case '*':
			return "* is a label of its own before the others, as in *.example.com; to match every host, write none"
		case ':':
			return "a host has one colon at most; write an IPv6 address in brackets"
		}
		return fmt.Sprintf("%q cannot stand in a host", label[i])
	}
	return ""
}

// Method returns the method, or "" for any.
func (p Pattern) Method() string { return p.method }

// Host returns the host and its port in canonical form: in lower case, without a
// default port and without a dot at the end. For any host it returns "".
func (p Pattern) Host() string {
	if p.port == "" {
		return p.name
	}
	return p.name + ":" + p.port
}

// Path returns the path as it was written.
func (p Pattern) Path() string { return p.path }

// String returns the pattern with its host in canonical form. Parse reads it back
// as an equal Pattern.
func (p Pattern) String() string {
	if p.method == "" {
		return p.Host() + p.path
	}
	return p.method + " " + p.Host() + p.path
}

// splitHost splits a host, a pattern's or a request's, without what says nothing: a
// default port, and the dot at the end of a fully qualified name.
func splitHost(host string) (name, port string) {
	name, port, _ = cutPort(host)
	if port == "80" || port == "443" {
		port = ""
	}
	return strings.TrimSuffix(name, "."), port
}

func cutPort(host string) (name, port string, found bool) {
	i := strings.LastIndexByte(host, ':')
	if i < 0 || i < strings.LastIndexByte(host, ']') { // none, or inside the brackets
		return host, "", false
	}
	return host[:i], host[i+1:], true
}

// appendLower appends s with its ASCII letters in lower case (RFC 4343).
func appendLower(dst []byte, s string) []byte {
	for _, c := range []byte(s) {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return dst
}

// appendUnescaped appends a segment without its percent escapes, or as it stands if
// one of them is malformed. Unlike [net/url.PathUnescape], it leaves the choice of
// memory to its caller.
func appendUnescaped(dst []byte, segment string) []byte {
	start := len(dst)
	for todo := segment; ; {
		text, escape, found := strings.Cut(todo, "%")
		dst = append(dst, text...)
		if !found {
			return dst
		}
		var c [1]byte
		if n, _ := hex.Decode(c[:], []byte(escape[:min(2, len(escape))])); n == 0 {
			return append(dst[:start], segment...)
		}
		dst, todo = append(dst, c[0]), escape[2:]
	}
}

// isMethod reports whether s is what methods are made of. Any token could be one
// (RFC 9110, section 9.1), but *, GET|POST and example.com are not meant as such.
func isMethod(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r >= 0x80 || !isAlphanumeric(byte(r)) && r != '-' && r != '_'
	})
}

// isIdentifier reports whether s is written like a Go identifier.
func isIdentifier(s string) bool {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r)) {
			return false
		}
	}
	return s != ""
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
