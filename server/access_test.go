package server_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
	"github.com/waggle-crawl/waggle/server/auth"
)

// access is what the six callers of a method get: who is right for it, and what becomes of the others.
type access struct {
	right   string // the token that may call it
	wrong   string // a token of a role that may not
	narrow  string // a token of the right role for other sources or collectors
	shared  bool   // the narrow one may call it, too
	request proto.Message
}

// Of most methods one of these has the callers.
var (
	forAnyone    = access{}
	forAnyRole   = access{right: "narrow-viewer", wrong: "nobody", narrow: "narrow-collector", shared: true}
	forCollector = access{right: "collector", wrong: "operator", narrow: "narrow-collector"}
	forProducer  = access{right: "producer", wrong: "viewer", narrow: "narrow-producer"}
	forReader    = access{right: "producer", wrong: "collector", narrow: "narrow-producer"}
	forViewer    = access{right: "viewer", wrong: "producer", narrow: "narrow-viewer"}
	forCounter   = access{right: "producer", wrong: "collector", narrow: "narrow-producer", shared: true}
	forFinder    = access{right: "viewer", wrong: "producer", narrow: "narrow-viewer", shared: true}
	forSurveyor  = access{right: "whole-producer", wrong: "collector", narrow: "producer"}
	forOperator  = access{right: "operator", wrong: "viewer", narrow: "narrow-operator"}
	forWhole     = access{right: "whole", wrong: "viewer", narrow: "narrow-operator"}
	forAdmin     = access{right: "admin", wrong: "whole", narrow: "narrow-operator"}
)

func (a access) with(request proto.Message) access {
	a.request = request
	return a
}

