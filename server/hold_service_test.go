package server_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

func (b *bed) hold(t *testing.T, req *pb.SetHoldsRequest) *pb.SetHoldsResponse {
	t.Helper()
	resp, err := b.holds.SetHolds(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func (b *bed) lift(t *testing.T, name string, targets ...*pb.HoldTarget) *pb.LiftHoldsResponse {
	t.Helper()
	resp, err := b.holds.LiftHolds(t.Context(), &pb.LiftHoldsRequest{Targets: targets, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// listHolds lists all pages.
func (b *bed) listHolds(t *testing.T, req *pb.ListHoldsRequest) (holds []*pb.Hold) {
	t.Helper()
	for {
		page, err := b.holds.ListHolds(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		holds = append(holds, page.GetHolds()...)
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return holds
		}
	}
}

// from asks for one task as a collector of the EU, without waiting.
func (b *bed) from(t *testing.T, collector string) *pb.FetchTaskResponse {
	t.Helper()
	resp, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{
		CollectorId: collector, Session: "s1", MaxTasks: 1, Labels: map[string]string{"region": "eu", "disk": "ssd"}, Wait: durationpb.New(0),
	})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// beat says that the collector c1 of the EU holds leases.
func beat(leases ...*pb.LeaseBeat) *pb.HeartbeatRequest {
	return &pb.HeartbeatRequest{
		Collector: &pb.CollectorInfo{Id: "c1", Session: "s1", Labels: map[string]string{"region": "eu", "disk": "ssd"}}, Leases: leases,
	}
}

// holdTargets are targets of each kind that stop c1 from getting tasks of www.example.com, with why the fetch is empty
// and which gate is closed.
var holdTargets = map[string]struct {
	target *pb.HoldTarget
	empty  pb.EmptyReason
	gate   pb.GateKind
}{
	"everything": {&pb.HoldTarget{Everything: true}, pb.EmptyReason_EMPTY_REASON_HELD, pb.GateKind_GATE_KIND_EVERYTHING_HELD},
	"pool":       {&pb.HoldTarget{Pool: "default"}, pb.EmptyReason_EMPTY_REASON_HELD, pb.GateKind_GATE_KIND_POOL_HELD},
	"source":     {&pb.HoldTarget{SourceId: "news"}, pb.EmptyReason_EMPTY_REASON_HELD, pb.GateKind_GATE_KIND_SOURCE_HELD},
	"queue":      {&pb.HoldTarget{Queue: "www.example.com"}, pb.EmptyReason_EMPTY_REASON_HELD, pb.GateKind_GATE_KIND_QUEUE_HELD},
	"pattern":    {&pb.HoldTarget{Queue: "*.com"}, pb.EmptyReason_EMPTY_REASON_HELD, pb.GateKind_GATE_KIND_QUEUE_HELD},
	"collector":  {&pb.HoldTarget{CollectorId: "c1"}, pb.EmptyReason_EMPTY_REASON_COLLECTOR_HELD, pb.GateKind_GATE_KIND_COLLECTOR_HELD},
	"labels": {
		&pb.HoldTarget{CollectorLabels: map[string]string{"region": "eu"}}, pb.EmptyReason_EMPTY_REASON_COLLECTOR_HELD,
		pb.GateKind_GATE_KIND_COLLECTOR_HELD,
	},
}

// Each target stops grants until its hold is lifted, and is told as the gate; what is in hand goes on.
func TestHoldService_stopGrants(t *testing.T) {
	t.Parallel()
	for name, c := range holdTargets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, server.Config{})
			b.source(t, "news")
			task := b.submit(t, "news", "https://www.example.com/a")[0]
			stream := open(t, b)
			exchange(t, stream, beat())
			until := timestamppb.New(time.Now().Add(time.Hour).Truncate(time.Millisecond))
			if name == "source" { // whose tasks count as due later else
				until = nil
			}
			set := b.hold(t, &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{c.target}, By: "ann", Reason: "new disks", Until: until})
			if set.GetMatched() != 1 || set.GetChanged() != 1 || len(set.GetHolds()) != 1 || len(set.GetReplaced()) != 0 || len(set.GetUnknown()) != 0 {
				t.Fatalf("set %v", set)
			}
			h := set.GetHolds()[0]
			if !proto.Equal(h.GetTarget(), c.target) || h.GetName() != "default" || h.GetEffect() != pb.HoldEffect_HOLD_EFFECT_STOP_GRANTS ||
				h.GetBy() != "ann" || h.GetReason() != "new disks" || h.GetCreateTime() == nil || !proto.Equal(h.GetUntil(), until) || h.GetEtag() == "" {
				t.Errorf("the hold is %v", h)
			}
			if got := b.from(t, "c1"); got.GetEmptyReason() != c.empty || got.GetRetryAfter().AsDuration() <= 0 {
				t.Errorf("fetched %v, want %v", got, c.empty)
			}
			why, err := b.admin.Explain(t.Context(), &pb.ExplainRequest{TaskId: task})
			if err != nil || len(why.GetGates()) != 1 || why.GetGates()[0].GetGate().GetKind() != c.gate || (why.GetOpensIn() == nil) != (until == nil) {
				t.Fatalf("explained %v, %v", why, err)
			}
			if got := why.GetGates()[0]; !proto.Equal(got.GetGate().GetHold(), h) || !strings.HasPrefix(got.GetOpenedBy(), "LiftHolds") {
				t.Errorf("its gate is %v, want that of %v", got, h)
			}
			if got := b.listHolds(t, &pb.ListHoldsRequest{}); len(got) != 1 || !proto.Equal(got[0], h) {
				t.Errorf("listed %v", got)
			}
			lifted := b.lift(t, "", c.target)
			if lifted.GetChanged() != 1 || len(lifted.GetLifted()) != 1 || !proto.Equal(lifted.GetLifted()[0], h) || len(lifted.GetRemaining()) != 0 {
				t.Errorf("lifted %v", lifted)
			}
			if got := b.from(t, "c1"); len(got.GetLeasedTasks()) != 1 {
				t.Errorf("once lifted: %v", got)
			}
			if again := b.lift(t, "", c.target); again.GetMatched() != 1 || again.GetChanged() != 0 {
				t.Errorf("lifted again: %v", again)
			}
		})
	}
}

