package hint

import (
	"testing"
	"time"
)

func TestExhausted(t *testing.T) {
	for _, c := range []struct {
		line string
		want time.Duration
		ok   bool
	}{
		{`"default";r=0;t=30`, 30 * time.Second, true},
		{`"default";t=30;r=0`, 30 * time.Second, true},
		{`  "default"; r=0;  t=30  `, 30 * time.Second, true},
		{`"a";r=0;t=2,"b";r=0;t=600`, 10 * time.Minute, true},
		{"\"a\";r=0;t=2 \t,\t \"b\";r=5;t=600", 2 * time.Second, true},
		{`"a";r=0;t=0`, 0, true},
		{`"a";r=-0;t=007`, 7 * time.Second, true},
		{`"a";r=5;r=0;t=1;t=9`, 9 * time.Second, true}, // RFC 9651 section 4.2.3.2: the last of a name.
		{`"a";r=0;t=999999999999999`, longestWait, true},
		{`"a\"\\;r=5,";r=0;t=30`, 30 * time.Second, true},
		{`default;r=0;t=30`, 30 * time.Second, true},
		{`"a";r=0;t=30;pk=:dHJpYWw=:;x;y=?1;z=*tok/en:;w=-1.5;*d=@-62;e="s";u=%"f%c3%bc%22"`, 30 * time.Second, true},
		{`12;r=0;t=30, -1.125;r=1, :YQ==:;r=1, ?0;r=1, @1;r=1, tok`, 30 * time.Second, true},

		// Well formed, but saying nothing of a wait.
		{``, 0, false},
		{`"a"`, 0, false},
		{`"a";r=0`, 0, false},
		{`"a";t=30`, 0, false},
		{`"a";r=1;t=30`, 0, false},
		{`"a";r=0;t=-1`, 0, false},
		{`"a";r=-1;t=30`, 0, false},
		{`"a";r=0.0;t=30`, 0, false},
		{`"a";r="0";t=30`, 0, false},
		{`"a";r=0;t=1.5`, 0, false},
		{`"a";r=0;t`, 0, false},
		{`"a";r=0;r;t=30`, 0, false},
		{`"a";r=?0;t=@30`, 0, false},

		// An item that says nothing leaves the others.
		{`"a";r=0;t=-1, "b";r=0;t=9`, 9 * time.Second, true},

		// Malformed: ignored whole, the good items included.
		{`"a;r=0;t=30`, 0, false},
		{`"a";r=0;t=30,`, 0, false},
		{`,"a";r=0;t=30`, 0, false},
		{`"a";r=0;t=30,,"b"`, 0, false},
		{`"a";r=0;t=30 "b"`, 0, false},
		{`"a";r=0;t=30;`, 0, false},
		{`"a";r=0;t=`, 0, false},
		{`"a" ;r=0;t=30`, 0, false},
		{`"a";r =0;t=30`, 0, false},
		{"\"a\";\tr=0;t=30", 0, false},
		{`"a";R=0;t=30`, 0, false},
		{`"a";r=+0;t=30`, 0, false},
		{`"a";r=-;t=30`, 0, false},
		{`"a";r=0;t=1000000000000000`, 0, false}, // RFC 9651 section 4.2.4: fifteen digits at most.
		{`"a";r=0;t=30;x=1234567890123.5`, 0, false},
		{`"a";r=0;t=30;x=1.`, 0, false},
		{`"a";r=0;t=30;x=1.2345`, 0, false},
		{`"a";r=0;t=30;x="\a"`, 0, false},
		{`"a";r=0;t=30;x="\`, 0, false},
		{"\"a\u00e9\";r=0;t=30", 0, false},
		{"\"a\x7f\";r=0;t=30", 0, false},
		{`"a";r=0;t=30;x=:a`, 0, false},
		{`"a";r=0;t=30;x=:a-b:`, 0, false},
		{`"a";r=0;t=30;x=?2`, 0, false},
		{`"a";r=0;t=30;x=?`, 0, false},
		{`"a";r=0;t=30;x=@`, 0, false},
		{`"a";r=0;t=30;x=@1.5`, 0, false},
		{`"a";r=0;t=30;x=%`, 0, false},
		{`"a";r=0;t=30;x=%"%C3%BC"`, 0, false},
		{`"a";r=0;t=30;x=%"%c"`, 0, false},
		{`"a";r=0;t=30;x=%"%`, 0, false},
		{`"a";r=0;t=30;x=%"a`, 0, false},
		{"\"a\";r=0;t=30;x=%\"\x01\"", 0, false},
		{`("a" "b");r=0;t=30`, 0, false}, // The draft has a List of Items: no inner lists.
		{`limit=100, remaining=0, reset=30`, 0, false},
	} {
		if got, ok := exhausted(c.line); got != c.want || ok != c.ok {
			t.Errorf("exhausted(%q) = %v, %t, want %v, %t", c.line, got, ok, c.want, c.ok)
		}
	}
}
