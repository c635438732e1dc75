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
