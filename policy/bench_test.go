package policy

import (
	"fmt"
	"testing"
	"time"
)

func manyRoutes(n int) Policy {
	p := Policy{Settings: Settings{Deadline: 20 * time.Second}}
	for i := range n {
		p.Routes = append(p.Routes, Route{
			Pattern:  fmt.Sprintf("GET api%d.example.com/v1/things%d/{id}/parts/", i%10, i),
			Settings: Settings{Deadline: time.Minute},
		})
	}
	p.Routes = append(p.Routes, Route{Pattern: "*.example.com/", Settings: Settings{Rate: Rate{PerSecond: 10}}})
	return p
}

func BenchmarkCompile(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := manyRoutes(n)
			for b.Loop() {
				if _, err := Compile(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
