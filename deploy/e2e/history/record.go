package history

import (
	"context"
	"path"
	"strings"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// DialOptions make connections write down what goes over them: grants, beats and reports, as they are on the wire.
func (l *Log) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(l.unary),
		grpc.WithChainStreamInterceptor(l.stream),
	}
}

func (l *Log) unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	switch r := req.(type) {
	case *pb.FetchTaskRequest:
		l.reportsGo(r.GetReports())
		l.Add(Event{Kind: FetchSent, ClientToken: r.GetClientToken()})
	case *pb.ReportTaskRequest:
		l.reportsGo(r.GetReports())
	}
	sent := Now()
	if err := invoke(ctx, method, req, reply, conn, opts...); err != nil {
		l.Add(Event{Kind: Failed, Sent: sent, Code: path.Base(method) + " " + status.Code(err).String() + " " + reason(err)})
		return err
	}
	switch r := req.(type) {
	case *pb.FetchTaskRequest:
		answer, ok := reply.(*pb.FetchTaskResponse)
		if ok {
			l.fetched(sent, r, answer)
		}
	case *pb.ReportTaskRequest:
		answer, ok := reply.(*pb.ReportTaskResponse)
		if ok {
			l.reported(sent, r.GetReports(), answer.GetResults())
		}
	case *pb.RenewLeaseRequest:
		answer, ok := reply.(*pb.RenewLeaseResponse)
		if ok {
			l.beaten(sent, r.GetLeases(), answer.GetStatus())
		}
	}
	return nil
}

// reason is the reason that an error gives; empty: it gives none.
func reason(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

func (l *Log) fetched(sent int64, r *pb.FetchTaskRequest, answer *pb.FetchTaskResponse) {
	l.reported(sent, r.GetReports(), answer.GetReportResults())
	for _, leased := range answer.GetLeasedTasks() {
		task, lease := leased.GetTask(), leased.GetLease()
		l.Add(Event{
			Kind: Granted, Sent: sent, Task: task.GetId(), Queue: task.GetQueue(), Attempt: task.GetAttempt(),
			Token: lease.GetLeaseToken(), Fence: lease.GetFence(), Duration: micros(lease.GetDuration()),
			Waited: micros(answer.GetWaited()), ClientToken: r.GetClientToken(),
		})
	}
}

func (l *Log) reportsGo(reports []*pb.TaskReport) {
	for _, r := range reports {
		l.Add(Event{Kind: ReportSent, Task: r.GetTaskId(), Token: r.GetLeaseToken(), Code: outcome(r.GetOutcome())})
	}
}

func (l *Log) reported(sent int64, reports []*pb.TaskReport, results []*pb.ReportResult) {
	for i, result := range results {
		if i < len(reports) {
			l.Add(Event{
				Kind: Reported, Sent: sent, Task: result.GetTaskId(), Token: reports[i].GetLeaseToken(),
				Code: result.GetCode().String(),
			})
		}
	}
}

func (l *Log) beaten(sent int64, beats []*pb.LeaseBeat, answer *pb.LeaseStatus) {
	lost := map[string]pb.LostReason{}
	for _, one := range answer.GetLost() {
		lost[one.GetLeaseToken()] = one.GetReason()
	}
	limited := map[string]int64{}
	for _, one := range answer.GetLimited() {
		limited[one.GetTaskId()] = micros(one.GetDuration())
	}
	for _, beat := range beats {
		e := Event{Kind: Renewed, Sent: sent, Task: beat.GetTaskId(), Token: beat.GetLeaseToken(), Duration: micros(answer.GetLeaseDuration())}
		if reason, is := lost[e.Token]; is {
			e.Kind, e.Code, e.Duration = Lost, reason.String(), 0
		} else if d, is := limited[e.Task]; is {
			e.Duration = d
		}
		l.Add(e)
	}
}

func (l *Log) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := open(ctx, desc, conn, method, opts...)
	if err != nil {
		return nil, err
	}
	return &recordedStream{ClientStream: stream, log: l}, nil
}

