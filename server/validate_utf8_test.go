package server_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

var _ encoding.CodecV2 = rawCodec{}

// A string that is not UTF-8 cannot be decoded, which is the client's fault and
// told so.
func TestServer_badInput_notUTF8(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	raw, err := proto.Marshal(&pb.GetSourceRequest{Id: "news"})
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)-1] = 0xff
	var resp []byte
	err = b.conn.Invoke(t.Context(), pb.SourceService_GetSource_FullMethodName, &raw, &resp, grpc.ForceCodecV2(rawCodec{}))
	f := wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD")
	if !strings.Contains(f.message, "UTF-8") {
		t.Errorf("message %q", f.message)
	}
	b.wantHandled(t, pb.SourceService_GetSource_FullMethodName, codes.InvalidArgument)

	beat, err := proto.Marshal(&pb.HeartbeatRequest{Collector: &pb.CollectorInfo{Id: "c1"}})
	if err != nil {
		t.Fatal(err)
	}
	beat[len(beat)-1] = 0xff
	stream, err := b.conn.NewStream(t.Context(), &pb.DispatchService_ServiceDesc.Streams[0],
		pb.DispatchService_Heartbeat_FullMethodName, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(&beat); err != nil {
		t.Fatal(err)
	}
	wantFault(t, stream.RecvMsg(&resp), codes.InvalidArgument, "INVALID_FIELD")
}
