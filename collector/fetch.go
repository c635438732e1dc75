package collector

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	// fetchSlack is how much longer than its wait a fetch may take before it is repeated.
	fetchSlack = 10 * time.Second

	// settleTimeout bounds the last call of a fetch that was interrupted.
	settleTimeout = 2 * time.Second

	// emptyWait keeps a dispatcher that answers "nothing" at once from being asked without end.
	emptyWait = time.Second
)

// fetchLoop fetches what can be started at once, one call at a time, until fetching ends. A fetch carries the reports
// that wait; while it is under way outcomes and free slots gather for the next one.
func (r *run) fetchLoop() {
	defer r.outbox.awaitFetch(false)
	drains := false // as the last answer said
	for {
		free := r.awaitFree()
		if free == 0 {
			return
		}
		answer, err := r.fetch(free, r.outbox.carry())
		if err != nil {
			if r.fetching.ctx.Err() == nil {
				r.log.Error("collector stops: dispatchers refuse its fetches", zap.Error(err))
				r.stop(err)
			}
			return
		}
		r.start(answer)
		wait := answer.wait()
		if answer.GetEmptyReason() == wagglev1.EmptyReason_EMPTY_REASON_COLLECTOR_HELD {
			r.setHeld(true)
			// The dispatcher that answers heartbeats may learn of the hold later, or never if it is lifted soon. Then it pushes
			// nothing, and must be asked.
			time.AfterFunc(wait, func() { signal(r.beatNow) })
			continue
		}
		drained := drains
		if drains = answer.GetEmptyReason() == wagglev1.EmptyReason_EMPTY_REASON_DISPATCHER_DRAINING; drains {
			r.troubles.stopping()
			r.leaveStream()
			if !drained {
				continue // the next fetch goes to another dispatcher, if there is one
			}
		}
		r.awaitFetch(wait == 0 && !answer.parking)
		if !sleep(r.fetching.ctx, wait) {
			return
		}
	}
}

// leaveStream has the stream replaced, which is at a dispatcher that is about to stop.
func (r *run) leaveStream() {
	if stream := r.stream.Load(); stream != nil {
		stream.leaving.Store(true)
		signal(r.leasesChanged)
	}
}

// awaitFetch sets whether the outbox keeps reports for a fetch that comes soon. With one slot fetches carry all reports.
func (r *run) awaitFetch(soon bool) { r.outbox.awaitFetch(soon || r.cfg.Slots <= 1) }

// awaitFree waits until tasks can be started and returns how many; 0 if fetching has ended.
func (r *run) awaitFree() int {
	for r.fetching.ctx.Err() == nil {
		held := r.stats.snapshot().Held
		if free := r.leases.free(); free > 0 && !held {
			return free
		}
		// Whoever frees the first slot reports before that. Where reports are what fetching waits for, nothing carries them.
		if held {
			r.outbox.awaitFetch(false)
		} else {
			r.awaitFetch(r.leases.full())
		}
		select {
		case <-r.slotFree:
		case <-r.fetching.ctx.Done():
		}
	}
	return 0
}

// fetchAnswer is the answer of a fetch, with when its request was sent.
type fetchAnswer struct {
	*wagglev1.FetchTaskResponse
	sent     time.Time
	took     time.Duration
	parking  bool // the dispatcher was to wait for tasks
	repeated bool // earlier calls with the same client token got no answer
}

// wait is how long to wait before the next fetch, or before a heartbeat asks whether the collector is still held. There is none
// after a fetch that did not park: the next one parks, or carries newer reports.
func (a *fetchAnswer) wait() time.Duration {
	reason := a.GetEmptyReason()
	held := reason == wagglev1.EmptyReason_EMPTY_REASON_COLLECTOR_HELD
	if len(a.GetLeasedTasks()) > 0 || !a.parking && !held || reason == wagglev1.EmptyReason_EMPTY_REASON_TOKEN_USED {
		return 0
	}
	asked := min(max(a.GetRetryAfter().AsDuration(), 0), time.Minute)
	if asked == 0 && a.took < emptyWait/2 {
		asked = emptyWait
	}
	return asked + jitter(asked/10)
}

