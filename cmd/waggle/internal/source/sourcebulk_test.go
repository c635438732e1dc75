package source_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/clitest"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// slowDeleter deletes what the first call names, and never answers the second.
type slowDeleter struct {
	pb.UnimplementedSourceServiceServer
	calls   int           // one at a time
	stalled chan struct{} // closed at the second call
}

func (s *slowDeleter) DeleteSources(ctx context.Context, req *pb.DeleteSourcesRequest) (*pb.DeleteSourcesResponse, error) {
	if s.calls++; s.calls == 2 {
		close(s.stalled)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	n := int32(len(req.GetIds()))
	return &pb.DeleteSourcesResponse{Matched: n, Changed: n}, nil
}

// A bulk command that is interrupted says what it did before.
func TestSourceBulk_interrupted(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, slow := grpc.NewServer(), &slowDeleter{stalled: make(chan struct{})}
	pb.RegisterSourceServiceServer(server, slow)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	args := []string{"source", "delete"}
	for i := range 1001 {
		args = append(args, fmt.Sprint("s", i))
	}
	deleting := clitest.Start(t, map[string]string{"WAGGLE_SERVER": listener.Addr().String()}, args...)
	<-slow.stalled
	code := deleting.End()
	clitest.WantFailure(t, clitest.Answer{Code: code, Err: deleting.Err.Text()}, cli.ExitFailed,
		"waggle: stopped after 1,000 sources deleted; the same command again does the rest\nwaggle: interrupted\n")
}

// What bulk commands leave alone is told in words that fit how many there are.
func TestSourceBulk_left(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	for _, id := range []string{"m.a", "m.b", "m.c"} {
		clitest.Command(t, env, "source", "create", id)
	}
	clitest.Command(t, env, "source", "update", "m.a", "--seed", "https://a.example/", "--cron", "0 0 1 1 *")
	clitest.Command(t, env, "source", "update", "m.b", "--seed", "https://b.example/", "--cron", "0 0 1 1 *")
	clitest.Taken(t, env, "default")
	clitest.WantOutput(t, clitest.Command(t, env, "source", "delete", "m.c"), "1 source deleted\n")
	clitest.Command(t, env, "source", "trigger", "m.a")
	if got := clitest.Command(t, env, "source", "trigger", "--prefix", "m.", "--dry-run"); !strings.HasPrefix(got.Out, "0 sources would be triggered; 2 would stay as now\n") {
		t.Errorf("printed %s%s", got.Out, got.Err)
	}
}

// A trigger of a source that is held reports by what.
func TestSourceTrigger_held(t *testing.T) {
	t.Parallel()
	env, _ := clitest.Served(t)
	clitest.Command(t, env, "source", "create", "s", "--seed", "https://a.example/", "--every", "1h")
	clitest.Taken(t, env, "default")
	clitest.WantOutput(t, clitest.Command(t, env, "source", "trigger", "s"), "0 sources triggered; 1 unchanged\n")
	clitest.Command(t, env, "hold", "set", "--source", "s", "--reason", "they move")
	clitest.WantFailure(t, clitest.Command(t, env, "source", "trigger", "s"), cli.ExitOK,
		"s is held by SOURCE_HELD (source s) by ada, ", ": they move; `waggle explain source s` shows what opens it\n")
	clitest.Command(t, env, "hold", "lift", "--source", "s")
	clitest.Command(t, env, "hold", "set", "--queue", "*.example")
	clitest.WantFailure(t, clitest.Command(t, env, "source", "trigger", "s", "--dry-run"), cli.ExitOK, "s is held by QUEUE_HELD (queue *.example) by ada, ")
}
