module github.com/weir-go/weir/examples/fleet/worker

go 1.26.0

require (
	github.com/redis/go-redis/v9 v9.23.0
	github.com/weir-go/weir v0.0.0
	github.com/weir-go/weir/layers/redis v0.0.0
)

require (
	github.com/benbjohnson/clock v1.3.5 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/hashicorp/go-retryablehttp v0.7.8 // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sync v0.25.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/time v0.16.0 // indirect
)

replace (
	github.com/weir-go/weir => ../../..
	github.com/weir-go/weir/layers/redis => ../../../layers/redis
)
