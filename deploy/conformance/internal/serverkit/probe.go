package serverkit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/deploy/conformance/internal/verdict"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// slack is how much later than promised something may come: the machine may be busy.
const slack = time.Second

// probe is one promise under way. Its name is that of its source and its pool, and begins those of its queues.
type probe struct {
	ctx context.Context //nolint:containedctx // it lives as long as the promise is asked for
	services
	other services // of another dispatcher on the same store; the same one if there is no other
	name  string
	undo  []func(context.Context)
}

// cleanUp removes what the probe made, whatever became of it.
func (p *probe) cleanUp() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), 5*time.Second)
	defer cancel()
	for _, undo := range slices.Backward(p.undo) {
		undo(ctx)
	}
}

// pass lets time pass.
func (p *probe) pass(d time.Duration) {
	select {
	case <-time.After(d):
	case <-p.ctx.Done():
		verdict.Fail("the promise's time is over")
	}
}

// source makes the probe's source; change may be nil.
func (p *probe) source(change func(*wagglev1.SourceSpec)) {
	spec := &wagglev1.SourceSpec{Id: p.name, Pool: p.name}
	if change != nil {
		change(spec)
	}
	_, err := p.sources.CreateSource(p.ctx, &wagglev1.CreateSourceRequest{Spec: spec, By: "kit"})
	verdict.Want(err == nil, "CreateSource failed: %v", err)
	p.undo = append(p.undo, func(ctx context.Context) {
		_, _ = p.sources.DeleteSources(ctx, &wagglev1.DeleteSourcesRequest{Ids: []string{spec.GetId()}, By: "kit"})
	})
}

// host is the name of the probe's queue number i.
func (p *probe) host(i int) string { return fmt.Sprintf("%s-%d.test", p.name, i) }

// url is a page of queue i.
func (p *probe) url(i int, page string) string { return "http://" + p.host(i) + "/" + page }

// urls are n pages, each of a queue of its own.
func (p *probe) urls(n int) (list []string) {
	for i := range n {
		list = append(list, p.url(i, "page"))
	}
	return list
}

// submit submits pages and returns the ids of their tasks.
func (p *probe) submit(urls ...string) (ids []string) {
	var items []*wagglev1.SubmitItem
	for _, url := range urls {
		items = append(items, &wagglev1.SubmitItem{SourceId: p.name, Url: url})
	}
	for i, result := range p.submitItems(items...) {
		verdict.Want(result.GetCode() == wagglev1.SubmitCode_SUBMIT_CODE_CREATED, "submit of %s was answered %s %s, want CREATED", urls[i], result.GetCode(), result.GetMessage())
		ids = append(ids, result.GetTaskId())
	}
	return ids
}

func (p *probe) submitItems(items ...*wagglev1.SubmitItem) []*wagglev1.SubmitResult {
	reply, err := p.tasks.SubmitTasks(p.ctx, &wagglev1.SubmitTasksRequest{Items: items})
	verdict.Want(err == nil, "SubmitTasks failed: %v", err)
	verdict.Want(len(reply.GetResults()) == len(items), "SubmitTasks answered %d results for %d items", len(reply.GetResults()), len(items))
	return reply.GetResults()
}

// task reads a task.
func (p *probe) task(id string) *wagglev1.Task {
	reply, err := p.tasks.GetTask(p.ctx, &wagglev1.GetTaskRequest{TaskId: id})
	verdict.Want(err == nil, "GetTask failed: %v", err)
	return reply.GetTask()
}

// wantState fails unless a task is in a state.
func (p *probe) wantState(id string, want wagglev1.TaskState) {
	state := p.task(id).GetState()
	verdict.Want(state == want, "the task is %s, want %s", state, want)
}

// rule sets the rule of the probe's queue 0.
func (p *probe) rule(minDelay time.Duration, inFlight int32) {
	_, err := p.queues.SetQueueRule(p.ctx, &wagglev1.SetQueueRuleRequest{By: "kit", Rule: &wagglev1.QueueRule{
		Pattern: p.host(0), MinDelay: durationpb.New(minDelay), MaxInFlight: &inFlight,
	}})
	verdict.Want(err == nil, "SetQueueRule failed: %v", err)
	p.undo = append(p.undo, func(ctx context.Context) {
		_, _ = p.queues.DeleteQueueRule(ctx, &wagglev1.DeleteQueueRuleRequest{Pattern: p.host(0), By: "kit"})
	})
}

// hold sets a hold.
func (p *probe) hold(name string, effect wagglev1.HoldEffect, target *wagglev1.HoldTarget) {
	_, err := p.holds.SetHolds(p.ctx, &wagglev1.SetHoldsRequest{Targets: []*wagglev1.HoldTarget{target}, Name: name, Effect: effect, By: "kit", Reason: "a test"})
	verdict.Want(err == nil, "SetHolds failed: %v", err)
	p.undo = append(p.undo, func(ctx context.Context) { _, _ = p.holds.LiftHolds(ctx, lift(name, target)) })
}

