package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/operate"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// shown reads every metric: the value of a counter or gauge under its name with
// labels, and of a histogram its count and sum.
func shown(t *testing.T, m *server.Metrics) map[string]float64 {
	t.Helper()
	families, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := family.GetName()
			for _, label := range metric.GetLabel() {
				name += fmt.Sprintf("{%s=%s}", label.GetName(), label.GetValue())
			}
			switch {
			case metric.GetCounter() != nil:
				values[name] = metric.GetCounter().GetValue()
			case metric.GetGauge() != nil:
				values[name] = metric.GetGauge().GetValue()
			case metric.GetHistogram() != nil:
				values[name+" count"] = float64(metric.GetHistogram().GetSampleCount())
				values[name+" sum"] = metric.GetHistogram().GetSampleSum()
			}
		}
	}
	return values
}

// timed is how often a method has ended with a status, among what is shown.
func timed(method string, code codes.Code) string {
	status := map[codes.Code]string{codes.OK: "OK", codes.Canceled: "CANCELLED"}[code]
	if status == "" {
		status = strings.ToUpper(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(code.String(), "${1}_$2"))
	}
	return fmt.Sprintf("rpc_server_call_duration_seconds{rpc_method=%s}{rpc_response_status_code=%s}{rpc_system_name=grpc} count", method, status)
}

// wantHandled wants the last call, of this method, to be counted and logged with the code
// that its caller got.
func (b *bed) wantHandled(t *testing.T, method string, code codes.Code) {
	t.Helper()
	_, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	counted := timed(strings.TrimPrefix(method, "/"), code)
	if n := shown(t, b.shown)[counted]; n != 1 {
		t.Errorf("%s is %v, want 1", counted, n)
	}
	lines := b.logs.FilterField(zap.String("grpc.method", name)).FilterField(zap.Stringer("grpc.code", code))
	if lines.Len() != 1 {
		t.Errorf("the log has %d lines about %s of %s, want 1", lines.Len(), code, name)
	}
}

// What loops tell is shown, under the names that the runbook has, and from the start with 0.
func TestMetrics(t *testing.T) {
	t.Parallel()
	m := server.NewMetrics()
	before := shown(t, m)
	m.Claimed(3, 2, 250*time.Millisecond, nil)
	m.Claimed(1, 0, 250*time.Millisecond, nil)
	m.Claimed(4, 0, 500*time.Millisecond, errors.New("away"))
	m.GaveBack(7)
	m.Requeued(125 * time.Millisecond)
	got := shown(t, m)
	for name, want := range map[string]float64{
		"waggle_claims_total{result=granted}": 1,
		"waggle_claims_total{result=empty}":   1,
		"waggle_claims_total{result=failed}":  1,
		"waggle_claim_seconds count":          3,
		"waggle_claim_seconds sum":            1,
		"waggle_claim_fetches count":          3,
		"waggle_claim_fetches sum":            8,
		"waggle_given_back_tasks_total":       7,
		"waggle_requeue_lag_seconds count":    1,
		"waggle_requeue_lag_seconds sum":      0.125,
	} {
		if value, ok := got[name]; !ok || value != want {
			t.Errorf("%s is %v (there: %t), want %v", name, value, ok, want)
		}
	}
	for _, name := range append(slices.Collect(maps.Keys(got)), "waggle_fetch_wait_seconds{granted=true} count", "waggle_fetch_wait_seconds{granted=false} count") {
		if value, ok := before[name]; strings.HasPrefix(name, "waggle_") && (!ok || value != 0) {
			t.Errorf("%s was %v at the start (there: %t), want 0", name, value, ok)
		}
	}
}

// Who owns the store is shown while there is an ownership: all of it from the start, with 0 too.
func TestMetrics_ShowOwnership(t *testing.T) {
	t.Parallel()
	m := server.NewMetrics()
	var of atomic.Pointer[dispatch.Ownership]
	m.ShowOwnership(func() (dispatch.Ownership, bool) {
		if o := of.Load(); o != nil {
			return *o, true
		}
		return dispatch.Ownership{}, false
	})
	all := map[string]float64{
		"waggle_owner":                      1,
		"waggle_owner_epoch":                7,
		"waggle_owner_shards_away":          2,
		"waggle_owner_changes_total":        3,
		"waggle_owner_standby{state=named}": 12,
		"waggle_owner_standby{state=none}":  13,

		"waggle_owner_takeovers_total{kind=forced}": 14,
		"waggle_owner_takeovers_total{kind=warm}":   15,
		"waggle_owner_takeovers_total{kind=loaded}": 16,

		"waggle_owner_self_fences_total":     4,
		"waggle_owner_lost_tasks_total":      5,
		"waggle_ownerless_seconds_total":     1.5,
		"waggle_store_groups_total":          600,
		"waggle_store_group_bytes_total":     7000,
		"waggle_store_group_seconds_total":   0.25,
		"waggle_store_groups_refused_total":  8,
		"waggle_store_load_seconds":          2.5,
		"waggle_store_load_items":            9000,
		"waggle_store_rewritten_items_total": 10,
		"waggle_store_deleted_items_total":   11,
	}
	want := func(when string, there bool, value func(name string) float64) {
		t.Helper()
		got := shown(t, m)
		for name := range all {
			if n, ok := got[name]; ok != there || there && n != value(name) {
				t.Errorf("%s %s is %v (there: %t), want %v", when, name, n, ok, value(name))
			}
		}
	}
	none := func(string) float64 { return 0 }
	want("without an owner", false, none)
	of.Store(&dispatch.Ownership{})
	want("at the start", true, none)
	of.Store(&dispatch.Ownership{
		Owner: "d1", Owning: true, Epoch: 7, Away: []int{3, 5}, Changes: 3, SelfFences: 4, LostTasks: 5, OwnerlessTotal: 1500 * time.Millisecond,
		Groups: 600, GroupBytes: 7000, GroupTime: 250 * time.Millisecond, Refused: 8, LoadTime: 2500 * time.Millisecond, LoadedItems: 9000,
		Rewritten: 10, Deleted: 11, WithStandby: 12, WithoutStandby: 13, Forced: 14, Warm: 15, Loaded: 16,
	})
	want("then", true, func(name string) float64 { return all[name] })
}

