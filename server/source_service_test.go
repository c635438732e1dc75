package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

func fullSpec() *pb.SourceSpec {
	priority, attempts, expirations, throttled, depth, outstanding := int32(0), int32(2), int32(3), int32(4), int32(0), int64(1000)
	return &pb.SourceSpec{
		Id: "news.full", DisplayName: "Full", Labels: map[string]string{"region": "eu"}, Scope: "shared",
		Seeds:      []*pb.Seed{{Url: "https://example.com/", Kind: "feed"}, {Key: "k", Queue: "api"}},
		Pool:       "browser",
		Schedule:   &pb.Schedule{Rule: &pb.Schedule_Cron{Cron: "0 6 * * *"}, TimeZone: "Europe/Berlin", Revisit: true, Jitter: durationpb.New(time.Minute)},
		FirstCrawl: pb.FirstCrawl_FIRST_CRAWL_SPREAD, Priority: &priority,
		LeaseDuration: durationpb.New(time.Minute), MaxHold: durationpb.New(time.Hour),
		Retry: &pb.RetryPolicy{
			MaxAttempts: &attempts, MaxExpirations: &expirations, MaxThrottled: &throttled,
			MinBackoff: durationpb.New(time.Second), MaxBackoff: durationpb.New(time.Minute),
		},
		Remember: durationpb.New(time.Hour), RevisitAfter: durationpb.New(2 * time.Hour),
		Follow: &pb.Follow{
			MaxDepth: &depth, AllowHosts: []string{"example.com"}, Include: []string{"/a/"}, Exclude: []string{"x$"},
		},
		CanonicalRules: 2, MaxOutstanding: &outstanding, Metadata: map[string]string{"a": "b"}, Payload: []byte("p"),
	}
}

// What is written of a source is what is read of it.
func TestSourceService_CreateSource(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	created, err := b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: fullSpec()})
	if err != nil {
		t.Fatal(err)
	}
	if got := created.GetSource(); !proto.Equal(got.GetSpec(), fullSpec()) || got.GetUid() == "" || got.GetEtag() == "" ||
		got.GetVersion() != 1 || got.GetSpec().GetCanonicalRules() != 2 || got.GetCreateTime() == nil {
		t.Errorf("created %v", got)
	}
	read, err := b.sources.GetSource(t.Context(), &pb.GetSourceRequest{Id: "news.full"})
	if err != nil || !proto.Equal(read.GetSource().GetSpec(), fullSpec()) {
		t.Errorf("read %v, %v", read, err)
	}
	t.Run("twice", func(t *testing.T) {
		_, err := b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: fullSpec()})
		f := wantFault(t, err, codes.AlreadyExists, "SOURCE_EXISTS")
		if f.metadata["source_id"] != "news.full" || f.message != `source exists: source_id "news.full"` {
			t.Errorf("%q, %v", f.message, f.metadata)
		}
	})
	t.Run("defaults", func(t *testing.T) {
		spec := b.source(t, "plain").GetSpec()
		if spec.GetPool() != "default" || spec.GetPriority() != 5 || spec.GetRetry().GetMaxAttempts() != 4 ||
			spec.GetLeaseDuration().AsDuration() != 30*time.Second || spec.GetRemember().AsDuration() != 30*24*time.Hour ||
			spec.Schedule != nil || spec.Follow != nil || spec.RevisitAfter != nil || spec.MaxOutstanding != nil {
			t.Errorf("spec %v", spec)
		}
	})
	t.Run("a backoff of zero is not the default", func(t *testing.T) {
		resp, err := b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: &pb.SourceSpec{
			Id: "eager", Retry: &pb.RetryPolicy{MinBackoff: durationpb.New(0)},
		}})
		if err != nil || resp.GetSource().GetSpec().GetRetry().GetMinBackoff().AsDuration() > time.Millisecond {
			t.Errorf("got %v, %v", resp, err)
		}
	})
}

