package collectorkit

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/deploy/conformance/internal/verdict"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// onWorkKey is the key of contexts of calls that came on a Work stream.
type onWorkKey struct{}

func isOnWork(ctx context.Context) bool { return ctx.Value(onWorkKey{}) != nil }

// workScenarios are about Work streams.
func workScenarios() []Scenario {
	return []Scenario{
		{
			Name: "work/grant-lost", Rule: "23: the stream ends: repeat a fetch that has no answer with its client token", streams: true,
			script: func(k *kit) {
				var cut atomic.Bool
				k.on(func(h *hooks) {
					h.fetch = func(c *call) (*wagglev1.FetchTaskResponse, error) {
						if !c.onWork || !cut.CompareAndSwap(false, true) {
							return nil, nil //nolint:nilnil // the usual dispatcher answers
						}
						if _, err := k.serveFetch(c); err != nil {
							return nil, err
						}
						return nil, k.cut(c)
					}
				})
				k.start()
				waits := k.next(5*time.Second, "fetch on a Work stream", time.Time{}, isFetchOnWork)
				ids := k.add(work{})
				k.next(soon, "fetch with the same client token", waits.at, func(c *call) bool {
					return isFetch(c) && c.fetch.GetClientToken() == waits.fetch.GetClientToken()
				})
				k.settled(soon, ids...)
			},
		},
		{
			Name: "work/report-lost", Rule: "23: the stream ends: repeat a report that has no answer", streams: true,
			script: func(k *kit) {
				var cut atomic.Bool
				k.on(func(h *hooks) {
					h.report = func(c *call) (*wagglev1.ReportTaskResponse, error) {
						if !c.onWork || !cut.CompareAndSwap(false, true) {
							return nil, nil //nolint:nilnil // the usual dispatcher answers
						}
						k.settle(c, c.report.GetReports())
						return nil, k.cut(c)
					}
				})
				k.start()
				k.next(5*time.Second, "fetch on a Work stream", time.Time{}, isFetchOnWork)
				ids := k.add(work{})
				k.settled(soon, ids...)
				k.await(soon, "second report", func() bool { return len(k.reportsLocked(ids[0])) >= 2 })
			},
		},
		{
			Name: "work/refused", Rule: "23: UNIMPLEMENTED: use plain calls", streams: true,
			script: func(k *kit) {
				k.on(func(h *hooks) {
					h.stream = func(*call) error { return status.Error(codes.Unimplemented, "no streams here") }
				})
				ids := k.add(work{WorkMS: 5000, lease: 3 * time.Second}, work{})
				k.start()
				k.settled(8*time.Second, ids...)
				verdict.Want(k.outcome(ids[0]).GetSucceeded() != nil, "the task was not reported as succeeded: without a stream its lease was lost")
			},
		},
	}
}

func isFetchOnWork(c *call) bool { return isFetch(c) && c.onWork }

// cut ends the streams, and with them a call that has no answer.
func (k *kit) cut(c *call) error {
	k.endStreams(errLost)
	<-c.ctx.Done()
	return errLost
}

// standing is the wait of a fetch on a stream: longer than any scenario.
const standing = time.Hour

// Work answers each request as the plain call, and beats as a Heartbeat stream.
func (s service) Work(client wagglev1.DispatchService_WorkServer) error {
	k := s.server.k
	ctx, cancel := context.WithCancel(context.WithValue(client.Context(), onWorkKey{}, true))
	defer cancel()
	opened := s.note(ctx, &call{method: "Work"})
	if err := k.hooked().every(opened); err != nil {
		return err
	}
	if hook := k.hooked().stream; hook != nil {
		if err := hook(opened); err != nil {
			return err
		}
	}
	var sending sync.Mutex
	send := func(response *wagglev1.WorkResponse) error {
		sending.Lock()
		defer sending.Unlock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return client.Send(response)
	}
	beats := make(chan *wagglev1.HeartbeatRequest)
	go s.receive(ctx, client, beats, send)
	return s.serveBeats(ctx, beats, true, func(message *wagglev1.HeartbeatResponse) error {
		return send(&wagglev1.WorkResponse{Answer: &wagglev1.WorkResponse_Heartbeat{Heartbeat: message}})
	})
}