// accesses are the rows of the table of all methods. It is apart from that of package auth: the two must agree.
func accesses(leased *pb.LeasedTask) map[string]access {
	task, token := leased.GetTask().GetId(), leased.GetLease().GetLeaseToken()
	news := &pb.Filter{SourceId: "news.a"}
	collector := &pb.CollectorInfo{Id: "c1", Session: "s1"}
	return map[string]access{
		"FetchTask":        forCollector.with(&pb.FetchTaskRequest{CollectorId: "c1", Session: "s1", ClientToken: uuid.NewString(), Wait: durationpb.New(10 * time.Millisecond)}),
		"Heartbeat":        forCollector.with(&pb.HeartbeatRequest{Collector: collector}),
		"Work":             forCollector.with(&pb.WorkRequest{Call: &pb.WorkRequest_Heartbeat{Heartbeat: &pb.HeartbeatRequest{Collector: collector}}}),
		"RenewLease":       forCollector.with(&pb.RenewLeaseRequest{Collector: collector, Leases: []*pb.LeaseBeat{{TaskId: task, LeaseToken: token}}}),
		"SubmitDiscovered": forCollector.with(&pb.SubmitDiscoveredRequest{TaskId: task, LeaseToken: token, Items: []*pb.DiscoveredItem{{Url: "https://a.example/b"}}}),
		"ReportTask": forCollector.with(&pb.ReportTaskRequest{CollectorId: "c1", Session: "s1", Reports: []*pb.TaskReport{
			{TaskId: task, LeaseToken: token, Outcome: &pb.Outcome{Result: &pb.Outcome_Succeeded{Succeeded: &pb.Succeeded{}}}},
		}}),

		"SubmitTasks":  forProducer.with(&pb.SubmitTasksRequest{Items: []*pb.SubmitItem{{SourceId: "news.a", Url: "https://a.example/2"}}}),
		"GetTask":      forReader.with(&pb.GetTaskRequest{TaskId: task}),
		"ListTasks":    forReader.with(&pb.ListTasksRequest{Filter: news}),
		"CancelTasks":  forOperator.with(&pb.CancelTasksRequest{Filter: news}),
		"RetryTasks":   forOperator.with(&pb.RetryTasksRequest{TaskIds: []string{task}}),
		"RevokeLeases": forOperator.with(&pb.RevokeLeasesRequest{TaskIds: []string{task}}),

		"CreateSource":     forOperator.with(&pb.CreateSourceRequest{Spec: &pb.SourceSpec{Id: "news.b"}}),
		"GetSource":        forReader.with(&pb.GetSourceRequest{Id: "news.a"}),
		"GetSourceHistory": forReader.with(&pb.GetSourceHistoryRequest{Id: "news.a"}),
		"ListSources":      forReader.with(&pb.ListSourcesRequest{Filter: &pb.Filter{SourceIdPrefix: "news."}}),
		"UpdateSource":     forOperator.with(&pb.UpdateSourceRequest{Spec: &pb.SourceSpec{Id: "news.a", DisplayName: "A"}}),
		"ApplySources":     forOperator.with(&pb.ApplySourcesRequest{Specs: []*pb.SourceSpec{{Id: "news.a"}}}),
		"DeleteSources":    forOperator.with(&pb.DeleteSourcesRequest{Ids: []string{"news.gone"}}),
		"TriggerSources":   forOperator.with(&pb.TriggerSourcesRequest{Ids: []string{"news.a"}}),

		"GetQueue":        forSurveyor.with(&pb.GetQueueRequest{Name: "a.example"}),
		"ListQueues":      forSurveyor.with(&pb.ListQueuesRequest{}),
		"SetQueueRule":    forWhole.with(&pb.SetQueueRuleRequest{Rule: &pb.QueueRule{Pattern: "a.example", MaxInFlight: proto.Int32(2)}}),
		"ListQueueRules":  forSurveyor.with(&pb.ListQueueRulesRequest{}),
		"DeleteQueueRule": forWhole.with(&pb.DeleteQueueRuleRequest{Pattern: "none.example"}),

		"SetHolds":  forOperator.with(&pb.SetHoldsRequest{Targets: []*pb.HoldTarget{{SourceId: "news.a"}}, Name: "n", Effect: pb.HoldEffect_HOLD_EFFECT_STOP_GRANTS}),
		"LiftHolds": forOperator.with(&pb.LiftHoldsRequest{Targets: []*pb.HoldTarget{{SourceId: "news.a"}}, Name: "n"}),
		"ListHolds": forReader.with(&pb.ListHoldsRequest{Filter: news}),

		"GetStats":         forCounter.with(&pb.GetStatsRequest{}),
		"ListLeases":       forViewer.with(&pb.ListLeasesRequest{Filter: news}),
		"ListCollectors":   forSurveyor.with(&pb.ListCollectorsRequest{}),
		"Explain":          forReader.with(&pb.ExplainRequest{SourceId: "news.a"}),
		"ListPools":        forSurveyor.with(&pb.ListPoolsRequest{}),
		"ListFindings":     forFinder.with(&pb.ListFindingsRequest{}),
		"ListAuditEntries": forAdmin.with(&pb.ListAuditEntriesRequest{}),
		"ExplainAccess":    forWhole.with(&pb.ExplainAccessRequest{Method: "GetStats"}),
		"ReleaseCollector": forWhole.with(&pb.ReleaseCollectorRequest{CollectorId: "other"}),
		"MoveOwner":        forWhole.with(&pb.MoveOwnerRequest{}),

		"Check":                forAnyone.with(&grpc_health_v1.HealthCheckRequest{}),
		"List":                 forAnyone.with(&grpc_health_v1.HealthListRequest{}),
		"Watch":                forAnyone.with(&grpc_health_v1.HealthCheckRequest{}),
		"ServerReflectionInfo": forAnyRole.with(&grpc_reflection_v1.ServerReflectionRequest{}),
	}
}

