package server_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

func TestAdminService_DrainCollectors_refuses(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	many := map[string]string{}
	for i := range 17 {
		many[fmt.Sprint(i)] = "x"
	}
	for field, bad := range map[string]*pb.DrainCollectorsRequest{
		"collector_id":    {},
		"collector_id ":   {CollectorId: "A"},
		"collector_id  ":  {CollectorId: "a", Labels: map[string]string{"region": "eu"}},
		"labels ":         {Labels: many},
		"labels.key":      {Labels: map[string]string{"": "eu"}},
		"labels[region]":  {Labels: map[string]string{"region": strings.Repeat("e", 129)}},
		"labels[region] ": {Labels: map[string]string{"region": "e\x00u"}},
		"until":           {CollectorId: "a", Until: timestamppb.New(time.Now().Add(-time.Hour))},
		"until ":          {CollectorId: "a", Until: timestamppb.New(time.Now().Add(11 * 366 * 24 * time.Hour))},
		"by":              {CollectorId: "a", By: strings.Repeat("b", 129)},
		"reason":          {CollectorId: "a", Reason: strings.Repeat("b", 1025)},
	} {
		_, err := b.admin.DrainCollectors(t.Context(), bad)
		if f := wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD"); f.violations[0].GetField() != strings.TrimRight(field, " ") {
			t.Errorf("%v is refused for %v", bad, f.violations)
		}
	}
	for _, bad := range []*pb.ResumeCollectorsRequest{{}, {CollectorId: "A"}, {CollectorId: "a", Labels: map[string]string{"region": "eu"}}} {
		_, err := b.admin.ResumeCollectors(t.Context(), bad)
		wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD")
	}
	_, err := b.admin.ListDrains(t.Context(), &pb.ListDrainsRequest{PageSize: -1})
	wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD")
}

// TestAdminService_DrainCollectors_lookFails drains in an emergency: whom it meets cannot
// be told, but the drain holds.
func TestAdminService_DrainCollectors_lookFails(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.store.breakCall("ListCollectors", func() error { return dispatch.ErrStoreUnavailable })
	_, err := b.admin.DrainCollectors(t.Context(), &pb.DrainCollectorsRequest{Labels: map[string]string{"region": "eu"}})
	wantFault(t, err, codes.Unavailable, "STORE_UNAVAILABLE")
	b.store.breakCall("ListCollectors", nil)
	list, err := b.admin.ListDrains(t.Context(), &pb.ListDrainsRequest{})
	if err != nil || len(list.GetDrains()) != 1 {
		t.Errorf("%v, %v; want the drain to be kept", list.GetDrains(), err)
	}
}

