package server

import (
	"context"
	"strings"

	"go.uber.org/zap"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/waggle-crawl/waggle/dispatch/bounds"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// byOrPeer is who a change is put down to: who the caller says, else its
// address.
func byOrPeer(ctx context.Context, by string) string {
	if by != "" {
		return by
	}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return shortBy(p.Addr.String())
	}
	return "unknown"
}

// shortBy keeps an address within what is kept of who did something.
func shortBy(address string) string { return address[:min(len(address), bounds.MaxIDLength)] }

// operatorRequest is what every call is made with by which operators change
// something.
type operatorRequest interface {
	proto.Message
	GetBy() string
	GetReason() string
}

// maxToldRequest is how many bytes of an operator's request go into the log.
const maxToldRequest = 500

// logOperator has the log tell who changed what by a call, and why: much of it is kept
// nowhere else, and what is kept goes with what it is about.
func logOperator(ctx context.Context, req any) {
	r, ok := req.(operatorRequest)
	if !ok || onlyValidates(req) {
		return
	}
	request := prototext.MarshalOptions{}.Format(loggable(r))
	if len(request) > maxToldRequest {
		request = strings.ToValidUTF8(request[:maxToldRequest], "") + "..."
	}
	noteOperator(ctx, zap.String("by", byOrPeer(ctx, r.GetBy())), zap.String("reason", r.GetReason()), zap.String("request", request))
}

// loggable is what the log tells of a request: of a spec all but what is handed to
// collectors and may be a secret, of many specs their ids.
func loggable(req operatorRequest) proto.Message {
	switch r := req.(type) {
	case *pb.CreateSourceRequest:
		return &pb.CreateSourceRequest{Spec: loggableSpec(r.GetSpec()), By: r.GetBy(), Reason: r.GetReason()}
	case *pb.UpdateSourceRequest:
		return &pb.UpdateSourceRequest{
			Spec: loggableSpec(r.GetSpec()), UpdateMask: r.GetUpdateMask(), Etag: r.GetEtag(), By: r.GetBy(), Reason: r.GetReason(),
		}
	case *pb.ApplySourcesRequest:
		ids := each(r.GetSpecs(), func(s *pb.SourceSpec) *pb.SourceSpec { return &pb.SourceSpec{Id: s.GetId()} })
		return &pb.ApplySourcesRequest{Specs: ids, By: r.GetBy(), Reason: r.GetReason()}
	default:
		return req
	}
}

func loggableSpec(spec *pb.SourceSpec) *pb.SourceSpec {
	out := &pb.SourceSpec{}
	spec.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if name := field.Name(); name != "payload" && name != "metadata" {
			out.ProtoReflect().Set(field, value)
		}
		return true
	})
	return out
}

func onlyValidates(req any) bool {
	r, ok := req.(interface{ GetValidateOnly() bool })
	return ok && r.GetValidateOnly()
}

// logChanged adds what a bulk call did to the line that logging writes of it.
func logChanged(ctx context.Context, r bulkResult) {
	addFields(ctx, zap.Int32("matched", r.matched), zap.Int32("changed", r.changed))
}
