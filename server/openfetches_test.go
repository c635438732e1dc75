package server_test

import (
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// TestServer_StreamingFetchTask_replaced holds that who opens as many streams as may be, and leaves them, shuts nobody
// out: another takes the place of the one that has waited longest for its client, which is told CANCELED.
func TestServer_StreamingFetchTask_replaced(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{MaxFetches: 3})
	var left []pb.DispatchService_StreamingFetchTaskClient
	for range 3 {
		stream := b.fetches(t.Context(), t)
		ask(t, stream, fetchOf("", 0))
		answered(t, stream)
		left = append(left, stream)
	}
	// The first one now waits shorter than the others.
	ask(t, left[0], fetchOf("", 0))
	answered(t, left[0])

	for _, ended := range []int{1, 2, 0} {
		stream := b.fetches(t.Context(), t)
		ask(t, stream, fetchOf("", 0))
		answered(t, stream)
		_, err := left[ended].Recv()
		wantFault(t, err, codes.Canceled, "")
	}
	if n := shown(t, b.shown)["waggle_shed_calls_total{class=fetch}"]; n != 3 {
		t.Errorf("%v ended streams are counted, want 3", n)
	}
}

// TestServer_StreamingFetchTask_limit holds that no more streams are open than may be where each has a fetch under way,
// and that of those none is ended for another.
func TestServer_StreamingFetchTask_limit(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{MaxFetches: 2})
	var parked []pb.DispatchService_StreamingFetchTaskClient
	for range 2 {
		stream := b.fetches(t.Context(), t)
		ask(t, stream, fetchOf("", 30*time.Second))
		parked = append(parked, stream)
	}
	eventually(t, "both fetches are parked", func() bool { return b.parked(t) == 2 })
	_, err := b.fetches(t.Context(), t).Recv()
	if f := wantFault(t, err, codes.ResourceExhausted, "TOO_MANY_WAITERS"); f.metadata["limit"] != "2" || f.retry == 0 {
		t.Errorf("metadata %v, retry %v; want the limit of 2, and when to come again", f.metadata, f.retry)
	}

	b.source(t, "news")
	b.submit(t, "news", "https://a.example/1", "https://b.example/2")
	for _, stream := range parked {
		if got := answered(t, stream).GetLeasedTasks(); len(got) != 1 {
			t.Errorf("a fetch that was parked got %d tasks, want 1", len(got))
		}
	}
	third := b.fetches(t.Context(), t)
	ask(t, third, fetchOf("", 0))
	answered(t, third)
}

// TestServer_StreamingFetchTask_unread holds that a stream whose client does not take its answers waits for it, as one
// whose client sends nothing.
func TestServer_StreamingFetchTask_unread(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{MaxFetches: 1})
	b.source(t, "news")
	if _, err := b.tasks.SubmitTasks(t.Context(), &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{
		{SourceId: "news", Url: "https://a.example/1", Payload: make([]byte, 256<<10)},
	}}); err != nil {
		t.Fatal(err)
	}
	var begun atomic.Int64
	b.store.breakCall("BeginPolls", func() error { begun.Add(1); return nil })

	// Less than one answer fits the window of its connection, so that the second one waits.
	conn, err := grpc.NewClient("passthrough:///unread", grpc.WithContextDialer(b.dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStaticStreamWindowSize(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // it was in nobody's use
	unread, err := pb.NewDispatchServiceClient(conn).StreamingFetchTask(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		ask(t, unread, fetchOf("t1", 0))
	}
	eventually(t, "the second fetch is under way", func() bool { return begun.Load() == 2 })
	eventually(t, "there is room for another stream", func() bool {
		stream := b.fetches(t.Context(), t)
		if stream.Send(&pb.StreamingFetchTaskRequest{Fetch: fetchOf("t2", 0)}) != nil {
			return false // it was refused by then
		}
		_, err := stream.Recv()
		return err == nil
	})
}