func (p *probe) lift(name string, target *wagglev1.HoldTarget) *wagglev1.LiftHoldsResponse {
	reply, err := p.holds.LiftHolds(p.ctx, lift(name, target))
	verdict.Want(err == nil, "LiftHolds failed: %v", err)
	return reply
}

func lift(name string, target *wagglev1.HoldTarget) *wagglev1.LiftHoldsRequest {
	return &wagglev1.LiftHoldsRequest{Targets: []*wagglev1.HoldTarget{target}, Name: name, By: "kit"}
}

// wantError fails unless an error has a code and Waggle's reason.
func wantError(err error, code codes.Code, reason string) {
	var found string
	for _, detail := range status.Convert(err).Details() {
		if info, isInfo := detail.(*errdetails.ErrorInfo); isInfo && info.GetDomain() == "waggle" {
			found = info.GetReason()
		}
	}
	verdict.Want(status.Code(err) == code && found == reason, "the answer is %s with reason %q, want %s with %q", status.Code(err), found, code, reason)
}

// worker is a collector of the probe.
type worker struct {
	p       *probe
	from    services
	id      string
	session string
}

func (p *probe) worker(suffix string) *worker {
	return &worker{p: p, from: p.services, id: p.name + "-" + suffix, session: uuid.NewString()}
}

// fetch makes a fetch from the probe's pool, for one task without waiting unless change says otherwise.
func (w *worker) fetch(change func(*wagglev1.FetchTaskRequest)) *wagglev1.FetchTaskResponse {
	reply, err := w.tryFetch(w.p.ctx, change)
	verdict.Want(err == nil, "FetchTask failed: %v", err)
	return reply
}

func (w *worker) tryFetch(ctx context.Context, change func(*wagglev1.FetchTaskRequest)) (*wagglev1.FetchTaskResponse, error) {
	request := &wagglev1.FetchTaskRequest{
		CollectorId: w.id, Session: w.session, ClientToken: uuid.NewString(), Pools: []string{w.p.name}, MaxTasks: 1, Wait: durationpb.New(0),
	}
	if change != nil {
		change(request)
	}
	return w.from.dispatch.FetchTask(ctx, request)
}

// wait has a fetch wait.
func wait(d time.Duration) func(*wagglev1.FetchTaskRequest) {
	return func(r *wagglev1.FetchTaskRequest) { r.Wait = durationpb.New(d) }
}

// one fetches one task, within 5 s, for a lease of this duration; 0: the source's.
func (w *worker) one(lease time.Duration) *wagglev1.LeasedTask {
	reply := w.fetch(func(r *wagglev1.FetchTaskRequest) {
		r.Wait = durationpb.New(5 * time.Second)
		if lease > 0 {
			r.LeaseDuration = durationpb.New(lease)
		}
	})
	verdict.Want(len(reply.GetLeasedTasks()) == 1, "a fetch that waited 5 s got %d tasks and %s, want 1", len(reply.GetLeasedTasks()), reply.GetEmptyReason())
	return reply.GetLeasedTasks()[0]
}

// none fails if a fetch gets a task.
func (w *worker) none(why string) wagglev1.EmptyReason {
	reply := w.fetch(nil)
	verdict.Want(len(reply.GetLeasedTasks()) == 0, "a fetch got a task, but %s", why)
	return reply.GetEmptyReason()
}

// report reports one task.
func (w *worker) report(lease *wagglev1.Lease, outcome *wagglev1.Outcome) *wagglev1.ReportResult {
	return w.reportAll(report(lease, outcome))[0]
}

func report(lease *wagglev1.Lease, outcome *wagglev1.Outcome) *wagglev1.TaskReport {
	return &wagglev1.TaskReport{TaskId: lease.GetTaskId(), LeaseToken: lease.GetLeaseToken(), Outcome: outcome}
}

func (w *worker) reportAll(reports ...*wagglev1.TaskReport) []*wagglev1.ReportResult {
	reply, err := w.from.dispatch.ReportTask(w.p.ctx, &wagglev1.ReportTaskRequest{CollectorId: w.id, Session: w.session, Reports: reports})
	verdict.Want(err == nil, "ReportTask failed: %v", err)
	verdict.Want(len(reply.GetResults()) == len(reports), "ReportTask answered %d results for %d reports", len(reply.GetResults()), len(reports))
	return reply.GetResults()
}

