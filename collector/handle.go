package collector

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// handle works on one task from its grant to its report. A panic of the handler becomes an error, and so does a
// runtime.Goexit.
func (r *run) handle(l *lease) {
	returned := r.watch(l)
	ctx, end := r.traced(l)
	var done Succeeded
	var err error = &Failed{Reason: ReasonHandler, Message: "handler ended its goroutine"}
	defer func() {
		if thrown := recover(); thrown != nil {
			r.log.Error("handler panicked", zap.String("task_id", l.task.ID), zap.Any("panic", thrown), zap.ByteString("stack", debug.Stack()))
			err = &Failed{Reason: ReasonHandler, Message: fmt.Sprintf("panic: %v", thrown)}
		}
		end(err)
		wasStuck := returned()
		r.conclude(l, done, err)
		r.leases.returned()
		if wasStuck {
			signal(r.beatNow)
		}
		signal(r.slotFree) // after the report is queued, so that the next fetch can carry it
	}()
	began := time.Now()
	defer func() { r.metrics.handling.Observe(time.Since(began).Seconds()) }()
	done, err = r.handler.Handle(ctx, l.task)
}

// watch makes a handler stuck that goes on for handlerGrace after the end of its context: that is logged, and the next
// heartbeat comes at once to report it. returned stops watching, logs the return of one that was stuck, and reports
// whether it was.
func (r *run) watch(l *lease) (returned func() (wasStuck bool)) {
	done := make(chan struct{})
	unwatch := context.AfterFunc(l.ctx, func() {
		ended := time.Now()
		if waitFor(done, r.calling.ctx.Done(), handlerGrace) || r.calling.ctx.Err() != nil || !l.setStuck() {
			return
		}
		r.log.Warn("handler goes on although its context has ended; its slot takes no other task until it returns",
			zap.String("task_id", l.task.ID), zap.NamedError("cause", context.Cause(l.ctx)), zap.Duration("past", time.Since(ended)))
		signal(r.beatNow)
	})
	return func() bool {
		unwatch()
		close(done)
		if !l.isStuck() {
			return false
		}
		r.log.Info("stuck handler returned; its slot is free again", zap.String("task_id", l.task.ID))
		return true
	}
}

// conclude reports what became of a task.
func (r *run) conclude(l *lease, done Succeeded, err error) {
	if !l.finish() || errors.Is(r.stopCause(), ErrReplaced) { // then all leases are gone
		r.abandon(l)
		return
	}
	outcome, rest := r.outcome(l, done, err)
	if len(rest) > 0 {
		if err := r.submit(l, rest); err != nil {
			outcome = r.submitFailed(l, err)
		}
	}
	if outcome == nil {
		r.forget(l)
		return
	}
	r.troubles.ended(l.task, outcome)
	if outcome.GetSucceeded() == nil && l.hasNews() {
		r.sendCursor(l)
	}
	r.report(l, outcome)
}

// abandon drops the result of a handler that returned after its lease was gone.
func (r *run) abandon(l *lease) {
	if !l.isLost() && !errors.Is(r.stopCause(), ErrReplaced) {
		r.log.Info("lease not renewed in time, its handler was stopped; the task is given back", zap.String("task_id", l.task.ID))
		r.giveBack(l)
		return
	}
	r.log.Info("lease lost, outcome dropped", zap.String("task_id", l.task.ID), zap.NamedError("cause", context.Cause(l.ctx)))
	r.lost(l.lostReason())
	r.forget(l)
}

// outcome converts what the handler returned. Discovered items beyond a report's limit are returned apart.
func (r *run) outcome(l *lease, done Succeeded, err error) (outcome *wagglev1.Outcome, rest []*wagglev1.DiscoveredItem) {
	release, isReleased := errors.AsType[*Released](err)
	fail, isFailed := errors.AsType[*Failed](err)
	switch {
	case err == nil:
		var items []*wagglev1.DiscoveredItem
		if items, err = discovered(done.Discovered); err == nil {
			outcome, rest, err = succeeded(done, r.known.unknown(l.task, items))
		}
		if err == nil {
			return outcome, rest
		}
	case isReleased:
		return released(release.Delay), nil
	case l.ctx.Err() != nil:
		return released(0), nil // interrupted: the error does not describe the task
	case isFailed:
		return failed(fail), nil
	}
	return failed(&Failed{Reason: ReasonHandler, Message: err.Error()}), nil
}

// submit submits what a report cannot carry, in batches, each repeated until there is an answer. The slot stays taken
// meanwhile, and heartbeats keep the lease.
func (r *run) submit(l *lease, items []*wagglev1.DiscoveredItem) error {
	for _, batch := range batches(items) {
		var delay retryDelay
		for err := r.submitOnce(l, batch); err != nil; err = r.submitOnce(l, batch) {
			if l.isLost() || r.calling.ctx.Err() != nil || isFinal(err) {
				return err
			}
			wait := delay.next(err)
			r.failed(submitCall, err, wait, delay.repeated())
			if !sleep(r.calling.ctx, wait) {
				return context.Cause(r.calling.ctx)
			}
		}
		r.answered(submitCall)
	}
	return nil
}

func (r *run) submitOnce(l *lease, batch []*wagglev1.DiscoveredItem) error {
	ctx, cancel := context.WithTimeout(r.calling.ctx, callTimeout)
	defer cancel()
	request := &wagglev1.SubmitDiscoveredRequest{TaskId: l.task.ID, LeaseToken: l.token, Items: batch}
	call := &wagglev1.WorkRequest{Call: &wagglev1.WorkRequest_Discovered{Discovered: request}}
	if answered, err := r.overStream(ctx, call, func(*wagglev1.WorkResponse) bool { return true }); answered {
		return err
	}
	_, err := r.control.SubmitDiscovered(ctx, request, grpc.WaitForReady(true))
	return err
}

// isFinal reports whether repeating a call for a lease is of no use.
func isFinal(err error) bool {
	code := status.Code(err)
	return code == codes.FailedPrecondition || code == codes.NotFound || code == codes.InvalidArgument || isRefusal(err)
}

// submitFailed is what to report when items could not be submitted: nothing when the lease is gone.
func (r *run) submitFailed(l *lease, err error) *wagglev1.Outcome {
	if l.isLost() || r.calling.ctx.Err() != nil || status.Code(err) == codes.FailedPrecondition || status.Code(err) == codes.NotFound {
		r.log.Info("lease lost while its discovered items were submitted", zap.String("task_id", l.task.ID), zap.Error(err))
		r.lost(l.lostReason())
		return nil
	}
	r.log.Error("discovered items refused", zap.String("task_id", l.task.ID), zap.Error(err))
	return failed(&Failed{Reason: ReasonHandler, Message: "discovered items refused: " + status.Convert(err).Message()})
}

// sendCursor sends the last cursor before the report ends the lease. It tries once: the next attempt can do without.
func (r *run) sendCursor(l *lease) {
	ctx, cancel := context.WithTimeout(r.calling.ctx, callTimeout/2)
	defer cancel()
	beat, noted := l.beat()
	_, err := r.control.RenewLease(ctx, &wagglev1.RenewLeaseRequest{
		Collector: r.info(), Leases: []*wagglev1.LeaseBeat{beat},
	})
	if err != nil {
		r.log.Debug("last cursor not sent", zap.String("task_id", l.task.ID), zap.Error(err))
		return
	}
	l.acknowledge(noted)
}
