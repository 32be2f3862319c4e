package batch

import (
	"strings"
	"testing"
	"time"
)

func TestProgressText(t *testing.T) {
	const hour = time.Hour
	for name, test := range map[string]struct {
		p         progress
		line, bar string
	}{
		"begin": {progress{job: "night", items: 500, deadline: hour},
			"night: 0% done, 0/500, 0/s, deadline in 1h0m0s",
			"[------------------------------]   0%  0/500, 0/s, deadline in 1h0m0s"},
		"on time": {progress{job: "night", items: 500, done: 187, failed: 3, rate: 24.12, deadline: hour},
			"night: 37% done, 187/500, 3 failed, 24.1/s, 13s left",
			"[###########-------------------]  37%  187/500, 3 failed, 24.1/s, 13s left"},
		"late": {progress{items: 500, done: 100, rate: 2, deadline: 100 * time.Second},
			"20% done, 100/500, 2/s, 3m20s left, deadline in 1m40s",
			"[#####----------------------]  20%  100/500, 2/s, 3m20s left, deadline in 1m40s"},
		"no deadline": {progress{items: 3, done: 1, rate: 0.001, deadline: never},
			"33% done, 1/3, 0.001/s, 33m20s left",
			"[##########--------------------]  33%  1/3, 0.001/s, 33m20s left"},
		"paused": {progress{items: 500, done: 100, deadline: hour, paused: 4300 * time.Millisecond},
			"20% done, 100/500, 0/s, paused for 4.3s, deadline in 1h0m0s",
			""},
		"large": {progress{items: 5_000_000, done: 4_999_000, failed: 999, rate: 12345.6, deadline: hour},
			"99% done, 4999000/5000000, 999 failed, 1.23e+04/s, 0s left",
			""},
		"ended": {progress{items: 500, done: 400, failed: 1, deadline: 0, ended: true, elapsed: 2512 * time.Millisecond},
			"80% done, 400/500, 1 failed, 99 unprocessed, in 2.5s",
			"[######################------]  80%  400/500, 1 failed, 99 unprocessed, in 2.5s"},
		"no items": {progress{deadline: never, ended: true},
			"0% done, 0/0, 0 unprocessed, in 0s",
			""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.p.line(); got != test.line+"\n" {
				t.Errorf("line\n%q, want\n%q", got, test.line)
			}
			got, ended := strings.CutSuffix(test.p.bar(), "\n")
			if ended != test.p.ended || len(got) != 1+columns || got[0] != '\r' {
				t.Errorf("bar %q", got)
			}
			if test.bar != "" && strings.TrimRight(got[1:], " ") != test.bar {
				t.Errorf("bar\n%q, want\n%q", got[1:], test.bar)
			}
		})
	}
}

// The rate is that of the last half to full minute.
func TestSpeed(t *testing.T) {
	var s speed
	n := 700 // done before
	for at := instant(0); at <= 10*time.Minute; at += time.Second {
		got := s.at(at, n)
		want := 10.0
		switch {
		case at == 0:
			want = 0
		case at > 6*time.Minute:
			want = 2
		case at > 5*time.Minute:
			want = got // changing
		}
		if got != want {
			t.Fatalf("at %v: %v, want %v", at, got, want)
		}
		if at < 5*time.Minute {
			n += 10
		} else {
			n += 2
		}
	}
}
