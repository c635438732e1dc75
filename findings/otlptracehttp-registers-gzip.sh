#!/bin/sh
# otlptracehttp 1.47.0 (OpenTelemetry for Go): who imports this exporter of traces, which sends over HTTP, gives all gRPC servers and
# clients of the process the compressor "gzip".
#
# Its options share a file with the exporter over gRPC, which imports google.golang.org/grpc/encoding/gzip, and that package registers
# its compressor for the whole process when it is loaded. Nothing has to be called. From then on a server takes packed requests where it
# had refused them, and packs each answer to a caller who packed the request; a client names gzip in grpc-accept-encoding of all calls.
# Limits of a server that count the bytes that arrive no longer count what a request takes in memory.
#
# Seen, a health server of grpc 1.85.0 and a client in one process, a call with UseCompressor("gzip"):
#   without the import    Internal, Compressor is not installed
#   with the import       OK, the answer's encoding is gzip
#
# Needs go and a Go module proxy. Fails when the behavior changes.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat > go.mod <<'MOD'
module try

go 1.25

require (
	go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp v1.47.0
	google.golang.org/grpc GRPC
)
MOD
cat > with.go <<'GO'
//go:build traces

package main

import _ "go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
GO
cat > main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// encoding notes how answers come.
type encoding struct{ of string }

func (*encoding) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*encoding) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*encoding) HandleConn(context.Context, stats.ConnStats)                       {}
func (e *encoding) HandleRPC(_ context.Context, s stats.RPCStats) {
	if in, ok := s.(*stats.InHeader); ok {
		e.of = in.Compression
	}
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	go server.Serve(listener)
	var answer encoding
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStatsHandler(&answer))
	if err != nil {
		panic(err)
	}
	_, err = grpc_health_v1.NewHealthClient(conn).Check(context.Background(), &grpc_health_v1.HealthCheckRequest{}, grpc.UseCompressor("gzip"))
	fmt.Printf("%v, encoding %q\n", status.Code(err), answer.of)
}
GO
sed -i "s/GRPC/v1.85.0/" go.mod
go mod tidy >/dev/null 2>&1
check() {
	got=$(go run $1 .)
	echo "${1:-without}: $got"
	[ "$got" = "$2" ] || { echo "the behavior has changed: want $2" >&2; exit 1; }
}
check '' 'Internal, encoding ""'
check '-tags traces' 'OK, encoding "gzip"'