// Scrapes ask the store once in an interval, however many there are (T44).
func TestMetrics_scrapes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{StatsInterval: 5 * time.Second})
		var counts atomic.Int64
		b.store.breakCall("Stats", func() error { counts.Add(1); return nil })
		for range 3 {
			synctest.Wait()
			before := counts.Load() // the dispatcher counts it too, for findings
			for range 10 {
				if shown(t, b.shown)["waggle_store_up"] != 1 {
					t.Fatal("the store is shown as away")
				}
			}
			if n := counts.Load() - before; n != 1 {
				t.Errorf("the store was counted %d times in an interval", n)
			}
			time.Sleep(5 * time.Second) // virtual
		}
	})
}

// What a fetch waits is shown apart for those that got something, and what is
// parked and streams as it is.
func TestMetrics_fetches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{StatsInterval: time.Millisecond})
		b.leased(t)
		exchange(t, open(t, b), beatOf())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := b.dispatch.FetchTask(ctx, &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1", Wait: durationpb.New(20 * time.Second)})
			ended <- err
		}()
		time.Sleep(time.Second) // virtual
		got := shown(t, b.shown)
		for name, want := range map[string]float64{
			"waggle_fetch_wait_seconds{granted=true} count": 1,
			"waggle_fetched_tasks_total":                    1,
			"waggle_parked_fetches":                         1,
			"waggle_heartbeat_streams":                      1,
			"waggle_tasks{state=leased}":                    1,
			"waggle_draining":                               0,
		} {
			if value, ok := got[name]; !ok || value != want {
				t.Errorf("%s is %v (there: %t), want %v", name, value, ok, want)
			}
		}
		cancel()
		if err := <-ended; err == nil {
			t.Error("a fetch that was broken off was answered")
		}
	})
}

// Every call is timed once, by its method and how it ended, with the names that OpenTelemetry has for that. What nobody has called is
// not there.
func TestMetrics_calls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{})
		b.leased(t)
		if _, err := b.tasks.SubmitTasks(t.Context(), &pb.SubmitTasksRequest{}); err == nil {
			t.Error("a submit of nothing is taken")
		}
		stream := open(t, b)
		exchange(t, stream, beatOf())
		exchange(t, stream, beatOf())
		if err := stream.CloseSend(); err != nil {
			t.Error(err)
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		synctest.Wait()
		got := shown(t, b.shown)
		for _, want := range []struct {
			method string
			code   codes.Code
			value  float64 // 0: not there
		}{
			{"TaskService/SubmitTasks", codes.OK, 1},
			{"TaskService/SubmitTasks", codes.InvalidArgument, 1},
			{"TaskService/SubmitTasks", codes.Internal, 0},
			{"DispatchService/FetchTask", codes.OK, 1},
			{"DispatchService/Heartbeat", codes.OK, 1},
			{"TaskService/GetTask", codes.OK, 0},
		} {
			name := timed("waggle.v1."+want.method, want.code)
			if value, ok := got[name]; ok != (want.value > 0) || value != want.value {
				t.Errorf("%s is %v (there: %t), want %v", name, value, ok, want.value)
			}
		}
	})
}

// Each kind of finding has its number of things from the start, which follows the findings.
func TestMetrics_findings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, server.Config{})
		got := shown(t, b.shown)
		for _, kind := range operate.FindingKinds() {
			if value, ok := got["waggle_findings{kind="+strings.ToLower(string(kind))+"}"]; !ok || value != 0 {
				t.Errorf("at first %s is %v (there: %t)", kind, value, ok)
			}
		}
		for _, pool := range []string{"a", "b"} {
			if _, err := b.holds.SetHolds(t.Context(), &pb.SetHoldsRequest{Targets: []*pb.HoldTarget{{Pool: pool}}}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(11 * time.Second)
		if n := shown(t, b.shown)["waggle_findings{kind=held}"]; n != 2 {
			t.Errorf("%v are held, want 2", n)
		}
		if _, err := b.holds.LiftHolds(t.Context(), &pb.LiftHoldsRequest{Targets: []*pb.HoldTarget{{Pool: "a"}}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		if n := shown(t, b.shown)["waggle_findings{kind=held}"]; n != 1 {
			t.Errorf("%v are held, want 1", n)
		}
		b.server.Detach()
		if _, there := shown(t, b.shown)["waggle_findings{kind=held}"]; there {
			t.Error("a dispatcher that is no owner shows findings")
		}
	})
}

// Of many pools each label is there once, also if one of them has the name of the rest: a scrape fails by a label that comes twice.
func TestMetrics_manyPools(t *testing.T) {
	t.Parallel()
	for _, with := range []string{"other", "a"} {
		pools := []dispatch.Pool{{Name: with}, {Name: dispatch.DefaultPool}}
		for i := range 150 {
			pools = append(pools, dispatch.Pool{Name: fmt.Sprintf("p%d", i)})
		}
		labels := server.PoolLabelsForTest(pools)
		slices.Sort(labels)
		if n := len(labels); n != 102 || len(slices.Compact(labels)) != n || !slices.Contains(labels, "other") {
			t.Errorf("with %s: %d labels: %v", with, n, labels)
		}
	}
}
