package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// fault makes a bad collector of the good one, to show that the kit finds it: mostly by changing what passes between the
// collector and the dispatcher.
type fault struct {
	name    string
	config  func(*collector.Config) error
	request func(message any)                                // each message, before it is sent
	reply   func(message any, sent time.Time)                // each message, before the collector has it
	call    func(request, reply any, try func() error) error // a plain call; try makes it
}

// faults are known by their names, by --fault NAME.
func faults() []fault {
	return []fault{
		{name: "no-margin", reply: onFetched(func(r *wagglev1.FetchTaskResponse, _ time.Time) {
			stretch(r, 10, 9) // less a tenth, this is the lease itself
		})},
		{name: "counts-from-reply", reply: onFetched(func(r *wagglev1.FetchTaskResponse, sent time.Time) {
			r.Waited = durationpb.New(time.Since(sent))
		})},
		{name: "beats-late", reply: func(message any, sent time.Time) {
			onFetched(func(r *wagglev1.FetchTaskResponse, _ time.Time) { stretch(r, 5, 2) })(message, sent)
			if s := statusOf(message); s.GetNextHeartbeat() != nil {
				s.NextHeartbeat = durationpb.New(s.GetNextHeartbeat().AsDuration() * 5 / 2)
			}
		}},
		{name: "ignores-lost", reply: onStatus(func(s *wagglev1.LeaseStatus) { s.Lost = nil })},
		{name: "ignores-cancel", reply: onStatus(func(s *wagglev1.LeaseStatus) { s.Cancel = nil })},
		{name: "ignores-hold", reply: func(message any, _ time.Time) {
			if s := statusOf(message); s != nil {
				s.Held = false
			}
			if r, isFetch := message.(*wagglev1.FetchTaskResponse); isFetch {
				r.EmptyReason, r.RetryAfter = wagglev1.EmptyReason_EMPTY_REASON_NO_TASKS, nil
			}
		}},
		{name: "ignores-reconnect", reply: func(message any, _ time.Time) {
			if r, isBeat := message.(*wagglev1.HeartbeatResponse); isBeat {
				r.Reconnect = false
			}
		}},
		{name: "fetches-without-slots", request: onFetch(func(r *wagglev1.FetchTaskRequest) { r.MaxTasks += 4 })},
		{name: "new-token-on-repeat", request: onFetch(func(r *wagglev1.FetchTaskRequest) { r.ClientToken = uuid.NewString() })},
		{name: "old-session", request: onFetch(func(r *wagglev1.FetchTaskRequest) { r.Session = uuid.Nil.String() })},
		{name: "another-outcome", call: func(request, _ any, try func() error) error {
			err := try()
			for _, report := range reportsOf(request) {
				report.Outcome = &wagglev1.Outcome{Result: &wagglev1.Outcome_Released{Released: &wagglev1.Released{}}}
			}
			if len(reportsOf(request)) > 0 && err == nil {
				return try()
			}
			return err
		}},
		{name: "gives-up-reports", call: func(request, reply any, try func() error) error {
			err := try()
			if err == nil || len(reportsOf(request)) == 0 {
				return err
			}
			var results []*wagglev1.ReportResult
			for _, report := range reportsOf(request) {
				results = append(results, &wagglev1.ReportResult{TaskId: report.GetTaskId(), Code: wagglev1.ReportCode_REPORT_CODE_OK})
			}
			switch r := reply.(type) {
			case *wagglev1.ReportTaskResponse:
				r.Results = results
			case *wagglev1.FetchTaskResponse:
				r.ReportResults = results
			}
			return nil
		}},
		{name: "tight-loop", call: func(_, _ any, try func() error) error {
			err := try()
			for range 200 {
				if status.Code(err) != codes.ResourceExhausted {
					break
				}
				err = try()
			}
			return err
		}},
		{name: "one-dispatcher", config: func(c *collector.Config) error {
			c.Targets = c.Targets[:1]
			return nil
		}},
		{name: "token-read-once", config: func(c *collector.Config) error {
			if c.TokenFile == "" {
				return nil
			}
			token, err := os.ReadFile(c.TokenFile)
			c.TokenFile, c.Token = "", strings.TrimSpace(string(token))
			return err
		}},
		{name: "releases-nothing-at-stop", config: func(c *collector.Config) error {
			c.StopTimeout = time.Hour
			return nil
		}},
	}
}