// Each target ends work in hand, where that is asked for: its holder is told over its stream within a second, renewals
// prolong nothing, no attempt is spent, and the task goes to another collector once the hold is lifted.
func TestHoldService_endLeases(t *testing.T) {
	t.Parallel()
	for name, c := range holdTargets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, server.Config{})
			b.source(t, "news")
			b.submit(t, "news", "https://www.example.com/a")
			stream := open(t, b)
			exchange(t, stream, beat())
			leased := b.from(t, "c1").GetLeasedTasks()[0]
			exchange(t, stream, beat(held(leased)))
			set := &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{c.target}, Effect: pb.HoldEffect_HOLD_EFFECT_END_LEASES, ValidateOnly: true}
			if would := b.hold(t, set); would.GetEndedLeases() != 1 || would.GetChanged() != 1 {
				t.Errorf("it would end %v", would)
			}
			set.ValidateOnly = false
			began := time.Now()
			if did := b.hold(t, set); did.GetEndedLeases() != 1 || did.GetHolds()[0].GetEffect() != set.GetEffect() {
				t.Errorf("it ended %v", did)
			}
			wantCancel := func(status *pb.LeaseStatus) bool {
				n := status.GetCancel()
				return len(n) == 1 && n[0].GetTaskId() == leased.GetTask().GetId() && n[0].GetReason() == pb.CancelReason_CANCEL_REASON_HELD
			}
			for told := false; !told; { // held collectors are pushed that, too
				pushed, err := stream.Recv()
				if err != nil {
					t.Fatal(err)
				}
				told = wantCancel(pushed.GetStatus())
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("the holder was told after %v", took)
			}
			eventually(t, "the lease ends sooner than a renewal would have it", func() bool { // in a millisecond
				status := b.renew(t, leased)
				if !wantCancel(status) || len(status.GetLost()) != 0 {
					t.Fatalf("its renewal is answered %v", status)
				}
				return len(status.GetLimited()) == 1
			})
			report := succeeded(leased)
			report.Outcome.Result = &pb.Outcome_Failed{Failed: &pb.Failed{Reason: pb.FailureReason_FAILURE_REASON_PARSE}}
			if r := b.report(t, report); r.GetCode() != pb.ReportCode_REPORT_CODE_OK || r.GetState() != pb.TaskState_TASK_STATE_READY {
				t.Errorf("its report is answered %v", r)
			}
			b.lift(t, "", c.target)
			b.wantTask(t, "c2", leased.GetTask())
		})
	}
}

// wantTask waits until a collector is given a task, whose attempts are as they were.
func (b *bed) wantTask(t *testing.T, collector string, task *pb.Task) {
	t.Helper()
	resp, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{CollectorId: collector, Session: "s1", Wait: durationpb.New(10 * time.Second)})
	if err != nil || len(resp.GetLeasedTasks()) != 1 {
		t.Fatalf("fetched %v, %v", resp, err)
	}
	if got := resp.GetLeasedTasks()[0].GetTask(); got.GetId() != task.GetId() || got.GetAttempt() != task.GetAttempt() || got.GetFailures() != 0 {
		t.Errorf("fetched %v, want %v", got, task)
	}
}

