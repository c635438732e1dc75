package server_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// ListTasks notes how much each page had.
func (f *faults) ListTasks(ctx context.Context, filter dispatch.TaskFilter, cursor string, limit int) (dispatch.TaskPage, error) {
	page, err := f.Store.ListTasks(ctx, filter, cursor, limit)
	n := 0
	for _, task := range page.Tasks {
		n += len(task.Payload)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pages = append(f.pages, n)
	return page, err
}

// Lists of large tasks at the same time hold no more of them than their pages do.
func TestTaskService_ListTasks_bytes(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.source(t, "news")
	const n, calls = 40, 64
	payload := make([]byte, bounds.MaxPayloadLength)
	for i := range n {
		item := &pb.SubmitItem{SourceId: "news", Url: fmt.Sprintf("https://example.com/%d", i), Payload: payload}
		if _, err := b.tasks.SubmitTasks(t.Context(), &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{item}}); err != nil {
			t.Fatal(err)
		}
	}
	first := func(token string) *pb.ListTasksResponse {
		page, err := b.tasks.ListTasks(t.Context(), &pb.ListTasksRequest{Filter: &pb.Filter{SourceId: "news"}, PageSize: 1000, PageToken: token})
		if err != nil {
			t.Error(err)
		}
		if size := proto.Size(page); size > bounds.MaxPageBytes || len(page.GetTasks()) < 8 && page.GetNextPageToken() != "" {
			t.Errorf("a page of %d tasks and %d bytes, want one of at most %d, and full", len(page.GetTasks()), size, bounds.MaxPageBytes)
		}
		return page
	}
	var all sync.WaitGroup
	for range calls {
		all.Go(func() { first("") })
	}
	all.Wait()
	seen, pages := make(map[string]int), 0
	for token := ""; ; {
		page := first(token)
		pages++
		for _, task := range page.GetTasks() {
			seen[task.GetId()]++
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	for id, times := range seen {
		if times != 1 {
			t.Errorf("task %s was listed %d times", id, times)
		}
	}
	if len(seen) != n {
		t.Errorf("%d tasks were listed, want %d", len(seen), n)
	}
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	if len(b.store.pages) != calls+pages {
		t.Errorf("%d pages were read of the store for %d", len(b.store.pages), calls+pages)
	}
	if most := slices.Max(b.store.pages); most > bounds.MaxPageBytes {
		t.Errorf("%d bytes were read of the store for a page, want at most %d", most, bounds.MaxPageBytes)
	}
}

// A page of collectors that tell much of themselves is bounded, and none is left out.
func TestAdminService_ListCollectors_bytes(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{MaxNewCollectors: 10_000})
	labels := make(map[string]string)
	for i := range bounds.MaxLabels {
		labels[fmt.Sprintf("%03d", i)+strings.Repeat("k", bounds.MaxIDLength-3)] = strings.Repeat("v", bounds.MaxIDLength)
	}
	const n = 250 // of 16 KiB each
	for i := range n {
		_, err := b.dispatch.RenewLease(t.Context(), &pb.RenewLeaseRequest{Collector: &pb.CollectorInfo{Id: fmt.Sprintf("c%d", i), Session: "s", Labels: labels}})
		if err != nil {
			t.Fatal(err)
		}
	}
	seen, pages := make(map[string]bool), 0
	for token := ""; ; {
		page, err := b.admin.ListCollectors(t.Context(), &pb.ListCollectorsRequest{PageSize: 1000, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		if size := proto.Size(page); size > bounds.MaxPageBytes {
			t.Errorf("a page of %d bytes", size)
		}
		for _, c := range page.GetCollectors() {
			seen[c.GetInfo().GetId()] = true
		}
		if pages++; pages > n {
			t.Fatal("the list does not end")
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if len(seen) != n || pages < 2 {
		t.Errorf("%d collectors on %d pages, want %d", len(seen), pages, n)
	}
}
