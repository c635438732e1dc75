package storetest

import (
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// remember is how long the cases keep what has settled.
const remember = 30 * 24 * time.Hour

// What the contract says of queues and sweeps in words.
const (
	// firstBlock is the first automatic block of a queue whose host names no Retry-After.
	firstBlock = 10 * time.Second
	// hostDelayLimit is how much of what a host asks for counts where no rule sets
	// max_delay.
	hostDelayLimit = time.Minute
	// sweepAhead is how far ahead a sweep looks for renewed leases.
	sweepAhead = 500 * time.Millisecond
)

// ending starts a transition of a leased task that changes nothing else.
func ending(t *dispatch.Task, result dispatch.Result, state dispatch.State) dispatch.Transition {
	return dispatch.Transition{
		ID: t.ID, Token: t.Lease.Digest, Revision: t.Revision, Result: result, State: state,
		Counters: t.Counters, Run: t.Run, FirstDue: t.FirstDue, ClearAgain: true,
	}
}

// done is what a success does to a one-shot task.
func done(t *dispatch.Task) dispatch.Transition {
	tr := ending(t, dispatch.ResultSucceeded, dispatch.StateDone)
	tr.Counters = dispatch.Counters{Cycle: t.Counters.Cycle + 1}
	tr.Settled, tr.Shrink, tr.Remember = true, true, remember
	tr.Queue.Kind = dispatch.QueueSucceeded
	tr.SourceSuccess = true
	return tr
}

// dead is what the last failure does to a one-shot task.
func dead(t *dispatch.Task) dispatch.Transition {
	tr := ending(t, dispatch.ResultFailed, dispatch.StateDead)
	tr.Counters.Cycle++
	tr.Counters.Failures++
	tr.Settled, tr.Remember = true, remember
	tr.LastError = &dispatch.Failure{Result: dispatch.ResultFailed, Reason: 1, Message: "gone"}
	tr.SourceFailure = true
	return tr
}

// retry is what a failure with attempts left does.
func retry(t *dispatch.Task, delay time.Duration) dispatch.Transition {
	tr := ending(t, dispatch.ResultFailed, dispatch.StateScheduled)
	tr.Counters.Failures++
	tr.Delay = delay
	tr.ClearAgain = false
	return tr
}

// blocked is what a failure of the host does.
func blocked(t *dispatch.Task, retryAfter time.Duration) dispatch.Transition {
	tr := retry(t, 0)
	tr.Counters = t.Counters
	tr.Counters.Throttled++
	tr.Queue = dispatch.QueueEffect{Kind: dispatch.QueueBlocked, RetryAfter: retryAfter}
	return tr
}

// urlFailed is what a failure of one URL does.
func urlFailed(t *dispatch.Task, url uint32) dispatch.Transition {
	tr := blocked(t, 0)
	tr.Behind = true
	tr.Queue = dispatch.QueueEffect{Kind: dispatch.QueueURLFailed, URL: url}
	return tr
}

// answered is what a failure of the task does whose host has answered, such as one of a page that is gone.
func answered(t *dispatch.Task) dispatch.Transition {
	tr := dead(t)
	tr.Queue.Kind = dispatch.QueueAnswered
	return tr
}

// released is what a task given back unstarted becomes.
func released(t *dispatch.Task, delay time.Duration) dispatch.Transition {
	tr := ending(t, dispatch.ResultReleased, dispatch.StateScheduled)
	tr.Counters.Attempt = max(tr.Counters.Attempt, 1) - 1
	tr.Delay = delay
	tr.ClearAgain, tr.Behind = false, t.Behind
	tr.Queue.Kind = dispatch.QueueUntouched
	return tr
}

// expired is what a lease that ran out does.
func expired(t *dispatch.Task) dispatch.Transition {
	tr := ending(t, dispatch.ResultExpired, dispatch.StateScheduled)
	tr.Expired = true
	tr.Counters.Expirations++
	tr.ClearAgain, tr.Behind = false, t.Behind
	tr.Queue.Kind = dispatch.QueueExpired
	return tr
}

// replaced is what the newer session of a collector does to a lease of the older one.
func replaced(t *dispatch.Task) dispatch.Transition {
	tr := expired(t)
	tr.Result, tr.Expired = dispatch.ResultReplaced, false
	return tr
}

// canceled is what an operator does to a task that waits, or to a leased one
// that was asked to stop.
func canceled(t *dispatch.Task) dispatch.Transition {
	tr := dispatch.Transition{
		ID: t.ID, Revision: t.Revision, State: dispatch.StateCanceled,
		Counters: t.Counters, Run: t.Run, FirstDue: t.FirstDue, ClearAgain: true,
		Settled: true, Remember: remember, Queue: dispatch.QueueEffect{Kind: dispatch.QueueUntouched},
	}
	if t.Lease != nil {
		tr.Token, tr.Result = t.Lease.Digest, dispatch.ResultReleased
	}
	return tr
}