// receive receives requests until the client ends its side.
func (s service) receive(
	ctx context.Context, client wagglev1.DispatchService_WorkServer, beats chan<- *wagglev1.HeartbeatRequest, send func(*wagglev1.WorkResponse) error,
) {
	var calls sync.WaitGroup
	defer close(beats)
	defer calls.Wait()
	fetching, end := context.WithCancel(ctx)
	defer end()
	var hello *wagglev1.CollectorInfo
	for {
		request, err := client.Recv()
		if err != nil {
			return
		}
		if beat := request.GetHeartbeat(); beat != nil {
			hello = beat.GetCollector()
			select {
			case beats <- beat:
			case <-ctx.Done():
				return
			}
			continue
		}
		of := hello
		calls.Go(func() {
			err := s.serve(ctx, fetching, of, request, send)
			if err != nil {
				_ = send(&wagglev1.WorkResponse{Id: request.GetId(), Answer: &wagglev1.WorkResponse_Error{Error: workError(err)}}) // it may have ended
			}
		})
	}
}

// serve answers a request. Its error goes to the client.
func (s service) serve(ctx, fetching context.Context, hello *wagglev1.CollectorInfo, request *wagglev1.WorkRequest, send func(*wagglev1.WorkResponse) error) error {
	id := request.GetId()
	switch call := request.GetCall().(type) {
	case *wagglev1.WorkRequest_Fetch:
		fetch := call.Fetch
		fetch.CollectorId, fetch.Session, fetch.Labels = hello.GetId(), hello.GetSession(), hello.GetLabels()
		if fetch.GetWait() == nil {
			fetch.Wait = durationpb.New(standing)
		}
		if reports := fetch.GetReports(); len(reports) > 0 {
			fetch.Reports = nil
			reported, err := s.ReportTask(ctx, &wagglev1.ReportTaskRequest{CollectorId: hello.GetId(), Session: hello.GetSession(), Reports: reports})
			if err != nil {
				return err
			}
			if err := send(&wagglev1.WorkResponse{Id: id, Answer: &wagglev1.WorkResponse_Report{Report: reported}}); err != nil {
				return err
			}
		}
		fetched, err := s.FetchTask(fetching, fetch)
		if err != nil {
			return err
		}
		return send(&wagglev1.WorkResponse{Id: id, Answer: &wagglev1.WorkResponse_Fetch{Fetch: fetched}})
	case *wagglev1.WorkRequest_Report:
		call.Report.CollectorId, call.Report.Session = hello.GetId(), hello.GetSession()
		reported, err := s.ReportTask(ctx, call.Report)
		if err != nil {
			return err
		}
		return send(&wagglev1.WorkResponse{Id: id, Answer: &wagglev1.WorkResponse_Report{Report: reported}})
	default:
		submitted, err := s.SubmitDiscovered(ctx, request.GetDiscovered())
		if err != nil {
			return err
		}
		return send(&wagglev1.WorkResponse{Id: id, Answer: &wagglev1.WorkResponse_Discovered{Discovered: submitted}})
	}
}

// workError is an error as a Work stream has it.
func workError(err error) *wagglev1.WorkError {
	st := status.Convert(err)
	out := &wagglev1.WorkError{Code: int32(st.Code()), Message: st.Message()}
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			out.Reason, out.Metadata = wagglev1.ErrorReason(wagglev1.ErrorReason_value["ERROR_REASON_"+d.GetReason()]), d.GetMetadata()
		case *errdetails.RetryInfo:
			out.RetryAfter = d.GetRetryDelay()
		}
	}
	return out
}
