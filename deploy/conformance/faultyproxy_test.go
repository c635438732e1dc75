package main_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// serverFault makes a bad dispatcher of a good one, by changing what passes. An error of request is the answer.
type serverFault struct {
	request func(proto.Message) error
	reply   func(proto.Message) (drop bool)
	failure func(proto.Message) (ok bool) // may answer, empty, in place of an error
}

func serverFaults() map[string]serverFault {
	var mu sync.Mutex
	var earlier []*wagglev1.LeasedTask
	always := func(change func(proto.Message)) func(proto.Message) bool {
		return func(m proto.Message) bool {
			change(m)
			return false
		}
	}
	ask := func(change func(proto.Message)) func(proto.Message) error {
		return func(m proto.Message) error {
			change(m)
			return nil
		}
	}
	return map[string]serverFault{
		"grants twice": {reply: always(func(m proto.Message) {
			if r, is := m.(*wagglev1.FetchTaskResponse); is {
				mu.Lock()
				defer mu.Unlock()
				granted := r.GetLeasedTasks()
				r.LeasedTasks = append(r.LeasedTasks, earlier...)
				earlier = granted
			}
		})},
		"fences fall": {reply: always(func(m proto.Message) {
			if r, is := m.(*wagglev1.FetchTaskResponse); is {
				for _, one := range r.GetLeasedTasks() {
					one.Lease.Fence = 1<<60 - one.GetLease().GetFence()
				}
			}
		})},
		"forgets client tokens": {request: ask(func(m proto.Message) {
			if r, is := m.(*wagglev1.FetchTaskRequest); is {
				r.ClientToken = ""
			}
		})},
		"grants too many": {request: ask(func(m proto.Message) {
			if r, is := m.(*wagglev1.FetchTaskRequest); is {
				r.MaxTasks++
			}
		})},
		"never waits": {request: ask(func(m proto.Message) {
			if r, is := m.(*wagglev1.FetchTaskRequest); is {
				r.Wait = durationpb.New(0)
			}
		})},
		"keeps expired leases": {request: ask(func(m proto.Message) {
			if r, is := m.(*wagglev1.FetchTaskRequest); is {
				r.LeaseDuration = durationpb.New(time.Hour)
			}
		})},
		"takes stale reports": {reply: always(onResults(func(r *wagglev1.ReportResult) {
			if r.GetCode() == wagglev1.ReportCode_REPORT_CODE_LEASE_LOST {
				r.Code = wagglev1.ReportCode_REPORT_CODE_OK
			}
		}))},
		"counts reports twice": {reply: always(onResults(func(r *wagglev1.ReportResult) {
			if r.GetCode() == wagglev1.ReportCode_REPORT_CODE_ALREADY_REPORTED {
				r.Code = wagglev1.ReportCode_REPORT_CODE_OK
			}
		}))},
		"swallows lost": {reply: always(func(m proto.Message) {
			if r, is := m.(interface{ GetStatus() *wagglev1.LeaseStatus }); is && r.GetStatus() != nil {
				r.GetStatus().Lost = nil
			}
		})},
		"pushes nothing": {reply: func(m proto.Message) bool {
			r, is := m.(*wagglev1.HeartbeatResponse)
			return is && r.GetStatus().GetNextHeartbeat() == nil
		}},
		"ignores min_delay": {request: ask(func(m proto.Message) {
			if r, is := m.(*wagglev1.SetQueueRuleRequest); is {
				r.Rule.MinDelay = durationpb.New(0)
			}
		})},
		"ignores the limit in flight": {request: ask(func(m proto.Message) { // it spreads the queue's tasks over several
			if r, is := m.(*wagglev1.SubmitTasksRequest); is {
				for i, item := range r.GetItems() {
					item.Queue = strings.Repeat("x", i+1) + ".test"
				}
			}
		})},
		"ignores holds": {request: ask(func(m proto.Message) {
			if r, is := m.(*wagglev1.SetHoldsRequest); is {
				r.ValidateOnly = true
			}
		})},
		"fails whole batches": {request: func(m proto.Message) error {
			if r, is := m.(*wagglev1.SubmitTasksRequest); is && len(r.GetItems()) > 1 {
				return status.Error(codes.InvalidArgument, "an item is invalid")
			}
			return nil
		}},
		"takes any field": {failure: func(m proto.Message) bool {
			_, is := m.(*wagglev1.FetchTaskResponse)
			return is
		}},
		"knows every field": {request: func(m proto.Message) error {
			if len(m.ProtoReflect().GetUnknown()) > 0 {
				return status.Error(codes.InvalidArgument, "unknown field")
			}
			return nil
		}},
		"ends lists early": {reply: always(func(m proto.Message) {
			if r, is := m.(*wagglev1.ListTasksResponse); is {
				r.NextPageToken = ""
			}
		})},
	}
}

func onResults(change func(*wagglev1.ReportResult)) func(proto.Message) {
	return func(m proto.Message) {
		if r, is := m.(*wagglev1.ReportTaskResponse); is {
			for _, result := range r.GetResults() {
				change(result)
			}
		}
	}
}

// faultyProxy puts a fault before a dispatcher and returns the address. It ends with the test.
func faultyProxy(t *testing.T, behind, name string) string {
	fault, isKnown := serverFaults()[name]
	if !isKnown {
		t.Errorf("fault %q is unknown", name)
	}
	conn, err := grpc.NewClient(behind, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Error(err)
		return ""
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Error(err)
		return ""
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, client grpc.ServerStream) error { return fault.pass(client, conn) }))
	go func() { _ = server.Serve(listener) }() // it ends with Stop
	t.Cleanup(func() {
		server.Stop()
		_ = conn.Close() // nothing is under way
	})
	return listener.Addr().String()
}

// pass passes a call on, message by message.
func (f serverFault) pass(client grpc.ServerStream, conn *grpc.ClientConn) error {
	method, _ := grpc.MethodFromServerStream(client)
	request, reply, err := messagesOf(method)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(client.Context())
	defer cancel()
	server, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return err
	}
	refused := make(chan error, 1)
	go func() {
		for {
			message := request.New().Interface()
			if err := client.RecvMsg(message); err != nil {
				_ = server.CloseSend() // the client has sent all, or has gone
				return
			}
			if f.request != nil {
				if err := f.request(message); err != nil {
					refused <- err
					cancel()
					return
				}
			}
			if server.SendMsg(message) != nil {
				return // the reader has the error
			}
		}
	}()
	for {
		message := reply.New().Interface()
		err := server.RecvMsg(message)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && f.failure != nil && f.failure(message) {
			return client.SendMsg(message)
		}
		if err != nil {
			select {
			case err := <-refused:
				return err
			default:
				return err
			}
		}
		if f.reply != nil && f.reply(message) {
			continue
		}
		if err := client.SendMsg(message); err != nil {
			return err
		}
	}
}

// messagesOf are the types of a method's messages.
func messagesOf(method string) (request, reply protoreflect.MessageType, err error) {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return nil, nil, err
	}
	described := found.(protoreflect.MethodDescriptor)
	if request, err = protoregistry.GlobalTypes.FindMessageByName(described.Input().FullName()); err != nil {
		return nil, nil, err
	}
	reply, err = protoregistry.GlobalTypes.FindMessageByName(described.Output().FullName())
	return request, reply, err
}