// Holds of several names and targets all apply; lifting one leaves the others, and tells of them.
func TestHoldService_overlap(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.source(t, "news")
	b.submit(t, "news", "https://www.example.com/a")
	queue, pattern, all := &pb.HoldTarget{Queue: "www.example.com"}, &pb.HoldTarget{Queue: "*.example.com"}, &pb.HoldTarget{Everything: true}
	b.hold(t, &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{queue, pattern, all}})
	b.hold(t, &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{queue}, Name: "second"})
	wantHeld := func(after string) {
		t.Helper()
		if got := b.from(t, "c1"); got.GetEmptyReason() != pb.EmptyReason_EMPTY_REASON_HELD {
			t.Errorf("%s: fetched %v", after, got)
		}
	}
	wantHeld("all set")
	if got := b.lift(t, "", queue); got.GetChanged() != 1 || len(got.GetRemaining()) != 3 {
		t.Errorf("one of the queue lifted: %v; want three that remain", got)
	}
	wantHeld("one of the queue lifted")
	b.lift(t, "second", queue)
	b.lift(t, "", all)
	wantHeld("only the pattern left")
	if got := b.lift(t, "", queue, pattern); got.GetMatched() != 2 || got.GetChanged() != 1 || len(got.GetRemaining()) != 0 {
		t.Errorf("the last one lifted: %v", got)
	}
	if got := b.from(t, "c1"); len(got.GetLeasedTasks()) != 1 {
		t.Errorf("none left: fetched %v", got)
	}
}

// A hold that says something else is replaced on purpose only, and none of a call is set that would do so by accident.
func TestHoldService_replace(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	for name, target := range map[string]*pb.HoldTarget{"pool": {Pool: "eu"}, "source": {SourceId: "news"}} {
		t.Run(name, func(t *testing.T) {
			text := strings.ReplaceAll(name+" eu", "source eu", "source news")
			first := b.hold(t, &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{target}, Name: "law", By: "ann", Reason: "by order"}).GetHolds()[0]
			same := &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{target}, Name: "law", By: "ann", Reason: "by order"}
			if got := b.hold(t, same); got.GetMatched() != 1 || got.GetChanged() != 0 || len(got.GetHolds()) != 0 || len(got.GetReplaced()) != 0 {
				t.Errorf("in the same words: %v", got)
			}
			other := &pb.SetHoldsRequest{
				Targets: []*pb.HoldTarget{{Queue: name + ".example"}, target}, Name: "law", By: "bob", Until: timestamppb.New(time.Now().Add(time.Hour)),
			}
			_, err := b.holds.SetHolds(t.Context(), other)
			f := wantFault(t, err, codes.FailedPrecondition, "HOLD_EXISTS")
			want := map[string]string{
				"target": text, "name": "law", "by": "ann", "reason": "by order", "since": first.GetCreateTime().AsTime().Format(time.RFC3339),
			}
			if !maps.Equal(f.metadata, want) {
				t.Errorf("metadata %v, want %v", f.metadata, want)
			}
			if got := b.listHolds(t, &pb.ListHoldsRequest{Filter: &pb.Filter{Queue: name + ".example"}}); len(got) != 0 {
				t.Errorf("a call that was refused has set %v", got)
			}
			other.Targets = other.Targets[1:]
			other.Etag = "0000"
			_, err = b.holds.SetHolds(t.Context(), other)
			f = wantFault(t, err, codes.Aborted, "ETAG_MISMATCH")
			if want = map[string]string{"target": text, "name": "law", "etag": first.GetEtag()}; !maps.Equal(f.metadata, want) {
				t.Errorf("metadata %v, want %v", f.metadata, want)
			}
			other.Etag = first.GetEtag()
			got := b.hold(t, other)
			if got.GetChanged() != 1 || len(got.GetReplaced()) != 1 || !proto.Equal(got.GetReplaced()[0], first) || got.GetHolds()[0].GetEtag() == first.GetEtag() {
				t.Errorf("with its etag: %v", got)
			}
			_, err = b.holds.SetHolds(t.Context(), same)
			if f := wantFault(t, err, codes.FailedPrecondition, "HOLD_EXISTS"); f.metadata["until"] == "" || f.metadata["reason"] != "" {
				t.Errorf("metadata %v", f.metadata)
			}
			same.Replace = true
			if got := b.hold(t, same); got.GetChanged() != 1 || got.GetReplaced()[0].GetBy() != "bob" {
				t.Errorf("replaced: %v", got)
			}
			_, err = b.holds.SetHolds(t.Context(), &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{target}, Name: "new", Etag: first.GetEtag()})
			if f := wantFault(t, err, codes.Aborted, "ETAG_MISMATCH"); f.metadata["etag"] != "" {
				t.Errorf("metadata %v of a hold that does not stand", f.metadata)
			}
		})
	}
}