// apply puts the fault of this name into a configuration.
func apply(name string, config *collector.Config) error {
	for _, f := range faults() {
		if f.name != name {
			continue
		}
		if f.config != nil {
			return f.config(config)
		}
		config.DialOptions = append(config.DialOptions, grpc.WithChainUnaryInterceptor(f.unary), grpc.WithChainStreamInterceptor(f.stream))
		return nil
	}
	return fmt.Errorf("--fault %q is unknown", name)
}

func (f fault) unary(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	request = proto.Clone(request.(proto.Message)) // the collector's own stays as it is
	if f.request != nil {
		f.request(request)
	}
	sent := time.Now()
	try := func() error { return invoke(ctx, method, request, reply, conn, options...) }
	if f.call != nil {
		return f.call(request, reply, try)
	}
	err := try()
	if err == nil && f.reply != nil {
		f.reply(reply, sent)
	}
	return err
}

func (f fault) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	if f.call != nil {
		return nil, status.Error(codes.Unimplemented, "a fault of plain calls")
	}
	stream, err := open(ctx, desc, conn, method, options...)
	return &faultyStream{ClientStream: stream, fault: f}, err
}

// faultyStream is a Work stream with a fault.
type faultyStream struct {
	grpc.ClientStream
	fault fault
	sent  sync.Map // when each request was sent, by its id
}

func (s *faultyStream) SendMsg(message any) error {
	request := proto.Clone(message.(proto.Message)).(*wagglev1.WorkRequest) // the collector's own stays as it is
	s.sent.Store(request.GetId(), time.Now())
	if s.fault.request != nil {
		s.fault.request(partOf(request))
	}
	return s.ClientStream.SendMsg(request)
}

func (s *faultyStream) RecvMsg(message any) error {
	err := s.ClientStream.RecvMsg(message)
	response := message.(*wagglev1.WorkResponse)
	if err == nil && s.fault.reply != nil {
		sent, _ := s.sent.Load(response.GetId())
		at, _ := sent.(time.Time)
		s.fault.reply(partOf(response), at)
	}
	return err
}

// partOf is the call in a request, or the answer in a response.
func partOf(message interface {
	ProtoReflect() protoreflect.Message
},
) any {
	m := message.ProtoReflect()
	if field := m.WhichOneof(m.Descriptor().Oneofs().Get(0)); field != nil {
		return m.Get(field).Message().Interface()
	}
	return nil
}

func onFetch(change func(*wagglev1.FetchTaskRequest)) func(any) {
	return func(message any) {
		if r, isFetch := message.(*wagglev1.FetchTaskRequest); isFetch {
			change(r)
		}
	}
}

func onFetched(change func(*wagglev1.FetchTaskResponse, time.Time)) func(any, time.Time) {
	return func(message any, sent time.Time) {
		if r, isFetch := message.(*wagglev1.FetchTaskResponse); isFetch {
			change(r, sent)
		}
	}
}

func onStatus(change func(*wagglev1.LeaseStatus)) func(any, time.Time) {
	return func(message any, _ time.Time) {
		if s := statusOf(message); s != nil {
			change(s)
		}
	}
}

// statusOf is what a message says of leases; nil: nothing.
func statusOf(message any) *wagglev1.LeaseStatus {
	if r, has := message.(interface{ GetStatus() *wagglev1.LeaseStatus }); has {
		return r.GetStatus()
	}
	return nil
}

// reportsOf are the reports that a request has.
func reportsOf(request any) []*wagglev1.TaskReport {
	if r, has := request.(interface{ GetReports() []*wagglev1.TaskReport }); has {
		return r.GetReports()
	}
	return nil
}

// stretch makes leases longer than they are.
func stretch(r *wagglev1.FetchTaskResponse, by, of int64) {
	for _, one := range r.GetLeasedTasks() {
		one.Lease.Duration = durationpb.New(time.Duration(int64(one.GetLease().GetDuration().AsDuration()) * by / of))
	}
}
