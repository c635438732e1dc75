#!/bin/sh
# connect-es 2.1.2 (Node) and connect-go 2.0.2: a timeout that is no whole number of milliseconds fails each call, before it is made.
#
# The Connect protocol's header Connect-Timeout-Ms is "a positive integer as ASCII string of at most 10 digits" (Timeout in its
# specification). The client writes the option timeoutMs as JavaScript prints the number, so what is left of a deadline that
# performance.now() measures is sent as 1234.567890123. The server of the Go package refuses such a call with
# invalid_argument, whose text names neither the header nor the option; with the same number rounded it answers.
#
# Seen:
#   timeoutMs          Connect-Timeout-Ms   answer
#   5000               5000                 ok
#   4321.5             4321.5               invalid_argument: parse timeout: ... invalid syntax
#   4321.123456789     4321.123456789       invalid_argument: parse timeout: ... has >10 digits
#
# Needs Node 20, npm and Go 1.26, and their registries. Fails when the behavior changes.
set -eu
dir=$(mktemp -d)
trap 'kill "$server" 2>/dev/null || true; rm -rf "$dir"' EXIT
server=
mkdir "$dir/client" "$dir/server"
cd "$dir/server"
cat > go.mod <<'GO'
module example.test/server

go 1.26
GO
cat > main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"google.golang.org/protobuf/types/known/emptypb"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server, mux := connect.NewServer(), http.NewServeMux()
	server.Register(connect.Method{
		Spec: connect.Spec{Procedure: "/example.Service/Call"},
		Handler: func(_ context.Context, _ connect.Spec, stream connect.ServerStream) error {
			if err := stream.Receive(new(emptypb.Empty)); err != nil {
				return err
			}
			return stream.Send(new(emptypb.Empty))
		},
	})
	connecthttp.Mount(mux, server)
	fmt.Println(listener.Addr())
	panic(http.Serve(listener, mux))
}
GO
go mod edit -require=connectrpc.com/connect/v2@v2.0.2 -require=google.golang.org/protobuf@v1.36.12
go mod tidy 2>/dev/null
go build -o server .
./server > address &
server=$!
cd ../client
npm install --silent --no-audit --no-fund @connectrpc/connect@2.1.2 @connectrpc/connect-node@2.1.2 @bufbuild/protobuf@2.12.0
cat > call.mjs <<'JS'
import { create, createFileRegistry, createRegistry } from "@bufbuild/protobuf";
import { EmptySchema, FileDescriptorProtoSchema, FileDescriptorSetSchema, file_google_protobuf_empty } from "@bufbuild/protobuf/wkt";
import { ConnectError, Code, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";

const file = create(FileDescriptorProtoSchema, {
  name: "example.proto", package: "example", syntax: "proto3", dependency: ["google/protobuf/empty.proto"],
  service: [{ name: "Service", method: [{ name: "Call", inputType: ".google.protobuf.Empty", outputType: ".google.protobuf.Empty" }] }],
});
const service = createFileRegistry(file, () => file_google_protobuf_empty).getService("example.Service");
const sent = [];
const client = createClient(service, createConnectTransport({
  baseUrl: `http://${process.argv[2]}`, httpVersion: "1.1", useBinaryFormat: false,
  interceptors: [(next) => (request) => { sent.push(request.header.get("Connect-Timeout-Ms")); return next(request); }],
}));
const seen = [];
for (const timeoutMs of [5000, 4321.5, 4321.123456789]) {
  let answer = "ok";
  try {
    await client.call({}, { timeoutMs });
  } catch (err) {
    answer = Code[ConnectError.from(err).code] + ": " + ConnectError.from(err).rawMessage;
  }
  console.log(timeoutMs, sent.at(-1), answer);
  seen.push([sent.at(-1), answer.split(":")[0]]);
}
const want = [["5000", "ok"], ["4321.5", "InvalidArgument"], ["4321.123456789", "InvalidArgument"]];
if (JSON.stringify(seen) !== JSON.stringify(want)) {
  console.error("the behavior has changed");
  process.exitCode = 1;
}
JS
until [ -s ../server/address ]; do sleep 0.1; done
node call.mjs "$(cat ../server/address)"