// fetch makes one fetch: it repeats the call with the same client token until there is an answer. It fails if repeating is of no
// use, or if fetching has ended; then it gives back what the call may have been granted.
func (r *run) fetch(tasks int, reports []*report) (*fetchAnswer, error) {
	request := r.fetchRequest(tasks, reports)
	r.awaitFetch(r.stream.Load() == nil && !r.parks(request))
	settle := func(results []*wagglev1.ReportResult) {
		if len(reports) > 0 {
			r.answered(reportCall)
			r.settle(reports, results)
		}
		request.Reports, reports = nil, nil
	}
	var delay retryDelay
	for repeated := false; ; repeated = true {
		answer, err := r.fetchOnce(r.fetching.ctx, request, settle)
		if err == nil {
			answer.repeated = repeated
			r.answered(fetchCall)
			return answer, nil
		}
		if r.fetching.ctx.Err() == nil {
			if fatal := r.judgeFetchError(err, request, &reports); fatal != nil {
				r.outbox.putBack(reports)
				return nil, fatal
			}
			r.awaitFetch(false)
			request.Wait = durationpb.New(r.cfg.Wait) // an answer soon shows that the trouble is over
			wait := delay.next(err)
			r.failed(fetchCall, err, wait, delay.repeated())
			sleep(r.fetching.ctx, wait)
		}
		if r.fetching.ctx.Err() != nil {
			r.outbox.putBack(reports)
			r.settleToken(request)
			return nil, context.Cause(r.fetching.ctx)
		}
	}
}

func (r *run) fetchRequest(tasks int, reports []*report) *wagglev1.FetchTaskRequest {
	request := &wagglev1.FetchTaskRequest{
		CollectorId: r.cfg.ID, Session: r.session, ClientToken: uuid.NewString(),
		Labels: r.cfg.Labels, Pools: r.cfg.Pools, Sources: r.cfg.Sources, Queues: r.cfg.Queues,
		MaxTasks: int32(tasks), Reports: messages(reports),
	}
	if r.cfg.LeaseDuration > 0 {
		request.LeaseDuration = durationpb.New(r.cfg.LeaseDuration)
	}
	return request
}

// parks reports whether a fetch may wait for tasks as a plain call. The answer to its reports, which is to come soon, would wait, too;
// with nothing to do, the next fetch parks.
func (r *run) parks(request *wagglev1.FetchTaskRequest) bool {
	return len(request.GetReports()) == 0 || r.cfg.Slots <= 1
}

// fetchOnce makes a fetch over the stream, or as a plain call. settle is given the results of its reports.
func (r *run) fetchOnce(ctx context.Context, request *wagglev1.FetchTaskRequest, settle func([]*wagglev1.ReportResult)) (*fetchAnswer, error) {
	sent := time.Now()
	response, answered, err := r.fetchOver(ctx, request, settle)
	if answered {
		return &fetchAnswer{FetchTaskResponse: response, sent: sent, took: time.Since(sent), parking: true}, err
	}
	sent = time.Now()
	wait := time.Duration(0)
	if r.parks(request) {
		wait = r.cfg.Wait - jitter(r.cfg.Wait/5) // collectors that started together do not poll together for ever
	}
	request.Wait = durationpb.New(wait)
	ctx, cancel := context.WithTimeout(ctx, wait+fetchSlack)
	defer cancel()
	if response, err = r.fetches.FetchTask(ctx, request, grpc.WaitForReady(true)); err != nil {
		return nil, err
	}
	settle(response.GetReportResults())
	return &fetchAnswer{FetchTaskResponse: response, sent: sent, took: time.Since(sent), parking: wait > 0}, nil
}

// fetchOver makes a fetch over the stream. It waits for as long as the stream lasts, unless an earlier try has failed.
func (r *run) fetchOver(
	ctx context.Context, request *wagglev1.FetchTaskRequest, settle func([]*wagglev1.ReportResult),
) (response *wagglev1.FetchTaskResponse, answered bool, err error) {
	fetch := &wagglev1.FetchTaskRequest{
		ClientToken: request.GetClientToken(), Pools: request.GetPools(), Sources: request.GetSources(), Queues: request.GetQueues(),
		MaxTasks: request.GetMaxTasks(), Wait: request.GetWait(), LeaseDuration: request.GetLeaseDuration(), Reports: request.GetReports(),
	}
	if wait := fetch.GetWait(); wait != nil {
		within, cancel := context.WithTimeout(ctx, wait.AsDuration()+fetchSlack)
		defer cancel()
		ctx = within
	}
	if r.stream.Load() != nil {
		r.awaitFetch(false) // it may wait for long, and carries nothing that comes
	}
	call := &wagglev1.WorkRequest{Call: &wagglev1.WorkRequest_Fetch{Fetch: fetch}}
	answered, err = r.overStream(ctx, call, func(answer *wagglev1.WorkResponse) bool {
		if reported := answer.GetReport(); reported != nil {
			settle(reported.GetResults())
			return false
		}
		response = answer.GetFetch()
		return true
	})
	return response, answered, err
}

