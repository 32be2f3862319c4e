// Explain prints what a policy means for a request: each setting in effect and
// where it comes from, the chain of layers, how the longest call would go, and
// what looks unintended. Nothing is sent. Of a policy that is refused it prints
// every fault, and exits with status 1.
//
//	go run ./examples/explain
//	go run ./examples/explain -method POST -url https://api.example.com/payments
//	go run ./examples/explain -policy examples/explain/testdata/malformed.json
//	go run ./examples/explain -policy examples/explain/testdata/impossible.json
package main

import (
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

//go:embed testdata/good.json
var good []byte

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("explain", flag.ContinueOnError)
	flags.SetOutput(stderr)
	file := flags.String("policy", "", "`file` with a policy in JSON (default: testdata/good.json)")
	method := flags.String("method", http.MethodGet, "the request's `method`")
	url := flags.String("url", "https://api.example.com/reports/2026", "the request's `URL`")
	asJSON := flags.Bool("json", false, "print JSON")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	e, err := explain(*file, *method, *url)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	if *asJSON {
		out := json.NewEncoder(stdout)
		out.SetEscapeHTML(false)
		out.SetIndent("", "  ")
		err = out.Encode(e)
	} else {
		_, err = fmt.Fprint(stdout, e)
	}
	if err != nil || e.Refused != nil {
		return 1
	}
	return 0
}

func explain(file, method, url string) (e policy.Explanation, err error) {
	data := good
	if file != "" {
		if data, err = os.ReadFile(file); err != nil {
			return e, err
		}
	}
	p, err := policy.Parse(data)
	if err != nil {
		return e, fmt.Errorf("%s cannot be read:\n%w", file, err)
	}
	weir, err := transport.New(transport.Config{Policy: p})
	if err != nil {
		return e, fmt.Errorf("%s could not work:\n%w", file, err)
	}
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		return e, err
	}
	if req.URL.Host == "" {
		return e, fmt.Errorf("%q names no host; write it as https://api.example.com/orders", url)
	}
	return weir.Explain(req), nil
}
