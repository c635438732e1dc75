package collector

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// callTimeout bounds one try of a call that does not wait for tasks.
const callTimeout = 10 * time.Second

// report queues what is to be said of a lease. It is repeated until a dispatcher has answered.
func (r *run) report(l *lease, outcome *wagglev1.Outcome) {
	r.outbox.add(&report{lease: l, message: &wagglev1.TaskReport{
		TaskId: l.task.ID, LeaseToken: l.token, Outcome: outcome, Traceparent: l.traceparent,
	}})
}

// storeGrace is how long the store keeps leases after an outage, so that collectors can renew them.
const storeGrace = 30 * time.Second

// giveBack reports a lease that lapsed as released: its handler has returned. After an outage the store would keep the task and
// its queue's slot until the grace is over, and count an expiration. If somebody else has the task, the report is refused.
func (r *run) giveBack(l *lease) {
	r.outbox.add(&report{lease: l, direct: true, until: time.Now().Add(storeGrace), message: &wagglev1.TaskReport{
		TaskId: l.task.ID, LeaseToken: l.token, Outcome: released(0), Traceparent: l.traceparent,
	}})
}

// dropLate drops the leases that lapsed and, at a time, need no report any more.
func (r *run) dropLate(at time.Time) {
	for batch := r.outbox.late(at); len(batch) > 0; batch = r.outbox.late(at) {
		for _, one := range batch {
			r.log.Info("lease lost, outcome dropped: no dispatcher took the task back", zap.String("task_id", one.lease.task.ID))
			r.lost(wagglev1.LostReason_LOST_REASON_UNSPECIFIED)
			r.drop(one)
		}
	}
}

// longestWait is the longest wait before reports are sent again. The report of a lease that lapsed is repeated as often as the
// lease was renewed, so that it arrives soon after the outage.
func longestWait(reports ...*report) time.Duration {
	most := maxBackoff
	for _, one := range reports {
		if !one.until.IsZero() {
			most = min(most, max(one.lease.duration/3, minBackoff))
		}
	}
	return most
}

// reportLoop sends the reports that no fetch is to carry soon, many in one call, one call at a time.
func (r *run) reportLoop() {
	var delay retryDelay
	for r.calling.ctx.Err() == nil {
		r.dropLate(time.Now())
		batch, next := r.outbox.due()
		if len(batch) == 0 {
			r.awaitReports(next)
			continue
		}
		err := r.send(batch)
		if err != nil && refuses(err, batch) {
			batch, err = r.findRefused(batch)
		}
		switch {
		case err == nil:
			delay.reset()
		case isReplaced(err):
			r.outbox.putBack(batch)
			r.stop(fmt.Errorf("%w: %w", ErrReplaced, err))
			return
		default:
			r.outbox.putBack(batch)
			wait := delay.nextWithin(longestWait(batch...), err)
			r.failed(reportCall, err, wait, delay.repeated())
			sleep(r.calling.ctx, wait)
		}
	}
}

// awaitReports waits until there may be something to send.
func (r *run) awaitReports(next time.Time) {
	var timer <-chan time.Time
	if !next.IsZero() {
		timer = time.After(time.Until(next))
	}
	select {
	case <-r.outbox.wake:
	case <-timer:
	case <-r.calling.ctx.Done():
	}
}

// send makes one ReportTask call and settles what it answers.
func (r *run) send(batch []*report) error {
	ctx, cancel := context.WithTimeout(r.calling.ctx, callTimeout)
	defer cancel()
	request := &wagglev1.ReportTaskRequest{CollectorId: r.cfg.ID, Session: r.session, Reports: messages(batch)}
	response, err := r.reportOnce(ctx, request)
	if err != nil {
		return err
	}
	r.answered(reportCall)
	r.settle(batch, response.GetResults())
	return nil
}

