package server

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/internal/admit"
	"github.com/waggle-crawl/waggle/server/internal/peers"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// backend is what the services call. It is empty until [Server.Attach]: no call is let in before. A call that began before another
// [Server.Attach] may go on with the new operator.
type backend struct {
	now atomic.Pointer[operate.Operator]
}

// d is the dispatcher, for collectors, and o the operator, for operators and producers.
func (b *backend) d() *engine.Dispatcher { return b.now.Load().Dispatcher() }
func (b *backend) o() *operate.Operator  { return b.now.Load() }

// dispatchService is what collectors call. Heartbeat and RenewLease are in heartbeat.go.
type dispatchService struct {
	pb.UnsafeDispatchServiceServer

	*backend
	limits  *admit.Limits
	metrics *Metrics
	tracer  *tracer

	heartbeats *atomic.Int64   // streams that are open
	stopping   *atomic.Int64   // of them, those of collectors that stop
	closing    <-chan struct{} // closed when no more calls are taken
	grace      time.Duration   // for how long a stream is answered once it was asked to reconnect
}

// fetchCall is a FetchTask under way.
type fetchCall struct {
	came    time.Time
	fetch   engine.FetchRequest
	reports wire.Reports
	settled []engine.ReportResult // of those that were settled ahead of it
	leave   func()                // tells the limits that it is over
}

// FetchTask fetches, and has the reports settled that it carries. They are settled also where the fetch is refused for
// load: what is done stays done. What comes before the wait and after it has functions of its own, so that the stack of a fetch
// that waits stays within 8 KiB (TestParkedFetch_memory).
func (s *dispatchService) FetchTask(ctx context.Context, req *pb.FetchTaskRequest) (*pb.FetchTaskResponse, error) {
	call, err := s.beginFetch(ctx, req)
	if err != nil {
		return nil, err
	}
	defer call.leave()
	result, err := s.d().Fetch(ctx, call.fetch)
	return s.endFetch(ctx, req, call, result, err)
}

func (s *dispatchService) beginFetch(ctx context.Context, req *pb.FetchTaskRequest) (*fetchCall, error) {
	fetch, reports, err := wire.Fetch(req)
	if err != nil {
		return nil, err
	}
	call := &fetchCall{came: time.Now(), fetch: fetch, reports: reports}
	if err = s.settleAhead(ctx, req, call); err != nil {
		return nil, aboutCollector(err, req)
	}
	if call.leave, err = s.limits.Fetch(fetch.Collector); err != nil {
		if _, failed := s.d().Report(ctx, fetch.Collector, call.fetch.Reports); failed != nil {
			err = aboutCollector(failed, req)
		}
		return nil, err
	}
	return call, nil
}

func (s *dispatchService) endFetch(
	ctx context.Context, req *pb.FetchTaskRequest, call *fetchCall, result *engine.FetchResult, err error,
) (*pb.FetchTaskResponse, error) {
	if errors.Is(err, dispatch.ErrSourceNotFound) {
		return nil, wire.About(err, "source_id", strings.Join(req.GetSources(), ","))
	}
	if err != nil {
		return nil, aboutCollector(err, req)
	}
	if len(result.Tasks) > 0 {
		peers.OnLost(ctx, result.GiveBack)
	}
	s.tracer.granted(ctx, req.GetCollectorId(), call.came, result)
	s.metrics.granted.Add(float64(len(result.Tasks)))
	s.metrics.fetchWait.WithLabelValues(strconv.FormatBool(len(result.Tasks) > 0)).Observe(result.Waited.Seconds())
	return wire.FetchTaskResponse(result, call.reports.Results(append(call.settled, result.Reports...))), nil
}

// settleAhead settles the reports of a fetch ahead of it if they are large, and drops them from the request: so they are
// in hand as reports, and not as long as the fetch waits. So are reports in traces, whose spans must not last as long.
func (s *dispatchService) settleAhead(ctx context.Context, req *pb.FetchTaskRequest, call *fetchCall) error {
	size := 0
	for _, report := range req.GetReports() {
		size += proto.Size(report)
	}
	if size <= admit.SmallRequest && !s.tracer.follows(req.GetReports()) {
		return nil
	}
	leave, err := s.limits.Reports(pb.DispatchService_FetchTask_FullMethodName, size)
	if err != nil {
		return err
	}
	defer leave()
	call.settled, err = s.d().Report(ctx, call.fetch.Collector, call.fetch.Reports)
	if err == nil {
		s.tracer.reported(ctx, req.GetCollectorId(), call.came, req.GetReports(), call.reports.Results(call.settled))
	}
	req.Reports, call.fetch.Reports = nil, nil
	return err
}

// ReportTask settles leases by their holder's reports.
func (s *dispatchService) ReportTask(ctx context.Context, req *pb.ReportTaskRequest) (*pb.ReportTaskResponse, error) {
	came := time.Now()
	reports, err := wire.Report(req)
	if err != nil {
		return nil, err
	}
	results, err := s.d().Report(ctx, req.GetCollectorId(), reports.List)
	if err != nil {
		return nil, aboutCollector(err, req)
	}
	resp := &pb.ReportTaskResponse{Results: reports.Results(results)}
	s.tracer.reported(ctx, req.GetCollectorId(), came, req.GetReports(), resp.GetResults())
	return resp, nil
}

// SubmitDiscovered submits what a leased task leads to.
func (s *dispatchService) SubmitDiscovered(ctx context.Context, req *pb.SubmitDiscoveredRequest) (*pb.SubmitDiscoveredResponse, error) {
	found, err := wire.Discovered(req)
	if err != nil {
		return nil, err
	}
	results, err := s.d().SubmitDiscovered(ctx, found.ID, found.Token, found.Items)
	if err != nil {
		return nil, wire.About(err, "task_id", req.GetTaskId())
	}
	return found.Response(results), nil
}

// aboutCollector names the collector and session that err is about.
func aboutCollector(err error, req interface {
	GetCollectorId() string
	GetSession() string
},
) error {
	return wire.About(err, "collector_id", req.GetCollectorId(), "session", req.GetSession())
}
