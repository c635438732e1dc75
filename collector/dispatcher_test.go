package collector_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// dispatcher speaks the protocol as scripted, to inject faults at exact times; the real one is met in deploy/e2e. By
// itself it hands out the tasks put into it, renews every lease for its duration, and takes every report. A hook that is
// set answers in its place; n counts the calls of its kind from 0.
type dispatcher struct {
	wagglev1.UnimplementedDispatchServiceServer

	onFetch  func(ctx context.Context, n int, req *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error)
	onStream func(n int) error
	onBeat   func(n int, b beat) (*wagglev1.HeartbeatResponse, error) // a nil answer: silence
	onReport func(n int, r *wagglev1.TaskReport) *wagglev1.ReportResult
	onCall   func(n int, req *wagglev1.ReportTaskRequest) error
	onSubmit func(n int, req *wagglev1.SubmitDiscoveredRequest) error

	plain bool          // there are no streams
	noisy bool          // each answer to a beat comes after a message that is pushed
	lease time.Duration // of each grant and renewal; 30 s when zero
	ready chan *wagglev1.Task
	quit  chan struct{} // closed when the server stops
	broke chan error    // ends the stream between beats

	mu      sync.Mutex
	granted int
	grants  map[string][]*wagglev1.LeasedTask // by client token
	waits   map[string]context.CancelFunc     // fetches, by client token
	polls   int                               // parked now
	woken   chan struct{}                     // closed by answerParked
	reason  wagglev1.EmptyReason
	fetches []fetchCall
	streams int
	beats   []beat
	reports []reportCall
	calls   []*wagglev1.ReportTaskRequest
	submits []*wagglev1.SubmitDiscoveredRequest
	pushes  chan *wagglev1.HeartbeatResponse
}

type fetchCall struct {
	at  time.Time
	req *wagglev1.FetchTaskRequest
}

type beat struct {
	at       time.Time
	streamed bool
	client   []string // as its metadata name it
	info     *wagglev1.CollectorInfo
	leases   []*wagglev1.LeaseBeat
}

type reportCall struct {
	at      time.Time
	carried bool
	*wagglev1.TaskReport
}

func newDispatcher() *dispatcher {
	return &dispatcher{
		ready: make(chan *wagglev1.Task, 10_000), quit: make(chan struct{}), broke: make(chan error, 1),
		pushes: make(chan *wagglev1.HeartbeatResponse, 10), woken: make(chan struct{}),
		grants: make(map[string][]*wagglev1.LeasedTask), waits: make(map[string]context.CancelFunc),
	}
}

func (d *dispatcher) duration() time.Duration {
	if d.lease == 0 {
		return 30 * time.Second
	}
	return d.lease
}

// put makes tasks of seeds ready.
func (d *dispatcher) put(ids ...string) {
	for _, id := range ids {
		d.ready <- &wagglev1.Task{Id: id, Url: "http://example.com/" + id, Attempt: 1, Recurring: true}
	}
}

// grant makes a lease of a task.
func (d *dispatcher) grant(req *wagglev1.FetchTaskRequest, task *wagglev1.Task) *wagglev1.LeasedTask {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.granted++
	fence := int64(d.granted)
	leased := &wagglev1.LeasedTask{Task: task, Lease: &wagglev1.Lease{
		TaskId: task.GetId(), Fence: fence, Duration: durationpb.New(d.duration()),
		LeaseToken: fmt.Sprintf("%s/%s/%d", req.GetCollectorId(), req.GetClientToken(), fence),
	}}
	d.grants[req.GetClientToken()] = append(d.grants[req.GetClientToken()], leased)
	return leased
}

// FetchTask hands out what is ready, up to max_tasks, or waits for one.
func (d *dispatcher) FetchTask(ctx context.Context, req *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
	d.mu.Lock()
	n := len(d.fetches)
	d.fetches = append(d.fetches, fetchCall{at: time.Now(), req: req})
	d.polls++
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if before := d.waits[req.GetClientToken()]; before != nil {
		before()
	}
	d.waits[req.GetClientToken()] = cancel
	woken, before := d.woken, d.grants[req.GetClientToken()]
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.polls--
	}()
	results := d.take(req.GetReports(), true)
	if d.onFetch != nil {
		if answer, err := d.onFetch(ctx, n, req); answer != nil || err != nil {
			if answer != nil && answer.ReportResults == nil {
				answer.ReportResults = results
			}
			return answer, err
		}
	}
	answer := &wagglev1.FetchTaskResponse{ReportResults: results}
	if len(before) > 0 {
		answer.LeasedTasks = before
		return answer, nil
	}
	start := time.Now()
	timer := time.NewTimer(req.GetWait().AsDuration())
	defer timer.Stop()
	select {
	case task := <-d.ready:
		answer.LeasedTasks = append(answer.LeasedTasks, d.grant(req, task))
	case <-timer.C:
		answer.EmptyReason = wagglev1.EmptyReason_EMPTY_REASON_NO_TASKS
		return answer, nil
	case <-woken:
		answer.EmptyReason = d.reason
		return answer, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	case <-d.quit:
		return nil, unavailable()
	}
	for len(answer.LeasedTasks) < int(req.GetMaxTasks()) && len(d.ready) > 0 {
		answer.LeasedTasks = append(answer.LeasedTasks, d.grant(req, <-d.ready))
	}
	answer.Waited = durationpb.New(time.Since(start))
	return answer, nil
}

