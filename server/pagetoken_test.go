package server_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// pagedCall is a call that takes page tokens, with conditions.
type pagedCall struct {
	req        proto.Message // without a token
	conditions proto.Message // to which its tokens are bound; nil: all of req
	// page makes the call with a token, and returns the token of the next page and what the page names.
	page func(ctx context.Context, token string) (next string, names []string, err error)
	only string // begins all names that the conditions select
}

// calls are all of those that take page tokens. None changes anything.
func (b *pagedBed) calls() []pagedCall {
	news := &pb.Filter{SourceId: "news.a"}
	prefix := &pb.Filter{SourceIdPrefix: "news."}
	tasks := &pb.ListTasksRequest{Filter: news, PageSize: 2}
	queue := &pb.ListTasksRequest{Filter: &pb.Filter{Queue: "a.example"}, PageSize: 2}
	sources := &pb.ListSourcesRequest{Filter: prefix, PageSize: 2}
	queues := &pb.ListQueuesRequest{Filter: &pb.Filter{QueueSuffix: "a.example"}, PageSize: 2}
	rules := &pb.ListQueueRulesRequest{PageSize: 2}
	holds := &pb.ListHoldsRequest{Filter: prefix, PageSize: 2, Blocks: true}
	leases := &pb.ListLeasesRequest{Filter: news, PageSize: 2}
	collectors := &pb.ListCollectorsRequest{Filter: &pb.Filter{CollectorId: "c1"}, PageSize: 2}
	pools := &pb.ListPoolsRequest{PageSize: 2}
	audit := &pb.ListAuditEntriesRequest{By: "ada", PageSize: 2}
	cancel := &pb.CancelTasksRequest{Filter: news, ValidateOnly: true}
	remove := &pb.DeleteSourcesRequest{Filter: prefix, ValidateOnly: true}
	hold := &pb.SetHoldsRequest{Filter: prefix, ValidateOnly: true, Name: "fuzz"}
	return []pagedCall{
		paged(tasks, nil, b.tasks.ListTasks, "news.a", func(r *pb.ListTasksResponse) []string { return names(r.GetTasks(), (*pb.Task).GetSourceId) }),
		paged(queue, nil, b.tasks.ListTasks, "a.example", func(r *pb.ListTasksResponse) []string { return names(r.GetTasks(), (*pb.Task).GetQueue) }),
		paged(sources, nil, b.sources.ListSources, "news.", func(r *pb.ListSourcesResponse) []string { return names(r.GetSources(), (*pb.Source).GetId) }),
		paged(queues, nil, b.queues.ListQueues, "a.example", func(r *pb.ListQueuesResponse) []string {
			return names(r.GetQueues(), func(q *pb.Queue) string { return strings.TrimPrefix(q.GetName(), "b.") }) // below the suffix
		}),
		paged(rules, nil, b.queues.ListQueueRules, "", func(r *pb.ListQueueRulesResponse) []string { return names(r.GetRules(), (*pb.QueueRule).GetPattern) }),
		paged(holds, nil, b.holds.ListHolds, "news.", func(r *pb.ListHoldsResponse) []string {
			return names(r.GetHolds(), func(h *pb.Hold) string { return h.GetTarget().GetSourceId() })
		}),
		paged(leases, nil, b.admin.ListLeases, "news.a", func(r *pb.ListLeasesResponse) []string { return names(r.GetLeases(), (*pb.HeldLease).GetSourceId) }),
		paged(collectors, nil, b.admin.ListCollectors, "c1", func(r *pb.ListCollectorsResponse) []string {
			return names(r.GetCollectors(), func(c *pb.Collector) string { return c.GetInfo().GetId() })
		}),
		paged(pools, nil, b.admin.ListPools, "", func(r *pb.ListPoolsResponse) []string { return names(r.GetPools(), (*pb.Pool).GetName) }),
		paged(audit, nil, b.admin.ListAuditEntries, "ada", func(r *pb.ListAuditEntriesResponse) []string { return names(r.GetEntries(), (*pb.AuditEntry).GetBy) }),
		paged(cancel, news, b.tasks.CancelTasks, "news.a", func(r *pb.CancelTasksResponse) []string {
			return names(r.GetResults(), func(change *pb.TaskChange) string { return b.sourceOf[change.GetTaskId()] })
		}),
		paged(remove, prefix, b.sources.DeleteSources, "news.", (*pb.DeleteSourcesResponse).GetSampleIds),
		paged(hold, prefix, b.holds.SetHolds, "news.", func(r *pb.SetHoldsResponse) []string {
			return names(r.GetHolds(), func(h *pb.Hold) string { return h.GetTarget().GetSourceId() })
		}),
	}
}

// paged makes a pagedCall of a method of a client.
func paged[Q, R proto.Message](req Q, conditions proto.Message, call func(context.Context, Q, ...grpc.CallOption) (R, error), only string,
	of func(R) []string,
) pagedCall {
	return pagedCall{req: req, conditions: conditions, only: only, page: func(ctx context.Context, token string) (string, []string, error) {
		with := proto.CloneOf(req)
		field := with.ProtoReflect().Descriptor().Fields().ByName("page_token")
		with.ProtoReflect().Set(field, protoreflect.ValueOfString(token))
		resp, err := call(ctx, with)
		if err != nil {
			return "", nil, err
		}
		next := resp.ProtoReflect().Descriptor().Fields().ByName("next_page_token")
		return resp.ProtoReflect().Get(next).String(), of(resp), nil
	}}
}

