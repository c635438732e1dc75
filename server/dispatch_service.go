package server

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// dispatchService is what collectors call. Heartbeat is in heartbeat.go.
type dispatchService struct {
	pb.UnsafeDispatchServiceServer

	d       *dispatch.Dispatcher
	limits  *limits
	metrics *Metrics
	streams streams
}

// FetchTask settles the reports that it carries, then fetches. Reports are
// settled also where the fetch is refused for load: what is done stays done.
func (s *dispatchService) FetchTask(ctx context.Context, req *pb.FetchTaskRequest) (*pb.FetchTaskResponse, error) {
	received := time.Now()
	if err := validateFetch(req); err != nil {
		return nil, err
	}
	results, err := s.settle(ctx, req.GetCollectorId(), req.GetSession(), req.GetReports())
	if err != nil {
		return nil, err
	}
	leave, err := s.limits.fetch(req.GetCollectorId())
	if err != nil {
		return nil, err
	}
	defer leave()
	before := time.Since(received)
	result, err := s.d.Fetch(ctx, fromFetch(req))
	if errors.Is(err, dispatch.ErrSourceNotFound) {
		return nil, about(err, "source_id", strings.Join(req.GetSources(), ","))
	}
	if err != nil {
		return nil, aboutCollector(err, req.GetCollectorId(), req.GetSession())
	}
	s.metrics.fetched(result)
	return toFetch(result, before, results), nil
}

// RenewLease is one beat as a plain call.
func (s *dispatchService) RenewLease(ctx context.Context, req *pb.RenewLeaseRequest) (*pb.RenewLeaseResponse, error) {
	return s.beat(ctx, req)
}

// ReportTask settles leases by their holder's reports.
func (s *dispatchService) ReportTask(ctx context.Context, req *pb.ReportTaskRequest) (*pb.ReportTaskResponse, error) {
	if err := validateReports(req); err != nil {
		return nil, err
	}
	results, err := s.settle(ctx, req.GetCollectorId(), req.GetSession(), req.GetReports())
	if err != nil {
		return nil, err
	}
	return &pb.ReportTaskResponse{Results: results}, nil
}

// SubmitDiscovered submits what a leased task leads to.
func (s *dispatchService) SubmitDiscovered(ctx context.Context, req *pb.SubmitDiscoveredRequest) (*pb.SubmitDiscoveredResponse, error) {
	if err := validateDiscovered(req); err != nil {
		return nil, err
	}
	token, err := dispatch.ParseLeaseToken(req.GetLeaseToken())
	if err != nil {
		return nil, err
	}
	items, refused := fromDiscovered(req.GetItems())
	results, err := s.d.SubmitDiscovered(ctx, dispatch.TaskID(req.GetTaskId()), token, items)
	if err != nil {
		return nil, about(err, "task_id", req.GetTaskId())
	}
	return &pb.SubmitDiscoveredResponse{Summary: toSummary(results, refused)}, nil
}

// settle settles reports; none are settled at once.
func (s *dispatchService) settle(ctx context.Context, collector, session string, in []*pb.TaskReport) ([]*pb.ReportResult, error) {
	if len(in) == 0 {
		return nil, nil
	}
	out, err := fromReports(in)
	if err != nil {
		return nil, err
	}
	results, err := s.d.Report(ctx, collector, out.in)
	if err != nil {
		return nil, aboutCollector(err, collector, session)
	}
	return out.results(results), nil
}

// beat is one exchange of Heartbeat or RenewLease.
func (s *dispatchService) beat(ctx context.Context, req beat) (*pb.RenewLeaseResponse, error) {
	if err := validateBeat(req); err != nil {
		return nil, err
	}
	info := fromCollector(req.GetCollector())
	leases, malformed := fromBeats(req.GetLeases())
	result, err := s.d.Beat(ctx, info, leases)
	if err != nil {
		return nil, aboutCollector(err, info.ID, info.Session)
	}
	return toBeat(result, malformed), nil
}

func aboutCollector(err error, collector, session string) error {
	return about(err, "collector_id", collector, "session", session)
}
