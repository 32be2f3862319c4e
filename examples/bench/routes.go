package main

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/weir-go/weir/route"
)

// patterns returns n patterns in the shape of public APIs: over a few hosts, with
// three to six segments, two in three with wildcards.
func patterns(n, hosts int) []string {
	var list []string
	for i := range n {
		host, k := fmt.Sprintf("svc%d.example.com", i%hosts), i/hosts
		switch k % 3 {
		case 0:
			list = append(list, fmt.Sprintf("GET %s/v1/res%d/list", host, k))
		case 1:
			list = append(list, fmt.Sprintf("GET %s/v1/res%d/{id}/sub/{sid}", host, k))
		default:
			list = append(list, fmt.Sprintf("POST %s/v1/res%d/{id}/act/{name}/run", host, k))
		}
	}
	return list
}

// requests returns 1024 requests that match one pattern each.
func requests(patterns []string) ([]*http.Request, error) {
	list := make([]*http.Request, 1024)
	for i := range list {
		method, rest, _ := strings.Cut(patterns[i*7919%len(patterns)], " ")
		url := strings.NewReplacer("{id}", "id"+strconv.Itoa(i*31), "{sid}", "s"+strconv.Itoa(i), "{name}", "go").Replace(rest)
		var err error
		if list[i], err = http.NewRequest(method, "http://"+url, nil); err != nil {
			return nil, err
		}
	}
	return list, nil
}

const mux = "http.ServeMux"

// lookup measures tables of n patterns.
func lookup(n, hosts int) func(options) ([]result, error) {
	return func(o options) ([]result, error) {
		written := patterns(n, hosts)
		list, err := requests(written)
		if err != nil {
			return nil, err
		}
		entries := make([]route.Entry[int], n)
		serveMux := http.NewServeMux()
		for i, p := range written {
			if entries[i].Pattern, err = route.Parse(p); err != nil {
				return nil, err
			}
			entries[i].Value = i
			serveMux.Handle(p, http.NotFoundHandler())
		}
		table, err := route.NewTable(entries...)
		if err != nil {
			return nil, err
		}
		at := 0
		over := func(name string, matches func(*http.Request) bool) subject {
			return subject{name: name, do: func() error {
				at++
				if r := list[at%len(list)]; !matches(r) {
					return fmt.Errorf("no match for %s %s", r.Method, r.URL)
				}
				return nil
			}}
		}
		return measure(o, over("nothing", func(*http.Request) bool { return true }),
			over("weir", func(r *http.Request) bool {
				var line [8]int
				return len(table.LineURL(line[:0], r.Method, r.URL)) == 1
			}),
			over(mux, func(r *http.Request) bool {
				_, pattern := serveMux.Handler(r)
				return pattern != ""
			}))
	}
}