// accessPolicy has the tokens of accesses; soon is when the tokens that begin with "expiring-" end.
func accessPolicy(soon time.Time) string {
	grants := map[string]string{
		"collector": "role: collector, collectors: [c*], pools: [default]", "narrow-collector": "role: collector, collectors: [d*]",
		"other-collector": "role: collector", "producer": "role: producer, sources: [news.]", "narrow-producer": "role: producer, sources: [blogs.]",
		"viewer": "role: viewer, sources: [news.]", "narrow-viewer": "role: viewer, sources: [blogs.]",
		"operator": "role: operator, sources: [news.]", "narrow-operator": "role: operator, sources: [blogs.]",
		"whole": "role: operator", "whole-producer": "role: producer", "whole-viewer": "role: viewer", "admin": "role: admin",
	}
	var tokens, given strings.Builder
	for name, grant := range grants {
		fmt.Fprintf(&tokens, "- {name: %s, sha256: %s}\n", name, auth.HashToken("wgl_"+name))
		fmt.Fprintf(&tokens, "- {name: expiring-%s, sha256: %s, expires: %s}\n", name, auth.HashToken("wgl_expiring-"+name), soon.UTC().Format(time.RFC3339))
		fmt.Fprintf(&given, "- {identity: 'token:%s', %s}\n- {identity: 'token:expiring-%[1]s', %[2]s}\n", name, grant)
	}
	return "tokens:\n" + tokens.String() + fmt.Sprintf("- {name: nobody, sha256: %s}\n", auth.HashToken("wgl_nobody")) + "grants:\n" + given.String()
}

// withPolicy serves with a policy.
func withPolicy(t *testing.T, policy string) *bed {
	t.Helper()
	return withPolicyOn(t, policy, newBed)
}

func withPolicyOn(t *testing.T, policy string, newBed func(testing.TB, server.Config) *bed) *bed {
	t.Helper()
	path := filepath.Join(t.TempDir(), "auth.yaml")
	if err := os.WriteFile(path, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	return newBed(t, server.Config{PolicyFile: path, Reflection: true})
}

// as is a context of calls with a token; "" has none.
func as(ctx context.Context, name string) context.Context {
	if name == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer wgl_"+name)
}

// served are the methods of the services that a server registers, by their descriptors.
func served(t *testing.T, b *bed) []protoreflect.MethodDescriptor {
	t.Helper()
	var methods []protoreflect.MethodDescriptor
	for _, name := range b.server.ServiceNames() {
		descriptor, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			t.Fatal(err)
		}
		of := descriptor.(protoreflect.ServiceDescriptor).Methods() //nolint:forcetypeassert // it names a service
		for i := range of.Len() {
			methods = append(methods, of.Get(i))
		}
	}
	return methods
}

// TestAccess calls each method as six callers: with no credential, of a wrong role, for other sources or collectors, as
// another identity, with a credential that has expired (of a stream: in its middle), and as who may.
func TestAccess(t *testing.T) {
	t.Parallel()
	t.Run("gRPC", func(t *testing.T) { t.Parallel(); testAccess(t, newBed) })
	t.Run("HTTP", func(t *testing.T) {
		t.Parallel()
		testAccess(t, func(t testing.TB, cfg server.Config) *bed {
			cfg.Reflection = false
			return newHTTPBed(t, cfg)
		})
	})
}

