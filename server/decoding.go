package server

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/waggle-crawl/waggle/dispatch"
)

// decoded is desc with the errors of requests that cannot be decoded (a string
// that is not UTF-8, bytes that are no message) told as what they are: invalid
// requests. grpc tells them as INTERNAL, before any interceptor runs.
func decoded(desc *grpc.ServiceDesc) *grpc.ServiceDesc {
	out := *desc
	out.Methods = make([]grpc.MethodDesc, len(desc.Methods))
	for i, method := range desc.Methods {
		handler := method.Handler
		method.Handler = func(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) { //nolint:revive // grpc's order of arguments
			return handler(srv, ctx, func(req any) error {
				err := undecodable(decode(req))
				if err == nil {
					return nil
				}
				st, _ := statusOf(ctx, err, "")
				return st.Err()
			}, interceptor)
		}
		out.Methods[i] = method
	}
	return &out
}

// undecodable turns the error of a message that cannot be decoded into an
// invalid request. Others, and nil, stay.
func undecodable(err error) error {
	st, ok := status.FromError(err)
	if !ok || st.Code() != codes.Internal || !strings.Contains(st.Message(), "unmarshal") {
		return err
	}
	_, cause, _ := strings.Cut(st.Message(), ": ")
	return &dispatch.FieldError{Field: "request", Limit: "does not decode: " + cause}
}
