package main

import (
	"context"
	"net/http"
	"net/http/httptest"
)

// loopback measures stacks over HTTP/1.1 keep-alive to a server in this
// process. All share one transport.
func loopback(stacks ...stack) func(options) ([]result, error) {
	return func(o options) ([]result, error) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = []string{"application/json"}
			_, _ = w.Write(answerText)
		}))
		defer server.Close()
		base := new(http.Transport)
		defer base.CloseIdleConnections()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		over := func(name string, rt http.RoundTripper) subject {
			c := newCaller(ctx, http.MethodGet, server.URL+"/v1/models")
			return subject{name: name, do: func() error { return c.call(rt) }}
		}
		subjects := make([]subject, len(stacks))
		for i, s := range stacks {
			subjects[i] = over(s.name, s.build(base))
		}
		return measure(o, over("base", base), subjects...)
	}
}
