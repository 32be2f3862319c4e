package route

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// benchPatterns returns n patterns in the shape of public APIs: over 2 to 200 hosts,
// with three to six segments, two in three with wildcards.
func benchPatterns(n int) []string {
	hosts := map[int]int{10: 2, 100: 10, 1000: 40, 10000: 200}[n]
	var patterns []string
	for i := range n {
		host, k := fmt.Sprintf("svc%d.example.com", i%hosts), i/hosts
		switch k % 3 {
		case 0:
			patterns = append(patterns, fmt.Sprintf("GET %s/v1/res%d/list", host, k))
		case 1:
			patterns = append(patterns, fmt.Sprintf("GET %s/v1/res%d/{id}/sub/{sid}", host, k))
		default:
			patterns = append(patterns, fmt.Sprintf("POST %s/v1/res%d/{id}/act/{name}/run", host, k))
		}
	}
	return patterns
}

// benchRequests returns n requests that match one pattern each, spread over them.
func benchRequests(b *testing.B, patterns []string, n int) []*http.Request {
	b.Helper()
	var requests []*http.Request
	for i := range n {
		method, rest, _ := strings.Cut(patterns[i*7919%len(patterns)], " ")
		target := strings.NewReplacer("{id}", "id"+strconv.Itoa(i*31), "{sid}", "s"+strconv.Itoa(i), "{name}", "go").Replace(rest)
		r, err := http.NewRequest(method, "http://"+target, nil)
		if err != nil {
			b.Fatal(err)
		}
		requests = append(requests, r)
	}
	return requests
}

// BenchmarkTable looks up 1024 requests in turn. What a machine makes of it varies;
// compare with ServeMux in the same run.
func BenchmarkTable(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10000} {
		written := benchPatterns(n)
		requests := benchRequests(b, written, 1024)
		table := newTable(b, parseAll(b, written...))
		mux, refused := newMux(written)
		if refused != nil {
			b.Fatal(refused)
		}
		for _, subject := range []struct {
			name    string
			matches func(*http.Request) bool
		}{
			{"LineURL", func(r *http.Request) bool {
				var buf [8]string
				return len(table.LineURL(buf[:0], r.Method, r.URL)) == 1
			}},
			{"Line", func(r *http.Request) bool {
				var buf [8]string
				return len(table.Line(buf[:0], r.Method, r.URL.Host, r.URL.EscapedPath())) == 1
			}},
			{"ServeMux", func(r *http.Request) bool {
				_, pattern := mux.Handler(r)
				return pattern != ""
			}},
		} {
			b.Run(fmt.Sprintf("patterns=%d/%s", n, subject.name), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if r := requests[i%len(requests)]; !subject.matches(r) {
						b.Fatal("no match for", r.Method, r.URL)
					}
				}
			})
		}
	}
}
