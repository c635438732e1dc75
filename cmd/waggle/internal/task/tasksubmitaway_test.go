package task_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// awayAtFirst is a dispatcher whose store does not answer the first submit.
type awayAtFirst struct {
	pb.TaskServiceClient

	calls atomic.Int64
}

// awayServer serves it.
type awayServer struct {
	pb.UnimplementedTaskServiceServer
	a *awayAtFirst
}

func (s awayServer) SubmitTasks(ctx context.Context, req *pb.SubmitTasksRequest) (*pb.SubmitTasksResponse, error) {
	if s.a.calls.Add(1) == 1 {
		return nil, status.Error(codes.Unavailable, "store unavailable")
	}
	return s.a.TaskServiceClient.SubmitTasks(ctx, req)
}

// A submit of a file goes on when calls are taken again.
func TestTaskSubmit_away(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "a")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, done := grpc.NewServer(), make(chan error, 1)
	pb.RegisterTaskServiceServer(server, awayServer{a: &awayAtFirst{TaskServiceClient: pb.NewTaskServiceClient(clitest.Connect(t, env))}})
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	got := clitest.CommandWith(t, clitest.With(env, "WAGGLE_SERVER", listener.Addr().String()), "https://a.example/1\n", "task", "submit", "--source", "a", "--file", "-")
	if got.Code != cli.ExitOK || !strings.Contains(got.Out, "CREATED") || !strings.Contains(got.Err, "waggle: no call is taken now (store unavailable); waiting until") ||
		!strings.Contains(got.Err, "waggle: calls are taken again, after ") {
		t.Errorf("exit code %d: %s%s", got.Code, got.Out, got.Err)
	}
}
