package serverkit

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/deploy/conformance/internal/verdict"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// reportPromises are about reports and discovered links.
func reportPromises() []Promise {
	return []Promise{
		{Name: "reports/once", Rule: "9: a report counts once; the second is answered ALREADY_REPORTED with the first result", ask: func(p *probe) {
			p.source(nil)
			id := p.submit(p.url(0, "page"))[0]
			w := p.worker("a")
			lease := w.one(0).GetLease()
			w.wantReport(lease, succeeded(), wagglev1.ReportCode_REPORT_CODE_OK)
			w.from = p.other
			second := w.report(lease, failed(&wagglev1.Failed{Reason: wagglev1.FailureReason_FAILURE_REASON_PARSE, Permanent: true}))
			verdict.Want(second.GetCode() == wagglev1.ReportCode_REPORT_CODE_ALREADY_REPORTED, "the second report was answered %s, want ALREADY_REPORTED", second.GetCode())
			verdict.Want(second.GetResult() == wagglev1.AttemptResult_ATTEMPT_RESULT_SUCCEEDED, "the second report was answered with the result %s, want SUCCEEDED", second.GetResult())
			p.wantState(id, wagglev1.TaskState_TASK_STATE_DONE)
		}},
		{Name: "reports/batch", Rule: "3, 9: each item has its own result, in order; a stale one fails no other", ask: func(p *probe) {
			p.source(nil)
			p.submit(p.urls(2)...)
			w := p.worker("a")
			first, second := w.one(0).GetLease(), w.one(0).GetLease()
			stale := &wagglev1.Lease{TaskId: second.GetTaskId(), LeaseToken: second.GetLeaseToken() + "0"}
			unknown := &wagglev1.Lease{TaskId: "1-" + "aaaaaaaaaaaaaaaaaaaaaaaaaa", LeaseToken: first.GetLeaseToken()}
			results := w.reportAll(report(stale, succeeded()), report(first, succeeded()), report(unknown, succeeded()), report(second, succeeded()))
			for i, want := range []wagglev1.ReportCode{
				wagglev1.ReportCode_REPORT_CODE_LEASE_LOST, wagglev1.ReportCode_REPORT_CODE_OK,
				wagglev1.ReportCode_REPORT_CODE_NOT_FOUND, wagglev1.ReportCode_REPORT_CODE_OK,
			} {
				verdict.Want(results[i].GetCode() == want, "report %d of the batch was answered %s, want %s", i+1, results[i].GetCode(), want)
			}
		}},
		{Name: "reports/released", Rule: "9: released gives the task back and costs nothing", ask: func(p *probe) {
			p.source(nil)
			id := p.submit(p.url(0, "page"))[0]
			w := p.worker("a")
			lease, releasedAt := w.one(0).GetLease(), time.Now()
			w.wantReport(lease, released(3*time.Second), wagglev1.ReportCode_REPORT_CODE_OK)
			p.wantState(id, wagglev1.TaskState_TASK_STATE_SCHEDULED)
			again := w.one(0).GetTask()
			verdict.Want(time.Since(releasedAt) >= 3*time.Second, "a task released with a delay of 3 s came back after %s", time.Since(releasedAt).Round(time.Millisecond))
			verdict.Want(again.GetAttempt() == 1 && again.GetFailures() == 0, "a released task came back as attempt %d with %d failures, want 1 and 0", again.GetAttempt(), again.GetFailures())
		}},
		{Name: "reports/attempts", Rule: "9: a failure of scope TASK costs one of max_attempts; then the task is DEAD", ask: func(p *probe) {
			p.source(func(s *wagglev1.SourceSpec) {
				s.Retry = &wagglev1.RetryPolicy{MaxAttempts: new(int32(2)), MinBackoff: durationpb.New(0), MaxBackoff: durationpb.New(time.Second)}
			})
			id := p.submit(p.url(0, "page"))[0]
			w := p.worker("a")
			for range 2 {
				w.wantReport(w.one(0).GetLease(), failed(&wagglev1.Failed{Reason: wagglev1.FailureReason_FAILURE_REASON_PARSE, Message: "no title"}), wagglev1.ReportCode_REPORT_CODE_OK)
			}
			p.wantState(id, wagglev1.TaskState_TASK_STATE_DEAD)
			verdict.Want(p.task(id).GetLastError().GetMessage() == "no title", "the task does not show the message of its last failure")
		}},
		{Name: "reports/permanent", Rule: "9: permanent: a retry would fail the same way", ask: func(p *probe) {
			p.source(nil)
			id := p.submit(p.url(0, "page"))[0]
			w := p.worker("a")
			w.wantReport(w.one(0).GetLease(), failed(&wagglev1.Failed{Reason: wagglev1.FailureReason_FAILURE_REASON_PARSE, Permanent: true}), wagglev1.ReportCode_REPORT_CODE_OK)
			p.wantState(id, wagglev1.TaskState_TASK_STATE_DEAD)
		}},
		{Name: "reports/unknown-reason", Rule: "21: an unknown FailureReason has the scope of its number", ask: func(p *probe) {
			p.source(nil)
			p.submit(p.url(0, "page"))
			w := p.worker("a")
			lease := w.one(0).GetLease()
			reply, err := p.dispatch.ReportTask(p.ctx, &wagglev1.ReportTaskRequest{CollectorId: w.id, Session: w.session, Reports: []*wagglev1.TaskReport{
				report(lease, failed(&wagglev1.Failed{Reason: 77})),
			}})
			verdict.Want(err == nil && reply.GetResults()[0].GetCode() == wagglev1.ReportCode_REPORT_CODE_OK, "a failure with reason 77 of a later version was refused: %v", err)
			verdict.Want(p.task(lease.GetTaskId()).GetFailures() == 1, "a failure with reason 77, of scope TASK, did not cost an attempt")
		}},
		{Name: "reports/memo", Rule: "9: the next crawl receives the memo", ask: func(p *probe) {
			p.source(func(s *wagglev1.SourceSpec) {
				s.Seeds = []*wagglev1.Seed{{Url: p.url(0, "seed")}}
				s.Schedule = &wagglev1.Schedule{Rule: &wagglev1.Schedule_Every{Every: durationpb.New(time.Hour)}}
			})
			w := p.worker("a")
			outcome := succeeded()
			outcome.GetSucceeded().Memo = []byte("etag-1")
			result := w.report(w.one(0).GetLease(), outcome)
			verdict.Want(result.GetCode() == wagglev1.ReportCode_REPORT_CODE_OK && result.GetState() == wagglev1.TaskState_TASK_STATE_SCHEDULED,
				"the report of a seed was answered %s with %s, want OK and SCHEDULED", result.GetCode(), result.GetState())
			_, err := p.sources.TriggerSources(p.ctx, &wagglev1.TriggerSourcesRequest{Ids: []string{p.name}, By: "kit"})
			verdict.Want(err == nil, "TriggerSources failed: %v", err)
			again := w.one(0).GetTask()
			verdict.Want(string(again.GetMemo()) == "etag-1" && again.GetCycle() == 1, "the next crawl has memo %q and cycle %d, want \"etag-1\" and 1", again.GetMemo(), again.GetCycle())
		}},
		{Name: "reports/discovered", Rule: "10: the dispatcher decides by follow; each item has its code; links have depth + 1", ask: func(p *probe) {
			p.source(func(s *wagglev1.SourceSpec) {
				s.Seeds = []*wagglev1.Seed{{Url: p.url(0, "seed")}}
				s.Follow = &wagglev1.Follow{MaxDepth: new(int32(1)), Exclude: []string{"/private/"}}
			})
			p.rule(0, 5)
			w := p.worker("a")
			lease := w.one(0).GetLease()
			outcome := succeeded()
			outcome.GetSucceeded().Discovered = []*wagglev1.DiscoveredItem{
				{Url: p.url(0, "new")}, {Url: p.url(0, "new")}, {Url: p.url(0, "private/x")}, {Url: "http://elsewhere.test/"}, {Url: "no url"},
			}
			results := w.report(lease, outcome).GetDiscovered().GetResults()
			verdict.Want(len(results) == 5, "5 items had %d results", len(results))
			for i, want := range []wagglev1.DiscoverCode{
				wagglev1.DiscoverCode_DISCOVER_CODE_CREATED, wagglev1.DiscoverCode_DISCOVER_CODE_EXISTS, wagglev1.DiscoverCode_DISCOVER_CODE_FILTERED,
				wagglev1.DiscoverCode_DISCOVER_CODE_FILTERED, wagglev1.DiscoverCode_DISCOVER_CODE_INVALID,
			} {
				verdict.Want(results[i].GetCode() == want, "item %d was answered %s, want %s", i+1, results[i].GetCode(), want)
			}
			page := w.one(0)
			verdict.Want(page.GetTask().GetUrl() == p.url(0, "new") && page.GetTask().GetDepth() == 1, "the discovered page came as %s with depth %d", page.GetTask().GetUrl(), page.GetTask().GetDepth())
			outcome.GetSucceeded().Discovered = []*wagglev1.DiscoveredItem{{Url: p.url(0, "deeper")}}
			code := w.report(page.GetLease(), outcome).GetDiscovered().GetResults()[0].GetCode()
			verdict.Want(code == wagglev1.DiscoverCode_DISCOVER_CODE_FILTERED, "a link beyond max_depth was answered %s, want FILTERED", code)
		}},
		{Name: "reports/submit-discovered", Rule: "10: SubmitDiscovered takes the links of who holds the lease, and of nobody else", ask: func(p *probe) {
			p.source(func(s *wagglev1.SourceSpec) {
				s.Seeds = []*wagglev1.Seed{{Url: p.url(0, "seed")}}
				s.Follow = &wagglev1.Follow{MaxDepth: new(int32(1))}
			})
			lease := p.worker("a").one(0).GetLease()
			items := []*wagglev1.DiscoveredItem{{Url: p.url(0, "new")}}
			for _, want := range []wagglev1.DiscoverCode{wagglev1.DiscoverCode_DISCOVER_CODE_CREATED, wagglev1.DiscoverCode_DISCOVER_CODE_EXISTS} {
				reply, err := p.dispatch.SubmitDiscovered(p.ctx, &wagglev1.SubmitDiscoveredRequest{TaskId: lease.GetTaskId(), LeaseToken: lease.GetLeaseToken(), Items: items})
				verdict.Want(err == nil && reply.GetSummary().GetResults()[0].GetCode() == want, "the link was not answered %s: %v", want, err)
			}
			_, err := p.dispatch.SubmitDiscovered(p.ctx, &wagglev1.SubmitDiscoveredRequest{TaskId: lease.GetTaskId(), LeaseToken: lease.GetLeaseToken() + "0", Items: items})
			wantError(err, codes.FailedPrecondition, "LEASE_LOST")
		}},
	}
}
