package route_test

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/weir-go/weir/route"
)

func ExampleParse() {
	p, err := route.Parse("POST API.example.com:443/v1/{model}/generate")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p)
	fmt.Println(p.Method(), p.Host(), p.Path())

	_, err = route.Parse("GET https://api.example.com/")
	fmt.Println(err)

	var syntax *route.SyntaxError
	fmt.Println(errors.As(err, &syntax), syntax.Offset)
	// Output:
	// POST api.example.com/v1/{model}/generate
	// POST api.example.com /v1/{model}/generate
	// malformed pattern "GET https://api.example.com/", at offset 4: a pattern has no scheme; remove https://
	// true 4
}

func ExampleNewTable() {
	var entries []route.Entry[string]
	for pattern, value := range map[string]string{
		"GET api.example.com/reports/{id}": "reports may take five minutes",
		"*.example.com/":                   "ten requests a second",
		"/":                                "every call ends within a minute",
		"api.example.com/reports/":         "reports are not retried",
	} {
		p, err := route.Parse(pattern)
		if err != nil {
			fmt.Println(err)
			return
		}
		entries = append(entries, route.Entry[string]{Pattern: p, Value: value})
	}
	table, err := route.NewTable(entries...)
	if err != nil {
		fmt.Println(err)
		return
	}
	u := &url.URL{Scheme: "https", Host: "api.example.com", Path: "/reports/7"}
	for _, value := range table.LineURL(nil, "GET", u) {
		fmt.Println(value)
	}
	// Output:
	// every call ends within a minute
	// ten requests a second
	// reports are not retried
	// reports may take five minutes
}

func ExamplePattern_Crosses() {
	p, _ := route.Parse("/users/{id}")
	q, _ := route.Parse("/{kind}/settings")
	if p.Crosses(q) {
		request, _ := p.Common(q)
		fmt.Printf("%s and %s both match %s\n", p, q, request)
	}
	// Output:
	// /users/{id} and /{kind}/settings both match GET /users/settings
}