// recordedStream pairs beats with their answers, which come in order, and other requests of a Work stream by their ids.
type recordedStream struct {
	grpc.ClientStream
	log *Log

	mu       sync.Mutex // guards what follows
	pending  []pendingBeat
	requests map[uint64]pendingRequest
}

// pendingBeat is a beat without its answer.
type pendingBeat struct {
	sent   int64
	leases []*pb.LeaseBeat
}

// pendingRequest is a fetch or a report without its answer.
type pendingRequest struct {
	sent    int64
	fetch   *pb.FetchTaskRequest // nil: it is a report
	reports []*pb.TaskReport
}

// SendMsg notes a request before it goes out.
func (s *recordedStream) SendMsg(m any) error {
	beat, _ := m.(*pb.HeartbeatRequest)
	if work, ok := m.(*pb.WorkRequest); ok {
		beat = work.GetHeartbeat()
		s.goes(work)
	}
	if beat != nil {
		s.mu.Lock()
		s.pending = append(s.pending, pendingBeat{sent: Now(), leases: beat.GetLeases()})
		s.mu.Unlock()
	}
	return s.ClientStream.SendMsg(m)
}

func (s *recordedStream) goes(work *pb.WorkRequest) {
	request := pendingRequest{fetch: work.GetFetch(), reports: append(work.GetFetch().GetReports(), work.GetReport().GetReports()...)}
	if request.fetch == nil && len(request.reports) == 0 {
		return
	}
	s.log.reportsGo(request.reports)
	if request.fetch != nil {
		s.log.Add(Event{Kind: FetchSent, ClientToken: request.fetch.GetClientToken()})
	}
	request.sent = Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests == nil {
		s.requests = make(map[uint64]pendingRequest)
	}
	s.requests[work.GetId()] = request
}

// RecvMsg writes down what became of a request. A heartbeat's message without next_heartbeat answers none.
func (s *recordedStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer, _ := m.(*pb.HeartbeatResponse)
	if work, ok := m.(*pb.WorkResponse); ok {
		answer = work.GetHeartbeat()
		s.comes(work)
	}
	if answer.GetStatus().GetNextHeartbeat() == nil {
		return nil
	}
	if len(s.pending) > 0 {
		s.log.beaten(s.pending[0].sent, s.pending[0].leases, answer.GetStatus())
		s.pending = s.pending[1:]
	}
	return nil
}

// comes writes down an answer; the caller holds the lock.
func (s *recordedStream) comes(work *pb.WorkResponse) {
	request, known := s.requests[work.GetId()]
	if !known {
		return
	}
	if reported := work.GetReport(); reported != nil {
		s.log.reported(request.sent, request.reports, reported.GetResults())
		if request.fetch != nil {
			return // its answer is yet to come
		}
	}
	if fetched := work.GetFetch(); fetched != nil {
		s.log.fetched(request.sent, request.fetch, fetched)
	}
	if failed := work.GetError(); failed != nil {
		method := "ReportTask"
		if request.fetch != nil {
			method = "FetchTask"
		}
		reason := strings.TrimPrefix(failed.GetReason().String(), "ERROR_REASON_")
		s.log.Add(Event{Kind: Failed, Sent: request.sent, Code: method + " " + codes.Code(failed.GetCode()).String() + " " + reason})
	}
	delete(s.requests, work.GetId())
}

func micros(d *durationpb.Duration) int64 { return int64(d.AsDuration() / time.Microsecond) }

func outcome(o *pb.Outcome) string {
	switch r := o.GetResult().(type) {
	case *pb.Outcome_Succeeded:
		return Succeeded
	case *pb.Outcome_Failed:
		return "failed " + r.Failed.GetReason().String()
	case *pb.Outcome_Released:
		return "released"
	default:
		return "none"
	}
}