// What only validates changes nothing, and who sets a hold without a name of theirs is put down by their address, which
// is the same for each of their connections.
func TestHoldService_validateOnly(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.source(t, "news")
	targets := []*pb.HoldTarget{{Pool: "mispelt"}, {SourceId: "news"}, {SourceId: "none"}, {Queue: "none.example"}, {CollectorId: "none"}}
	set := &pb.SetHoldsRequest{Targets: targets, ValidateOnly: true}
	for _, only := range []bool{true, false} {
		set.ValidateOnly = only
		got := b.hold(t, set)
		if got.GetMatched() != 5 || got.GetChanged() != 5 || len(got.GetHolds()) != 5 || got.GetHolds()[0].GetBy() == "" || len(got.GetUnknown()) != 4 {
			t.Errorf("set %v", got)
		}
		if n := len(b.listHolds(t, &pb.ListHoldsRequest{})); (n == 0) != only {
			t.Errorf("%d holds stand, validate_only %v", n, only)
		}
	}
	for _, only := range []bool{true, false} {
		got, err := b.holds.LiftHolds(t.Context(), &pb.LiftHoldsRequest{Targets: targets, ValidateOnly: only})
		if err != nil || got.GetMatched() != 5 || got.GetChanged() != 5 || len(got.GetLifted()) != 5 || len(got.GetRemaining()) != 0 {
			t.Errorf("lifted %v, %v", got, err)
		}
		if n := len(b.listHolds(t, &pb.ListHoldsRequest{})); (n != 0) != only {
			t.Errorf("%d holds stand, validate_only %v", n, only)
		}
	}
}

