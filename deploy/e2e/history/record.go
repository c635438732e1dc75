package history

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
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
		l.fetchGoes(r)
	case *pb.ReportTaskRequest:
		l.reportsGo(r.GetReports())
	}
	sent := Now()
	if err := invoke(ctx, method, req, reply, conn, opts...); err != nil {
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
			l.beaten(sent, r.GetLeases(), answer)
		}
	}
	return nil
}

func (l *Log) fetchGoes(r *pb.FetchTaskRequest) {
	l.reportsGo(r.GetReports())
	l.Add(Event{Kind: FetchSent, ClientToken: r.GetClientToken()})
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

// renewal is an answer to a beat, of either call.
type renewal interface {
	GetLeaseDuration() *durationpb.Duration
	GetLost() []*pb.LostLease
	GetLimited() []*pb.LimitedLease
}

func (l *Log) beaten(sent int64, beats []*pb.LeaseBeat, answer renewal) {
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

// recordedStream pairs beats, or fetches, with their answers, which come in order.
type recordedStream struct {
	grpc.ClientStream
	log *Log

	mu      sync.Mutex // guards what follows
	pending []pendingMessage
}

// pendingMessage is a beat or a fetch without its answer.
type pendingMessage struct {
	sent    int64
	message any
}

// SendMsg notes a message before it goes out.
func (s *recordedStream) SendMsg(m any) error {
	s.mu.Lock()
	if f, ok := m.(*pb.StreamingFetchTaskRequest); ok {
		s.log.fetchGoes(f.GetFetch())
	}
	s.pending = append(s.pending, pendingMessage{sent: Now(), message: m})
	s.mu.Unlock()
	return s.ClientStream.SendMsg(m)
}

// RecvMsg writes down what became of a message. One to a beat without next_heartbeat answers none.
func (s *recordedStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	if news, ok := m.(*pb.HeartbeatResponse); ok && news.GetNextHeartbeat() == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		return nil
	}
	asked := s.pending[0]
	s.pending = s.pending[1:]
	switch answer := m.(type) {
	case *pb.HeartbeatResponse:
		if beat, ok := asked.message.(*pb.HeartbeatRequest); ok {
			s.log.beaten(asked.sent, beat.GetLeases(), answer)
		}
	case *pb.StreamingFetchTaskResponse:
		if f, ok := asked.message.(*pb.StreamingFetchTaskRequest); ok {
			s.log.fetched(asked.sent, f.GetFetch(), answer.GetAnswer())
		}
	}
	return nil
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
