module github.com/waggle-crawl/waggle/deploy/bench

go 1.26.0

require (
	github.com/google/uuid v1.6.0
	github.com/waggle-crawl/waggle v0.0.0
	golang.org/x/sync v0.24.0
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261019180522-ce908d29299b // indirect
)

replace github.com/waggle-crawl/waggle => ../..