// A filter holds the sources that match, a thousand a call.
func TestHoldService_filter(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	const n = 1200
	for from := 0; from < n; from += 400 {
		req := &pb.ApplySourcesRequest{}
		for i := range 400 {
			req.Specs = append(req.Specs, &pb.SourceSpec{Id: fmt.Sprintf("news.%04d", from+i), Pool: "eu"})
		}
		if _, err := b.sources.ApplySources(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	b.source(t, "other")
	set := &pb.SetHoldsRequest{Filter: &pb.Filter{SourceIdPrefix: "news.", Pool: "eu"}, By: "ann"}
	lift := &pb.LiftHoldsRequest{Filter: &pb.Filter{SourceIdPrefix: "news."}}
	for _, want := range []int32{1000, 200} {
		got := b.hold(t, set)
		if got.GetMatched() != want || got.GetChanged() != want || len(got.GetHolds()) != 20 || (got.GetNextPageToken() == "") != (want == 200) {
			t.Fatalf("set %v", got)
		}
		set.PageToken = got.GetNextPageToken()
	}
	if held := b.listHolds(t, &pb.ListHoldsRequest{PageSize: 500}); len(held) != n || held[n-1].GetTarget().GetSourceId() != "news.1199" {
		t.Errorf("%d holds are listed, want %d", len(held), n)
	}
	one := &pb.Filter{SourceId: "news.0007"}
	if got := b.hold(t, &pb.SetHoldsRequest{Filter: one, Name: "second"}); got.GetMatched() != 1 || got.GetHolds()[0].GetTarget().GetSourceId() != "news.0007" {
		t.Errorf("set by an id %v", got)
	}
	if got := b.listHolds(t, &pb.ListHoldsRequest{Filter: one}); len(got) != 2 || got[0].GetName() != "default" || got[1].GetName() != "second" {
		t.Errorf("holds on one source %v", got)
	}
	for _, want := range []int32{1000, 200} {
		got, err := b.holds.LiftHolds(t.Context(), lift)
		if err != nil || got.GetMatched() != want || got.GetChanged() != want || (len(got.GetRemaining()) == 1) != (want == 1000) {
			t.Fatalf("lifted %v, %v", got, err)
		}
		lift.PageToken = got.GetNextPageToken()
	}
}

// A parked fetch is answered, and its collector told over its stream, when a hold comes and when it goes.
func TestHoldService_heldCollector(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	ctx := t.Context()
	eu := &pb.HoldTarget{CollectorLabels: map[string]string{"region": "eu"}}
	stream := open(t, b)
	if exchange(t, stream, beat()).GetStatus().GetHeld() {
		t.Error("held before anybody said so")
	}
	type answer struct {
		resp *pb.FetchTaskResponse
		err  error
	}
	parked := make(chan answer, 1)
	go func() {
		resp, err := b.dispatch.FetchTask(ctx, &pb.FetchTaskRequest{
			CollectorId: "c1", Session: "s1", Labels: map[string]string{"region": "eu"}, Wait: durationpb.New(30 * time.Second),
		})
		parked <- answer{resp, err}
	}()
	eventually(t, "the fetch is parked", func() bool {
		stats, err := b.admin.GetStats(ctx, &pb.GetStatsRequest{})
		return err == nil && stats.GetDispatcher().GetParkedFetches() == 1
	})
	set := b.hold(t, &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{eu}, By: "ann"})
	if got := <-parked; got.err != nil || got.resp.GetEmptyReason() != pb.EmptyReason_EMPTY_REASON_COLLECTOR_HELD || got.resp.GetRetryAfter().AsDuration() <= 0 {
		t.Errorf("the parked fetch was answered %v, %v", got.resp, got.err)
	}
	wantPushed := func(held bool) {
		t.Helper()
		if pushed, err := stream.Recv(); err != nil || pushed.GetStatus().GetHeld() != held || pushed.GetStatus().GetNextHeartbeat() != nil {
			t.Errorf("pushed %v, %v; want held %v, and no next heartbeat", pushed, err, held)
		}
	}
	wantPushed(true)
	if got := exchange(t, stream, beat()).GetStatus(); !got.GetHeld() || got.GetNextHeartbeat().AsDuration() > 5*time.Second {
		t.Errorf("the beat was answered %v", got)
	}
	stats, err := b.admin.GetStats(ctx, &pb.GetStatsRequest{})
	if err != nil || stats.GetHolds() != 1 || stats.GetStore().GetFull() {
		t.Errorf("stats %v, %v", stats, err)
	}
	list := func(state pb.CollectorState) []*pb.Collector {
		resp, err := b.admin.ListCollectors(ctx, &pb.ListCollectorsRequest{States: []pb.CollectorState{state}})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetCollectors()
	}
	if got := list(pb.CollectorState_COLLECTOR_STATE_HELD); len(got) != 1 || len(got[0].GetHolds()) != 1 || !proto.Equal(got[0].GetHolds()[0], set.GetHolds()[0]) {
		t.Errorf("held collectors %v", got)
	}
	if got := b.lift(t, "", &pb.HoldTarget{CollectorId: "c1"}); got.GetChanged() != 0 || len(got.GetRemaining()) != 1 || !proto.Equal(got.GetRemaining()[0].GetTarget(), eu) {
		t.Errorf("lifted by the id %v; it is held by its label", got)
	}
	b.lift(t, "", eu)
	wantPushed(false)
	if got := list(pb.CollectorState_COLLECTOR_STATE_ACTIVE); len(got) != 1 || len(got[0].GetHolds()) != 0 {
		t.Errorf("active collectors %v", got)
	}
	if exchange(t, stream, &pb.HeartbeatRequest{Collector: &pb.CollectorInfo{Id: "c1", Session: "s1", Stopping: true}}).GetStatus().GetHeld() {
		t.Error("told that it is held after the hold was lifted")
	}
	if got := list(pb.CollectorState_COLLECTOR_STATE_STOPPING); len(got) != 1 || !got[0].GetInfo().GetStopping() {
		t.Errorf("stopping collectors %v", got)
	}
}

// A hold on a source stands on its id: it is shown with the source, and survives that it is deleted and created again.
func TestHoldService_source(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	news := &pb.HoldTarget{SourceId: "news"}
	b.hold(t, &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{news}, Name: "early"})
	status := func() *pb.SourceStatus {
		t.Helper()
		got, err := b.sources.GetSource(t.Context(), &pb.GetSourceRequest{Id: "news"})
		if err != nil {
			t.Fatal(err)
		}
		return got.GetSource().GetStatus()
	}
	b.source(t, "news")
	if got := status(); len(got.GetHolds()) != 1 || got.GetHolds()[0].GetName() != "early" || got.GetHealth() != pb.SourceHealth_SOURCE_HEALTH_HELD {
		t.Errorf("created under a hold: %v", got)
	}
	b.hold(t, &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{news}})
	if _, err := b.sources.DeleteSources(t.Context(), &pb.DeleteSourcesRequest{Ids: []string{"news"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is created again", func() bool {
		_, err := b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: &pb.SourceSpec{Id: "news"}})
		return err == nil
	})
	if got := status(); len(got.GetHolds()) != 2 {
		t.Errorf("created again: %v", got)
	}
	b.lift(t, "", news)
	b.lift(t, "early", news)
	if got := status(); len(got.GetHolds()) != 0 || got.GetHealth() != pb.SourceHealth_SOURCE_HEALTH_OK {
		t.Errorf("lifted: %v", got)
	}
	for i := range bounds.MaxSourceHolds {
		b.hold(t, &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{news}, Name: fmt.Sprint(i)})
	}
	_, err := b.holds.SetHolds(t.Context(), &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{news}, Name: "more"})
	if f := wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD"); !strings.Contains(f.message, "16") {
		t.Errorf("one too many is refused by %q", f.message)
	}
}

