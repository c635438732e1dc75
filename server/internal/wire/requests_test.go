package wire_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/engine"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// reader reads one kind of request.
type reader struct {
	kind proto.Message
	read func(t *testing.T, req proto.Message) error
	// answered are lists, or a spec, of which each is accepted or refused for itself: read checks them.
	answered []protoreflect.Name
}

// reads makes a reader of a function that answers a request as a whole.
func reads[Q proto.Message](read func(Q) error) reader {
	var kind Q
	return reader{kind: kind.ProtoReflect().Type().New().Interface(), read: func(_ *testing.T, req proto.Message) error { return read(req.(Q)) }}
}

// answers makes a reader of a function that answers those parts of a request one by one.
func answers[Q proto.Message](read func(*testing.T, Q) error, parts ...protoreflect.Name) reader {
	var kind Q
	return reader{
		kind: kind.ProtoReflect().Type().New().Interface(), answered: parts,
		read: func(t *testing.T, req proto.Message) error { t.Helper(); return read(t, req.(Q)) },
	}
}

// lists makes a reader of a list: its conditions, and then its page.
func lists[Q interface {
	proto.Message
	GetPageSize() int32
	GetPageToken() string
}](check func(Q) error) reader {
	return reads(func(req Q) error {
		if err := check(req); err != nil {
			return err
		}
		none := func(string, int) ([]proto.Message, string, error) { return nil, "", nil }
		_, _, err := wire.List(req, none, func(m proto.Message) proto.Message { return m })
		return err
	})
}

// readers are those of all requests. The corpus has their indexes: add new ones at the end.
func readers() []reader {
	return []reader{
		answers(func(t *testing.T, req *pb.FetchTaskRequest) error {
			t.Helper()
			_, reports, err := wire.Fetch(req)
			wantReports(t, req.GetReports(), &reports, err)
			return err
		}, "discovered"),
		reads(func(req *pb.HeartbeatRequest) error { _, err := wire.ReadBeat(req); return err }),
		reads(func(req *pb.RenewLeaseRequest) error { _, err := wire.ReadBeat(req); return err }),
		answers(func(t *testing.T, req *pb.ReportTaskRequest) error {
			t.Helper()
			reports, err := wire.Report(req)
			wantReports(t, req.GetReports(), &reports, err)
			return err
		}, "discovered"),
		answers(readDiscovered, "items"),
		answers(readSubmission, "items"),
		reads(wire.GetTask),
		lists(func(req *pb.ListTasksRequest) error { _, err := wire.ListTasks(req); return err }),
		reads(func(req *pb.CancelTasksRequest) error {
			_, err := wire.TaskChange(req, []dispatch.State{dispatch.StateScheduled, dispatch.StateReady, dispatch.StateLeased}, false)
			return err
		}),
		reads(func(req *pb.RetryTasksRequest) error {
			_, err := wire.TaskChange(req, []dispatch.State{dispatch.StateDead, dispatch.StateCanceled}, true)
			return err
		}),
		reads(func(req *pb.RevokeLeasesRequest) error {
			_, err := wire.TaskChange(req, []dispatch.State{dispatch.StateLeased}, false)
			return err
		}),
		answers(func(t *testing.T, req *pb.CreateSourceRequest) error {
			t.Helper()
			spec, err := wire.CreateSource(req)
			if err != nil {
				return err
			}
			return wantSpec(t, req.GetSpec().GetId(), &spec)
		}),
		reads(wire.GetSource), reads(wire.GetSourceHistory),
		lists(func(req *pb.ListSourcesRequest) error { _, err := wire.ListSources(req); return err }),
		answers(readUpdate, "spec"),
		answers(readApplication, "specs"),
		reads(func(req *pb.DeleteSourcesRequest) error { _, err := wire.Sources(req); return err }),
		reads(func(req *pb.TriggerSourcesRequest) error { _, err := wire.Sources(req); return err }),
		reads(wire.GetQueue),
		lists(wire.ListQueues),
		reads(func(req *pb.SetQueueRuleRequest) error {
			change, err := wire.SetQueueRule(req, "me")
			if err != nil {
				return err
			}
			rule := dispatch.QueueRule{Pattern: req.GetRule().GetPattern(), Settings: dispatch.DefaultQueueSettings()}
			change.Change(&rule)
			return wire.AboutRule(rule.Validate(), rule.Pattern)
		}),
		lists(func(*pb.ListQueueRulesRequest) error { return nil }),
		reads(func(req *pb.DeleteQueueRuleRequest) error { _, err := wire.DeleteQueueRule(req); return err }),
		reads(func(req *pb.SetHoldsRequest) error { _, _, err := wire.SetHolds(req, time.Now()); return err }),
		reads(func(req *pb.LiftHoldsRequest) error { _, err := wire.LiftHolds(req); return err }),
		lists(func(req *pb.ListHoldsRequest) error { _, err := wire.ListHolds(req); return err }),
		reads(func(*pb.GetStatsRequest) error { return nil }),
		lists(func(req *pb.ListLeasesRequest) error { _, err := wire.ListLeases(req); return err }),
		lists(func(req *pb.ListCollectorsRequest) error { _, err := wire.ListCollectors(req); return err }),
		reads(wire.Explain),
		lists(func(*pb.ListPoolsRequest) error { return nil }),
		lists(wire.ListAuditEntries),
		reads(wire.ReleaseCollector),
		reads(wire.ExplainAccess),
		reads(wire.MoveOwner),
		reads(func(*pb.ListFindingsRequest) error { return nil }),
	}
}

