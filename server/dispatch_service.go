package server

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// dispatchService is what collectors call. Heartbeat is in heartbeat.go.
type dispatchService struct {
	pb.UnsafeDispatchServiceServer

	*backend
	limits  *limits
	metrics *Metrics
	streams streams
}

// FetchTask fetches, and has the reports settled that it carries. They are settled also
// where the fetch is refused for load: what is done stays done.
func (s *dispatchService) FetchTask(ctx context.Context, req *pb.FetchTaskRequest) (*pb.FetchTaskResponse, error) {
	if err := validateFetch(req); err != nil {
		return nil, err
	}
	carried, err := fromReports(req.GetReports())
	if err != nil {
		return nil, err
	}
	settled, err := s.settleLarge(ctx, req, &carried)
	if err != nil {
		return nil, err
	}
	leave, err := s.limits.fetch(req.GetCollectorId())
	if err != nil {
		if _, unsettled := s.d.Report(ctx, req.GetCollectorId(), carried.in); unsettled != nil {
			err = aboutCollector(unsettled, req.GetCollectorId(), req.GetSession())
		}
		return nil, err
	}
	defer leave()
	fetch := fromFetch(req)
	fetch.Reports = carried.in
	result, err := s.d.Fetch(ctx, fetch)
	if errors.Is(err, dispatch.ErrSourceNotFound) {
		return nil, about(err, "source_id", strings.Join(req.GetSources(), ","))
	}
	if err != nil {
		return nil, aboutCollector(err, req.GetCollectorId(), req.GetSession())
	}
	s.metrics.fetched(result)
	return toFetch(result, carried.results(append(settled, result.Reports...))), nil
}

// settleLarge settles the reports of a fetch ahead of it if they are large, and drops them
// from the request: so they are in hand as reports, and not as long as the fetch waits.
func (s *dispatchService) settleLarge(ctx context.Context, req *pb.FetchTaskRequest, carried *reports) ([]engine.ReportResult, error) {
	size := 0
	for _, report := range req.GetReports() {
		size += proto.Size(report)
	}
	if size <= smallRequest {
		return nil, nil
	}
	leave, err := s.limits.reports.enter(pb.DispatchService_FetchTask_FullMethodName, size)
	if err != nil {
		return nil, err
	}
	defer leave()
	settled, err := s.d.Report(ctx, req.GetCollectorId(), carried.in)
	if err != nil {
		return nil, aboutCollector(err, req.GetCollectorId(), req.GetSession())
	}
	req.Reports, carried.in = nil, nil
	return settled, nil
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
	reported, err := fromReports(req.GetReports())
	if err != nil {
		return nil, err
	}
	results, err := s.d.Report(ctx, req.GetCollectorId(), reported.in)
	if err != nil {
		return nil, aboutCollector(err, req.GetCollectorId(), req.GetSession())
	}
	return &pb.ReportTaskResponse{Results: reported.results(results)}, nil
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