// A seed is kept as it is fetched, escaped and without what stands around its URL: the
// same spec again changes nothing, as it was written and as it is kept.
func TestSourceService_seedIsEscaped(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	for i, want := range []pb.ApplyCode{pb.ApplyCode_APPLY_CODE_CREATED, pb.ApplyCode_APPLY_CODE_UNCHANGED, pb.ApplyCode_APPLY_CODE_UNCHANGED} {
		spec := &pb.SourceSpec{Id: "s", Seeds: []*pb.Seed{{Url: []string{" http://a.example/a b?c d\n", "\x0chttp:\\\\a.example/a%20b?c d", "http://a.example/a%20b?c%20d"}[i]}}}
		resp, err := b.sources.ApplySources(t.Context(), &pb.ApplySourcesRequest{Specs: []*pb.SourceSpec{spec}, KeepAbsent: i == 1})
		if err != nil || resp.GetResults()[0].GetCode() != want {
			t.Fatalf("apply %d: %v, %v, want %v", i, resp, err, want)
		}
	}
	got, err := b.sources.GetSource(t.Context(), &pb.GetSourceRequest{Id: "s"})
	if url := got.GetSource().GetSpec().GetSeeds()[0].GetUrl(); err != nil || url != "http://a.example/a%20b?c%20d" {
		t.Errorf("the seed is %q, %v", url, err)
	}
}

func TestSourceService_GetSource_notFound(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	_, err := b.sources.GetSource(t.Context(), &pb.GetSourceRequest{Id: "none"})
	wantFault(t, err, codes.NotFound, "SOURCE_NOT_FOUND")
	_, err = b.sources.UpdateSource(t.Context(), &pb.UpdateSourceRequest{Spec: &pb.SourceSpec{Id: "none"}})
	wantFault(t, err, codes.NotFound, "SOURCE_NOT_FOUND")
	_, err = b.tasks.ListTasks(t.Context(), &pb.ListTasksRequest{Filter: &pb.Filter{SourceId: "none"}})
	wantFault(t, err, codes.NotFound, "SOURCE_NOT_FOUND")
	_, err = b.tasks.GetTask(t.Context(), &pb.GetTaskRequest{SourceId: "none", Url: "http://a.com"})
	wantFault(t, err, codes.NotFound, "SOURCE_NOT_FOUND")
}