// ListHolds lists every hold, and with blocks what Waggle has blocked; LiftHolds opens that.
func TestHoldService_ListHolds(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	leased := b.leased(t)
	report := succeeded(leased)
	report.Outcome.Result = &pb.Outcome_Failed{Failed: &pb.Failed{
		Reason: pb.FailureReason_FAILURE_REASON_THROTTLED, HttpStatus: 503, Message: "down for repairs",
	}}
	b.report(t, report)
	exchange(t, open(t, b), beat())
	targets := []*pb.HoldTarget{
		{Everything: true},
		{Pool: "eu"},
		{Pool: "us"},
		{SourceId: "news"},
		{SourceId: "news.2"},
		{Queue: "a.example"},
		{Queue: "*.example"},
		{Queue: "*.b.example"},
		{Queue: "other"},
		{CollectorId: "c1"},
		{CollectorId: "c2"},
		{CollectorLabels: map[string]string{"region": "eu"}},
		{CollectorLabels: map[string]string{"region": "us"}},
	}
	b.hold(t, &pb.SetHoldsRequest{Targets: targets})
	text := func(target *pb.HoldTarget) string {
		return fmt.Sprintf("%v %s%s%s%s%v", target.GetEverything(), target.GetPool(), target.GetSourceId(), target.GetQueue(), target.GetCollectorId(), target.GetCollectorLabels()["region"])
	}
	for name, c := range map[string]struct {
		req  *pb.ListHoldsRequest
		want []string
	}{
		"all, page by page": {&pb.ListHoldsRequest{PageSize: 1}, []string{
			"false *.b.example", "false *.example", "false a.example", "false c1", "false c2", "false eu", "false eu", "false news", "false news.2",
			"false other", "false us", "false us", "true ",
		}},
		"a pool":                {&pb.ListHoldsRequest{Filter: &pb.Filter{Pool: "eu"}}, []string{"false eu", "true "}},
		"a source":              {&pb.ListHoldsRequest{Filter: &pb.Filter{SourceId: "news"}}, []string{"false news", "true "}},
		"sources":               {&pb.ListHoldsRequest{Filter: &pb.Filter{SourceIdPrefix: "news"}}, []string{"false news", "false news.2", "true "}},
		"a queue":               {&pb.ListHoldsRequest{Filter: &pb.Filter{Queue: "a.example"}}, []string{"false *.example", "false a.example", "true "}},
		"a queue never seen":    {&pb.ListHoldsRequest{Filter: &pb.Filter{Queue: "x.b.example"}}, []string{"false *.b.example", "false *.example", "true "}},
		"queues and patterns":   {&pb.ListHoldsRequest{Filter: &pb.Filter{QueueSuffix: "example"}}, []string{"false *.b.example", "false *.example", "false a.example", "true "}},
		"a collector":           {&pb.ListHoldsRequest{Filter: &pb.Filter{CollectorId: "c1"}}, []string{"false c1", "false eu", "true "}},
		"blocks of a queue":     {&pb.ListHoldsRequest{Filter: &pb.Filter{Queue: "example.com"}, Blocks: true}, []string{"false example.com", "true "}},
		"blocks, page by page":  {&pb.ListHoldsRequest{Filter: &pb.Filter{QueueSuffix: "com"}, Blocks: true, PageSize: 1}, []string{"false example.com", "true "}},
		"a source and a pool":   {&pb.ListHoldsRequest{Filter: &pb.Filter{SourceId: "news", Pool: "eu"}, Blocks: true}, []string{"true "}},
		"a pool and a queue":    {&pb.ListHoldsRequest{Filter: &pb.Filter{Pool: "eu", Queue: "example.com"}, Blocks: true}, []string{"true "}},
		"a queue and a source":  {&pb.ListHoldsRequest{Filter: &pb.Filter{Queue: "example.com", SourceIdPrefix: "n"}, Blocks: true}, []string{"true "}},
		"a source and a prefix": {&pb.ListHoldsRequest{Filter: &pb.Filter{SourceId: "news.2", SourceIdPrefix: "news."}}, []string{"false news.2", "true "}},
		"another prefix":        {&pb.ListHoldsRequest{Filter: &pb.Filter{SourceId: "news", SourceIdPrefix: "news."}}, []string{"true "}},
		"a queue and a suffix":  {&pb.ListHoldsRequest{Filter: &pb.Filter{Queue: "a.b.example", QueueSuffix: "b.example"}}, []string{"false *.b.example", "true "}},
		"a block and a suffix":  {&pb.ListHoldsRequest{Filter: &pb.Filter{Queue: "example.com", QueueSuffix: "org"}, Blocks: true}, []string{"true "}},
		"a collector and pool":  {&pb.ListHoldsRequest{Filter: &pb.Filter{CollectorId: "c1", Pool: "eu"}}, []string{"true "}},
		"blocks of other hosts": {&pb.ListHoldsRequest{Filter: &pb.Filter{QueueSuffix: "org"}, Blocks: true}, []string{"true "}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, h := range b.listHolds(t, c.req) {
				got = append(got, text(h.GetTarget()))
			}
			if slices.Sort(got); !slices.Equal(got, c.want) {
				t.Errorf("listed %q, want %q", got, c.want)
			}
		})
	}
	whole := b.listHolds(t, &pb.ListHoldsRequest{Blocks: true})
	if len(whole) != len(targets)+1 {
		t.Fatalf("listed %d holds, want %d and a block", len(whole), len(targets))
	}
	block := whole[len(whole)-1]
	if block.GetName() != "waggle" || block.GetBy() != "waggle" || block.GetTarget().GetQueue() != "example.com" || block.GetEtag() != "" ||
		block.GetUntil() == nil || block.GetCreateTime() == nil || !strings.Contains(block.GetReason(), "down for repairs") {
		t.Errorf("the block is %v", block)
	}
	opened := b.lift(t, "waggle", &pb.HoldTarget{Queue: "example.com"})
	if opened.GetChanged() != 1 || len(opened.GetLifted()) != 1 || opened.GetLifted()[0].GetName() != "waggle" || len(opened.GetRemaining()) != 1 {
		t.Errorf("the block is opened: %v; want the hold on everything to remain", opened)
	}
	if got := b.listHolds(t, &pb.ListHoldsRequest{Filter: &pb.Filter{Queue: "example.com"}, Blocks: true}); len(got) != 1 {
		t.Errorf("still listed: %v", got)
	}
	if again := b.lift(t, "waggle", &pb.HoldTarget{Queue: "example.com"}); again.GetChanged() != 0 {
		t.Errorf("opened again: %v", again)
	}
}

