package serverkit

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/deploy/conformance/internal/verdict"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// requestPromises are about single requests: what repeats, what is refused and how, what is tolerated.
func requestPromises() []Promise {
	return []Promise{
		{Name: "requests/submit-twice", Rule: "4: a repeated submit answers EXISTS", ask: func(p *probe) {
			p.source(nil)
			id := p.submit(p.url(0, "page"))[0]
			again := p.submitItems(&wagglev1.SubmitItem{SourceId: p.name, Url: "HTTP://" + strings.ToUpper(p.host(0)) + ":80/./page#part"})[0]
			verdict.Want(again.GetCode() == wagglev1.SubmitCode_SUBMIT_CODE_EXISTS && again.GetTaskId() == id, "another spelling of the same URL was answered %s, want EXISTS with the same id", again.GetCode())
		}},
		{Name: "requests/submit-batch", Rule: "3: one bad item never fails the others", ask: func(p *probe) {
			p.source(nil)
			results := p.submitItems(
				&wagglev1.SubmitItem{SourceId: p.name, Url: p.url(0, "a")}, &wagglev1.SubmitItem{SourceId: p.name, Url: "no url"},
				&wagglev1.SubmitItem{SourceId: p.name, Url: p.url(0, strings.Repeat("x", 2100))}, &wagglev1.SubmitItem{SourceId: p.name + "-other", Url: p.url(0, "b")},
				&wagglev1.SubmitItem{SourceId: p.name, Url: "http://ada:secret@" + p.host(0) + "/"}, &wagglev1.SubmitItem{SourceId: p.name, Url: p.url(0, "c")},
			)
			for i, want := range []wagglev1.SubmitCode{1, 5, 5, 5, 5, 1} { // CREATED and INVALID
				verdict.Want(results[i].GetCode() == want, "item %d was answered %s, want %s", i+1, results[i].GetCode(), want)
			}
		}},
		{Name: "requests/again", Rule: "11: AGAIN: a settled task is due now", ask: func(p *probe) {
			p.source(nil)
			id := p.submit(p.url(0, "page"))[0]
			w := p.worker("a")
			w.wantReport(w.one(0).GetLease(), succeeded(), wagglev1.ReportCode_REPORT_CODE_OK)
			w.none("its task is done")
			p.submitItems(&wagglev1.SubmitItem{SourceId: p.name, Url: p.url(0, "page"), IfExists: wagglev1.IfExists_IF_EXISTS_AGAIN})
			verdict.Want(w.one(0).GetTask().GetId() == id, "the task that is due again has another id")
		}},
		{Name: "requests/cancel", Rule: "11: CancelTasks and RetryTasks, by the state of the task", ask: func(p *probe) {
			p.source(nil)
			ids := p.submit(p.url(0, "page"))
			cancel := func(want wagglev1.TaskChangeCode) {
				reply, err := p.tasks.CancelTasks(p.ctx, &wagglev1.CancelTasksRequest{TaskIds: ids, By: "kit"})
				verdict.Want(err == nil && reply.GetResults()[0].GetCode() == want, "CancelTasks was not answered %s: %v", want, err)
			}
			cancel(wagglev1.TaskChangeCode_TASK_CHANGE_CODE_CANCELED)
			cancel(wagglev1.TaskChangeCode_TASK_CHANGE_CODE_ALREADY_SETTLED)
			p.worker("a").none("its task is canceled")
			reply, err := p.tasks.RetryTasks(p.ctx, &wagglev1.RetryTasksRequest{TaskIds: ids, By: "kit"})
			verdict.Want(err == nil && reply.GetResults()[0].GetCode() == wagglev1.TaskChangeCode_TASK_CHANGE_CODE_RETRIED, "RetryTasks was not answered RETRIED: %v", err)
			p.worker("a").one(0)
		}},
		{Name: "requests/reasons", Rule: "4: a failed call has a code and a reason", ask: func(p *probe) {
			p.source(nil)
			_, err := p.sources.GetSource(p.ctx, &wagglev1.GetSourceRequest{Id: p.name + "-other"})
			wantError(err, codes.NotFound, "SOURCE_NOT_FOUND")
			_, err = p.sources.CreateSource(p.ctx, &wagglev1.CreateSourceRequest{Spec: &wagglev1.SourceSpec{Id: p.name}})
			wantError(err, codes.AlreadyExists, "SOURCE_EXISTS")
			read, err := p.sources.GetSource(p.ctx, &wagglev1.GetSourceRequest{Id: p.name})
			verdict.Want(err == nil, "GetSource failed: %v", err)
			update := &wagglev1.UpdateSourceRequest{Spec: &wagglev1.SourceSpec{Id: p.name, DisplayName: "kit"}, Etag: read.GetSource().GetEtag()}
			_, err = p.sources.UpdateSource(p.ctx, update)
			verdict.Want(err == nil, "UpdateSource with the etag that was read failed: %v", err)
			update.Spec.DisplayName = "another"
			_, err = p.sources.UpdateSource(p.ctx, update)
			wantError(err, codes.Aborted, "ETAG_MISMATCH")
			_, err = p.tasks.GetTask(p.ctx, &wagglev1.GetTaskRequest{SourceId: p.name, Url: p.url(0, "none")})
			wantError(err, codes.NotFound, "TASK_NOT_FOUND")
			_, err = p.queues.DeleteQueueRule(p.ctx, &wagglev1.DeleteQueueRuleRequest{Pattern: p.host(0)})
			wantError(err, codes.NotFound, "QUEUE_RULE_NOT_FOUND")
			_, err = p.tasks.ListTasks(p.ctx, &wagglev1.ListTasksRequest{Filter: &wagglev1.Filter{SourceId: p.name}, PageToken: "no token"})
			wantError(err, codes.InvalidArgument, "PAGE_TOKEN_INVALID")
		}},
		{Name: "requests/limits", Rule: "4, 20: INVALID_FIELD names each wrong field", ask: func(p *probe) {
			w := p.worker("a")
			for field, change := range map[string]func(*wagglev1.FetchTaskRequest){
				"collector_id":   func(r *wagglev1.FetchTaskRequest) { r.CollectorId = "With Space" },
				"max_tasks":      func(r *wagglev1.FetchTaskRequest) { r.MaxTasks = 1001 },
				"wait":           func(r *wagglev1.FetchTaskRequest) { r.Wait = durationpb.New(31 * time.Second) },
				"lease_duration": func(r *wagglev1.FetchTaskRequest) { r.LeaseDuration = durationpb.New(2 * time.Hour) },
				"pools":          func(r *wagglev1.FetchTaskRequest) { r.Pools = make([]string, 17) },
			} {
				_, err := w.tryFetch(p.ctx, change)
				wantError(err, codes.InvalidArgument, "INVALID_FIELD")
				verdict.Want(violates(err, field), "a fetch with a wrong %s was refused without naming it: %v", field, err)
			}
			items := make([]*wagglev1.SubmitItem, 1001)
			for i := range items {
				items[i] = &wagglev1.SubmitItem{SourceId: p.name, Url: p.url(0, fmt.Sprint(i))}
			}
			_, err := p.tasks.SubmitTasks(p.ctx, &wagglev1.SubmitTasksRequest{Items: items})
			wantError(err, codes.InvalidArgument, "INVALID_FIELD")
		}},
		{Name: "requests/unknown-fields", Rule: "21: unknown fields are absent, wherever they are", ask: func(p *probe) {
			p.source(nil)
			p.submit(p.url(0, "page"))
			later := protowire.AppendString(protowire.AppendTag(nil, 9999, protowire.BytesType), "of a later version")
			w := p.worker("a")
			lease := w.fetch(func(r *wagglev1.FetchTaskRequest) { r.ProtoReflect().SetUnknown(later) }).GetLeasedTasks()[0].GetLease()
			info := w.info()
			info.ProtoReflect().SetUnknown(later)
			_, err := p.dispatch.RenewLease(p.ctx, &wagglev1.RenewLeaseRequest{Collector: info, Leases: beats([]*wagglev1.Lease{lease})})
			verdict.Want(err == nil, "a beat with an unknown field was refused: %v", err)
			outcome := succeeded()
			outcome.GetSucceeded().ProtoReflect().SetUnknown(later)
			w.wantReport(lease, outcome, wagglev1.ReportCode_REPORT_CODE_OK)
		}},
		{Name: "requests/pages", Rule: "16: page_size, page_token: all items come, each once", ask: func(p *probe) {
			p.source(nil)
			ids := p.submit(p.urls(11)...)
			seen := map[string]int{}
			for token := ""; ; {
				reply, err := p.tasks.ListTasks(p.ctx, &wagglev1.ListTasksRequest{Filter: &wagglev1.Filter{SourceId: p.name}, PageSize: 4, PageToken: token})
				verdict.Want(err == nil, "ListTasks failed: %v", err)
				verdict.Want(len(reply.GetTasks()) <= 4, "a page of 4 has %d tasks", len(reply.GetTasks()))
				for _, task := range reply.GetTasks() {
					seen[task.GetId()]++
				}
				if token = reply.GetNextPageToken(); token == "" {
					break
				}
			}
			for _, id := range ids {
				verdict.Want(seen[id] == 1, "a task was listed %d times in all pages, want once", seen[id])
			}
		}},
		{Name: "requests/validate-only", Rule: "16: validate_only changes nothing and shows the effect", ask: func(p *probe) {
			p.source(nil)
			ids := p.submit(p.urls(3)...)
			reply, err := p.tasks.CancelTasks(p.ctx, &wagglev1.CancelTasksRequest{Filter: &wagglev1.Filter{SourceId: p.name}, ValidateOnly: true})
			verdict.Want(err == nil && reply.GetChanged() == 3, "CancelTasks with validate_only would change %d tasks, want 3: %v", reply.GetChanged(), err)
			for _, id := range ids {
				state := p.task(id).GetState()
				verdict.Want(state != wagglev1.TaskState_TASK_STATE_CANCELED, "validate_only canceled a task")
			}
		}},
		{Name: "requests/gzip", Rule: "3: requests may be packed by gzip", ask: func(p *probe) {
			conn, err := p.dial(grpc.WithCompressor(grpc.NewGZIPCompressor())) //nolint:staticcheck // stable throughout 1.x; what replaces it is experimental
			verdict.Want(err == nil, "connect: %v", err)
			defer func() { _ = conn.Close() }() // nothing is under way
			_, err = wagglev1.NewAdminServiceClient(conn).GetStats(p.ctx, &wagglev1.GetStatsRequest{})
			verdict.Want(err == nil, "a request packed by gzip failed: %v", err)
		}},
		{Name: "requests/health", Rule: "3: grpc.health.v1 and server reflection are served", ask: func(p *probe) {
			reply, err := grpc_health_v1.NewHealthClient(p.conn).Check(p.ctx, &grpc_health_v1.HealthCheckRequest{})
			verdict.Want(err == nil && reply.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING, "the health check is %s: %v", reply.GetStatus(), err)
			ctx, cancel := context.WithCancel(p.ctx)
			defer cancel()
			listing, err := grpc_reflection_v1.NewServerReflectionClient(p.conn).ServerReflectionInfo(ctx)
			verdict.Want(err == nil, "reflection failed: %v", err)
			err = listing.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}})
			verdict.Want(err == nil, "reflection failed: %v", err)
			listed, err := listing.Recv()
			verdict.Want(err == nil && strings.Contains(listed.String(), "waggle.v1.DispatchService"), "reflection does not list waggle.v1.DispatchService: %v", err)
		}},
	}
}

// violates reports whether an error names a field.
func violates(err error, field string) bool {
	for _, detail := range status.Convert(err).Details() {
		bad, isBad := detail.(*errdetails.BadRequest)
		if !isBad {
			continue
		}
		for _, violation := range bad.GetFieldViolations() {
			if strings.HasPrefix(violation.GetField(), field) {
				return true
			}
		}
	}
	return false
}