func testAccess(t *testing.T, newBed func(testing.TB, server.Config) *bed) {
	soon := time.Now().Add(8 * time.Second).Truncate(time.Second)
	b := withPolicyOn(t, accessPolicy(soon), newBed)
	if _, err := b.sources.CreateSource(as(t.Context(), "whole"), &pb.CreateSourceRequest{Spec: &pb.SourceSpec{Id: "news.a", LeaseDuration: durationpb.New(time.Minute)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.tasks.SubmitTasks(as(t.Context(), "producer"), &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{{SourceId: "news.a", Url: "https://a.example/"}}}); err != nil {
		t.Fatal(err)
	}
	fetched, err := b.dispatch.FetchTask(as(t.Context(), "collector"), &pb.FetchTaskRequest{
		CollectorId: "c1", Session: "s1", ClientToken: uuid.NewString(), Wait: durationpb.New(5 * time.Second),
	})
	if err != nil || len(fetched.GetLeasedTasks()) != 1 {
		t.Fatal(err, fetched)
	}
	rows, cells := accesses(fetched.GetLeasedTasks()[0]), 0
	// The right callers come last: they change things.
	callers := []string{"none", "wrong role", "wrong scope", "other identity", "right"}
	for _, caller := range callers {
		for _, method := range served(t, b) {
			row, ok := rows[string(method.Name())]
			if !ok {
				t.Fatalf("%s has no row", method.FullName())
			}
			_, err := b.call(as(t.Context(), row.token(caller)), method, row.request)
			if want := row.wants(caller); !want.fits(err) {
				t.Errorf("%s as %s (%q): %v, want %v", method.Name(), caller, row.token(caller), err, want)
			}
			cells++
		}
	}
	b.expires(t, rows, soon)
	t.Logf("%d methods, %d cells", len(served(t, b)), cells+len(served(t, b)))
}

// token is the token of a caller.
func (a access) token(caller string) string {
	switch {
	case caller == "none" || a.right == "":
		return ""
	case caller == "wrong role":
		return a.wrong
	case caller == "wrong scope":
		return a.narrow
	case caller == "other identity" && a.right == "collector":
		return "other-collector"
	case caller == "other identity":
		return "nobody"
	}
	return a.right
}

// outcome is a code with its reason; OK: anything but a refusal.
type outcome struct {
	code   codes.Code
	reason pb.ErrorReason
}

func (a access) wants(caller string) outcome {
	switch {
	case caller == "right" || a.right == "" || caller == "wrong scope" && a.shared:
		return outcome{}
	case caller == "none":
		return outcome{codes.Unauthenticated, pb.ErrorReason_ERROR_REASON_UNAUTHENTICATED}
	case caller == "other identity" && a.right == "collector":
		return outcome{codes.PermissionDenied, pb.ErrorReason_ERROR_REASON_COLLECTOR_BOUND}
	}
	return outcome{codes.PermissionDenied, pb.ErrorReason_ERROR_REASON_PERMISSION_DENIED}
}

func (o outcome) fits(err error) bool {
	code := status.Code(err)
	if o.code == codes.OK {
		return code != codes.Unauthenticated && code != codes.PermissionDenied && code != codes.Internal && code != codes.Unimplemented
	}
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && "ERROR_REASON_"+info.GetReason() == o.reason.String() {
			return code == o.code
		}
	}
	return false
}

// call makes a call; of a stream it sends one message and receives one.
func (b *bed) call(ctx context.Context, method protoreflect.MethodDescriptor, request proto.Message) (proto.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	name := fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name())
	of, err := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
	if err != nil {
		return nil, err
	}
	reply := of.New().Interface()
	if !method.IsStreamingServer() {
		return reply, b.by.Invoke(ctx, name, request, reply)
	}
	stream, err := b.by.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: method.IsStreamingClient()}, name)
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !method.IsStreamingClient() {
		if err := stream.CloseSend(); err != nil {
			return nil, err
		}
	}
	return reply, stream.RecvMsg(reply)
}

// expires opens streams with tokens that end soon, which end within a second of that, and calls methods with them then.
func (b *bed) expires(t *testing.T, rows map[string]access, soon time.Time) {
	t.Helper()
	gone := outcome{codes.Unauthenticated, pb.ErrorReason_ERROR_REASON_UNAUTHENTICATED}
	if _, err := b.admin.ReleaseCollector(as(t.Context(), "admin"), &pb.ReleaseCollectorRequest{CollectorId: "c2"}); err != nil {
		t.Fatal(err)
	}
	stream, err := b.dispatch.Heartbeat(as(t.Context(), "expiring-other-collector"))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&pb.HeartbeatRequest{Collector: &pb.CollectorInfo{Id: "c2", Session: "s2"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatalf("before it expired: %v", err)
	}
	if _, err := stream.Recv(); !gone.fits(err) || time.Since(soon) > time.Second || time.Now().Before(soon) {
		t.Errorf("Heartbeat ended %v after its token: %v", time.Since(soon), err)
	}
	for _, method := range served(t, b) {
		row := rows[string(method.Name())]
		want := gone
		if row.right == "" {
			want = outcome{}
		}
		if _, err := b.call(as(t.Context(), "expiring-"+cmp.Or(row.right, "viewer")), method, row.request); !want.fits(err) {
			t.Errorf("%s with an expired token: %v", method.Name(), err)
		}
	}
}

// TestAccess_methods holds that the table has a row for each method that is served, and none for others.
func TestAccess_methods(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{Reflection: true})
	var names []string
	for _, method := range served(t, b) {
		names = append(names, fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name()))
	}
	slices.Sort(names)
	if got := auth.Methods(); !slices.Equal(got, names) {
		t.Errorf("rows for\n%s\nserved are\n%s", strings.Join(got, "\n"), strings.Join(names, "\n"))
	}
}