// One hold more than the limit is refused, also by a call that only validates; one in the place of another is not.
func TestHoldService_tooMany(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	var change dispatch.HoldChange
	for i := range bounds.MaxHolds {
		change.Set = append(change.Set, dispatch.Hold{
			Target: dispatch.HoldTarget{Collector: fmt.Sprintf("c%05d", i)}, Name: dispatch.HoldDefault, By: "ann", Created: time.UnixMilli(1),
		})
	}
	if _, err := b.store.PutHolds(t.Context(), change, 0); err != nil {
		t.Fatal(err)
	}
	for _, only := range []bool{true, false} {
		_, err := b.holds.SetHolds(t.Context(), &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{{Pool: "eu"}}, ValidateOnly: only})
		if f := wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD"); f.metadata["field"] != "targets" || !strings.Contains(f.message, "10000") {
			t.Errorf("one too many is refused by %q, %v", f.message, f.metadata)
		}
	}
	b.hold(t, &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{{CollectorId: "c00007"}}, Reason: "again", Replace: true})
	if n := len(b.listHolds(t, &pb.ListHoldsRequest{PageSize: 1000})); n != bounds.MaxHolds {
		t.Errorf("%d holds are listed, want %d", n, bounds.MaxHolds)
	}
}

func badHolds() []badRequest {
	set := func(name, field string, req *pb.SetHoldsRequest) badRequest {
		return badRequest{"set holds: " + name, field, func(ctx context.Context, b *bed) error { _, err := b.holds.SetHolds(ctx, req); return err }}
	}
	lift := func(name, field string, req *pb.LiftHoldsRequest) badRequest {
		return badRequest{"lift holds: " + name, field, func(ctx context.Context, b *bed) error { _, err := b.holds.LiftHolds(ctx, req); return err }}
	}
	list := func(name, field string, req *pb.ListHoldsRequest) badRequest {
		return badRequest{"list holds: " + name, field, func(ctx context.Context, b *bed) error { _, err := b.holds.ListHolds(ctx, req); return err }}
	}
	on := func(target *pb.HoldTarget) *pb.SetHoldsRequest {
		return &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{target}}
	}
	many, pools := make(map[string]string), make([]*pb.HoldTarget, 1001)
	for i := range 17 {
		many[fmt.Sprint(i)] = "x"
	}
	for i := range pools {
		pools[i] = &pb.HoldTarget{Pool: fmt.Sprint(i)}
	}
	pool := pools[:1]
	return []badRequest{
		set("neither", "targets", &pb.SetHoldsRequest{}),
		set("both", "filter", &pb.SetHoldsRequest{Targets: pool, Filter: &pb.Filter{All: true}}),
		set("too many", "targets", &pb.SetHoldsRequest{Targets: pools}),
		set("twice", "targets[2]", &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{pools[0], pools[1], {Pool: "0"}}}),
		set("no target", "targets[0]", on(&pb.HoldTarget{})),
		set("two targets in one", "targets[0]", on(&pb.HoldTarget{Everything: true, Pool: "eu"})),
		set("pool", "targets[0].pool", on(&pb.HoldTarget{Pool: "EU"})),
		set("source", "targets[0].source_id", on(&pb.HoldTarget{SourceId: strings.Repeat("s", 129)})),
		set("queue in upper case", "targets[0].queue", on(&pb.HoldTarget{Queue: "Example.com"})),
		set("every queue", "targets[0].queue", on(&pb.HoldTarget{Queue: "*"})),
		set("half a pattern", "targets[0].queue", on(&pb.HoldTarget{Queue: "a*.com"})),
		set("long pattern", "targets[0].queue", on(&pb.HoldTarget{Queue: "*." + strings.Repeat("q", 260)})),
		set("collector", "targets[0].collector_id", on(&pb.HoldTarget{CollectorId: "a b"})),
		set("labels", "targets[0].collector_labels", on(&pb.HoldTarget{CollectorLabels: many})),
		set("key", "targets[0].collector_labels.key", on(&pb.HoldTarget{CollectorLabels: map[string]string{"": "eu"}})),
		set("value", "targets[0].collector_labels[region]", on(&pb.HoldTarget{CollectorLabels: map[string]string{"region": strings.Repeat("e", 129)}})),
		set("name", "name", &pb.SetHoldsRequest{Targets: pool, Name: "A"}),
		set("long name", "name", &pb.SetHoldsRequest{Targets: pool, Name: strings.Repeat("n", 65)}),
		set("Waggle's name", "name", &pb.SetHoldsRequest{Targets: pool, Name: "waggle"}),
		set("effect", "effect", &pb.SetHoldsRequest{Targets: pool, Effect: 7}),
		set("far ahead", "until", &pb.SetHoldsRequest{Targets: pool, Until: timestamppb.New(time.Now().AddDate(11, 0, 0))}),
		set("passed", "until", &pb.SetHoldsRequest{Targets: pool, Until: timestamppb.New(time.Now().Add(-time.Hour))}),
		set("by", "by", &pb.SetHoldsRequest{Targets: pool, By: strings.Repeat("b", 129)}),
		set("reason", "reason", &pb.SetHoldsRequest{Targets: pool, Reason: strings.Repeat("r", 1025)}),
		set("etag and replace", "etag", &pb.SetHoldsRequest{Targets: pool, Etag: "a", Replace: true}),
		set("etag of two", "etag", &pb.SetHoldsRequest{Targets: pools[:2], Etag: "a"}),
		set("etag of a filter", "etag", &pb.SetHoldsRequest{Filter: &pb.Filter{All: true}, Etag: "a"}),
		set("token without a filter", "page_token", &pb.SetHoldsRequest{Targets: pool, PageToken: "x"}),
		set("empty filter", "filter.all", &pb.SetHoldsRequest{Filter: &pb.Filter{}}),
		set("all beside a condition", "filter.all", &pb.SetHoldsRequest{Filter: &pb.Filter{All: true, SourceId: "a"}}),
		set("filter by queue", "filter.queue", &pb.SetHoldsRequest{Filter: &pb.Filter{Pool: "eu", Queue: "a.com"}}),
		lift("neither", "targets", &pb.LiftHoldsRequest{}),
		lift("name", "name", &pb.LiftHoldsRequest{Targets: pool, Name: "a b"}),
		lift("block of a pool", "targets", &pb.LiftHoldsRequest{Targets: pool, Name: "waggle"}),
		lift("reason", "reason", &pb.LiftHoldsRequest{Targets: pool, Reason: strings.Repeat("r", 1025)}),
		list("page size", "page_size", &pb.ListHoldsRequest{PageSize: 1001}),
		list("labels", "filter.labels", &pb.ListHoldsRequest{Filter: &pb.Filter{Labels: map[string]string{"a": "b"}}}),
		list("suffix", "filter.queue_suffix", &pb.ListHoldsRequest{Filter: &pb.Filter{QueueSuffix: "*.a"}}),
	}
}
