package serverkit

import (
	"context"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/deploy/conformance/internal/verdict"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// workPromises are about Work streams.
func workPromises() []Promise {
	return []Promise{
		{Name: "work/life", Rule: "23: a fetch stands, its reports are answered first, answers have the id of their request", ask: func(p *probe) {
			p.source(nil)
			p.submit(p.url(0, "page"))
			s := p.worker("a").work()
			first := s.granted(s.fetch(uuid.NewString(), 1, 0))
			p.pass(time.Second)
			stands := s.fetch(uuid.NewString(), 1, 0, report(first[0].GetLease(), succeeded()))
			verdict.Want(s.next(stands).GetReport().GetResults()[0].GetCode() == wagglev1.ReportCode_REPORT_CODE_OK, "the report in a fetch was not answered first, by OK")
			p.pass(time.Second)
			p.submit(p.url(1, "page"))
			second := s.granted(stands)
			status := s.beat(second[0].GetLease(), first[0].GetLease())
			verdict.Want(status.GetLeaseDuration().AsDuration() > 0 && lost(status, first[0].GetLease()), "a beat was answered %v", status)
			s.send(&wagglev1.WorkRequest{Id: 7, Call: &wagglev1.WorkRequest_Report{Report: &wagglev1.ReportTaskRequest{
				Reports: []*wagglev1.TaskReport{report(second[0].GetLease(), succeeded())},
			}}})
			verdict.Want(s.next(7).GetReport().GetResults()[0].GetCode() == wagglev1.ReportCode_REPORT_CODE_OK, "a report was not answered OK")
		}},
		{Name: "work/credit", Rule: "23: an answer has at most max_tasks, and ends the fetch", ask: func(p *probe) {
			p.source(nil)
			p.submit(p.urls(5)...)
			s := p.worker("a").work()
			for _, credit := range []int{2, 3} {
				n := len(s.granted(s.fetch(uuid.NewString(), int32(credit), 0)))
				verdict.Want(n <= credit, "a fetch of %d tasks got %d", credit, n)
			}
		}},
		{Name: "work/replay", Rule: "23: the stream ends: a fetch with the same client token gets what it was granted", ask: func(p *probe) {
			p.source(nil)
			p.submit(p.url(0, "page"))
			w, token := p.worker("a"), uuid.NewString()
			s := w.work()
			lease := s.granted(s.fetch(token, 1, 0))[0].GetLease()
			s.cut()
			s = w.work()
			again := s.granted(s.fetch(token, 1, 0))[0].GetLease()
			verdict.Want(again.GetLeaseToken() == lease.GetLeaseToken(), "the fetch was granted another lease")
		}},
		{Name: "work/waiting-lost", Rule: "23: a fetch that waits when its stream ends keeps no task", ask: func(p *probe) {
			p.source(nil)
			s := p.worker("a").work()
			s.fetch(uuid.NewString(), 1, 0)
			p.pass(300 * time.Millisecond)
			s.cut()
			p.pass(300 * time.Millisecond)
			p.submit(p.url(0, "page"))
			task := p.worker("b").one(0).GetTask()
			verdict.Want(task.GetAttempt() == 1, "the task was granted to nobody first: attempt %d", task.GetAttempt())
		}},
		{Name: "work/same-token", Rule: "23: a fetch with the client token of one that waits takes its place", ask: func(p *probe) {
			p.source(nil)
			s, token := p.worker("a").work(), uuid.NewString()
			s.fetch(token, 1, 0)
			p.pass(300 * time.Millisecond)
			last := s.fetch(token, 1, time.Nanosecond)
			verdict.Want(len(s.next(last).GetFetch().GetLeasedTasks()) == 0, "a fetch got a task where there is none")
			p.submit(p.url(0, "page"))
			p.worker("b").one(0)
		}},
		{Name: "work/errors", Rule: "23: an error answers one request, and the stream goes on", ask: func(p *probe) {
			p.source(nil)
			s := p.worker("a").work()
			failed := s.next(s.fetch(uuid.NewString(), 1001, 0)).GetError()
			verdict.Want(codes.Code(failed.GetCode()) == codes.InvalidArgument && failed.GetReason() == wagglev1.ErrorReason_ERROR_REASON_INVALID_FIELD,
				"a fetch of 1001 tasks was answered %v", failed)
			s.beat()
		}},
		{Name: "work/no-hello", Rule: "23: the first request is a heartbeat", ask: func(p *probe) {
			client, err := p.dispatch.Work(p.ctx)
			verdict.Want(err == nil, "Work failed: %v", err)
			err = client.Send(&wagglev1.WorkRequest{Id: 1, Call: &wagglev1.WorkRequest_Fetch{Fetch: &wagglev1.FetchTaskRequest{}}})
			verdict.Want(err == nil, "a request could not be sent: %v", err)
			_, err = client.Recv()
			wantError(err, codes.InvalidArgument, "INVALID_FIELD")
		}},
	}
}

// workStream is an open Work stream of a worker.
type workStream struct {
	w       *worker
	client  wagglev1.DispatchService_WorkClient
	cut     context.CancelFunc
	answers chan *wagglev1.WorkResponse // closed when the stream has ended; then err says how
	err     error
	last    uint64
}

func (w *worker) work() *workStream {
	ctx, cut := context.WithCancel(w.p.ctx)
	client, err := w.from.dispatch.Work(ctx)
	verdict.Want(err == nil, "Work failed: %v", err)
	s := &workStream{w: w, client: client, cut: cut, answers: make(chan *wagglev1.WorkResponse, 100), last: 100}
	go func() {
		defer close(s.answers)
		for {
			answer, err := client.Recv()
			if err != nil {
				s.err = err
				return
			}
			s.answers <- answer
		}
	}()
	s.beat()
	return s
}

func (s *workStream) send(request *wagglev1.WorkRequest) {
	verdict.Want(s.client.Send(request) == nil, "a request could not be sent")
}

// fetch gives credit. wait 0: the fetch stands; a shorter one than 1 ms: it does not wait.
func (s *workStream) fetch(token string, tasks int32, wait time.Duration, reports ...*wagglev1.TaskReport) (id uint64) {
	s.last++
	fetch := &wagglev1.FetchTaskRequest{ClientToken: token, Pools: []string{s.w.p.name}, MaxTasks: tasks, Reports: reports}
	if wait > 0 {
		fetch.Wait = durationpb.New(wait.Truncate(time.Millisecond))
	}
	s.send(&wagglev1.WorkRequest{Id: s.last, Call: &wagglev1.WorkRequest_Fetch{Fetch: fetch}})
	return s.last
}

// granted is what a fetch was granted.
func (s *workStream) granted(id uint64) []*wagglev1.LeasedTask {
	answer := s.next(id)
	verdict.Want(len(answer.GetFetch().GetLeasedTasks()) > 0, "a fetch that stands was answered %v, want tasks", answer)
	return answer.GetFetch().GetLeasedTasks()
}

// next waits for the next answer to a request.
func (s *workStream) next(id uint64) *wagglev1.WorkResponse {
	return s.await(func(a *wagglev1.WorkResponse) bool { return a.GetHeartbeat() == nil && a.GetId() == id })
}

// beat sends a beat and returns its answer.
func (s *workStream) beat(leases ...*wagglev1.Lease) *wagglev1.LeaseStatus {
	s.send(&wagglev1.WorkRequest{Call: &wagglev1.WorkRequest_Heartbeat{Heartbeat: &wagglev1.HeartbeatRequest{Collector: s.w.info(), Leases: beats(leases)}}})
	return s.await(func(a *wagglev1.WorkResponse) bool { return a.GetHeartbeat().GetStatus().GetNextHeartbeat() != nil }).GetHeartbeat().GetStatus()
}

func (s *workStream) await(fits func(*wagglev1.WorkResponse) bool) *wagglev1.WorkResponse {
	over := time.After(5 * time.Second)
	for {
		select {
		case answer, more := <-s.answers:
			verdict.Want(more, "no answer came: the stream ended with %v", s.err)
			if fits(answer) {
				return answer
			}
		case <-over:
			verdict.Fail("no answer came within 5 s")
		}
	}
}
