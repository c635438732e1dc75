package collectorkit

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/deploy/conformance/internal/verdict"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// beatScenarios are about heartbeats and what dispatchers push.
func beatScenarios() []Scenario {
	return []Scenario{
		{
			Name: "beat/cursor", Rule: "8: limited with duration 0: keep the deadline; send the cursor again",
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 4000, Cursor: "page-7", Progress: 1.5, lease: 3 * time.Second})
				isCursor := func(c *call) bool {
					return isBeat(c) && len(c.beat.GetLeases()) > 0 && string(c.beat.GetLeases()[0].GetCursor()) == "page-7"
				}
				lost := false
				k.on(func(h *hooks) {
					h.beat = func(c *call) (*wagglev1.LeaseStatus, error) {
						if lost || !isCursor(c) {
							return nil, nil //nolint:nilnil // the usual dispatcher answers
						}
						lost = true
						return &wagglev1.LeaseStatus{
							LeaseDuration: durationpb.New(3 * time.Second), NextHeartbeat: durationpb.New(time.Second),
							Limited: []*wagglev1.LimitedLease{{TaskId: ids[0], Duration: durationpb.New(0)}},
						}, nil
					}
				})
				k.start()
				first := k.next(soon, "heartbeat with the cursor", time.Time{}, isCursor)
				k.next(soon, "second heartbeat with the cursor that was not stored", first.at, isCursor)
				k.settled(6*time.Second, ids...)
				verdict.Want(k.outcome(ids[0]).GetSucceeded() != nil, "the task did not succeed")
				tooFar := k.count(time.Time{}, time.Now(), func(c *call) bool {
					return isBeat(c) && len(c.beat.GetLeases()) > 0 && c.beat.GetLeases()[0].GetProgress() > 1
				})
				verdict.Want(tooFar == 0, "%d heartbeats have a progress over 1, with which a dispatcher refuses all their leases", tooFar)
			},
		},
		{
			Name: "beat/held", Rule: "8: held: fetch nothing, finish what you have, keep beating", streams: true,
			script: func(k *kit) {
				running := k.add(work{WorkMS: 1500})
				k.start()
				k.started(running...)
				k.awaitStream(time.Time{})
				k.hold(true)
				held := time.Now()
				k.settled(soon, running...)
				k.add(work{})
				k.pass(soon)
				n := k.count(held.Add(slack), time.Now(), isFetch)
				verdict.Want(n == 0, "%d fetches came while a hold stopped the collector", n)
				lifted := time.Now()
				k.hold(false)
				k.next(soon, "fetch after the hold was lifted", lifted, isFetch)
			},
		},
		{
			Name: "beat/cancel", Rule: "8, 21: cancel: stop, then report; an unknown CancelReason is canceled", streams: true,
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 20000}, work{WorkMS: 20000})
				k.start()
				k.started(ids...)
				k.awaitStream(time.Time{})
				for i, reason := range []wagglev1.CancelReason{wagglev1.CancelReason_CANCEL_REASON_TASK_CANCELED, unknownEnum} {
					k.push(&wagglev1.LeaseStatus{Cancel: k.cancel(reason, ids[i])})
					pushed := time.Now()
					late("a message with cancel was pushed; the handler was canceled", k.canceled(soon, ids[i]), pushed.Add(2*slack))
					k.settled(soon, ids[i])
				}
			},
		},
		{
			Name: "beat/end-leases", Rule: "8: cancel with HELD: report before the lease ends; a success counts", streams: true,
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 20000, lease: 5 * time.Second}, work{WorkMS: 1500, Stubborn: true, lease: 5 * time.Second})
				k.start()
				k.started(ids...)
				k.awaitStream(time.Time{})
				k.change(func() {
					for _, id := range ids {
						k.lease(id).limited, k.lease(id).limit = true, time.Second
					}
				})
				k.push(&wagglev1.LeaseStatus{Cancel: k.cancel(wagglev1.CancelReason_CANCEL_REASON_HELD, ids...)})
				k.settled(soon, ids...)
				verdict.Want(k.outcome(ids[0]).GetSucceeded() == nil, "a handler that a hold canceled was reported as succeeded")
				verdict.Want(k.outcome(ids[1]).GetSucceeded() != nil, "a handler that succeeded in spite of a hold was not reported so")
			},
		},
		{
			Name: "beat/lost-stream", Rule: "8: the stream ends: open another after a short pause, and beat at once", streams: true,
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 6000, lease: 3 * time.Second})
				k.start()
				k.started(ids...)
				for _, end := range []error{errLost, status.Error(codes.DeadlineExceeded, "the stream's time is over")} {
					k.awaitStream(time.Time{})
					k.pass(1200 * time.Millisecond)
					ended := time.Now()
					k.endStreams(end)
					k.awaitStream(ended)
					k.next(soon, "heartbeat that names the task on the new stream", ended, func(c *call) bool { return isBeat(c) && c.stream != nil && names(c, ids[0]) })
				}
				k.settled(8*time.Second, ids...)
				verdict.Want(k.outcome(ids[0]).GetSucceeded() != nil, "the task did not succeed")
			},
		},
		{
			Name: "beat/reconnect", Rule: "8: reconnect: open another stream; your leases continue", streams: true,
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 5000, lease: 3 * time.Second})
				k.start()
				k.started(ids...)
				k.awaitStream(time.Time{})
				told := time.Now()
				k.pushMessage(&wagglev1.HeartbeatResponse{Status: &wagglev1.LeaseStatus{}, Reconnect: true})
				k.awaitStream(told)
				k.await(soon, "end of the old stream", func() bool { return !k.streams[0].ended.IsZero() })
				k.settled(8*time.Second, ids...)
				verdict.Want(k.outcome(ids[0]).GetSucceeded() != nil, "the task did not succeed")
			},
		},
		{
			Name: "beat/silent-stream", Rule: "8: no answer within 5 s: end the stream, beat by RenewLease or on another stream", streams: true,
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 14000, lease: 12 * time.Second})
				silenced := 0
				k.on(func(h *hooks) {
					h.beat = func(c *call) (*wagglev1.LeaseStatus, error) {
						if c.stream == nil || len(c.beat.GetLeases()) == 0 || silenced > 0 && c.stream.number != silenced {
							return nil, nil //nolint:nilnil // the usual dispatcher answers
						}
						silenced = c.stream.number // this one only
						return nil, errSilent
					}
				})
				k.start()
				k.settled(18*time.Second, ids...)
				verdict.Want(k.outcome(ids[0]).GetSucceeded() != nil, "the task was not reported as succeeded: a stream that did not answer cost its lease")
			},
		},
		{
			Name: "beat/no-stream", Rule: "8: while there is no stream, beat by RenewLease",
			script: func(k *kit) {
				k.on(func(h *hooks) { h.stream = func(*call) error { return errLost } })
				ids := k.add(work{WorkMS: 5000, lease: 3 * time.Second})
				k.start()
				k.settled(8*time.Second, ids...)
				verdict.Want(k.outcome(ids[0]).GetSucceeded() != nil, "the task was not reported as succeeded: without a stream its lease was lost")
			},
		},
		{
			Name: "beat/stuck-handler", Rule: "8: a handler that goes on 5 s after its end is counted in stuck_slots", streams: true,
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 9500, Stubborn: true})
				k.start()
				k.started(ids...)
				k.awaitStream(time.Time{})
				k.push(&wagglev1.LeaseStatus{Cancel: k.cancel(wagglev1.CancelReason_CANCEL_REASON_TASK_CANCELED, ids...)})
				pushed := time.Now()
				stuck := k.next(8*time.Second, "heartbeat with stuck_slots", pushed, func(c *call) bool { return isBeat(c) && c.beat.GetCollector().GetStuckSlots() == 1 })
				early("a heartbeat counted a stuck slot", stuck.at, pushed.Add(5*time.Second-slack))
				k.next(8*time.Second, "heartbeat without stuck_slots after the handler had returned", stuck.at, func(c *call) bool {
					return isBeat(c) && c.beat.GetCollector().GetStuckSlots() == 0
				})
			},
		},
		{
			Name: "beat/rate", Rule: "8: at most 10 beats a second, whatever next_heartbeat says",
			script: func(k *kit) {
				k.change(func() { k.nextBeat = time.Millisecond })
				k.start()
				k.pass(soon)
				n := k.count(time.Now().Add(-2*time.Second), time.Now(), isBeat)
				verdict.Want(n <= 24, "%d heartbeats came in 2 s, want at most 20", n)
			},
		},
	}
}

// hold sets or lifts a hold of the collector, and pushes it.
func (k *kit) hold(held bool) {
	k.change(func() { k.held = held })
	k.push(&wagglev1.LeaseStatus{})
}