// TestAccess_narrowed makes each call as those who are narrowed to the sources that begin with "news.", beside sources, queues,
// rules, holds and collectors of others: no reply shows anything of these.
func TestAccess_narrowed(t *testing.T) {
	t.Parallel()
	b := withPolicy(t, accessPolicy(time.Now().Add(time.Hour)))
	whole := as(t.Context(), "whole")
	secret := &pb.CollectorInfo{Id: "secret", Session: "s", Hostname: "secret", Labels: map[string]string{"team": "secret"}}
	holds := []*pb.HoldTarget{
		{SourceId: "blogs.secret"}, {Pool: "secret"}, {Queue: "secret.example"}, {CollectorId: "secret"}, {CollectorLabels: secret.GetLabels()},
	}
	must := func(_ proto.Message, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(b.sources.CreateSource(whole, &pb.CreateSourceRequest{Spec: &pb.SourceSpec{Id: "news.a"}}))
	must(b.sources.CreateSource(whole, &pb.CreateSourceRequest{Spec: &pb.SourceSpec{Id: "blogs.secret", Pool: "secret"}}))
	must(b.tasks.SubmitTasks(whole, &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{
		{SourceId: "news.a", Url: "https://a.example/"}, {SourceId: "blogs.secret", Url: "https://secret.example/"},
	}}))
	must(b.queues.SetQueueRule(whole, &pb.SetQueueRuleRequest{Rule: &pb.QueueRule{Pattern: "*.secret.example"}}))
	must(b.holds.SetHolds(whole, &pb.SetHoldsRequest{Targets: holds, Reason: "secret"}))
	must(b.holds.SetHolds(whole, &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{{SourceId: "news.a"}, {Everything: true}}, Name: "shown"}))
	must(b.dispatch.RenewLease(as(t.Context(), "other-collector"), &pb.RenewLeaseRequest{Collector: secret}))
	ended := b.endedByHold(t)

	rows, shown := accesses(ended), 0
	more := map[string][]proto.Message{
		"Explain":          {&pb.ExplainRequest{SourceId: "news.held"}, &pb.ExplainRequest{SourceId: "news.lone"}, &pb.ExplainRequest{SourceId: "news.some"}},
		"GetSource":        {&pb.GetSourceRequest{Id: "news.held"}, &pb.GetSourceRequest{Id: "news.lone"}},
		"GetSourceHistory": {&pb.GetSourceHistoryRequest{Id: "news.held"}, &pb.GetSourceHistoryRequest{Id: "news.lone"}},
	}
	for _, method := range served(t, b) {
		if rows[string(method.Name())].right == "" {
			continue // it is for anyone
		}
		for _, caller := range []string{"producer", "viewer", "operator"} {
			for _, request := range append(widened(rows[string(method.Name())].request), more[string(method.Name())]...) {
				reply, err := b.call(as(t.Context(), caller), method, request)
				if err == nil {
					shown++
				}
				if text := fmt.Sprint(reply, err); strings.Contains(text, "secret") && !strings.Contains(fmt.Sprint(request), "secret") {
					t.Errorf("%s shows %s, asked for %v: %s", method.Name(), caller, request, text)
				}
			}
		}
	}
	listed, err := b.holds.ListHolds(as(t.Context(), "viewer"), &pb.ListHoldsRequest{Filter: &pb.Filter{SourceIdPrefix: "news."}, Blocks: true})
	if err != nil || len(listed.GetHolds()) != 2 || shown < 30 {
		t.Errorf("%d calls were allowed; the holds that are seen are %v, %v", shown, listed, err)
	}
}

