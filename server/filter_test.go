package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// A condition that a call does not take is refused, never ignored: each call is made with every condition there is.
func TestServer_filterConditions(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	ctx := t.Context()
	now := timestamppb.Now()
	every := func() *pb.Filter {
		return &pb.Filter{
			SourceIdPrefix: "a", QueueSuffix: "a", Pool: "a", States: []pb.TaskState{pb.TaskState_TASK_STATE_LEASED},
			FailureReasons: []pb.FailureReason{1}, Labels: map[string]string{"a": "b"}, CreateTimeFrom: now, CreateTimeBefore: now,
			All: true, SourceId: "a", Queue: "a", CollectorId: "a",
		}
	}
	for name, c := range map[string]struct {
		refused string // of which all is the last, if it is one
		call    func(*pb.Filter) error
	}{
		"ListSources": {"queue_suffix states failure_reasons all queue collector_id", func(f *pb.Filter) error {
			_, err := b.sources.ListSources(ctx, &pb.ListSourcesRequest{Filter: f})
			return err
		}},
		"ListTasks": {"source_id_prefix queue_suffix pool failure_reasons labels create_time_from create_time_before all collector_id", func(f *pb.Filter) error {
			_, err := b.tasks.ListTasks(ctx, &pb.ListTasksRequest{Filter: f})
			return err
		}},
		"ListQueues": {"source_id_prefix pool states failure_reasons labels create_time_from create_time_before all source_id collector_id", func(f *pb.Filter) error {
			_, err := b.queues.ListQueues(ctx, &pb.ListQueuesRequest{Filter: f})
			return err
		}},
		"ListLeases": {"states all", func(f *pb.Filter) error {
			_, err := b.admin.ListLeases(ctx, &pb.ListLeasesRequest{Filter: f})
			return err
		}},
		"ListCollectors": {"source_id_prefix queue_suffix states failure_reasons create_time_from create_time_before all source_id queue", func(f *pb.Filter) error {
			_, err := b.admin.ListCollectors(ctx, &pb.ListCollectorsRequest{Filter: f})
			return err
		}},
		"ListHolds": {"states failure_reasons labels create_time_from create_time_before all", func(f *pb.Filter) error {
			_, err := b.holds.ListHolds(ctx, &pb.ListHoldsRequest{Filter: f})
			return err
		}},
		"SetHolds": {"queue_suffix states failure_reasons queue collector_id", func(f *pb.Filter) error {
			_, err := b.holds.SetHolds(ctx, &pb.SetHoldsRequest{Filter: f})
			return err
		}},
		"LiftHolds": {"queue_suffix states failure_reasons queue collector_id", func(f *pb.Filter) error {
			_, err := b.holds.LiftHolds(ctx, &pb.LiftHoldsRequest{Filter: f})
			return err
		}},
		"DeleteSources": {"queue_suffix states failure_reasons source_id queue collector_id", func(f *pb.Filter) error {
			_, err := b.sources.DeleteSources(ctx, &pb.DeleteSourcesRequest{Filter: f})
			return err
		}},
		"TriggerSources": {"queue_suffix states failure_reasons source_id queue collector_id", func(f *pb.Filter) error {
			_, err := b.sources.TriggerSources(ctx, &pb.TriggerSourcesRequest{Filter: f})
			return err
		}},
		"CancelTasks": {"collector_id", func(f *pb.Filter) error {
			_, err := b.tasks.CancelTasks(ctx, &pb.CancelTasksRequest{Filter: f})
			return err
		}},
		"RetryTasks": {"collector_id", func(f *pb.Filter) error {
			f.States = nil
			_, err := b.tasks.RetryTasks(ctx, &pb.RetryTasksRequest{Filter: f})
			return err
		}},
		"RevokeLeases": {"", func(f *pb.Filter) error {
			_, err := b.tasks.RevokeLeases(ctx, &pb.RevokeLeasesRequest{Filter: f})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := wantFault(t, c.call(every()), codes.InvalidArgument, "INVALID_FIELD") // bulk calls refuse all beside others
			var refused []string
			for _, v := range f.violations {
				if strings.Contains(v.GetDescription(), "is not a condition of "+name+", which takes: ") {
					refused = append(refused, strings.TrimPrefix(v.GetField(), "filter."))
				}
			}
			want := strings.Fields(c.refused)
			slices.Sort(want)
			if slices.Sort(refused); !slices.Equal(refused, want) {
				t.Errorf("refused are %q, want %q", refused, want)
			}
		})
	}
}