func TestSourceService_UpdateSource(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	created, err := b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: fullSpec()})
	if err != nil {
		t.Fatal(err)
	}
	etag := created.GetSource().GetEtag()
	update := func(spec *pb.SourceSpec, etag string, paths ...string) (*pb.Source, error) {
		spec.Id = "news.full"
		resp, err := b.sources.UpdateSource(t.Context(), &pb.UpdateSourceRequest{
			Spec: spec, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}, Etag: etag,
		})
		return resp.GetSource(), err
	}
	nine := int32(9)

	t.Run("without a change the version stays", func(t *testing.T) {
		got, err := update(fullSpec(), etag)
		if err != nil || got.GetVersion() != 1 || got.GetEtag() != etag {
			t.Fatalf("got %v, %v", got, err)
		}
	})
	t.Run("only what the mask names", func(t *testing.T) {
		got, err := update(&pb.SourceSpec{Pool: "eu", Priority: &nine, Retry: &pb.RetryPolicy{MaxAttempts: &nine}}, etag, "retry.max_attempts", "priority")
		if err != nil {
			t.Fatal(err)
		}
		want := fullSpec()
		want.Priority, want.Retry.MaxAttempts = &nine, &nine
		if !proto.Equal(got.GetSpec(), want) || got.GetVersion() != 2 {
			t.Errorf("got %v", got)
		}
	})
	t.Run("stale etag", func(t *testing.T) {
		_, err := update(&pb.SourceSpec{Pool: "eu"}, etag, "pool")
		f := wantFault(t, err, codes.Aborted, "ETAG_MISMATCH")
		if f.metadata["source_id"] != "news.full" || f.metadata["etag"] == etag {
			t.Errorf("metadata %v", f.metadata)
		}
		if got, err := update(&pb.SourceSpec{Pool: "eu"}, f.metadata["etag"], "pool"); err != nil || got.GetSpec().GetPool() != "eu" {
			t.Errorf("with the etag it told: %v, %v", got, err)
		}
	})
	t.Run("a named field that is not set goes back to its default", func(t *testing.T) {
		got, err := update(&pb.SourceSpec{}, "", "pool", "follow", "schedule.time_zone", "retry.min_backoff")
		if err != nil || got.GetSpec().GetPool() != "default" || got.GetSpec().GetFollow() != nil ||
			got.GetSpec().GetSchedule().GetTimeZone() != "" || got.GetSpec().GetSchedule().GetCron() == "" ||
			got.GetSpec().GetRetry().GetMinBackoff().AsDuration() != 10*time.Second {
			t.Errorf("got %v, %v", got, err)
		}
	})
	t.Run("without a mask what is set", func(t *testing.T) {
		before, err := update(fullSpec(), "", "*")
		if err != nil || !proto.Equal(before.GetSpec(), fullSpec()) {
			t.Fatalf("every field set: %v, %v", before, err)
		}
		got, err := update(&pb.SourceSpec{
			DisplayName: "Other", Retry: &pb.RetryPolicy{MaxAttempts: &nine}, Follow: &pb.Follow{Include: []string{"/b/", "/c/"}},
			Labels: map[string]string{"team": "a"}, Seeds: []*pb.Seed{{Url: "https://example.com/new"}}, Schedule: &pb.Schedule{Jitter: durationpb.New(2 * time.Minute)},
		}, "")
		want := fullSpec()
		want.DisplayName, want.Retry.MaxAttempts, want.Follow.Include = "Other", &nine, []string{"/b/", "/c/"}
		want.Labels, want.Seeds = map[string]string{"team": "a"}, []*pb.Seed{{Url: "https://example.com/new"}}
		want.Schedule.Jitter = durationpb.New(2 * time.Minute)
		if err != nil || !proto.Equal(got.GetSpec(), want) {
			t.Errorf("got %v, %v\nwant %v", got.GetSpec(), err, want)
		}
		if again, err := update(&pb.SourceSpec{}, ""); err != nil || again.GetEtag() != got.GetEtag() {
			t.Errorf("a spec that sets nothing: %v, %v", again, err)
		}
		// Another rule takes the place of the cron line and its time zone; a value of 0 that is set counts.
		none := int32(0)
		got, err = update(&pb.SourceSpec{Priority: &none, Schedule: &pb.Schedule{Rule: &pb.Schedule_Every{Every: durationpb.New(time.Hour)}}}, "")
		want.Priority = &none
		want.Schedule.Rule, want.Schedule.TimeZone = &pb.Schedule_Every{Every: durationpb.New(time.Hour)}, ""
		if err != nil || !proto.Equal(got.GetSpec(), want) {
			t.Errorf("got %v, %v\nwant %v", got.GetSpec(), err, want)
		}
	})
	t.Run("every field", func(t *testing.T) {
		got, err := update(&pb.SourceSpec{Pool: "eu", Scope: "shared"}, "", "*")
		if err != nil || got.GetSpec().GetPool() != "eu" || got.GetSpec().GetDisplayName() != "" || got.GetSpec().GetFollow() != nil ||
			len(got.GetSpec().GetSeeds()) != 0 || got.GetSpec().GetRetry().GetMaxAttempts() != 4 {
			t.Errorf("got %v, %v", got, err)
		}
		_, err = update(&pb.SourceSpec{Pool: "eu"}, "", "*", "pool")
		if f := wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD"); f.metadata["field"] != "update_mask" || f.metadata["value"] != "*" {
			t.Errorf("metadata %v", f.metadata)
		}
	})
	t.Run("etag of a source that was deleted", func(t *testing.T) {
		if _, err := b.sources.DeleteSources(t.Context(), &pb.DeleteSourcesRequest{Ids: []string{"news.full"}}); err != nil {
			t.Fatal(err)
		}
		var again *pb.CreateSourceResponse
		eventually(t, "the id is free", func() bool {
			var err error
			again, err = b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: fullSpec()})
			return err == nil
		})
		if again.GetSource().GetEtag() == etag {
			t.Fatal("two sources have one etag")
		}
		_, err := update(&pb.SourceSpec{Pool: "eu"}, etag, "pool")
		wantFault(t, err, codes.Aborted, "ETAG_MISMATCH")
	})
}

