package main

import "net/http"

// rows returns the table: what a call, a stream and a lookup must not exceed.
func rows() []row {
	sixMust := []must{{added, 600}, {allocs, 5}, {size, 700}}
	hand := yardstick{byHand.name, added, 1400}
	return []row{
		{"six", "six layers over a base from memory, GET", sixMust, hand, inMemory(http.MethodGet, false, weir(six()), least, byHand, failsafe)},
		{"six-post", "the same, POST of 1 KiB", sixMust, hand, inMemory(http.MethodPost, false, weir(six()), least, byHand, failsafe)},
		{"phases", "six layers and every phase timed, over a base with the hooks of a reused connection",
			[]must{{added, 900}, {allocs, 10}}, yardstick{client.name, added, 1540}, inMemory(http.MethodGet, true, weir(phases()), least, client)},
		{"three", "budget, retry and breaker only",
			[]must{{added, 300}, {allocs, 2}}, yardstick{limited.name, added, 205}, inMemory(http.MethodGet, false, weir(three()), least, limited)},
		{"loopback", "all layers, loopback HTTP/1.1 keep-alive",
			[]must{{percent, 4}, {cpuTime, 1000}}, yardstick{byHand.name, percent, 9}, loopback(weir(phases()), least, byHand, failsafe)},
		{"crowd", "64 goroutines over one budget, breaker and slot set, beside 64 stacks that share one short mutex",
			[]must{{percent, 5}}, yardstick{}, crowd(weir(six()), byHand)},
		{"retry", "503, then 200, no backoff: one connection, every body closed",
			[]must{{added, 1200}, {allocs, 9}}, yardstick{retryable.name, added, 1075}, retried(weir(six()), retryable, byHand, failsafe, heimdall, restyClient)},
		{"bytes-event", "guard by bytes, limits exact, one event a Read", []must{{speed, 3}, {allocs, 0}},
			yardstick{timed.name, speed, 3.7}, read(false, byBytes, timed, watched)},
		{"bytes-4k", "the same, 4 KiB a Read", []must{{speed, 15}, {allocs, 0}},
			yardstick{watched.name, speed, 35}, read(true, byBytes, watched)},
		{"framing-event", "guard with framing, one event a Read", []must{{speed, 2.5}, {allocs, 0}},
			yardstick{decoder.name, speed, 2.6}, read(false, framing, decoder)},
		{"framing-4k", "the same, 4 KiB a Read", []must{{speed, 10}, {allocs, 0}},
			yardstick{decoder.name, speed, 2.3}, read(true, framing, decoder)},
		{"classes", "guard that classes openai-chat events, 4 KiB a Read; the decoder classes none", []must{{speed, 3}, {allocs, 0}},
			yardstick{decoder.name, speed, 2.3}, read(true, classes, decoder)},
		{"idle", "10,000 guarded idle streams, each", []must{{size, 700}, {goroutine, 0}}, yardstick{}, idle(weir(streaming()), least, failsafe)},
		{"routes-10", "route lookup, 10 routes", []must{{ns, 40}, {allocs, 0}}, yardstick{mux, ns, 146}, lookup(10, 2)},
		{"routes-1000", "route lookup, 1,000 routes", []must{{ns, 60}, {allocs, 0}}, yardstick{mux, ns, 198}, lookup(1000, 40)},
		{"routes-10000", "route lookup, 10,000 routes", []must{{ns, 80}, {allocs, 0}}, yardstick{mux, ns, 231}, lookup(10_000, 200)},
	}
}