// endedByHold makes a hold on collectors end the lease of a task of news.held, and lets collectors be there that take no tasks of
// news.lone, and some of news.some.
func (b *bed) endedByHold(t *testing.T) *pb.LeasedTask {
	t.Helper()
	whole, collector := as(t.Context(), "whole"), as(t.Context(), "other-collector")
	must := func(_ proto.Message, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(b.sources.CreateSource(whole, &pb.CreateSourceRequest{Spec: &pb.SourceSpec{Id: "news.held", Pool: "held"}}))
	must(b.tasks.SubmitTasks(whole, &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{{SourceId: "news.held", Url: "https://held.example/"}}}))
	everything := []*pb.HoldTarget{{Everything: true}}
	must(b.holds.LiftHolds(whole, &pb.LiftHoldsRequest{Targets: everything, Name: "shown"}))
	worker := &pb.CollectorInfo{Id: "worker", Session: "s", Pools: []string{"held"}}
	must(b.dispatch.RenewLease(collector, &pb.RenewLeaseRequest{Collector: worker}))
	fetched, err := b.dispatch.FetchTask(collector, &pb.FetchTaskRequest{
		CollectorId: "worker", Session: "s", Pools: worker.GetPools(), Wait: durationpb.New(5 * time.Second),
	})
	if err != nil || len(fetched.GetLeasedTasks()) != 1 {
		t.Fatal(err, fetched)
	}
	leased := fetched.GetLeasedTasks()[0]
	must(b.holds.SetHolds(whole, &pb.SetHoldsRequest{
		Targets: []*pb.HoldTarget{{CollectorId: "worker"}}, Name: "secret", By: "secret", Reason: "secret", Effect: pb.HoldEffect_HOLD_EFFECT_END_LEASES,
	}))
	must(b.dispatch.RenewLease(collector, &pb.RenewLeaseRequest{Collector: worker, Leases: []*pb.LeaseBeat{
		{TaskId: leased.GetTask().GetId(), LeaseToken: leased.GetLease().GetLeaseToken()},
	}}))
	must(b.dispatch.ReportTask(collector, &pb.ReportTaskRequest{CollectorId: "worker", Session: "s", Reports: []*pb.TaskReport{
		{TaskId: leased.GetTask().GetId(), LeaseToken: leased.GetLease().GetLeaseToken(), Outcome: &pb.Outcome{Result: &pb.Outcome_Released{Released: &pb.Released{}}}},
	}}))
	must(b.holds.SetHolds(whole, &pb.SetHoldsRequest{Targets: everything, Name: "shown"}))
	for _, narrow := range []*pb.CollectorInfo{
		{Id: "secret-lone", Session: "s", Pools: []string{"lone"}, Sources: []string{"blogs.secret"}},
		{Id: "secret-some", Session: "s", Pools: []string{"some"}, Queues: []string{"secret.example"}},
	} {
		pool := narrow.GetPools()[0]
		must(b.sources.CreateSource(whole, &pb.CreateSourceRequest{Spec: &pb.SourceSpec{Id: "news." + pool, Pool: pool}}))
		must(b.dispatch.RenewLease(collector, &pb.RenewLeaseRequest{Collector: narrow}))
		why, err := b.admin.Explain(whole, &pb.ExplainRequest{SourceId: "news." + pool})
		if err != nil || !strings.Contains(fmt.Sprint(why), narrow.GetId()) {
			t.Fatalf("who sees everything does not see %s: %v, %v", narrow.GetId(), why, err)
		}
	}
	task, err := b.tasks.GetTask(whole, &pb.GetTaskRequest{TaskId: leased.GetTask().GetId()})
	if err != nil || !strings.Contains(fmt.Sprint(task.GetTask().GetHistory()), "secret") {
		t.Fatalf("the history names no hold: %v, %v", task, err)
	}
	return leased
}