// wantReport fails unless a report is answered by a code.
func (w *worker) wantReport(lease *wagglev1.Lease, outcome *wagglev1.Outcome, want wagglev1.ReportCode) {
	code := w.report(lease, outcome).GetCode()
	verdict.Want(code == want, "the report was answered %s, want %s", code, want)
}

// renew beats by RenewLease.
func (w *worker) renew(leases ...*wagglev1.Lease) *wagglev1.LeaseStatus {
	reply, err := w.from.dispatch.RenewLease(w.p.ctx, &wagglev1.RenewLeaseRequest{Collector: w.info(), Leases: beats(leases)})
	verdict.Want(err == nil, "RenewLease failed: %v", err)
	return reply.GetStatus()
}

func (w *worker) info() *wagglev1.CollectorInfo {
	return &wagglev1.CollectorInfo{Id: w.id, Session: w.session, Pools: []string{w.p.name}, Slots: 10}
}

func beats(leases []*wagglev1.Lease) (list []*wagglev1.LeaseBeat) {
	for _, l := range leases {
		list = append(list, &wagglev1.LeaseBeat{TaskId: l.GetTaskId(), LeaseToken: l.GetLeaseToken()})
	}
	return list
}

// stream is an open heartbeat stream of a worker.
type stream struct {
	w        *worker
	client   wagglev1.DispatchService_HeartbeatClient
	messages chan *wagglev1.HeartbeatResponse // closed when the stream has ended; then err says how
	err      error
}

func (w *worker) stream() *stream {
	client, err := w.from.dispatch.Heartbeat(w.p.ctx)
	verdict.Want(err == nil, "Heartbeat failed: %v", err)
	s := &stream{w: w, client: client, messages: make(chan *wagglev1.HeartbeatResponse, 100)}
	go func() {
		defer close(s.messages)
		for {
			message, err := client.Recv()
			if err != nil {
				s.err = err
				return
			}
			s.messages <- message
		}
	}()
	return s
}

// beat sends a beat and returns its answer.
func (s *stream) beat(leases ...*wagglev1.Lease) *wagglev1.LeaseStatus {
	err := s.client.Send(&wagglev1.HeartbeatRequest{Collector: s.w.info(), Leases: beats(leases)})
	verdict.Want(err == nil, "a beat could not be sent: %v", err)
	return s.next(5*time.Second, "answer to a beat", func(m *wagglev1.HeartbeatResponse) bool { return m.GetStatus().GetNextHeartbeat() != nil })
}

// pushed waits for a message that is no answer.
func (s *stream) pushed(what string, fits func(*wagglev1.LeaseStatus) bool) {
	s.next(time.Second+slack, what, func(m *wagglev1.HeartbeatResponse) bool {
		return m.GetStatus().GetNextHeartbeat() == nil && fits(m.GetStatus())
	})
}

func (s *stream) next(limit time.Duration, what string, fits func(*wagglev1.HeartbeatResponse) bool) *wagglev1.LeaseStatus {
	over := time.After(limit)
	for {
		select {
		case message, more := <-s.messages:
			verdict.Want(more, "no %s came: the stream ended with %v", what, s.err)
			if fits(message) {
				return message.GetStatus()
			}
		case <-over:
			verdict.Fail("no %s came within %s", what, limit)
		}
	}
}

// ended waits for the end of the stream and returns its error.
func (s *stream) ended(limit time.Duration) error {
	over := time.After(limit)
	for {
		select {
		case _, more := <-s.messages:
			if !more {
				return s.err
			}
		case <-over:
			return errors.New("the stream has not ended")
		}
	}
}

func succeeded() *wagglev1.Outcome {
	return &wagglev1.Outcome{Result: &wagglev1.Outcome_Succeeded{Succeeded: &wagglev1.Succeeded{HttpStatus: 200}}}
}

func released(delay time.Duration) *wagglev1.Outcome {
	return &wagglev1.Outcome{Result: &wagglev1.Outcome_Released{Released: &wagglev1.Released{Delay: durationpb.New(delay)}}}
}

func failed(f *wagglev1.Failed) *wagglev1.Outcome {
	return &wagglev1.Outcome{Result: &wagglev1.Outcome_Failed{Failed: f}}
}

// lost reports whether a beat's answer says that a lease is lost.
func lost(s *wagglev1.LeaseStatus, lease *wagglev1.Lease) bool {
	return slices.ContainsFunc(s.GetLost(), func(l *wagglev1.LostLease) bool { return l.GetTaskId() == lease.GetTaskId() })
}

// canceled is the reason why a status wants a task ended; unspecified: it does not.
func canceled(s *wagglev1.LeaseStatus, id string) wagglev1.CancelReason {
	for _, notice := range s.GetCancel() {
		if notice.GetTaskId() == id {
			return notice.GetReason()
		}
	}
	return wagglev1.CancelReason_CANCEL_REASON_UNSPECIFIED
}