// wantReports checks the items that reports were read with, and that the others name a field.
func wantReports(t *testing.T, of []*pb.TaskReport, read *wire.Reports, err error) {
	t.Helper()
	if err != nil {
		return
	}
	results := make([]engine.ReportResult, len(of))
	for i := range results {
		results[i] = engine.ReportResult{Code: engine.ReportOK}
		if s := read.List[i].Succeeded; s != nil {
			results[i].Discovered = make([]engine.DiscoverResult, len(s.Discovered))
			for k := range results[i].Discovered {
				results[i].Discovered[k].Code = engine.DiscoverCreated
			}
		}
	}
	for i, result := range read.Results(results) {
		wantDiscovered(t, of[i].GetOutcome().GetSucceeded().GetDiscovered(), result.GetDiscovered())
	}
}

func wantDiscovered(t *testing.T, items []*pb.DiscoveredItem, summary *pb.DiscoverSummary) {
	t.Helper()
	if got := len(summary.GetResults()); got != len(items) {
		t.Fatalf("%d of %d discovered items are answered", got, len(items))
	}
	for i, result := range summary.GetResults() {
		wantAnswered(t, items[i], result.GetCode() == pb.DiscoverCode_DISCOVER_CODE_INVALID, result.GetMessage())
	}
}

// wantAnswered checks an item of a call: accepted it is within its bounds, and refused with a message that begins with a field.
func wantAnswered(t *testing.T, item proto.Message, refused bool, message string) {
	t.Helper()
	if !refused {
		wantBounded(t, item.ProtoReflect())
		return
	}
	field, _, found := strings.Cut(message, " is \"")
	if !found {
		t.Errorf("%s is refused with %q, which begins with no field", item.ProtoReflect().Descriptor().Name(), message)
		return
	}
	wantField(t, item, field)
}

func readDiscovered(t *testing.T, req *pb.SubmitDiscoveredRequest) error {
	t.Helper()
	found, err := wire.Discovered(req)
	if err != nil {
		return err
	}
	taken := make([]engine.DiscoverResult, len(found.Items))
	for i := range taken {
		taken[i].Code = engine.DiscoverCreated
	}
	wantDiscovered(t, req.GetItems(), found.Response(taken).GetSummary())
	return nil
}

func readSubmission(t *testing.T, req *pb.SubmitTasksRequest) error {
	t.Helper()
	submission, err := wire.SubmitTasks(req, time.Now(), "")
	if err != nil {
		return err
	}
	taken := make([]engine.NewTaskResult, len(submission.Tasks))
	for i := range taken {
		taken[i].Code = dispatch.SubmitCreated
	}
	for i, result := range submission.Response(taken).GetResults() {
		wantAnswered(t, req.GetItems()[i], result.GetCode() == pb.SubmitCode_SUBMIT_CODE_INVALID, result.GetMessage())
	}
	return nil
}

// wantSpec checks a spec as a source gets it, and that one that is accepted comes back within its bounds.
func wantSpec(t *testing.T, id string, spec *dispatch.SourceSpec) error {
	t.Helper()
	spec.FillDefaults()
	if err := spec.Validate(); err != nil {
		return wire.AboutSpec(err, id)
	}
	wantBounded(t, wire.Source(&operate.SourceView{Source: dispatch.Source{ID: id, Spec: *spec}}).GetSpec().ProtoReflect())
	return nil
}

// kept is the spec of the source that a request changes.
func kept() dispatch.SourceSpec {
	spec := dispatch.SourceSpec{
		Seeds: []dispatch.Seed{{URL: "https://example.com/"}}, Schedule: dispatch.Schedule{Cron: "0 6 * * *", TimeZone: "Europe/Berlin"},
		Labels: map[string]string{"a": "b"},
	}
	spec.FillDefaults()
	return spec
}

func readUpdate(t *testing.T, req *pb.UpdateSourceRequest) error {
	t.Helper()
	change, err := wire.UpdateSource(req)
	if err != nil {
		return err
	}
	spec := kept()
	if err := change(&spec); err != nil {
		return wire.AboutSpec(err, req.GetSpec().GetId())
	}
	return wantSpec(t, req.GetSpec().GetId(), &spec)
}

