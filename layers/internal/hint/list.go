package hint

import (
	"strings"
	"time"
)

// exhausted reads one line of a RateLimit field, a List of structured fields
// (RFC 9651 section 4.2.1), and returns the longest effective window t among
// the items whose available quota r is zero. In
//
//	"burst";r=0;t=2, "daily";r=900;t=40000
//
// that is two seconds. A line that breaks the grammar is ignored whole, while an
// item whose r or t is no Integer, negative or missing only says nothing itself.
//
// RFC 9651 would join several lines before it parses them, and drop all for the
// fault of one. They are read one by one here, so that a broken line never hides
// a wait that another one asks for.
func exhausted(line string) (wait time.Duration, ok bool) {
	s := strings.Trim(line, " ")
	for {
		r, t, rest, valid := serviceLimit(s)
		if !valid {
			return 0, false
		}
		if r == 0 && t >= 0 {
			wait, ok = max(wait, times(t, time.Second)), true
		}
		s = strings.TrimLeft(rest, " \t")
		if s == "" {
			return wait, ok
		}
		if s[0] != ',' {
			return 0, false
		}
		s = strings.TrimLeft(s[1:], " \t")
	}
}

// serviceLimit reads an Item and its Parameters (RFC 9651 sections 4.2.3 and
// 4.2.3.2) from the front of s. Of the parameters it returns r and t, or -1 in
// place of what is no Integer of at least zero; the others are comments by
// section 4.1 of the draft, and only have to be well formed.
func serviceLimit(s string) (r, t int64, rest string, ok bool) {
	r, t = -1, -1
	_, s, ok = bareItem(s)
	for ok && strings.HasPrefix(s, ";") {
		s = strings.TrimLeft(s[1:], " ")
		if s == "" || !isLower(s[0]) && s[0] != '*' {
			return 0, 0, "", false
		}
		i := span(s, func(c byte) bool {
			return isLower(c) || isDigit(c) || strings.IndexByte("_-.*", c) >= 0
		})
		var key string
		key, s = s[:i], s[i:]
		n := int64(-1) // A key alone is a Boolean.
		if strings.HasPrefix(s, "=") {
			n, s, ok = bareItem(s[1:])
		}
		switch key {
		case "r":
			r = n
		case "t":
			t = n
		}
	}
	return r, t, s, ok
}

// bareItem reads a bare item (RFC 9651 section 4.2.3.1) from the front of s. It
// returns the value of an Integer of at least zero, and -1 for anything else.
func bareItem(s string) (n int64, rest string, ok bool) {
	if s == "" {
		return 0, "", false
	}
	switch c := s[0]; {
	case c == '-' || isDigit(c):
		return sfNumber(s)
	case c == '"':
		rest, ok = sfString(s[1:])
	case c == '*' || isAlpha(c):
		rest, ok = s[span(s, isTokenChar):], true
	case c == ':': // A Byte Sequence.
		i := 1 + span(s[1:], func(c byte) bool {
			return isAlpha(c) || isDigit(c) || strings.IndexByte("+/=", c) >= 0
		})
		rest, ok = strings.CutPrefix(s[i:], ":")
	case c == '?': // A Boolean.
		ok = len(s) > 1 && (s[1] == '0' || s[1] == '1')
		rest = s[min(2, len(s)):]
	case c == '@': // A Date: its seconds are an Integer.
		_, rest, ok = sfNumber(s[1:])
		ok = ok && strings.IndexByte(s[:len(s)-len(rest)], '.') < 0
	case c == '%': // A Display String.
		if rest, ok = strings.CutPrefix(s[1:], `"`); ok {
			rest, ok = sfDisplayString(rest)
		}
	}
	return -1, rest, ok
}

// sfNumber reads an Integer of up to fifteen digits, or a Decimal of up to
// twelve and three (RFC 9651 section 4.2.4).
func sfNumber(s string) (n int64, rest string, ok bool) {
	positive, negative := strings.CutPrefix(s, "-")
	i := span(positive, isDigit)
	n, ok = digits(positive[:i])
	rest = positive[i:]
	if decimals, point := strings.CutPrefix(rest, "."); point {
		j := span(decimals, isDigit)
		return -1, decimals[j:], ok && i <= 12 && 1 <= j && j <= 3
	}
	if negative && n > 0 {
		n = -1
	}
	return n, rest, ok && i <= 15
}

// sfString reads a String, after its opening quote (RFC 9651 section 4.2.5).
func sfString(s string) (rest string, ok bool) {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return s[i+1:], true
		case c == '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", false
			}
		case c < ' ' || c > '~':
			return "", false
		}
	}
	return "", false
}

// sfDisplayString reads a Display String, after its opening quote (RFC 9651
// section 4.2.10). Since nobody looks at it, whether its escapes decode to UTF-8
// is not asked.
func sfDisplayString(s string) (rest string, ok bool) {
	isHex := func(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' }
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return s[i+1:], true
		case c == '%':
			if len(s) < i+3 || !isHex(s[i+1]) || !isHex(s[i+2]) {
				return "", false
			}
			i += 2
		case c < ' ' || c > '~':
			return "", false
		}
	}
	return "", false
}

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
func isAlpha(c byte) bool { return isLower(c | 0x20) }

// isTokenChar reports whether c may stand in a Token (RFC 9651 section 3.3.4).
func isTokenChar(c byte) bool {
	return isAlpha(c) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}