func names[T any](items []T, name func(T) string) (out []string) {
	for _, item := range items {
		out = append(out, name(item))
	}
	return out
}

// forged is a token of the call for a cursor that no page has returned.
func (p *pagedCall) forged(t testing.TB, cursor string) string {
	t.Helper()
	conditions := p.conditions
	if conditions == nil {
		conditions = proto.Clone(p.req)
		conditions.ProtoReflect().Clear(conditions.ProtoReflect().Descriptor().Fields().ByName("page_size"))
	}
	bound, err := proto.MarshalOptions{Deterministic: true}.Marshal(conditions)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s", p.req.ProtoReflect().Descriptor().Name(), bound, cursor))
	return base64.RawURLEncoding.EncodeToString(append(sum[:8:8], cursor...))
}

// isForged reports whether a token is one that forged makes. What a page of another store has returned is one too.
func (p *pagedCall) isForged(t testing.TB, token string) bool {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(token)
	return err == nil && len(raw) > 8 && token == p.forged(t, string(raw[8:]))
}

// pagedBed is a bed that has more of everything than the conditions of its paged calls select.
type pagedBed struct {
	*bed

	sourceOf map[string]string // by task id
}

func newPagedBed(t testing.TB) *pagedBed {
	t.Helper()
	b := &pagedBed{bed: newBed(t, server.Config{}), sourceOf: make(map[string]string)}
	ctx := t.Context()
	for i := range 9 {
		if err := b.store.AppendAudit(ctx, dispatch.AuditEntry{By: []string{"ada", "bob"}[i%2]}); err != nil {
			t.Fatal(err)
		}
	}
	done := func(_ proto.Message, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, host := range []string{"a.example", "b.a.example", "c.org"} {
		rule := &pb.QueueRule{Pattern: host, MinDelay: durationpb.New(0), MaxInFlight: proto.Int32(10)}
		done(b.queues.SetQueueRule(ctx, &pb.SetQueueRuleRequest{Rule: rule}))
	}
	for _, id := range []string{"news.a", "news.b", "news.c", "shop.d", "shop.e"} {
		spec := &pb.SourceSpec{Id: id, Pool: strings.ReplaceAll(id, ".", "-")}
		done(b.sources.CreateSource(ctx, &pb.CreateSourceRequest{Spec: spec}))
		for _, host := range []string{"a.example", "b.a.example", "c.org"} {
			for i := range 4 {
				for _, task := range b.submit(t, id, fmt.Sprintf("https://%s/%d", host, i)) {
					b.sourceOf[task] = id
				}
			}
		}
		done(b.dispatch.FetchTask(ctx, &pb.FetchTaskRequest{
			CollectorId: "c1", Session: "s1", Pools: []string{spec.GetPool()}, MaxTasks: 4, Wait: durationpb.New(0), LeaseDuration: durationpb.New(time.Hour),
		}))
		done(b.holds.SetHolds(ctx, &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{{SourceId: id}}}))
	}
	for _, id := range []string{"c1", "c2", "c3"} {
		done(b.dispatch.RenewLease(ctx, &pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: id, Session: "s1"}}))
	}
	return b
}

// walk reads the pages of a call from the first, and returns their tokens and the number of names.
func (p *pagedCall) walk(t testing.TB) (tokens []string, all int) {
	t.Helper()
	for token := ""; ; {
		next, page, err := p.page(t.Context(), token)
		if err != nil {
			t.Fatal(err)
		}
		all += len(page)
		if next == "" {
			return tokens, all
		}
		if tokens = append(tokens, next); len(tokens) > 100 {
			t.Fatalf("%T has no last page", p.req)
		}
		token = next
	}
}

// FuzzPageTokens gives the calls that take page tokens other tokens than their pages returned: as bytes, and forged for a
// cursor, which needs no secret. Each is refused as INVALID_ARGUMENT for its field; or, if forged, it
// gives a page of no more than what the conditions select.
func FuzzPageTokens(f *testing.F) {
	b := newPagedBed(f)
	calls := b.calls()
	for i := range calls {
		tokens, all := calls[i].walk(f)
		if all == 0 {
			f.Fatalf("%T lists nothing", calls[i].req)
		}
		for _, token := range tokens[:min(len(tokens), 2)] {
			raw, err := base64.RawURLEncoding.DecodeString(token)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(i), true, string(raw[8:]))
			f.Add(uint8(i), false, token[:len(token)-1])
			f.Add(uint8(i+1), false, token)
		}
		f.Add(uint8(i), true, "0/0/0/")
		f.Add(uint8(i), true, "h ")
	}
	f.Fuzz(func(t *testing.T, which uint8, forge bool, token string) {
		i := int(which) % len(calls)
		call := &calls[i]
		if forge {
			token = call.forged(t, token)
		}
		if token = strings.ToValidUTF8(token, ""); token == "" {
			return // the first page
		}
		forge = call.isForged(t, token)
		_, page, err := call.page(t.Context(), token)
		if err != nil {
			fault := wantFault(t, err, codes.InvalidArgument, "PAGE_TOKEN_INVALID")
			if len(fault.violations) != 1 || !forge && fault.violations[0].GetField() != "page_token" {
				t.Errorf("violations %v", fault.violations)
			}
			return
		}
		if !forge {
			t.Errorf("%T took the token %q, which no page returned", call.req, token)
		}
		for _, name := range page {
			if !strings.HasPrefix(name, call.only) {
				t.Errorf("%T with the token %q names %q", call.req, token, name)
			}
		}
	})
}