// Lists show what matches their filters, on pages as without one.
func TestServer_filteredLists(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	ctx := t.Context()
	for _, spec := range []*pb.SourceSpec{
		{Id: "news", Labels: map[string]string{"team": "a"}}, {Id: "news.eu", Pool: "eu", Labels: map[string]string{"team": "a"}}, {Id: "news.us", Pool: "us"},
	} {
		if _, err := b.sources.CreateSource(ctx, &pb.CreateSourceRequest{Spec: spec}); err != nil {
			t.Fatal(err)
		}
		b.submit(t, spec.GetId(), "https://"+spec.GetId()+".example/1", "https://www."+spec.GetId()+".example/2")
	}
	for i, pools := range [][]string{nil, {"eu"}, {"us", "eu"}} {
		collector := fmt.Sprintf("c%d", i)
		_, err := b.dispatch.FetchTask(ctx, &pb.FetchTaskRequest{CollectorId: collector, Session: "s1", Pools: pools, MaxTasks: 2, Wait: durationpb.New(0)})
		if err != nil {
			t.Fatal(err)
		}
		info := &pb.CollectorInfo{Id: collector, Session: "s1", Pools: pools, Labels: map[string]string{"i": fmt.Sprint(i)}}
		if _, err := b.dispatch.RenewLease(ctx, &pb.RenewLeaseRequest{Collector: info}); err != nil {
			t.Fatal(err)
		}
	}
	ago, soon := timestamppb.New(time.Now().Add(-time.Hour)), timestamppb.New(time.Now().Add(time.Hour))
	sources := func(f *pb.Filter, token string) (ids []string, next string, err error) {
		page, err := b.sources.ListSources(ctx, &pb.ListSourcesRequest{Filter: f, PageSize: 1, PageToken: token})
		for _, s := range page.GetSources() {
			ids = append(ids, s.GetId())
		}
		return ids, page.GetNextPageToken(), err
	}
	queues := func(f *pb.Filter, token string) (names []string, next string, err error) {
		page, err := b.queues.ListQueues(ctx, &pb.ListQueuesRequest{Filter: f, PageSize: 1, PageToken: token})
		for _, q := range page.GetQueues() {
			names = append(names, q.GetName())
		}
		return names, page.GetNextPageToken(), err
	}
	leases := func(f *pb.Filter, token string) (queues []string, next string, err error) {
		page, err := b.admin.ListLeases(ctx, &pb.ListLeasesRequest{Filter: f, PageSize: 1, PageToken: token})
		for _, l := range page.GetLeases() {
			queues = append(queues, l.GetHolder().GetCollectorId()+" "+l.GetQueue())
		}
		return queues, page.GetNextPageToken(), err
	}
	collectors := func(f *pb.Filter, token string) (ids []string, next string, err error) {
		page, err := b.admin.ListCollectors(ctx, &pb.ListCollectorsRequest{Filter: f, PageSize: 1, PageToken: token})
		for _, c := range page.GetCollectors() {
			ids = append(ids, c.GetInfo().GetId())
		}
		return ids, page.GetNextPageToken(), err
	}
	tasks := func(f *pb.Filter, token string) (queues []string, next string, err error) {
		page, err := b.tasks.ListTasks(ctx, &pb.ListTasksRequest{Filter: f, PageSize: 1, PageToken: token})
		for _, task := range page.GetTasks() {
			queues = append(queues, task.GetQueue())
		}
		return queues, page.GetNextPageToken(), err
	}
	for name, c := range map[string]struct {
		list   func(*pb.Filter, string) ([]string, string, error)
		filter *pb.Filter
		want   string
	}{
		"all sources":               {sources, nil, "news news.eu news.us"},
		"an empty filter":           {sources, &pb.Filter{}, "news news.eu news.us"},
		"sources by id":             {sources, &pb.Filter{SourceId: "news"}, "news"},
		"sources by id and prefix":  {sources, &pb.Filter{SourceId: "news", SourceIdPrefix: "news."}, ""},
		"sources by prefix":         {sources, &pb.Filter{SourceIdPrefix: "news."}, "news.eu news.us"},
		"sources by pool":           {sources, &pb.Filter{Pool: "us"}, "news.us"},
		"sources by labels":         {sources, &pb.Filter{Labels: map[string]string{"team": "a"}}, "news news.eu"},
		"sources by time":           {sources, &pb.Filter{CreateTimeFrom: ago, CreateTimeBefore: soon}, "news news.eu news.us"},
		"sources of later":          {sources, &pb.Filter{CreateTimeFrom: soon}, ""},
		"sources of before":         {sources, &pb.Filter{CreateTimeBefore: ago}, ""},
		"queues by name":            {queues, &pb.Filter{Queue: "news.eu.example"}, "news.eu.example"},
		"queues by suffix":          {queues, &pb.Filter{QueueSuffix: "news.eu.example"}, "news.eu.example www.news.eu.example"},
		"queues by both":            {queues, &pb.Filter{Queue: "news.eu.example", QueueSuffix: "us.example"}, ""},
		"no queue":                  {queues, &pb.Filter{Queue: "eu.example"}, ""},
		"leases":                    {leases, nil, "c0 news.example c0 www.news.example c1 news.eu.example c1 www.news.eu.example c2 news.us.example c2 www.news.us.example"},
		"leases by source":          {leases, &pb.Filter{SourceId: "news.eu"}, "c1 news.eu.example c1 www.news.eu.example"},
		"leases by prefix":          {leases, &pb.Filter{SourceIdPrefix: "news.u"}, "c2 news.us.example c2 www.news.us.example"},
		"leases by pool":            {leases, &pb.Filter{Pool: "default"}, "c0 news.example c0 www.news.example"},
		"leases by queue":           {leases, &pb.Filter{Queue: "www.news.example"}, "c0 www.news.example"},
		"leases by suffix":          {leases, &pb.Filter{QueueSuffix: "us.example"}, "c2 news.us.example c2 www.news.us.example"},
		"leases by collector":       {leases, &pb.Filter{CollectorId: "c1"}, "c1 news.eu.example c1 www.news.eu.example"},
		"leases by both":            {leases, &pb.Filter{CollectorId: "c1", Queue: "news.eu.example"}, "c1 news.eu.example"},
		"leases of later":           {leases, &pb.Filter{CreateTimeFrom: soon}, ""},
		"collectors by id":          {collectors, &pb.Filter{CollectorId: "c1"}, "c1"},
		"collectors by pool":        {collectors, &pb.Filter{Pool: "eu"}, "c1 c2"},
		"collectors of the default": {collectors, &pb.Filter{Pool: "default"}, "c0"},
		"collectors by label":       {collectors, &pb.Filter{Labels: map[string]string{"i": "2"}}, "c2"},
		"tasks by source":           {tasks, &pb.Filter{SourceId: "news.us"}, "news.us.example www.news.us.example"},
		"tasks of a lane":           {tasks, &pb.Filter{SourceId: "news.us", Queue: "www.news.us.example"}, "www.news.us.example"},
		"tasks by state":            {tasks, &pb.Filter{SourceId: "news.us", States: []pb.TaskState{pb.TaskState_TASK_STATE_READY}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for token, pages := "", 0; ; pages++ {
				page, next, err := c.list(c.filter, token)
				if err != nil || pages > 20 {
					t.Fatalf("page %d: %v", pages, err)
				}
				got = append(got, page...)
				if token = next; token == "" {
					break
				}
			}
			slices.Sort(got)
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	_, _, err := leases(&pb.Filter{SourceId: "none"}, "")
	if f := wantFault(t, err, codes.NotFound, "SOURCE_NOT_FOUND"); f.metadata["source_id"] != "none" {
		t.Errorf("metadata %v", f.metadata)
	}
}
