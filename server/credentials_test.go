package server_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// A URL with a user name or a password is refused wherever it comes in, and shown nowhere.
func TestServer_refusesCredentials(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	leased := b.leased(t)
	for i, url := range []string{"https://ada:secret@example.com/", "https://secret@example.com/", "https://ada:secret/@example.com/"} {
		seeds := &pb.SourceSpec{Id: "news", Seeds: []*pb.Seed{{Url: "https://example.com/"}, {Url: url}}}
		added := &pb.SourceSpec{Id: fmt.Sprintf("added%d", i), Seeds: seeds.GetSeeds()}
		for name, call := range map[string]struct {
			field string
			do    func() (fmt.Stringer, error)
		}{
			"create": {"spec.seeds[1].url", func() (fmt.Stringer, error) {
				return b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: added})
			}},
			"update": {"spec.seeds[1].url", func() (fmt.Stringer, error) {
				return b.sources.UpdateSource(t.Context(), &pb.UpdateSourceRequest{Spec: seeds})
			}},
			"apply": {"seeds[1].url", func() (fmt.Stringer, error) {
				return b.sources.ApplySources(t.Context(), &pb.ApplySourcesRequest{Specs: []*pb.SourceSpec{seeds, added}})
			}},
			"submit": {"url", func() (fmt.Stringer, error) {
				return b.tasks.SubmitTasks(t.Context(), &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{{SourceId: "news", Url: url}}})
			}},
			"submit a key": {"key", func() (fmt.Stringer, error) {
				key := strings.Replace(url, "secret/", "secret", 1)
				return b.tasks.SubmitTasks(t.Context(), &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{{SourceId: "news", Key: key, Queue: "q"}}})
			}},
			"discover": {"url", func() (fmt.Stringer, error) {
				return b.dispatch.SubmitDiscovered(t.Context(), &pb.SubmitDiscoveredRequest{
					TaskId: leased.GetLease().GetTaskId(), LeaseToken: leased.GetLease().GetLeaseToken(), Items: []*pb.DiscoveredItem{{Url: url}},
				})
			}},
			"get": {"url", func() (fmt.Stringer, error) {
				return b.tasks.GetTask(t.Context(), &pb.GetTaskRequest{SourceId: "news", Url: url})
			}},
			"queue": {"name", func() (fmt.Stringer, error) {
				return b.queues.GetQueue(t.Context(), &pb.GetQueueRequest{Name: url})
			}},
		} {
			reply, err := call.do()
			said := fmt.Sprint(reply, " ", err, " ", status.Convert(err).Proto())
			if strings.Contains(said, "secret") || !strings.Contains(said, call.field+" is ") || err != nil && status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s of %s: %s", name, url, said)
			}
		}
	}
	list, err := b.tasks.ListTasks(t.Context(), &pb.ListTasksRequest{Filter: &pb.Filter{SourceId: "news"}})
	if err != nil || len(list.GetTasks()) != 1 {
		t.Errorf("tasks %v, %v; want the one that was there", list, err)
	}
	for _, entry := range b.logs.All() {
		if said := fmt.Sprint(entry.Message, entry.ContextMap()); strings.Contains(said, "secret") {
			t.Errorf("logged %s", said)
		}
	}
}
