package serverkit

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/deploy/conformance/internal/verdict"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// leasePromises are about the time that a task is held.
func leasePromises() []Promise {
	return []Promise{
		{Name: "leases/expire", Rule: "2: a lease that nobody renews ends, and the task is granted again", ask: func(p *probe) {
			p.source(nil)
			p.submit(p.url(0, "page"))
			sent := time.Now()
			first := p.worker("a").one(1500 * time.Millisecond)
			granted := time.Now()
			next := p.worker("b").one(0)
			now := time.Now()
			verdict.Want(now.Sub(sent) >= 1500*time.Millisecond, "the task was granted again after %s, but its lease is 1.5 s", now.Sub(sent).Round(time.Millisecond))
			verdict.Want(now.Sub(granted) < 2*time.Second+slack, "the task was granted again %s after a lease of 1.5 s began", now.Sub(granted).Round(time.Millisecond))
			verdict.Want(next.GetTask().GetAttempt() == 2 && next.GetTask().GetExpirations() == 1, "the task came back as attempt %d with %d expirations, want 2 with 1",
				next.GetTask().GetAttempt(), next.GetTask().GetExpirations())
			verdict.Want(next.GetLease().GetLeaseToken() != first.GetLease().GetLeaseToken(), "the second lease has the token of the first")
		}},
		{Name: "leases/renewed", Rule: "8: a beat extends exactly the leases that it names", ask: func(p *probe) {
			p.source(nil)
			p.submit(p.urls(2)...)
			w := p.worker("a")
			kept, left := w.one(2*time.Second).GetLease(), w.one(2*time.Second).GetLease()
			for i := range 6 {
				p.pass(600 * time.Millisecond)
				w.from = []services{p.services, p.other}[i%2]
				s := w.renew(kept)
				verdict.Want(!lost(s, kept), "a lease was lost although each 0.6 s of its 2 s were beaten for")
				verdict.Want(s.GetLeaseDuration().AsDuration() >= 1900*time.Millisecond, "a renewal of a lease of 2 s gave %s", s.GetLeaseDuration().AsDuration())
			}
			w.wantReport(kept, succeeded(), wagglev1.ReportCode_REPORT_CODE_OK)
			w.wantReport(left, succeeded(), wagglev1.ReportCode_REPORT_CODE_LEASE_LOST)
		}},
		{Name: "leases/stale-report", Rule: "9: a report counts as long as its lease token is the task's current one", ask: func(p *probe) {
			p.source(nil)
			id := p.submit(p.url(0, "page"))[0]
			stale := p.worker("a").one(time.Second).GetLease()
			current := p.worker("b").one(0).GetLease()
			p.worker("a").wantReport(stale, failed(&wagglev1.Failed{Reason: wagglev1.FailureReason_FAILURE_REASON_PARSE, Permanent: true}), wagglev1.ReportCode_REPORT_CODE_LEASE_LOST)
			p.wantState(id, wagglev1.TaskState_TASK_STATE_LEASED)
			p.worker("b").wantReport(current, succeeded(), wagglev1.ReportCode_REPORT_CODE_OK)
			p.wantState(id, wagglev1.TaskState_TASK_STATE_DONE)
		}},
		{Name: "leases/stale-beat", Rule: "8: lost: the lease is gone; a lost lease never ends the stream", ask: func(p *probe) {
			p.source(nil)
			p.submit(p.urls(2)...)
			a := p.worker("a")
			stale := a.one(time.Second).GetLease()
			good := a.one(0).GetLease()
			p.pass(1200 * time.Millisecond)
			p.worker("b").one(0)
			answered := a.renew(stale, good)
			verdict.Want(lost(answered, stale), "a beat for a lease that somebody else has did not say lost")
			verdict.Want(!lost(answered, good), "the lease beside a lost one was lost, too")
			s := a.stream()
			verdict.Want(lost(s.beat(stale, good), stale), "a beat on a stream did not say lost")
			verdict.Want(!lost(s.beat(good), good), "the second beat on the stream lost a good lease")
		}},
		{Name: "leases/max-hold", Rule: "7: max_hold limits a lease with all its renewals", ask: func(p *probe) {
			p.source(func(s *wagglev1.SourceSpec) {
				s.MaxHold, s.LeaseDuration = durationpb.New(3*time.Second), durationpb.New(2*time.Second)
			})
			p.submit(p.url(0, "page"))
			w, began := p.worker("a"), time.Now()
			lease := w.one(0).GetLease()
			for ; ; p.pass(500 * time.Millisecond) {
				if lost(w.renew(lease), lease) {
					verdict.Want(time.Since(began) >= 3*time.Second, "the lease was lost after %s, but max_hold is 3 s", time.Since(began))
					return
				}
				verdict.Want(time.Since(began) < 3*time.Second+2*slack, "a lease was renewed for %s, but max_hold is 3 s", time.Since(began).Round(time.Millisecond))
			}
		}},
		{Name: "leases/cursor", Rule: "7: the next attempt receives the cursor", ask: func(p *probe) {
			p.source(nil)
			p.submit(p.url(0, "page"))
			w := p.worker("a")
			lease := w.one(0).GetLease()
			beat := beats([]*wagglev1.Lease{lease})
			beat[0].Cursor = []byte("page 7")
			_, err := p.dispatch.RenewLease(p.ctx, &wagglev1.RenewLeaseRequest{Collector: w.info(), Leases: beat})
			verdict.Want(err == nil, "RenewLease failed: %v", err)
			w.wantReport(lease, released(0), wagglev1.ReportCode_REPORT_CODE_OK)
			verdict.Want(string(w.one(0).GetTask().GetCursor()) == "page 7", "the next attempt did not receive the cursor")
		}},
		{Name: "leases/revoked", Rule: "11: RevokeLeases: the task is due again at once, its old holder's beat says lost", ask: func(p *probe) {
			p.source(nil)
			p.rule(0, 2)
			id := p.submit(p.url(0, "page"))[0]
			a := p.worker("a")
			old := a.one(0).GetLease()
			reply, err := p.tasks.RevokeLeases(p.ctx, &wagglev1.RevokeLeasesRequest{TaskIds: []string{id}, Fences: []int64{old.GetFence()}, By: "kit"})
			verdict.Want(err == nil && reply.GetResults()[0].GetCode() == wagglev1.TaskChangeCode_TASK_CHANGE_CODE_REVOKED, "RevokeLeases was not answered REVOKED: %v", err)
			p.worker("b").one(0)
			verdict.Want(lost(a.renew(old), old), "a beat for a revoked lease did not say lost")
			again, err := p.tasks.RevokeLeases(p.ctx, &wagglev1.RevokeLeasesRequest{TaskIds: []string{id}, Fences: []int64{old.GetFence()}, By: "kit"})
			verdict.Want(err == nil && again.GetResults()[0].GetCode() == wagglev1.TaskChangeCode_TASK_CHANGE_CODE_OTHER_LEASE,
				"RevokeLeases repeated with the old fence was not answered OTHER_LEASE: %v", err)
		}},
		{Name: "leases/bounded", Rule: "9: a lease that ends without a report costs one of max_expirations", ask: func(p *probe) {
			p.source(func(s *wagglev1.SourceSpec) { s.Retry = &wagglev1.RetryPolicy{MaxExpirations: new(int32(2))} })
			id := p.submit(p.url(0, "page"))[0]
			w := p.worker("a")
			for range 2 {
				w.one(time.Second)
			}
			p.pass(time.Second + slack)
			p.wantState(id, wagglev1.TaskState_TASK_STATE_DEAD)
			n := len(p.task(id).GetHistory())
			verdict.Want(n == 2, "the history of the task has %d attempts, want 2", n)
		}},
	}
}
