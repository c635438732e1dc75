package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// stream is one collector on a Work stream: it fetches, works in no time, and fetches again with what it reports.
func (l *Load) stream(ctx context.Context, c int, lease time.Duration, sources []string) error {
	s, err := pb.NewDispatchServiceClient(l.conn(c)).Work(ctx)
	if err != nil {
		return fmt.Errorf("open a stream: %w", err)
	}
	hello := &pb.HeartbeatRequest{Collector: &pb.CollectorInfo{Id: collectorID(c), Session: l.session}}
	if err := s.Send(&pb.WorkRequest{Call: &pb.WorkRequest_Heartbeat{Heartbeat: hello}}); err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	var carried []*pb.TaskReport
	for n := l.reserve(c, l.workload.Batch); n > 0; n = l.reserve(c, l.workload.Batch) {
		sent := time.Now()
		fetch := &pb.FetchTaskRequest{ClientToken: uuid.NewString(), MaxTasks: int32(n), Sources: sources, LeaseDuration: durationpb.New(lease), Reports: carried}
		if err := s.Send(&pb.WorkRequest{Call: &pb.WorkRequest_Fetch{Fetch: fetch}}); err != nil {
			return fmt.Errorf("fetch: %w", err)
		}
		answer, err := next(s)
		if results := answer.GetReport().GetResults(); err == nil && results != nil { // ahead of the fetch
			if err := l.settle(results, len(carried)); err != nil {
				return err
			}
			carried = nil
			answer, err = next(s)
		}
		if err != nil {
			return err
		}
		if err := l.settle(answer.GetFetch().GetReportResults(), len(carried)); err != nil {
			return err
		}
		if carried, err = l.receive(answer.GetFetch().GetLeasedTasks(), n, sent); err != nil {
			return err
		}
		l.reserved[c%len(l.reserved)].Add(int64(n - len(carried)))
		if err := pause(ctx, l.workload.Pause); err != nil {
			return err
		}
	}
	if len(carried) > 0 {
		if err := s.Send(&pb.WorkRequest{Call: &pb.WorkRequest_Report{Report: &pb.ReportTaskRequest{Reports: carried}}}); err != nil {
			return fmt.Errorf("report: %w", err)
		}
		if err := l.reported(s, len(carried)); err != nil {
			return err
		}
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	if _, err := next(s); !errors.Is(err, io.EOF) {
		return fmt.Errorf("the stream ended by %w", err)
	}
	return nil
}

// reported receives the answer to reports.
func (l *Load) reported(s pb.DispatchService_WorkClient, n int) error {
	answer, err := next(s)
	if err != nil {
		return err
	}
	return l.settle(answer.GetReport().GetResults(), n)
}

// next is the next response that is not about heartbeats.
func next(s pb.DispatchService_WorkClient) (*pb.WorkResponse, error) {
	for {
		answer, err := s.Recv()
		if err != nil {
			return nil, fmt.Errorf("receive: %w", err)
		}
		if failed := answer.GetError(); failed != nil {
			return nil, fmt.Errorf("a request was answered %d: %s", failed.GetCode(), failed.GetMessage())
		}
		if answer.GetHeartbeat() == nil {
			return answer, nil
		}
	}
}
