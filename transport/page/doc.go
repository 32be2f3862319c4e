// Package page shows a running transport in a browser: its policy and what it
// means for a request, the budgets, circuits and slots that calls share, the
// calls under way and the last slow and failed ones as waterfalls, and the
// distributions of latencies with their limits.
//
//	watch := page.NewWatch()
//	t, err := transport.New(transport.Config{Policy: p, Observer: watch})
//	...
//	mux.Handle("/weir/", http.StripPrefix("/weir", page.Handler(t, page.Options{Watch: watch})))
//
// The prefix may be stripped with its slash or without, and a proxy may strip more:
// all links are relative. A proxy that strips all of the path has to lead from
// there to the same with a slash at its end.
//
// It listens nowhere by itself. Mount it where only operators reach it: it shows
// no query, userinfo, header or body, but the names of hosts and routes, and the
// texts of errors. Without AllowControl it changes nothing. Name the hosts that it
// is reached by in Options.Hosts: then no site whose name leads there sees it.
//
// The page works without JavaScript, and then shows the state as of its
// loading. All that it needs is part of it.
package page