// widened are a request, one without any field, and the request with other filters.
func widened(request proto.Message) []proto.Message {
	all := []proto.Message{request, request.ProtoReflect().New().Interface()}
	if field := request.ProtoReflect().Descriptor().Fields().ByName("filter"); field != nil {
		for _, filter := range []*pb.Filter{{}, {All: true}, {SourceIdPrefix: "news."}} {
			other := proto.Clone(request)
			other.ProtoReflect().Set(field, protoreflect.ValueOfMessage(filter.ProtoReflect()))
			all = append(all, other)
		}
	}
	return all
}

// TestAccess_document holds the table of SECURITY.md against what the server answers of each method: which roles may call it, and
// whether a grant for some sources allows it.
func TestAccess_document(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "SECURITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string][]string) // by method
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, " | "); len(cells) == 3 && strings.HasPrefix(line, "| `") {
			for _, method := range strings.Fields(strings.NewReplacer("|", "", "`", "").Replace(cells[0])) {
				rows[method] = cells
			}
		}
	}
	b := withPolicy(t, accessPolicy(time.Now().Add(time.Hour)))
	allowed := func(method, token string) bool {
		reply, err := b.admin.ExplainAccess(as(t.Context(), "whole"), &pb.ExplainAccessRequest{Method: method, Identity: "token:" + token})
		if err != nil {
			t.Fatal(err)
		}
		return reply.GetAllowed()
	}
	for _, method := range served(t, b) {
		row, name := rows[string(method.Name())], fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name())
		if row == nil {
			t.Errorf("%s has no row in SECURITY.md", method.FullName())
			continue
		}
		var roles []string
		narrowed := false
		for _, c := range []struct{ role, whole, narrow string }{
			{"collector", "other-collector", ""},
			{"producer", "whole-producer", "producer"},
			{"operator", "whole", "operator"},
			{"viewer", "whole-viewer", "viewer"},
			{"admin", "admin", ""},
		} {
			if allowed(name, c.whole) {
				roles = append(roles, c.role)
			}
			narrowed = narrowed || c.narrow != "" && allowed(name, c.narrow)
		}
		want := strings.Join(roles, ", ")
		if allowed(name, "nobody") {
			want, narrowed = "anyone", false
		}
		if row[1] != want || narrowed == (strings.HasPrefix(row[2], "refused") || strings.HasPrefix(row[2], "no ")) {
			t.Errorf("%s is for %s, narrowed %v; SECURITY.md has %q", method.Name(), want, narrowed, row)
		}
	}
}

// TestAdminService_ListFindings_narrow holds that a caller for some sources gets the findings of these, and no others.
func TestAdminService_ListFindings_narrow(t *testing.T) {
	t.Parallel()
	b := withPolicy(t, accessPolicy(time.Now().Add(time.Hour)))
	whole := as(t.Context(), "whole")
	targets := []*pb.HoldTarget{{Pool: "browser"}}
	for _, id := range []string{"news.a", "blogs.a"} {
		if _, err := b.sources.CreateSource(whole, &pb.CreateSourceRequest{Spec: &pb.SourceSpec{Id: id, Seeds: []*pb.Seed{{Url: "https://" + id + ".example/"}}}}); err != nil {
			t.Fatal(err)
		}
		targets = append(targets, &pb.HoldTarget{SourceId: id})
	}
	if _, err := b.holds.SetHolds(whole, &pb.SetHoldsRequest{Targets: targets}); err != nil {
		t.Fatal(err)
	}
	for caller, want := range map[string]string{"viewer": "[news.a]", "narrow-viewer": "[blogs.a]", "whole-viewer": "[blogs.a browser news.a]"} {
		found, err := b.admin.ListFindings(as(t.Context(), caller), &pb.ListFindingsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range found.GetFindings() {
			if f.GetKind() == pb.FindingKind_FINDING_KIND_HELD {
				for _, name := range f.GetNames() {
					names = append(names, strings.TrimPrefix(name, "pool "))
				}
			} else if caller != "whole-viewer" {
				t.Errorf("%s sees %v", caller, f)
			}
		}
		slices.Sort(names)
		if got := fmt.Sprint(names); got != want || int(found.GetSources()) != strings.Count(want, ".a") {
			t.Errorf("%s: %s of %d sources, want %s", caller, got, found.GetSources(), want)
		}
	}
}
