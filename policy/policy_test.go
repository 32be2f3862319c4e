package policy

import (
	"errors"
	"testing"
	"time"
)

func TestSmoke(t *testing.T) {
	tab, err := Compile(Policy{
		Settings: Settings{Deadline: 20 * time.Second},
		Routes: []Route{
			{Pattern: "GET /reports/", Settings: Settings{Deadline: 10 * time.Minute, Timeouts: Timeouts{Read: 5 * time.Minute}}},
			{Pattern: "api.example.com/", Settings: Settings{Rate: Rate{PerSecond: 10, Key: ByRoute}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	l := tab.Line("GET", "api.example.com", "/reports/1")
	r, err := l.Resolve(Settings{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	_, err = Compile(Policy{
		Settings: Settings{Deadline: 20 * time.Second, Retry: Retry{MaxAttempts: 11}, Stream: Stream{Enabled: On}},
		Routes: []Route{
			{Pattern: "GET /reports/", Settings: Settings{Timeouts: Timeouts{Read: 5 * time.Minute}}},
			{Pattern: "/a/{x}", Settings: Settings{Rate: Rate{Burst: 10, Enabled: On, MaxWait: 1e12}}},
			{Pattern: "/{x}/a", Settings: Settings{Rate: Rate{Burst: 10, Enabled: On, MaxWait: -2}}},
			{Pattern: "/{x}/a", Name: "call", Settings: Settings{Hedge: Hedge{Delay: 10 * time.Second, Max: 2}}},
		},
	})
	t.Log(err)
	var ce *ConfigError
	if !errors.As(err, &ce) {
		t.Fatal()
	}
}

func BenchmarkLine(b *testing.B) {
	tab, err := Compile(Policy{Routes: []Route{
		{Pattern: "GET /reports/", Settings: Settings{Deadline: 10 * time.Minute}},
		{Pattern: "api.example.com/", Settings: Settings{Rate: Rate{PerSecond: 10, Key: ByRoute}}},
	}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		tab.Line("GET", "api.example.com", "/reports/1")
	}
}

func BenchmarkResolve(b *testing.B) {
	tab, _ := Compile(Policy{})
	l := tab.Line("GET", "api.example.com", "/reports/1")
	b.ReportAllocs()
	for b.Loop() {
		l.Resolve(Settings{}, nil)
	}
}