// Work answers each beat, and sends what is to be pushed between them. It answers other requests as plain calls.
func (d *dispatcher) Work(stream grpc.BidiStreamingServer[wagglev1.WorkRequest, wagglev1.WorkResponse]) error {
	if d.plain {
		return status.Error(codes.Unimplemented, "no streams here")
	}
	d.mu.Lock()
	n := d.streams
	d.streams++
	d.mu.Unlock()
	if d.onStream != nil {
		if err := d.onStream(n); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	answers := make(chan *wagglev1.WorkResponse)
	requests, failed := make(chan *wagglev1.HeartbeatRequest), make(chan error, 1)
	go func() {
		var hello *wagglev1.CollectorInfo
		for {
			req, err := stream.Recv()
			if err != nil {
				failed <- err
				return
			}
			beat := req.GetHeartbeat()
			if beat == nil {
				go d.serve(ctx, hello, req, answers)
				continue
			}
			hello = beat.GetCollector()
			select {
			case requests <- beat:
			case <-ctx.Done():
			}
		}
	}()
	send := func(message *wagglev1.HeartbeatResponse) error {
		return stream.Send(&wagglev1.WorkResponse{Answer: &wagglev1.WorkResponse_Heartbeat{Heartbeat: message}})
	}
	for {
		select {
		case answer := <-answers:
			if err := stream.Send(answer); err != nil {
				return err
			}
		case req := <-requests:
			answer, err := d.beat(beat{at: time.Now(), streamed: true, client: clientOf(stream.Context()), info: req.GetCollector(), leases: req.GetLeases()})
			if err != nil {
				return err
			}
			if answer == nil {
				continue
			}
			if d.noisy {
				if err := send(&wagglev1.HeartbeatResponse{}); err != nil {
					return err
				}
			}
			if err := send(answer); err != nil {
				return err
			}
		case message := <-d.pushes:
			if err := send(message); err != nil {
				return err
			}
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case err := <-d.broke:
			return err
		case <-d.quit:
			return unavailable()
		}
	}
}

// serve answers a request of a stream.
func (d *dispatcher) serve(ctx context.Context, hello *wagglev1.CollectorInfo, req *wagglev1.WorkRequest, answers chan<- *wagglev1.WorkResponse) {
	answer := func(response *wagglev1.WorkResponse, err error) {
		if err != nil {
			st := status.Convert(err)
			failed := &wagglev1.WorkError{Code: int32(st.Code()), Message: st.Message()}
			for _, detail := range st.Details() {
				switch detail := detail.(type) {
				case *errdetails.ErrorInfo:
					failed.Reason = wagglev1.ErrorReason(wagglev1.ErrorReason_value["ERROR_REASON_"+detail.GetReason()])
				case *errdetails.RetryInfo:
					failed.RetryAfter = detail.GetRetryDelay()
				}
			}
			response = &wagglev1.WorkResponse{Answer: &wagglev1.WorkResponse_Error{Error: failed}}
		}
		response.Id = req.GetId()
		select {
		case answers <- response:
		case <-ctx.Done():
		}
	}
	report := func(reports []*wagglev1.TaskReport) error {
		resp, err := d.ReportTask(ctx, &wagglev1.ReportTaskRequest{CollectorId: hello.GetId(), Session: hello.GetSession(), Reports: reports})
		answer(&wagglev1.WorkResponse{Answer: &wagglev1.WorkResponse_Report{Report: resp}}, err)
		return err
	}
	switch call := req.GetCall().(type) {
	case *wagglev1.WorkRequest_Report:
		_ = report(call.Report.GetReports()) // the client has it
	case *wagglev1.WorkRequest_Discovered:
		resp, err := d.SubmitDiscovered(ctx, call.Discovered)
		answer(&wagglev1.WorkResponse{Answer: &wagglev1.WorkResponse_Discovered{Discovered: resp}}, err)
	case *wagglev1.WorkRequest_Fetch:
		fetch := call.Fetch
		fetch.CollectorId, fetch.Session, fetch.Labels = hello.GetId(), hello.GetSession(), hello.GetLabels()
		if fetch.GetWait() == nil {
			fetch.Wait = durationpb.New(365 * 24 * time.Hour) // as long as the stream lasts
		}
		if reports := fetch.GetReports(); len(reports) > 0 {
			if report(reports) != nil {
				return
			}
			fetch.Reports = nil
		}
		resp, err := d.FetchTask(ctx, fetch)
		answer(&wagglev1.WorkResponse{Answer: &wagglev1.WorkResponse_Fetch{Fetch: resp}}, err)
	}
}

// RenewLease answers one beat.
func (d *dispatcher) RenewLease(ctx context.Context, req *wagglev1.RenewLeaseRequest) (*wagglev1.RenewLeaseResponse, error) {
	answer, err := d.beat(beat{at: time.Now(), client: clientOf(ctx), info: req.GetCollector(), leases: req.GetLeases()})
	if err != nil {
		return nil, err
	}
	if answer == nil {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return &wagglev1.RenewLeaseResponse{Status: answer.GetStatus()}, nil
}

func (d *dispatcher) beat(b beat) (*wagglev1.HeartbeatResponse, error) {
	d.mu.Lock()
	n := len(d.beats)
	d.beats = append(d.beats, b)
	d.mu.Unlock()
	if d.onBeat != nil {
		return d.onBeat(n, b)
	}
	return d.renewal(b), nil
}

// renewal is the ordinary answer to a beat.
func (d *dispatcher) renewal(b beat) *wagglev1.HeartbeatResponse {
	if len(b.leases) == 0 {
		return answerOf(&wagglev1.LeaseStatus{NextHeartbeat: durationpb.New(15 * time.Second)})
	}
	return answerOf(&wagglev1.LeaseStatus{
		LeaseDuration: durationpb.New(d.duration()), NextHeartbeat: durationpb.New(d.duration() / 3),
	})
}

// answerOf is the message that has a status.
func answerOf(s *wagglev1.LeaseStatus) *wagglev1.HeartbeatResponse {
	return &wagglev1.HeartbeatResponse{Status: s}
}

// ReportTask takes reports.
func (d *dispatcher) ReportTask(_ context.Context, req *wagglev1.ReportTaskRequest) (*wagglev1.ReportTaskResponse, error) {
	d.mu.Lock()
	n := len(d.calls)
	d.calls = append(d.calls, req)
	d.mu.Unlock()
	if d.onCall != nil {
		if err := d.onCall(n, req); err != nil {
			return nil, err
		}
	}
	return &wagglev1.ReportTaskResponse{Results: d.take(req.GetReports(), false)}, nil
}

func (d *dispatcher) take(reports []*wagglev1.TaskReport, carried bool) []*wagglev1.ReportResult {
	var results []*wagglev1.ReportResult
	for _, r := range reports {
		d.mu.Lock()
		n := len(d.reports)
		d.reports = append(d.reports, reportCall{at: time.Now(), carried: carried, TaskReport: r})
		d.mu.Unlock()
		result := &wagglev1.ReportResult{TaskId: r.GetTaskId(), Code: wagglev1.ReportCode_REPORT_CODE_OK}
		if d.onReport != nil {
			result = d.onReport(n, r)
		}
		results = append(results, result)
	}
	return results
}

// SubmitDiscovered takes items.
func (d *dispatcher) SubmitDiscovered(_ context.Context, req *wagglev1.SubmitDiscoveredRequest) (*wagglev1.SubmitDiscoveredResponse, error) {
	d.mu.Lock()
	n := len(d.submits)
	d.submits = append(d.submits, req)
	d.mu.Unlock()
	if d.onSubmit != nil {
		if err := d.onSubmit(n, req); err != nil {
			return nil, err
		}
	}
	return &wagglev1.SubmitDiscoveredResponse{Summary: &wagglev1.DiscoverSummary{Created: int32(len(req.GetItems()))}}, nil
}

func (d *dispatcher) fetchCalls() []fetchCall {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.fetches)
}

// parked counts the fetches that wait.
func (d *dispatcher) parked() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.polls
}

// answerParked answers the fetches that wait.
func (d *dispatcher) answerParked(reason wagglev1.EmptyReason) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reason = reason
	close(d.woken)
	d.woken = make(chan struct{})
}

func (d *dispatcher) beatCalls() []beat {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.beats)
}

func (d *dispatcher) reported() []reportCall {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.reports)
}

// failure is an error as a dispatcher makes it.
func failure(code codes.Code, reason string, retry time.Duration) error {
	st := status.New(code, reason)
	details, err := st.WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: "waggle"})
	if err != nil {
		return err
	}
	if retry > 0 {
		details, err = details.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(retry)})
		if err != nil {
			return err
		}
	}
	return details.Err()
}

func unavailable() error { return failure(codes.Unavailable, "STORE_UNAVAILABLE", 0) }

func replaced() error { return failure(codes.FailedPrecondition, "COLLECTOR_REPLACED", 0) }
