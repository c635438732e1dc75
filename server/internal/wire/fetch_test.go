package wire_test

import (
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch/engine"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// TestFetch holds that each field of a request comes to the dispatcher, and that a wait of zero is none while an absent
// one is the default.
func TestFetch(t *testing.T) {
	t.Parallel()
	req := &pb.FetchTaskRequest{
		CollectorId: "c1", Session: "S-1", ClientToken: "T-1", Labels: map[string]string{"region": "eu"},
		Pools: []string{"browser"}, Sources: []string{"news"}, Queues: []string{"a.example:8080"},
		MaxTasks: 7, MaxBytes: 4096, Wait: durationpb.New(0), LeaseDuration: durationpb.New(time.Minute),
	}
	want := engine.FetchRequest{
		Collector: "c1", Session: "S-1", ClientToken: "T-1", Labels: map[string]string{"region": "eu"},
		Pools: []string{"browser"}, Sources: []string{"news"}, Queues: []string{"a.example:8080"},
		MaxTasks: 7, MaxBytes: 4096, Lease: time.Minute,
	}
	fetch, _, err := wire.Fetch(req)
	if err != nil || !reflect.DeepEqual(fetch, want) {
		t.Errorf("got %+v, %v, want %+v", fetch, err, want)
	}
	req.Wait = nil
	if fetch, _, err := wire.Fetch(req); err != nil || fetch.Wait != engine.DefaultWait {
		t.Errorf("with no wait named it is %v, %v", fetch.Wait, err)
	}
}

// TestReports_Results holds that discovered items that cannot be tasks are answered in their places, among those that
// were taken.
func TestReports_Results(t *testing.T) {
	t.Parallel()
	const token = "c1/t1/5"
	outcome := &pb.Outcome{Result: &pb.Outcome_Succeeded{Succeeded: &pb.Succeeded{Discovered: []*pb.DiscoveredItem{
		{}, {Url: "https://a.example/1"}, {Kind: "\x00", Url: "https://a.example/2"}, {Url: "https://a.example/3"},
	}}}}
	released := &pb.Outcome{Result: &pb.Outcome_Released{Released: &pb.Released{}}}
	reports, err := wire.Report(&pb.ReportTaskRequest{CollectorId: "c1", Session: "s1", Reports: []*pb.TaskReport{
		{TaskId: "17-aaaaaaaaaaaaaaaaaaaaaaaaaa", LeaseToken: token, Outcome: released},
		{TaskId: "17-bbbbbbbbbbbbbbbbbbbbbbbbbb", LeaseToken: token, Outcome: outcome},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if items := reports.List[1].Succeeded.Discovered; len(items) != 2 || items[1].URL != "https://a.example/3" {
		t.Fatalf("the domain gets %v", items)
	}
	results := reports.Results([]engine.ReportResult{
		{Code: engine.ReportOK},
		{Code: engine.ReportOK, Discovered: []engine.DiscoverResult{{Code: engine.DiscoverCreated}, {Code: engine.DiscoverExists}}},
	})
	var got []pb.DiscoverCode
	for _, item := range results[1].GetDiscovered().GetResults() {
		got = append(got, item.GetCode())
	}
	want := []pb.DiscoverCode{
		pb.DiscoverCode_DISCOVER_CODE_INVALID, pb.DiscoverCode_DISCOVER_CODE_CREATED,
		pb.DiscoverCode_DISCOVER_CODE_INVALID, pb.DiscoverCode_DISCOVER_CODE_EXISTS,
	}
	if !reflect.DeepEqual(got, want) || results[0].GetDiscovered() != nil {
		t.Errorf("answered %v and %v, want none and %v", results[0].GetDiscovered(), got, want)
	}
}
