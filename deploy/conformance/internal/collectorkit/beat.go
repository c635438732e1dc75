package collectorkit

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// beatScenarios are about heartbeats and what dispatchers push.
func beatScenarios() []Scenario {
	_ = durationpb.New
	return []Scenario{
		{
			Name: "beat/held", Rule: "8: while held, fetch nothing, finish what you have, keep beating",
			script: func(k *kit) {
				running := k.add(work{WorkMS: 1500})
				k.start()
				k.started(running...)
				k.hold(true)
				held := time.Now()
				k.settled(soon, running...)
				k.add(work{})
				k.pass(soon)
				n := k.count(held.Add(slack), time.Now(), isFetch)
				want(n == 0, "%d fetches came while a hold stopped the collector", n)
				k.hold(false)
				k.next(soon, "fetch after the hold was lifted", time.Now().Add(-slack/5), isFetch)
			},
		},
		{
			Name: "beat/cancel-pushed", Rule: "8: cancel: act on it at once, then report",
			script: func(k *kit) {
				ids := k.add(work{WorkMS: 20000})
				k.start()
				k.started(ids...)
				k.push(&wagglev1.HeartbeatResponse{Status: &wagglev1.LeaseStatus{Cancel: k.cancel(wagglev1.CancelReason_CANCEL_REASON_TASK_CANCELED, ids...)}})
				pushed := time.Now()
				late("the handler of a canceled task was canceled", k.canceled(soon, ids[0]), pushed.Add(slack))
				k.settled(soon, ids...)
			},
		},
	}
}

// hold sets or lifts a hold of the collector, and pushes it.
func (k *kit) hold(held bool) {
	k.change(func() { k.held = held })
	k.push(&wagglev1.HeartbeatResponse{Status: &wagglev1.LeaseStatus{Held: held}})
}
