package server_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// between runs f once, after the look for what a filter matches and before that is changed.
func (b *bed) between(f func()) {
	b.store.breakCall("Tasks", func() error {
		b.store.breakCall("Tasks", nil)
		f()
		return nil
	})
}

// unhurried lets every queue be fetched from without delay.
func (b *bed) unhurried(t *testing.T) {
	t.Helper()
	rule := &pb.QueueRule{Pattern: "*", MinDelay: durationpb.New(0), MaxInFlight: new(int32(1000))}
	if _, err := b.queues.SetQueueRule(t.Context(), &pb.SetQueueRuleRequest{Rule: rule}); err != nil {
		t.Fatal(err)
	}
}

// A task that goes to a state that the filter leaves out is not changed, though it was
// found in another.
func TestTaskService_changesWhatTheFilterSays(t *testing.T) {
	t.Parallel()
	for _, only := range []bool{true, false} { // to ask what would be
		b := newBed(t, server.Config{})
		b.unhurried(t)
		b.source(t, "news")
		ids := b.submit(t, "news", "https://example.com/a")
		var leased []*pb.LeasedTask
		fetch := func() {
			eventually(t, "it is handed out", func() bool {
				leased = b.fetch(t, 1)
				return len(leased) == 1
			})
		}
		cancel := func(states ...pb.TaskState) []*pb.TaskChange {
			t.Helper()
			resp, err := b.tasks.CancelTasks(t.Context(), &pb.CancelTasksRequest{Filter: &pb.Filter{SourceId: "news", States: states}, ValidateOnly: only})
			if err != nil {
				t.Fatal(err)
			}
			return resp.GetResults()
		}
		b.between(fetch)
		waiting := []pb.TaskState{pb.TaskState_TASK_STATE_SCHEDULED, pb.TaskState_TASK_STATE_READY}
		wantChanges(t, ids, cancel(waiting...), "OTHER_STATE LEASED")
		released := succeeded(leased[0])
		released.Outcome = &pb.Outcome{Result: &pb.Outcome_Released{Released: &pb.Released{}}}
		b.between(func() { b.report(t, released) })
		wantChanges(t, ids, cancel(pb.TaskState_TASK_STATE_LEASED), "OTHER_STATE READY")

		fetch()
		failed := succeeded(leased[0])
		failed.Outcome = &pb.Outcome{Result: &pb.Outcome_Failed{Failed: &pb.Failed{Permanent: true}}}
		b.report(t, failed)
		b.between(func() {
			if _, err := b.tasks.RetryTasks(t.Context(), &pb.RetryTasksRequest{TaskIds: ids}); err != nil {
				t.Error(err)
			}
			fetch()
			b.report(t, succeeded(leased[0]))
		})
		resp, err := b.tasks.RetryTasks(t.Context(), &pb.RetryTasksRequest{
			Filter: &pb.Filter{All: true, States: []pb.TaskState{pb.TaskState_TASK_STATE_DEAD}}, ValidateOnly: only,
		})
		if err != nil {
			t.Fatal(err)
		}
		wantChanges(t, ids, resp.GetResults(), "OTHER_STATE DONE")
		if resp.GetChanged() != 0 {
			t.Errorf("changed %d", resp.GetChanged())
		}
	}
}

// A lease that was granted after the first page was read goes on, that of a task which
// the first page took from its holder too.
func TestTaskService_revokesWhatStands(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.unhurried(t)
	b.source(t, "news")
	const page, more = 1000, 5
	urls := make([]string, page+more)
	for i := range urls {
		urls[i] = fmt.Sprintf("https://%d.example/", i)
	}
	b.submit(t, "news", urls[:page]...)
	b.submit(t, "news", urls[page:]...)
	fetch := func(want int) {
		t.Helper()
		eventually(t, "all are handed out", func() bool {
			want -= len(b.fetch(t, 1000))
			return want == 0
		})
	}
	fetch(page + more)
	req := &pb.RevokeLeasesRequest{Filter: &pb.Filter{CollectorId: "c1"}}
	for _, want := range []int32{page, more} {
		resp, err := b.tasks.RevokeLeases(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.GetChanged() != want || (resp.GetNextPageToken() == "") != (want == more) {
			t.Fatalf("changed %d, next %q; want %d", resp.GetChanged(), resp.GetNextPageToken(), want)
		}
		if req.PageToken = resp.GetNextPageToken(); req.PageToken != "" {
			read := time.Now()
			eventually(t, "the store's clock goes on", func() bool { return time.Since(read) > 2*time.Millisecond })
			fetch(page)
		}
	}
}