// judgeFetchError returns the error when repeating the call is of no use. It mends the request where that helps.
func (r *run) judgeFetchError(err error, request *wagglev1.FetchTaskRequest, reports *[]*report) error {
	switch {
	case isReplaced(err):
		return fmt.Errorf("%w: %w", ErrReplaced, err)
	case len(*reports) > 0 && (refuses(err, *reports) || r.cfg.Slots > 1):
		// A carried report may be what is refused: the report loop will know. Also, failing fetches and failing reports
		// must not delay each other.
		r.outbox.sendDirectly(*reports)
		request.Reports, *reports = nil, nil
		return nil
	case isDenied(err):
		return fmt.Errorf("%w: fetch task: %w", ErrRefused, err)
	case status.Code(err) == codes.InvalidArgument, isRefusal(err) && r.stats.snapshot().LastAnswer.IsZero():
		return fmt.Errorf("fetch task: %w", err)
	}
	return nil
}

// settleToken asks, without waiting, what an interrupted fetch was granted, and gives it back. Without an answer those leases
// expire.
func (r *run) settleToken(request *wagglev1.FetchTaskRequest) {
	if r.stopCause() != nil {
		return
	}
	last := proto.Clone(request).(*wagglev1.FetchTaskRequest)
	last.Wait, last.MaxTasks, last.Reports = durationpb.New(0), 1, nil
	ctx, cancel := context.WithTimeout(r.calling.ctx, settleTimeout)
	defer cancel()
	sent := time.Now()
	response, err := r.settleOver(ctx, last)
	if err != nil {
		r.log.Debug("tasks of an interrupted fetch are unknown", zap.Error(err))
		return
	}
	r.start(&fetchAnswer{FetchTaskResponse: response, sent: sent, repeated: true})
}

// settleOver makes the last call over the stream, if that lasts: there it takes the place of the fetch that waits.
func (r *run) settleOver(ctx context.Context, last *wagglev1.FetchTaskRequest) (response *wagglev1.FetchTaskResponse, err error) {
	call := &wagglev1.WorkRequest{Call: &wagglev1.WorkRequest_Fetch{Fetch: last}}
	answered, err := r.overStream(ctx, call, func(answer *wagglev1.WorkResponse) bool {
		response = answer.GetFetch()
		return true
	})
	if answered {
		return response, err
	}
	return r.fetches.FetchTask(ctx, last)
}

// start begins work on what was granted. Once fetching has ended it gives everything back instead.
func (r *run) start(answer *fetchAnswer) {
	begin := answer.sent.Add(max(answer.GetWaited().AsDuration(), 0))
	for _, granted := range answer.GetLeasedTasks() {
		pb := granted.GetLease()
		if r.leases.find(pb.GetLeaseToken(), "") != nil {
			continue // a repeated call returned it again
		}
		task := newTask(granted.GetTask(), pb.GetFence())
		l := newLease(r.working.ctx, task, pb.GetLeaseToken(), begin, pb.GetDuration().AsDuration())
		if stale := r.leases.add(l); stale != nil {
			stale.lose(wagglev1.LostReason_LOST_REASON_TAKEN)
		}
		r.stats.change(func(s *Stats) { s.Granted++ })
		if r.fetching.ctx.Err() != nil {
			r.leases.returned()
			l.finish()
			r.report(l, released(0))
			continue
		}
		r.handlers.Go(func() { r.handle(l) })
	}
	switch {
	case len(answer.GetLeasedTasks()) == 0:
	case answer.repeated:
		signal(r.beatNow) // their clocks may have run for a while
	default:
		signal(r.leasesChanged)
	}
}