// TestAdminService_DrainCollectors drains a region whose collector waits for a task:
// what it hears, and what operators see.
func TestAdminService_DrainCollectors(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	ctx := t.Context()
	eu := map[string]string{"region": "eu"}
	stream, err := b.dispatch.Heartbeat(ctx)
	if err != nil {
		t.Fatal(err)
	}
	beat := func() *pb.HeartbeatResponse {
		t.Helper()
		info := &pb.CollectorInfo{Id: "paris-1", Session: "s1", Labels: map[string]string{"region": "eu", "disk": "ssd"}}
		if err := stream.Send(&pb.HeartbeatRequest{Collector: info}); err != nil {
			t.Fatal(err)
		}
		answer, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	wantPushed := func(drain bool) {
		t.Helper()
		if pushed, err := stream.Recv(); err != nil || pushed.GetDrain() != drain || pushed.NextHeartbeat != nil {
			t.Errorf("pushed %v, %v; want drain %v, and no next heartbeat", pushed, err, drain)
		}
	}
	if beat().GetDrain() {
		t.Error("told to drain before anybody said so")
	}
	type answer struct {
		resp *pb.FetchTaskResponse
		err  error
	}
	parked := make(chan answer, 1)
	go func() {
		resp, err := b.dispatch.FetchTask(ctx, &pb.FetchTaskRequest{
			CollectorId: "paris-1", Session: "s1", Labels: map[string]string{"region": "eu", "disk": "ssd"}, Wait: durationpb.New(30 * time.Second),
		})
		parked <- answer{resp, err}
	}()
	eventually(t, "the fetch is parked", func() bool {
		stats, err := b.admin.GetStats(ctx, &pb.GetStatsRequest{})
		return err == nil && stats.GetDispatcher().GetParkedFetches() == 1
	})

	until := timestamppb.New(time.Now().Add(time.Hour).Truncate(time.Millisecond))
	would, err := b.admin.DrainCollectors(ctx, &pb.DrainCollectorsRequest{Labels: eu, By: "bob", ValidateOnly: true})
	if err != nil || would.GetMatched() != 1 || !slices.Equal(would.GetSampleIds(), []string{"paris-1"}) || would.GetDrain().GetGate().GetBy() != "bob" {
		t.Errorf("a drain that is only tried: %v, %v", would, err)
	}
	if beat().GetDrain() {
		t.Error("drained by a call that only validates")
	}
	drained, err := b.admin.DrainCollectors(ctx, &pb.DrainCollectorsRequest{Labels: eu, Until: until, By: "ann", Reason: "new disks"})
	if err != nil {
		t.Fatal(err)
	}
	wantDrained := func(what string, g *pb.Gate) {
		t.Helper()
		if g.GetKind() != pb.GateKind_GATE_KIND_COLLECTOR_DRAINED || g.GetBy() != "ann" || g.GetReason() != "new disks" ||
			g.GetTime() == nil || !g.GetUntil().AsTime().Equal(until.AsTime()) {
			t.Errorf("%s: %v", what, g)
		}
	}
	wantDrained("the answer", drained.GetDrain().GetGate())
	if got := <-parked; got.err != nil || got.resp.GetEmptyReason() != pb.EmptyReason_EMPTY_REASON_DRAINING || got.resp.GetRetryAfter().AsDuration() <= 0 {
		t.Errorf("the parked fetch was answered %v, %v", got.resp, got.err)
	}
	wantPushed(true)
	if got := beat(); !got.GetDrain() || got.GetNextHeartbeat().AsDuration() > 5*time.Second {
		t.Errorf("the beat was answered %v", got)
	}
	for want, labels := range []map[string]string{{"region": "us"}, {"region": "eu"}} {
		listed, err := b.admin.ListCollectors(ctx, &pb.ListCollectorsRequest{Labels: labels})
		if err != nil || len(listed.GetCollectors()) != want {
			t.Errorf("collectors with %v: %v, %v; want %d", labels, listed, err, want)
		}
	}
	listed, err := b.admin.ListCollectors(ctx, &pb.ListCollectorsRequest{States: []pb.CollectorState{pb.CollectorState_COLLECTOR_STATE_DRAINING}})
	if err != nil || len(listed.GetCollectors()) != 1 {
		t.Fatalf("draining collectors %v, %v", listed, err)
	}
	wantDrained("the list", listed.GetCollectors()[0].GetDrained())
	if got := listed.GetCollectors()[0].GetDrained(); !maps.Equal(got.GetDrainedLabels(), eu) || got.GetDrainedCollectorId() != "" {
		t.Errorf("it does not say whom it drains: %v", got)
	}
	why, err := b.admin.Explain(ctx, &pb.ExplainRequest{Pool: "default"})
	if err != nil || len(why.GetHolds()) != 1 || why.GetOpensIn() == nil || !strings.HasPrefix(why.GetHolds()[0].GetOpenedBy(), "ResumeCollectors") {
		t.Fatalf("explained %v, %v", why, err)
	}
	wantDrained("the gate of the pool", why.GetHolds()[0].GetGate())
	if got := why.GetHolds()[0].GetGate().GetDrainedLabels(); !maps.Equal(got, eu) {
		t.Errorf("the gate of the pool is of collectors with %v", got)
	}

	got, err := b.admin.ResumeCollectors(ctx, &pb.ResumeCollectorsRequest{CollectorId: "paris-1"})
	if err != nil || got.GetChanged() {
		t.Errorf("resumed by the id %v, %v; it was drained by its label", got, err)
	}
	wantDrained("what holds on", got.GetDrained())
	if got, err = b.admin.ResumeCollectors(ctx, &pb.ResumeCollectorsRequest{Labels: eu}); err != nil || !got.GetChanged() {
		t.Errorf("resumed %v, %v", got, err)
	}
	wantPushed(false)
	if got, err = b.admin.ResumeCollectors(ctx, &pb.ResumeCollectorsRequest{Labels: eu}); err != nil || got.GetChanged() {
		t.Errorf("resumed again %v, %v; want no change", got, err)
	}
	if beat().GetDrain() {
		t.Error("told to drain after the resume")
	}
}

// TestAdminService_ListDrains lists drains that hold nobody yet, and hears of one that
// is too many.
func TestAdminService_ListDrains(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	for i := range bounds.MaxHolds {
		drain := dispatch.Hold{Target: dispatch.HoldTarget{Collector: fmt.Sprintf("c%03d", i)}, Name: dispatch.HoldDefault, Gate: dispatch.Gate{By: "ann"}}
		if err := b.store.SetHold(t.Context(), drain); err != nil {
			t.Fatal(err)
		}
	}
	for _, try := range []bool{true, false} {
		more := &pb.DrainCollectorsRequest{Labels: map[string]string{"region": "eu", "disk": "ssd"}, ValidateOnly: try}
		_, err := b.admin.DrainCollectors(t.Context(), more)
		f := wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD")
		if v := f.violations[0]; v.GetField() != "labels" || !strings.Contains(v.GetDescription(), "1000") || !strings.Contains(f.message, "disk=ssd,region=eu") {
			t.Errorf("one too many is refused by %q, %v", f.message, f.violations)
		}
	}
	if _, err := b.admin.DrainCollectors(t.Context(), &pb.DrainCollectorsRequest{CollectorId: "c007", Reason: "again"}); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for token := ""; ; {
		page, err := b.admin.ListDrains(t.Context(), &pb.ListDrainsRequest{PageSize: 300, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, drain := range page.GetDrains() {
			if want := fmt.Sprintf("c%03d", seen); drain.GetCollectorId() != want || drain.GetGate().GetBy() == "" {
				t.Fatalf("drain %d is %v, want %s", seen, drain, want)
			}
			seen++
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if seen != bounds.MaxHolds {
		t.Errorf("%d drains listed, want %d", seen, bounds.MaxHolds)
	}
}