func readApplication(t *testing.T, req *pb.ApplySourcesRequest) error {
	t.Helper()
	application, err := wire.ApplySources(req)
	if err != nil {
		return err
	}
	taken := make([]operate.SpecResult, len(application.Specs))
	for i := range taken {
		named, before := &application.Specs[i], kept()
		after := named.Spec
		if named.Over != nil {
			after = before
			taken[i].Err = named.Over(&after)
		}
		if taken[i].Err == nil {
			taken[i].Err = wantSpec(t, named.ID, &after)
		}
		taken[i].Code, taken[i].Before, taken[i].After = operate.SpecUpdated, &before, &after
	}
	for i, result := range application.Response(taken, make([][]string, len(taken))).GetResults() {
		message := strings.TrimPrefix(result.GetMessage(), "spec.")
		wantAnswered(t, req.GetSpecs()[i], result.GetCode() == pb.ApplyCode_APPLY_CODE_INVALID, message)
	}
	return nil
}

// TestReaders_complete holds that the fuzz test knows every request of the API.
func TestReaders_complete(t *testing.T) {
	t.Parallel()
	var want, got []string
	for _, file := range []protoreflect.FileDescriptor{
		pb.File_waggle_v1_dispatch_service_proto, pb.File_waggle_v1_task_service_proto, pb.File_waggle_v1_source_service_proto,
		pb.File_waggle_v1_queue_service_proto, pb.File_waggle_v1_hold_service_proto, pb.File_waggle_v1_admin_service_proto,
	} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for k := range methods.Len() {
				if methods.Get(k).Name() == "Work" {
					continue // each of its calls is read as a request
				}
				want = append(want, string(methods.Get(k).Input().Name()))
			}
		}
	}
	for _, r := range readers() {
		got = append(got, string(r.kind.ProtoReflect().Descriptor().Name()))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("readers of %v\nwant those of %v", got, want)
	}
}

// FuzzRequests reads bytes as each request: no request is a panic; one that is refused gets INVALID_ARGUMENT with
// fields that it has; one that is accepted is within the bounds of its fields.
func FuzzRequests(f *testing.F) {
	all := readers()
	for i, r := range all {
		for _, seed := range seedsOf(r.kind) {
			raw, err := proto.Marshal(seed)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(i), raw)
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, raw []byte) {
		r := all[int(which)%len(all)]
		req := proto.Clone(r.kind)
		if proto.Unmarshal(raw, req) != nil {
			return // refused before, as TestServer_badInput_notUTF8 shows
		}
		err := r.read(t, req)
		if err == nil {
			wantBounded(t, req.ProtoReflect(), r.answered...)
			return
		}
		st, _ := wire.Status(nil, err, "")
		if st.Code() != codes.InvalidArgument {
			t.Fatalf("%v, %v, want INVALID_ARGUMENT", st.Code(), err)
		}
		for _, detail := range st.Details() {
			if bad, is := detail.(*errdetails.BadRequest); is {
				for _, violation := range bad.GetFieldViolations() {
					wantField(t, req, violation.GetField())
				}
			}
		}
	})
}

// samples are values of fields by their names; others of a kind get what sample has for it.
var samples = map[protoreflect.Name]string{
	"task_id": "17-aaaaaaaaaaaaaaaaaaaaaaaaaa", "task_ids": "17-aaaaaaaaaaaaaaaaaaaaaaaaaa", "lease_token": "c1/t-1/7",
	"queue": "a.example:81", "queues": "a.example:81", "pattern": "*.a.example", "allow_hosts": "*", "url": "https://a.example/?b=1",
	"page_token": "AAAA", "cron": "@daily", "time_zone": "Europe/Berlin", "include": "a+", "exclude": "b$", "etag": `"1-abcd"`,
}

// seedsOf are a request with all of its fields, and one with each alone.
func seedsOf(kind proto.Message) []proto.Message {
	all := kind.ProtoReflect().New()
	fields := all.Descriptor().Fields()
	seeds := []proto.Message{all.Interface()}
	for i := range fields.Len() {
		sample(all, fields.Get(i))
		alone := kind.ProtoReflect().New()
		sample(alone, fields.Get(i))
		seeds = append(seeds, alone.Interface())
	}
	return seeds
}

// sample sets a field, and all of those in it.
func sample(m protoreflect.Message, field protoreflect.FieldDescriptor) {
	switch {
	case field.IsMap():
		m.Mutable(field).Map().Set(protoreflect.ValueOfString("key").MapKey(), protoreflect.ValueOfString("value"))
	case field.IsList() && field.Message() != nil:
		fill(m.Mutable(field).List().AppendMutable().Message())
	case field.IsList():
		m.Mutable(field).List().Append(scalar(field))
	case field.Message() == nil:
		m.Set(field, scalar(field))
	default:
		switch part := m.Mutable(field).Message().Interface().(type) {
		case *durationpb.Duration:
			part.Seconds = 10
		case *fieldmaskpb.FieldMask:
			part.Paths = []string{"pool"}
		default:
			fill(part.ProtoReflect())
		}
	}
}

func fill(m protoreflect.Message) {
	for i := range m.Descriptor().Fields().Len() {
		sample(m, m.Descriptor().Fields().Get(i))
	}
}

func scalar(field protoreflect.FieldDescriptor) protoreflect.Value {
	text, known := samples[field.Name()]
	if !known {
		text = "a1"
	}
	switch field.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(text)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(text))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(0.5)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(0.5)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1)
	default:
		return protoreflect.ValueOfInt32(1)
	}
}
