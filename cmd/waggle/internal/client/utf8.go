package client

import (
	"errors"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
)

// errFound ends a walk.
var errFound = errors.New("found")

// sendable is the err of a call. If a text of the request is not in UTF-8, it names that: gRPC's own error names no field,
// and reads like a fault of the network.
func sendable(err error, request any) error {
	message, ok := request.(proto.Message)
	if !ok || status.Code(err) != codes.Internal {
		return err
	}
	var wrong error
	if protorange.Range(message.ProtoReflect(), func(p protopath.Values) error {
		last := p.Index(-1)
		text, isText := last.Value.Interface().(string)
		if last.Step.Kind() == protopath.MapIndexStep && !utf8.ValidString(last.Step.MapIndex().String()) {
			text, isText = last.Step.MapIndex().String(), true
		}
		if !isText || utf8.ValidString(text) {
			return nil
		}
		_, field, _ := strings.Cut(p.Path.String(), ").")
		wrong = cli.Usagef("%s is %+q, which is not in UTF-8", field, text)
		return errFound
	}) != nil && wrong != nil {
		return wrong
	}
	return err
}
