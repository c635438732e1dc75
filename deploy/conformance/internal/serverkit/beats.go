package serverkit

import (
	"time"

	"google.golang.org/grpc/codes"

	"github.com/waggle-crawl/waggle/deploy/conformance/internal/verdict"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// beatPromises are about heartbeat streams and collectors.
func beatPromises() []Promise {
	return []Promise{
		{Name: "beats/answered", Rule: "8: each beat gets one answer, in order, with next_heartbeat: a third of the shortest lease, at most 15 s", ask: func(p *probe) {
			p.source(nil)
			p.submit(p.urls(1)...)
			w := p.worker("a")
			s := w.stream()
			idle := s.beat().GetNextHeartbeat().AsDuration()
			verdict.Want(idle > 0 && idle <= 15*time.Second, "next_heartbeat is %s without a lease, want at most 15 s", idle)
			lease := w.one(6 * time.Second).GetLease()
			for range 3 {
				next := s.beat(lease).GetNextHeartbeat().AsDuration()
				verdict.Want(next > 0 && next <= 2*time.Second, "next_heartbeat is %s with a lease of 6 s, want at most 2 s", next)
			}
			select {
			case extra := <-s.messages:
				verdict.Want(extra.GetStatus().GetNextHeartbeat() == nil, "a beat had two answers")
			case <-time.After(300 * time.Millisecond):
			}
		}},
		{Name: "beats/cancel-pushed", Rule: "8: cancel is pushed within 1 s, and repeated in the next answer", ask: func(p *probe) {
			p.source(nil)
			id := p.submit(p.url(0, "page"))[0]
			w := p.worker("a")
			lease := w.one(0).GetLease()
			s := w.stream()
			s.beat(lease)
			reply, err := p.tasks.CancelTasks(p.ctx, &wagglev1.CancelTasksRequest{TaskIds: []string{id}, By: "kit", Reason: "a test"})
			verdict.Want(err == nil && reply.GetResults()[0].GetCode() == wagglev1.TaskChangeCode_TASK_CHANGE_CODE_CANCEL_REQUESTED,
				"CancelTasks of a leased task was not answered CANCEL_REQUESTED: %v", err)
			s.pushed("message with the cancel", func(m *wagglev1.LeaseStatus) bool {
				return canceled(m, id) == wagglev1.CancelReason_CANCEL_REASON_TASK_CANCELED
			})
			verdict.Want(canceled(s.beat(lease), id) != 0, "the next answer did not repeat the cancel")
			w.wantReport(lease, succeeded(), wagglev1.ReportCode_REPORT_CODE_OK)
			p.wantState(id, wagglev1.TaskState_TASK_STATE_CANCELED)
		}},
		{Name: "beats/hold-pushed", Rule: "8: held is pushed within 1 s; 6: COLLECTOR_HELD", ask: func(p *probe) {
			p.source(nil)
			p.submit(p.url(0, "page"))
			w := p.worker("a")
			s := w.stream()
			verdict.Want(!s.beat().GetHeld(), "a collector without a hold is held")
			target := &wagglev1.HoldTarget{CollectorId: w.id}
			p.hold("kit", wagglev1.HoldEffect_HOLD_EFFECT_STOP_GRANTS, target)
			s.pushed("message with held", func(m *wagglev1.LeaseStatus) bool { return m.GetHeld() })
			reason := w.none("a hold stops this collector")
			verdict.Want(reason == wagglev1.EmptyReason_EMPTY_REASON_COLLECTOR_HELD, "a held collector's fetch was answered %s, want COLLECTOR_HELD", reason)
			p.lift("kit", target)
			s.pushed("message without held", func(m *wagglev1.LeaseStatus) bool { return !m.GetHeld() })
			w.one(0)
		}},
		{Name: "beats/hold-by-label", Rule: "15: a hold by labels stops collectors that come later", ask: func(p *probe) {
			p.source(nil)
			p.submit(p.url(0, "page"))
			p.hold("kit", wagglev1.HoldEffect_HOLD_EFFECT_STOP_GRANTS, &wagglev1.HoldTarget{CollectorLabels: map[string]string{"kit": p.name}})
			w := p.worker("a")
			reply := w.fetch(func(r *wagglev1.FetchTaskRequest) { r.Labels = map[string]string{"kit": p.name, "zone": "a"} })
			verdict.Want(len(reply.GetLeasedTasks()) == 0 && reply.GetEmptyReason() == wagglev1.EmptyReason_EMPTY_REASON_COLLECTOR_HELD,
				"the fetch of a collector with held labels got %d tasks and %s", len(reply.GetLeasedTasks()), reply.GetEmptyReason())
			p.worker("b").one(0)
		}},
		{Name: "beats/replaced", Rule: "8: COLLECTOR_REPLACED: a newer session has your id, and your leases have expired", ask: func(p *probe) {
			p.source(nil)
			p.submit(p.url(0, "page"))
			old := p.worker("a")
			lease := old.one(0).GetLease()
			s := old.stream()
			s.beat(lease)
			p.pass(20 * time.Millisecond) // sessions are told apart by when they came
			newer := p.worker("a")
			newer.renew()
			wantError(s.ended(time.Second+slack), codes.FailedPrecondition, "COLLECTOR_REPLACED")
			_, err := old.tryFetch(p.ctx, nil)
			wantError(err, codes.FailedPrecondition, "COLLECTOR_REPLACED")
			verdict.Want(newer.one(0).GetLease().GetTaskId() == lease.GetTaskId(), "the newer session did not get the task of the older one")
		}},
		{Name: "beats/listed", Rule: "8: lists show collectors by their beats; ended ends one", ask: func(p *probe) {
			w := p.worker("a")
			w.renew()
			state := func() wagglev1.CollectorState {
				reply, err := p.admin.ListCollectors(p.ctx, &wagglev1.ListCollectorsRequest{Filter: &wagglev1.Filter{CollectorId: w.id}})
				verdict.Want(err == nil && len(reply.GetCollectors()) == 1, "ListCollectors did not return the collector: %v", err)
				return reply.GetCollectors()[0].GetState()
			}
			verdict.Want(state() == wagglev1.CollectorState_COLLECTOR_STATE_ACTIVE, "a collector that beats is listed as %s, want ACTIVE", state())
			info := w.info()
			info.Ended = true
			_, err := p.dispatch.RenewLease(p.ctx, &wagglev1.RenewLeaseRequest{Collector: info})
			verdict.Want(err == nil, "RenewLease failed: %v", err)
			verdict.Want(state() == wagglev1.CollectorState_COLLECTOR_STATE_ENDED, "a collector that has ended is listed as %s, want ENDED", state())
		}},
	}
}
