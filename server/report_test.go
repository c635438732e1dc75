package server_test

import (
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// What could not be settled is told beside what was, and is to be repeated.
func TestDispatchService_ReportTask_storeUnavailableInPart(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	_, err := b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: &pb.SourceSpec{
		Id: "news", Follow: &pb.Follow{AllowHosts: []string{"example.com"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	b.submit(t, "news", "https://example.com/a")
	leased := b.fetch(t, 1)[0]
	b.store.breakCall("Submit", func() error { return dispatch.ErrStoreUnavailable })
	page := succeeded(leased, &pb.DiscoveredItem{Url: "https://example.com/b"})
	stale := succeeded(leased)
	stale.LeaseToken = "c1/other/7"
	call := func(reports ...*pb.TaskReport) ([]*pb.ReportResult, error) {
		resp, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{
			CollectorId: "c1", Session: "s1", Wait: durationpb.New(0), Reports: reports,
		})
		return resp.GetReportResults(), err
	}
	if _, err := call(page); faultOf(t, err).reason != "STORE_UNAVAILABLE" {
		t.Errorf("alone: %v", err)
	}
	got, err := call(page, stale)
	if err != nil || got[0].GetCode() != pb.ReportCode_REPORT_CODE_STORE_UNAVAILABLE || got[0].GetRetryAfter().AsDuration() <= 0 ||
		got[1].GetCode() != pb.ReportCode_REPORT_CODE_LEASE_LOST {
		t.Errorf("beside another: %v, %v", got, err)
	}
	b.store.breakCall("Submit", nil)
	if got, err := call(page, stale); err != nil || got[0].GetCode() != pb.ReportCode_REPORT_CODE_OK || got[0].GetDiscovered() == nil {
		t.Errorf("repeated: %v, %v", got, err)
	}
}

// A store that is full refuses the report whose links have no room, and no other;
// its lease stands, and repeated once there is room it counts (P1).
func TestDispatchService_ReportTask_storeFull(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	if _, err := b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{
		Spec: &pb.SourceSpec{Id: "news", Follow: &pb.Follow{AllowHosts: []string{"*"}}},
	}); err != nil {
		t.Fatal(err)
	}
	b.submit(t, "news", "https://a.example/", "https://b.example/")
	leased := b.fetch(t, 2)
	if len(leased) != 2 {
		t.Fatalf("fetched %d tasks, want 2", len(leased))
	}
	linking := succeeded(leased[0], &pb.DiscoveredItem{Url: "https://a.example/next"})
	report := func(reports ...*pb.TaskReport) []*pb.ReportResult {
		t.Helper()
		resp, err := b.dispatch.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "c1", Session: "s1", Reports: reports})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetResults()
	}
	b.store.breakCall("Submit", func() error { return dispatch.ErrStoreFull })
	results := report(linking, succeeded(leased[1]))
	if got := results[0]; got.GetCode() != pb.ReportCode_REPORT_CODE_STORE_FULL || got.GetRetryAfter().AsDuration() <= 0 {
		t.Errorf("the report with a link: %v", got)
	}
	if got := results[1]; got.GetCode() != pb.ReportCode_REPORT_CODE_OK {
		t.Errorf("the one beside it: %v", got)
	}
	renewed, err := b.dispatch.RenewLease(t.Context(), &pb.RenewLeaseRequest{
		Collector: &pb.CollectorInfo{Id: "c1", Session: "s1"}, Leases: []*pb.LeaseBeat{held(leased[0])},
	})
	if err != nil || len(renewed.GetLost()) != 0 {
		t.Errorf("renewed %v, %v", renewed, err)
	}
	b.store.breakCall("Submit", nil)
	if got := report(linking)[0]; got.GetCode() != pb.ReportCode_REPORT_CODE_OK || got.GetDiscovered().GetCreated() != 1 {
		t.Errorf("repeated: %v", got)
	}
}
