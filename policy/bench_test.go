package policy

import (
	"fmt"
	"strconv"
	"testing"
	"time"
)

func routes(n int) (p Policy) {
	p.Routes = []Route{{Pattern: "*.example.com/", Settings: Settings{Rate: Rate{PerSecond: 10}}}}
	for i := range n {
		p.Routes = append(p.Routes, Route{
			Pattern:  fmt.Sprintf("GET api%d.example.com/v1/things%d/{id}/parts/", i%10, i),
			Settings: Settings{Deadline: time.Minute},
		})
	}
	return p
}

func BenchmarkCompile(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			p := routes(n)
			b.ReportAllocs()
			for b.Loop() {
				mustCompile(b, p)
			}
		})
	}
}

func BenchmarkLine(b *testing.B) {
	table := mustCompile(b, routes(100))
	b.ReportAllocs()
	for b.Loop() {
		table.Line("GET", "api7.example.com", "/v1/things17/1/parts/2")
	}
}

func BenchmarkResolve(b *testing.B) {
	line := mustCompile(b, routes(100)).Line("GET", "api7.example.com", "/v1/things17/1/parts/2")
	override := NewOverride(Settings{Deadline: time.Second})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := line.Resolve(Settings{}, override); err != nil {
			b.Fatal(err)
		}
	}
}