func TestSourceService_ListSources(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	for i := range 5 {
		b.source(t, fmt.Sprintf("news.%d", i))
	}
	b.source(t, "other")
	var got []string
	req := &pb.ListSourcesRequest{Filter: &pb.Filter{SourceIdPrefix: "news."}, PageSize: 2}
	for {
		resp, err := b.sources.ListSources(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range resp.GetSources() {
			got = append(got, s.GetId())
		}
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	if want := []string{"news.0", "news.1", "news.2", "news.3", "news.4"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSourceService_bulk(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	for i := range 3 {
		_, err := b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: &pb.SourceSpec{
			Id: fmt.Sprintf("news.%d", i), Labels: map[string]string{"i": fmt.Sprint(i)}, Seeds: []*pb.Seed{{Url: "https://example.com/"}},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	b.source(t, "other")
	ctx := t.Context()

	trigger := func(req *pb.TriggerSourcesRequest) *pb.TriggerSourcesResponse {
		t.Helper()
		resp, err := b.sources.TriggerSources(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	t.Run("validate_only names what would be changed", func(t *testing.T) {
		got := trigger(&pb.TriggerSourcesRequest{Ids: []string{"news.0", "none"}, ValidateOnly: true})
		if got.GetMatched() != 1 || !slices.Equal(got.GetMissingIds(), []string{"none"}) || len(got.GetSampleIds()) != int(got.GetChanged()) {
			t.Errorf("got %v", got)
		}
	})
	t.Run("ids, one of them twice", func(t *testing.T) {
		got := trigger(&pb.TriggerSourcesRequest{Ids: []string{"news.0", "none", "news.0"}})
		if got.GetMatched() != 1 || len(got.GetMissingIds()) != 1 || len(got.GetSampleIds()) != 0 {
			t.Errorf("got %v", got)
		}
	})
	t.Run("filter", func(t *testing.T) {
		got := trigger(&pb.TriggerSourcesRequest{Filter: &pb.Filter{SourceIdPrefix: "news."}})
		if got.GetMatched() != 3 || got.GetNextPageToken() != "" {
			t.Errorf("got %v", got)
		}
	})
	t.Run("filter by label and time", func(t *testing.T) {
		resp, err := b.sources.TriggerSources(ctx, &pb.TriggerSourcesRequest{Filter: &pb.Filter{
			Labels: map[string]string{"i": "1"}, CreateTimeBefore: timestamppb.New(time.Now().Add(time.Hour)),
		}, Revisit: true})
		if err != nil || resp.GetMatched() != 1 || resp.GetChanged() != 1 {
			t.Errorf("got %v, %v", resp, err)
		}
		resp, err = b.sources.TriggerSources(ctx, &pb.TriggerSourcesRequest{Filter: &pb.Filter{
			CreateTimeFrom: timestamppb.New(time.Now().Add(time.Hour)),
		}})
		if err != nil || resp.GetMatched() != 0 {
			t.Errorf("got %v, %v", resp, err)
		}
	})
	t.Run("all", func(t *testing.T) {
		resp, err := b.sources.DeleteSources(ctx, &pb.DeleteSourcesRequest{Filter: &pb.Filter{All: true}, By: "ann", Reason: "over"})
		if err != nil || resp.GetMatched() != 4 || resp.GetChanged() != 4 {
			t.Errorf("got %v, %v", resp, err)
		}
		if _, err := b.sources.GetSource(ctx, &pb.GetSourceRequest{Id: "other"}); err == nil {
			t.Error("a deleted source is shown")
		}
		eventually(t, "the log tells who deleted", func() bool {
			for _, line := range b.logs.FilterMessage("operator's call").All() {
				if fields := line.ContextMap(); fields["by"] == "ann" && fields["reason"] == "over" && fields["changed"] == int32(4) {
					return true
				}
			}
			return false
		})
	})
}

func TestSourceService_ApplySources(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.source(t, "same")
	apply := func(validateOnly bool, specs ...*pb.SourceSpec) []*pb.ApplyResult {
		t.Helper()
		resp, err := b.sources.ApplySources(t.Context(), &pb.ApplySourcesRequest{Specs: specs, ValidateOnly: validateOnly})
		if err != nil || len(resp.GetResults()) != len(specs) {
			t.Fatalf("%v, %v", resp, err)
		}
		return resp.GetResults()
	}
	specs := []*pb.SourceSpec{
		fullSpec(), {Id: "Bad Id"}, {Id: "same"}, {Id: "cron", Schedule: &pb.Schedule{Rule: &pb.Schedule_Cron{Cron: "nonsense"}}},
	}
	for _, validateOnly := range []bool{true, false} {
		results := apply(validateOnly, specs...)
		if results[0].GetCode() != pb.ApplyCode_APPLY_CODE_CREATED || results[0].GetSourceId() != "news.full" ||
			results[2].GetCode() != pb.ApplyCode_APPLY_CODE_UNCHANGED {
			t.Errorf("results %v", results)
		}
		for i, part := range map[int]string{1: `spec.id is "Bad Id"`, 3: `spec.schedule.cron is "nonsense"`} {
			if r := results[i]; r.GetCode() != pb.ApplyCode_APPLY_CODE_INVALID || !strings.Contains(r.GetMessage(), part) ||
				r.GetErrorReason() != pb.ErrorReason_ERROR_REASON_INVALID_FIELD {
				t.Errorf("%d: %v", i, r)
			}
		}
	}
	if r := apply(false, fullSpec())[0]; r.GetCode() != pb.ApplyCode_APPLY_CODE_UNCHANGED {
		t.Errorf("applied again: %v", r)
	}
	if r := apply(false, &pb.SourceSpec{Id: "news.full", Scope: "shared", Pool: "eu"})[0]; r.GetCode() != pb.ApplyCode_APPLY_CODE_UPDATED {
		t.Errorf("applied another: %v", r)
	}
	got, err := b.sources.GetSource(t.Context(), &pb.GetSourceRequest{Id: "news.full"})
	if spec := got.GetSource().GetSpec(); err != nil || spec.GetPool() != "eu" || spec.GetPriority() != 5 || len(spec.GetSeeds()) != 0 {
		t.Errorf("left %v, %v", got, err)
	}
	for _, n := range []int{0, 501} {
		_, err := b.sources.ApplySources(t.Context(), &pb.ApplySourcesRequest{Specs: make([]*pb.SourceSpec, n)})
		wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD")
	}
}

func TestSourceService_ListSources_wholeSpecs(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	if _, err := b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: fullSpec()}); err != nil {
		t.Fatal(err)
	}
	for _, whole := range []bool{false, true} {
		list, err := b.sources.ListSources(t.Context(), &pb.ListSourcesRequest{WholeSpecs: whole})
		if err != nil || len(list.GetSources()) != 1 || proto.Equal(list.GetSources()[0].GetSpec(), fullSpec()) != whole {
			t.Errorf("whole %v: %v, %v", whole, list, err)
		}
	}
}

// What holds listed sources is looked for where it is asked for.
func TestSourceService_ListSources_gates(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	if _, err := b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: fullSpec()}); err != nil {
		t.Fatal(err)
	}
	status := func(gates bool) *pb.SourceStatus {
		t.Helper()
		list, err := b.sources.ListSources(t.Context(), &pb.ListSourcesRequest{Gates: gates})
		if err != nil || len(list.GetSources()) != 1 {
			t.Fatalf("%v, %v", list, err)
		}
		return list.GetSources()[0].GetStatus()
	}
	if got := status(false).GetGates(); len(got) != 0 {
		t.Errorf("told without being asked: %v", got)
	}
	if got := status(true).GetGates(); len(got) != 1 || got[0].GetKind() != pb.GateKind_GATE_KIND_NO_COLLECTOR {
		t.Errorf("held by %v", got)
	}
	for i := range 201 {
		info := &pb.CollectorInfo{Id: fmt.Sprintf("c%d", i), Session: "s", Pools: []string{"other"}}
		if _, err := b.dispatch.RenewLease(t.Context(), &pb.RenewLeaseRequest{Collector: info}); err != nil {
			t.Fatal(err)
		}
	}
	if status(false).GetCollectorUnknown() || !status(true).GetCollectorUnknown() {
		t.Error("201 collectors: want it to be said that they were not all looked at, where that is asked for")
	}
}
