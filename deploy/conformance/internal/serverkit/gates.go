package serverkit

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/deploy/conformance/internal/verdict"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

const (
	stopGrants = wagglev1.HoldEffect_HOLD_EFFECT_STOP_GRANTS
	endLeases  = wagglev1.HoldEffect_HOLD_EFFECT_END_LEASES
)

// gatePromises are about what keeps tasks from being handed out: delays, limits, blocks and holds.
func gatePromises() []Promise {
	return []Promise{
		{Name: "gates/min-delay", Rule: "14: request starts of a queue are min_delay apart, at all dispatchers", ask: func(p *probe) {
			p.source(nil)
			p.rule(700*time.Millisecond, 10)
			p.submit(p.url(0, "a"), p.url(0, "b"), p.url(0, "c"), p.url(0, "d"))
			w := p.worker("a")
			var last time.Time // the earliest moment at which the last task can have been granted
			for i := range 4 {
				w.from = []services{p.services, p.other}[i%2]
				sent := time.Now()
				reply := w.fetch(wait(5 * time.Second))
				verdict.Want(len(reply.GetLeasedTasks()) == 1, "a fetch that waited 5 s got %d tasks, want 1", len(reply.GetLeasedTasks()))
				gap := time.Since(last)
				verdict.Want(gap >= 700*time.Millisecond, "two tasks of a queue were granted at most %s apart, but its min_delay is 0.7 s", gap.Round(time.Millisecond))
				last = sent.Add(reply.GetWaited().AsDuration())
				if i == 1 { // a task that comes back waits for its turn too
					w.wantReport(reply.GetLeasedTasks()[0].GetLease(), released(0), wagglev1.ReportCode_REPORT_CODE_OK)
				}
			}
		}},
		{Name: "gates/in-flight", Rule: "14: by default a queue allows one lease at a time", ask: func(p *probe) {
			p.source(nil)
			p.submit(p.url(0, "a"), p.url(0, "b"))
			w := p.worker("a")
			lease := w.one(0).GetLease()
			p.pass(1200 * time.Millisecond) // the default delay
			reason := w.none("its queue has a lease, and allows one")
			verdict.Want(reason == wagglev1.EmptyReason_EMPTY_REASON_THROTTLED, "a fetch from a full queue was answered %s, want THROTTLED", reason)
			w.wantReport(lease, succeeded(), wagglev1.ReportCode_REPORT_CODE_OK)
			w.one(0)
		}},
		{Name: "gates/block", Rule: "9: a failure of scope HOST blocks the whole queue for retry_after", ask: func(p *probe) {
			p.source(nil)
			p.rule(0, 10)
			p.submit(p.url(0, "a"), p.url(0, "b"))
			w := p.worker("a")
			lease, blocked := w.one(0).GetLease(), time.Now()
			w.wantReport(lease, failed(&wagglev1.Failed{
				Reason: wagglev1.FailureReason_FAILURE_REASON_THROTTLED, HttpStatus: 429, RetryAfter: durationpb.New(2 * time.Second),
			}), wagglev1.ReportCode_REPORT_CODE_OK)
			w.none("its host asked to be left alone for 2 s")
			w.one(0)
			verdict.Want(time.Since(blocked) >= 2*time.Second, "a blocked queue was fetched from after %s, but retry_after was 2 s", time.Since(blocked).Round(time.Millisecond))
		}},
		{Name: "gates/hold", Rule: "15: when SetHolds answers, no dispatcher hands out anything against the hold; submits go on", ask: func(p *probe) {
			p.source(nil)
			p.submit(p.urls(3)...)
			target := &wagglev1.HoldTarget{SourceId: p.name}
			p.hold("kit", stopGrants, target)
			for _, from := range []services{p.services, p.other} {
				w := p.worker("a")
				w.from = from
				reason := w.none("a hold stops its source")
				verdict.Want(reason == wagglev1.EmptyReason_EMPTY_REASON_HELD, "a fetch of a held source was answered %s, want HELD", reason)
			}
			p.submit(p.url(9, "page"))
			explained, err := p.admin.Explain(p.ctx, &wagglev1.ExplainRequest{SourceId: p.name})
			verdict.Want(err == nil && len(explained.GetGates()) > 0 && explained.GetGates()[0].GetGate().GetKind() == wagglev1.GateKind_GATE_KIND_SOURCE_HELD,
				"Explain does not name the hold first: %v", err)
			p.lift("kit", target)
			p.worker("a").one(0)
		}},
		{Name: "gates/two-holds", Rule: "15: all holds of a target apply; lifting one leaves the others", ask: func(p *probe) {
			p.source(nil)
			p.submit(p.url(0, "page"))
			target := &wagglev1.HoldTarget{Queue: p.host(0)}
			p.hold("one", stopGrants, target)
			p.hold("two", stopGrants, target)
			remaining := p.lift("one", target).GetRemaining()
			verdict.Want(len(remaining) == 1 && remaining[0].GetName() == "two", "lifting one of two holds named %d remaining, want the other", len(remaining))
			p.worker("a").none("the second hold stops its queue")
			p.lift("two", target)
			p.worker("a").one(0)
		}},
		{Name: "gates/hold-exists", Rule: "15: setting another hold of the same name fails with HOLD_EXISTS", ask: func(p *probe) {
			target := &wagglev1.HoldTarget{Queue: p.host(0)}
			p.hold("kit", stopGrants, target)
			again := &wagglev1.SetHoldsRequest{Targets: []*wagglev1.HoldTarget{target}, Name: "kit", Effect: stopGrants, By: "kit", Reason: "a test"}
			reply, err := p.holds.SetHolds(p.ctx, again)
			verdict.Want(err == nil && reply.GetChanged() == 0, "setting the same hold again changed %d: %v", reply.GetChanged(), err)
			again.Reason = "another reason"
			_, err = p.holds.SetHolds(p.ctx, again)
			wantError(err, codes.FailedPrecondition, "HOLD_EXISTS")
		}},
		{Name: "gates/end-leases", Rule: "15: END_LEASES: holders get cancel with HELD, no attempt is counted", ask: func(p *probe) {
			p.source(nil)
			id := p.submit(p.url(0, "page"))[0]
			w := p.worker("a")
			lease := w.one(20 * time.Second).GetLease()
			s := w.stream()
			s.beat(lease)
			target := &wagglev1.HoldTarget{SourceId: p.name}
			p.hold("kit", endLeases, target)
			s.pushed("message with the cancel", func(m *wagglev1.LeaseStatus) bool { return canceled(m, id) == wagglev1.CancelReason_CANCEL_REASON_HELD })
			w.wantReport(lease, released(0), wagglev1.ReportCode_REPORT_CODE_OK)
			p.lift("kit", target)
			again := w.one(0).GetTask()
			verdict.Want(again.GetAttempt() == 1, "the task came back as attempt %d, want 1", again.GetAttempt())
		}},
		{Name: "gates/suffix", Rule: "15: a hold of *.name stops all queues below that name", ask: func(p *probe) {
			p.source(nil)
			p.submit("http://a."+p.host(0)+"/", p.url(1, "page"))
			p.hold("kit", stopGrants, &wagglev1.HoldTarget{Queue: "*." + p.host(0)})
			reply := p.worker("a").fetch(func(r *wagglev1.FetchTaskRequest) { r.MaxTasks = 9 })
			verdict.Want(len(reply.GetLeasedTasks()) == 1 && reply.GetLeasedTasks()[0].GetTask().GetQueue() == p.host(1), "a fetch got %d tasks, want that of the queue beside the hold", len(reply.GetLeasedTasks()))
		}},
	}
}
