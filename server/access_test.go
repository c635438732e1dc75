package server_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

func TestAdminService_ListAuditEntries(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	for i := range 5 {
		entry := dispatch.AuditEntry{
			By: []string{"token:ada", "token:bob"}[i%2], Said: "ada", From: "192.0.2.1", Method: "UpdateSource", Target: fmt.Sprint("news.", i),
			Before: "every: 60s", After: "every: 30s", Reason: "too slow",
		}
		if err := b.store.AppendAudit(t.Context(), entry); err != nil {
			t.Fatal(err)
		}
	}
	list := func(by string) (all []*pb.AuditEntry) {
		t.Helper()
		for req := (&pb.ListAuditEntriesRequest{By: by, PageSize: 2}); ; {
			page, err := b.admin.ListAuditEntries(t.Context(), req)
			if err != nil || len(page.GetEntries()) > 2 {
				t.Fatalf("a page of %d, %v", len(page.GetEntries()), err)
			}
			all = append(all, page.GetEntries()...)
			if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
				return all
			}
		}
	}
	all := list("")
	if len(all) != 5 {
		t.Fatalf("listed %v", all)
	}
	want := &pb.AuditEntry{
		Time: all[0].GetTime(), By: "token:ada", Said: "ada", From: "192.0.2.1", Method: "UpdateSource", Target: "news.4",
		Before: "every: 60s", After: "every: 30s", Reason: "too slow",
	}
	if !proto.Equal(all[0], want) || all[0].GetTime() == nil || all[4].GetTarget() != "news.0" {
		t.Errorf("listed %v", all)
	}
	if of := list("token:bob"); len(of) != 2 || of[0].GetTarget() != "news.3" || of[1].GetTarget() != "news.1" {
		t.Errorf("listed %v of bob", of)
	}
	b.store.breakCall("AuditEntries", func() error { return dispatch.ErrStoreUnavailable })
	_, err := b.admin.ListAuditEntries(t.Context(), &pb.ListAuditEntriesRequest{})
	wantFault(t, err, codes.Unavailable, "STORE_UNAVAILABLE")
}

// A page of large entries is cut to what fits into a reply.
func TestAdminService_ListAuditEntries_bytes(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	large := strings.Repeat("é", 1000)
	for range 1000 {
		if err := b.store.AppendAudit(t.Context(), dispatch.AuditEntry{Target: large[:1000], Before: large, After: large}); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for req := (&pb.ListAuditEntriesRequest{PageSize: 1000}); ; {
		page, err := b.admin.ListAuditEntries(t.Context(), req)
		if err != nil || proto.Size(page) > 4<<20 {
			t.Fatalf("a page of %d bytes, %v", proto.Size(page), err)
		}
		n += len(page.GetEntries())
		if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
			break
		}
	}
	if n != 1000 {
		t.Errorf("%d entries, want 1000", n)
	}
}

func TestAdminService_ReleaseCollector(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	if owner, err := b.store.BindCollector(t.Context(), "c1", "token:eu-1"); owner != "token:eu-1" || err != nil {
		t.Fatal(owner, err)
	}
	for _, want := range []string{"token:eu-1", ""} {
		got, err := b.admin.ReleaseCollector(t.Context(), &pb.ReleaseCollectorRequest{CollectorId: "c1", By: "ann", Reason: "new machine"})
		if err != nil || got.GetIdentity() != want {
			t.Errorf("got %v, %v; want %q", got, err, want)
		}
	}
	b.store.breakCall("ReleaseCollector", func() error { return dispatch.ErrStoreReadOnly })
	_, err := b.admin.ReleaseCollector(t.Context(), &pb.ReleaseCollectorRequest{CollectorId: "c1"})
	wantFault(t, err, codes.Unavailable, "STORE_READ_ONLY")
}