// reportOnce reports over the stream, or by a plain call.
func (r *run) reportOnce(ctx context.Context, request *wagglev1.ReportTaskRequest) (response *wagglev1.ReportTaskResponse, err error) {
	call := &wagglev1.WorkRequest{Call: &wagglev1.WorkRequest_Report{Report: request}}
	answered, err := r.overStream(ctx, call, func(answer *wagglev1.WorkResponse) bool {
		response = answer.GetReport()
		return true
	})
	if answered {
		return response, err
	}
	return r.control.ReportTask(ctx, request, grpc.WaitForReady(true))
}

// smallReports is a number of bytes that no dispatcher or proxy refuses as too large.
const smallReports = 64 << 10

// refuses reports whether an error is about the content or size of the reports, and so comes each time. A proxy may answer
// ResourceExhausted for other causes: small reports are repeated then.
func refuses(err error, reports []*report) bool {
	switch status.Code(err) {
	case codes.InvalidArgument:
		return true
	case codes.ResourceExhausted:
		size := 0
		for _, one := range reports {
			size += proto.Size(one.message)
		}
		return size > smallReports && isTooLarge(err)
	default:
		return false
	}
}

// findRefused sends the reports of a refused call one by one, so that a bad report delays no other. A report that is refused
// alone becomes a failure; if that is refused too, it is dropped. Beside an error it returns the reports not yet sent.
func (r *run) findRefused(batch []*report) ([]*report, error) {
	for i, one := range batch {
		err := r.send([]*report{one})
		switch {
		case err == nil:
		case !refuses(err, batch[i:i+1]):
			return batch[i:], err
		case one.refused:
			r.log.Error("report dropped: refused twice", zap.String("task_id", one.lease.task.ID), zap.Error(err))
			r.drop(one)
		default:
			r.log.Error("report refused, will be sent as a failure", zap.String("task_id", one.lease.task.ID), zap.Error(err))
			one.refused = true
			one.message.Outcome = failed(&Failed{Reason: ReasonHandler, Message: "report refused: " + status.Convert(err).Message()})
			r.outbox.sendDirectly([]*report{one})
		}
	}
	return nil, nil
}

// settle takes the results of reports that were taken from the outbox.
func (r *run) settle(reports []*report, results []*wagglev1.ReportResult) {
	if len(results) != len(reports) {
		r.log.Error("dispatcher answered another number of reports", zap.Int("reports", len(reports)), zap.Int("results", len(results)))
		for _, one := range reports {
			one.notBefore = time.Now().Add(one.delay.next(nil))
		}
		r.outbox.sendDirectly(reports)
		return
	}
	for i, one := range reports {
		result := results[i]
		switch code := result.GetCode(); code {
		case wagglev1.ReportCode_REPORT_CODE_OK, wagglev1.ReportCode_REPORT_CODE_ALREADY_REPORTED:
			r.stats.reported(one.message.GetOutcome())
			r.metrics.reported(one.message.GetOutcome())
			r.known.note(one.lease.task, one.message.GetOutcome().GetSucceeded().GetDiscovered(), result.GetDiscovered())
			r.drop(one)
		case wagglev1.ReportCode_REPORT_CODE_STORE_FULL:
			r.repeat(one, result, errStoreFull)
		case wagglev1.ReportCode_REPORT_CODE_STORE_UNAVAILABLE:
			r.repeat(one, result, errStoreInPart)
		default: // LEASE_LOST, NOT_FOUND
			r.log.Info("report came too late", zap.String("task_id", one.lease.task.ID),
				zap.Stringer("code", code), zap.Stringer("lost_reason", result.GetLostReason()))
			r.lost(result.GetLostReason())
			r.drop(one)
		}
	}
}

// repeat sends a report again, later: its own, whatever became of those beside it.
func (r *run) repeat(one *report, result *wagglev1.ReportResult, why error) {
	wait := max(one.delay.nextWithin(longestWait(one), nil), min(result.GetRetryAfter().AsDuration(), time.Minute))
	one.notBefore = time.Now().Add(wait)
	r.failed(reportCall, why, wait, one.delay.repeated())
	r.outbox.sendDirectly([]*report{one})
}

// drop ends a report, and with it the lease.
func (r *run) drop(one *report) {
	r.forget(one.lease)
	r.outbox.done(one)
	signal(r.slotFree)
}
